//! Tests of copies, fills and flushes: every combination of flags and variables.

mod oracle;
mod traces;
