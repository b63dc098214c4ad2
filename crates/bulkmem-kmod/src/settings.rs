//! What can be set in the module.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::KernelError;

/// How a file begins that [`Settings::persist`] wrote.
const WRITTEN_BY_US: &str = "# Written by `bulkmem kmod apply --persist`";

/// What the module clears an extent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Page by page, as the kernel does it by itself.
    Stock,
    /// REP STOSB over whole chunks.
    RepStosb,
    /// MOVNTI: stores past the cache.
    Movnti,
    /// CLZERO: whole lines past the cache, on AMD processors.
    Clzero,
    /// Ordinary stores, the lines prefetched for writing ahead of them.
    Prefetchw,
}

impl Method {
    /// All of them, in the order of the counters.
    pub const ALL: [Method; 5] =
        [Method::Stock, Method::RepStosb, Method::Movnti, Method::Clzero, Method::Prefetchw];

    /// The name, as the module's files have it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Stock => "stock",
            Method::RepStosb => "rep_stosb",
            Method::Movnti => "movnti",
            Method::Clzero => "clzero",
            Method::Prefetchw => "prefetchw",
        }
    }

    /// Whether what it clears ends up in the cache, as `cached_method` must.
    pub fn caches(self) -> bool {
        !matches!(self, Method::Movnti | Method::Clzero)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a text names no method of the module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no method of the kernel module; write stock, rep_stosb, movnti, clzero or prefetchw")]
pub struct UnknownMethod(String);

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<Method, UnknownMethod> {
        let found = Method::ALL.into_iter().find(|method| method.name() == text);
        found.ok_or_else(|| UnknownMethod(text.to_owned()))
    }
}

/// Values for the module's parameters; `None`: left as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Whether MOVNTI may be used where it is published to be slow.
    pub ignore_quirks: Option<bool>,
    /// Bytes between two points at which others may run: a multiple of 4096, up to 1 GiB.
    pub chunk: Option<u64>,
    /// How far ahead of its stores `prefetchw` prefetches, bytes: a multiple of 64, up to 64 KiB.
    pub prefetch_distance: Option<u64>,
    /// The smallest extent that `method` clears, bytes.
    pub threshold: Option<u64>,
    /// What clears smaller extents.
    pub cached_method: Option<Method>,
    /// What clears extents from the threshold on, and those that were declared by a hint that large.
    pub method: Option<Method>,
}

impl Settings {
    /// Names and values, in the order in which they are set: leave for a method comes before the method.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let name = |method: Option<Method>| method.map(|method| method.name().to_owned());
        [
            ("ignore_quirks", self.ignore_quirks.map(|ignored| u8::from(ignored).to_string())),
            ("chunk", number(self.chunk)),
            ("prefetch_distance", number(self.prefetch_distance)),
            ("threshold", number(self.threshold)),
            ("cached_method", name(self.cached_method)),
            ("method", name(self.method)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }

    /// The line of a modprobe configuration that has the module loaded so.
    pub fn options_line(&self) -> String {
        let values: Vec<String> =
            self.values().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("options bulkmem {}", values.join(" "))
    }

    /// Where [`Settings::persist`] writes to, below a root folder.
    pub fn file(root: &Path) -> PathBuf {
        root.join("etc/modprobe.d/bulkmem.conf")
    }

    /// Writes the settings to where `modprobe` reads them when it loads the module, atomically. A comment says `whence`. A file that somebody else wrote is kept as `bulkmem.conf.old`.
    ///
    /// # Errors
    /// [`KernelError::Unwritable`]; what was there before is as it was.
    pub fn persist(&self, root: &Path, whence: &str) -> Result<PathBuf, KernelError> {
        let path = Settings::file(root);
        // A comment is one line, whatever is in it.
        let whence = whence.replace(char::is_control, " ");
        let text = format!("{WRITTEN_BY_US}: {whence}\n{}\n", self.options_line());
        // What somebody wrote there by hand is kept beside it, under a name that modprobe does not read.
        let unwritable = |source| KernelError::Unwritable { path: path.clone(), source };
        match std::fs::read(&path) {
            Ok(before) if !before.starts_with(WRITTEN_BY_US.as_bytes()) => {
                bulkmem_output::write(&path.with_extension("conf.old"), &before).map_err(unwritable)?;
            }
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(unwritable(error)),
            _ => {}
        }
        bulkmem_output::write(&path, text.as_bytes()).map_err(unwritable)?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Settings = Settings {
        ignore_quirks: Some(true),
        chunk: Some(2 << 20),
        prefetch_distance: Some(4096),
        threshold: Some(0),
        cached_method: Some(Method::RepStosb),
        method: Some(Method::Movnti),
    };

    #[test]
    fn leave_for_a_method_comes_before_the_method() {
        assert_eq!(
            ALL.options_line(),
            "options bulkmem ignore_quirks=1 chunk=2097152 prefetch_distance=4096 threshold=0 \
             cached_method=rep_stosb method=movnti"
        );
        assert!(Settings::default().values().is_empty());
    }

    #[test]
    fn methods_have_names() {
        for method in Method::ALL {
            assert_eq!(method.name().parse(), Ok(method));
            assert_eq!(serde_json::to_value(method).unwrap(), method.name());
        }
        let error = "memset".parse::<Method>().unwrap_err().to_string();
        assert!(error.contains("`memset`") && error.contains("rep_stosb"), "{error}");
        assert!(Method::Prefetchw.caches() && !Method::Clzero.caches());
    }

    #[test]
    fn what_is_kept_is_one_comment_and_one_line() {
        let root = tempfile::tempdir().unwrap();
        let path = ALL.persist(root.path(), "the profile /x\noptions evil y=1").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("# ") && lines[0].contains("/x options evil"), "{text}");
        assert_eq!(lines[1..], [ALL.options_line()]);
        // Written again, ours is replaced; somebody else's is kept under another name.
        let old = path.with_extension("conf.old");
        ALL.persist(root.path(), "again").unwrap();
        assert!(!old.exists());
        std::fs::write(&path, "blacklist bulkmem\n").unwrap();
        ALL.persist(root.path(), "").unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "blacklist bulkmem\n");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = ALL.persist(root.path(), "").unwrap_err();
        assert!(matches!(error, KernelError::Unwritable { .. }), "{error}");
    }
}
