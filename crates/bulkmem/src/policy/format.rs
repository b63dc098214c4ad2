//! The policy file's name, version and limits.

/// First word of a policy file.
pub const POLICY_FORMAT: &str = "bulkmem-policy";
/// Version of the policy file that this library reads.
pub const POLICY_VERSION: u32 = 4;
/// Most rules for one operation and intent, and most numbers of threads for one operation.
pub const MOST_RULES: usize = 64;
/// Most threads that a policy file may name.
pub const MOST_THREADS: usize = 1 << 16;
