//! The module's parameters.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::KernelError;

/// The start of every file that [`Settings::save`] writes.
const WRITTEN_BY_US: &str = "# Written by `bulkmem kmod apply --persist`";

/// A method by which the module clears memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// Page by page, as the kernel does without the module.
    Stock,
    /// REP STOSB over whole chunks.
    RepStosb,
    /// REP STOSQ over whole chunks.
    RepStosq,
    /// MOVNTI: stores that bypass the cache.
    Movnti,
    /// CLZERO: whole lines, bypassing the cache, on AMD processors.
    Clzero,
    /// Ordinary stores, with PREFETCHW ahead of them.
    Prefetchw,
}

impl Method {
    /// All methods, in the order of the counters.
    pub const ALL: [Method; 6] = [
        Method::Stock,
        Method::RepStosb,
        Method::RepStosq,
        Method::Movnti,
        Method::Clzero,
        Method::Prefetchw,
    ];

    /// Returns the name used in the module's files.
    pub fn name(self) -> &'static str {
        match self {
            Method::Stock => "stock",
            Method::RepStosb => "rep_stosb",
            Method::RepStosq => "rep_stosq",
            Method::Movnti => "movnti",
            Method::Clzero => "clzero",
            Method::Prefetchw => "prefetchw",
        }
    }

    /// True if the cleared memory ends up in the cache, as `cached_method` requires.
    pub fn caches(self) -> bool {
        !matches!(self, Method::Movnti | Method::Clzero)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A method by which the module copies huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CopyMethod {
    /// Page by page, as the kernel does without the module.
    Stock,
    /// REP MOVSB over whole chunks.
    RepMovsb,
    /// MOVNTI: stores that bypass the cache.
    Movnti,
}

impl CopyMethod {
    /// All methods, in the order of the counters.
    pub const ALL: [CopyMethod; 3] = [CopyMethod::Stock, CopyMethod::RepMovsb, CopyMethod::Movnti];

    /// Returns the name used in the module's files.
    pub fn name(self) -> &'static str {
        match self {
            CopyMethod::Stock => "stock",
            CopyMethod::RepMovsb => "rep_movsb",
            CopyMethod::Movnti => "movnti",
        }
    }

    /// True if the copy ends up in the cache, as `copy_cached_method` requires.
    pub fn caches(self) -> bool {
        self != CopyMethod::Movnti
    }
}

impl fmt::Display for CopyMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no method of the module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a method of the kernel module; write {known}")]
pub struct UnknownMethod {
    name: String,
    known: &'static str,
}

impl FromStr for CopyMethod {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<CopyMethod, UnknownMethod> {
        let found = CopyMethod::ALL.into_iter().find(|method| method.name() == text);
        found.ok_or_else(|| UnknownMethod { name: text.to_owned(), known: "stock, rep_movsb or movnti" })
    }
}

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<Method, UnknownMethod> {
        let found = Method::ALL.into_iter().find(|method| method.name() == text);
        let known = "stock, rep_stosb, rep_stosq, movnti, clzero or prefetchw";
        found.ok_or_else(|| UnknownMethod { name: text.to_owned(), known })
    }
}

/// Values for the module's parameters; `None` leaves a parameter as it is.
///
/// ```
/// use bulkmem_kmod::{Method, Settings};
///
/// let mut settings = Settings::default();
/// settings.method = Some(Method::Movnti);
/// settings.threshold = Some(32 << 20);
/// assert_eq!(settings.options_line(), "options bulkmem threshold=33554432 method=movnti");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Settings {
    /// Allows MOVNTI on processors on which published measurements show it to be slow.
    pub ignore_quirks: Option<bool>,
    /// Bytes cleared between two points at which the kernel may schedule: a multiple of 4096, up to 1 GiB.
    pub chunk: Option<u64>,
    /// Distance in bytes by which `prefetchw` prefetches ahead of its stores: a multiple of 64, up to 64 KiB.
    pub prefetch_distance: Option<u64>,
    /// Smallest total length in bytes that `method` clears.
    pub threshold: Option<u64>,
    /// Method for smaller total lengths.
    pub cached_method: Option<Method>,
    /// Method for total lengths from the threshold on, including page faults in a hinted range that large.
    pub method: Option<Method>,
    /// Smallest copy in bytes that `copy_method` makes.
    pub copy_threshold: Option<u64>,
    /// Method for smaller copies.
    pub copy_cached_method: Option<CopyMethod>,
    /// Method for copies from `copy_threshold` on.
    pub copy_method: Option<CopyMethod>,
    /// True if a large call of any program (`MAP_POPULATE`, `MADV_POPULATE_WRITE`, a long-term pin) counts as one range.
    pub automatic: Option<bool>,
}

impl Settings {
    /// Returns names and values in the order in which they must be set: `ignore_quirks` permits methods, so it comes first.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let name = |method: Option<Method>| method.map(|method| method.name().to_owned());
        let copy = |method: Option<CopyMethod>| method.map(|method| method.name().to_owned());
        let switch = |value: Option<bool>| value.map(|value| u8::from(value).to_string());
        [
            ("ignore_quirks", switch(self.ignore_quirks)),
            ("chunk", number(self.chunk)),
            ("prefetch_distance", number(self.prefetch_distance)),
            ("threshold", number(self.threshold)),
            ("cached_method", name(self.cached_method)),
            ("method", name(self.method)),
            ("copy_threshold", number(self.copy_threshold)),
            ("copy_cached_method", copy(self.copy_cached_method)),
            ("copy_method", copy(self.copy_method)),
            ("automatic", switch(self.automatic)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }

    /// Returns the line for a modprobe configuration file that loads the module with these parameters.
    pub fn options_line(&self) -> String {
        let values: Vec<String> =
            self.values().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("options bulkmem {}", values.join(" "))
    }

    /// Returns the path that [`Settings::save`] writes to, below a root folder.
    pub fn file(root: &Path) -> PathBuf {
        root.join("etc/modprobe.d/bulkmem.conf")
    }

    /// Writes the settings to the file that `modprobe` reads when it loads the module, atomically, with a comment that
    /// gives their `origin`. A file that was not written by this function is kept as `bulkmem.conf.old`. Returns the path.
    ///
    /// # Errors
    /// [`KernelError::Unwritable`]; an existing file is unchanged then.
    pub fn save(&self, root: &Path, origin: &str) -> Result<PathBuf, KernelError> {
        let path = Settings::file(root);
        // A line break in it would end the comment, and modprobe would read the rest.
        let origin = origin.replace(char::is_control, " ");
        let text = format!("{WRITTEN_BY_US}: {origin}\n{}\n", self.options_line());
        // modprobe reads only names that end in .conf.
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
        copy_threshold: Some(1),
        copy_cached_method: Some(CopyMethod::Stock),
        copy_method: Some(CopyMethod::RepMovsb),
        automatic: Some(false),
    };

    #[test]
    fn ignore_quirks_comes_before_the_methods() {
        assert_eq!(
            ALL.options_line(),
            "options bulkmem ignore_quirks=1 chunk=2097152 prefetch_distance=4096 threshold=0 \
             cached_method=rep_stosb method=movnti copy_threshold=1 copy_cached_method=stock copy_method=rep_movsb \
             automatic=0"
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
        for method in CopyMethod::ALL {
            assert_eq!(method.name().parse(), Ok(method));
            assert_eq!(serde_json::to_value(method).unwrap(), method.name());
            assert_eq!(method.caches(), method != CopyMethod::Movnti);
        }
        let error = "rep_stosb".parse::<CopyMethod>().unwrap_err().to_string();
        assert!(error.contains("`rep_stosb`") && error.contains("rep_movsb"), "{error}");
    }

    #[test]
    fn the_saved_file_is_one_comment_and_one_line() {
        let root = tempfile::tempdir().unwrap();
        let path = ALL.save(root.path(), "the profile /x\noptions evil y=1").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("# ") && lines[0].contains("/x options evil"), "{text}");
        assert_eq!(lines[1..], [ALL.options_line()]);
        let old = path.with_extension("conf.old");
        ALL.save(root.path(), "again").unwrap();
        assert!(!old.exists());
        std::fs::write(&path, "blacklist bulkmem\n").unwrap();
        ALL.save(root.path(), "").unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "blacklist bulkmem\n");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = ALL.save(root.path(), "").unwrap_err();
        assert!(matches!(error, KernelError::Unwritable { .. }), "{error}");
    }
}
