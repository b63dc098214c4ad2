//! What tests share: an oracle, guard pages, a walk over every method.
