//! Compiles and runs the code in the book as documentation tests.

macro_rules! pages {
    ($($name:ident: $path:literal),+ $(,)?) => {$(
        #[doc = include_str!(concat!("../../../", $path))]
        struct $name;
    )+};
}

pages! {
    Readme: "README.md",
    Choosing: "docs/choosing.md",
    Persist: "docs/persist.md",
    GuestMemory: "docs/guest-memory.md",
    Fences: "docs/fences.md",
    CrateReadme: "crates/bulkmem/README.md",
}

/// Documentation tests do not use the user's home directory.
///
/// ```
/// assert_eq!(std::env::var("HOME").as_deref(), Ok("/dev/null"));
/// ```
struct Isolated;
