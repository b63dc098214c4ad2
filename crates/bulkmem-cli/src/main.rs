//! The `bulkmem` command.

fn main() {}
