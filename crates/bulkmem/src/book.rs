//! The pages of the book that show code, compiled and run as documentation tests.

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

/// Documentation tests are isolated from the user's home, too.
///
/// ```
/// assert_eq!(std::env::var("HOME").as_deref(), Ok("/dev/null"));
/// ```
struct Isolated;
