//! Reading and writing the module's files in `/sys` and `/proc`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{CopyMethod, KernelError, Method, Settings};

/// The most bytes read of a file: the kernel limits files in /sys to a page.
const MOST_BYTES: u64 = 4096;

/// The module, as its files in `/sys` show it.
#[derive(Clone, Debug)]
pub struct Module {
    root: PathBuf,
}

impl Module {
    /// Returns the module of the running kernel.
    pub fn running() -> Module {
        Module::with_root("/")
    }

    /// Returns a module whose files, `sys/…` and `proc/…`, are below another folder.
    pub fn with_root(root: impl Into<PathBuf>) -> Module {
        Module { root: root.into() }
    }

    /// Returns the folder that contains `sys`, `proc` and `etc`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// True if the module is loaded.
    pub fn is_loaded(&self) -> bool {
        self.parameters().is_dir()
    }

    /// Returns an error that says how to load the module, unless it is loaded.
    ///
    /// # Errors
    /// [`KernelError::NotLoaded`].
    pub fn require_loaded(&self) -> Result<(), KernelError> {
        if self.is_loaded() {
            Ok(())
        } else {
            Err(KernelError::NotLoaded { path: self.path("sys/module/bulkmem") })
        }
    }

    /// Sets parameters, all or none: if the kernel refuses one, those set before it get their previous values back.
    ///
    /// # Errors
    /// [`KernelError::NotLoaded`]; [`KernelError::Refused`], which names the parameter and explains the kernel's answer;
    /// [`KernelError::Stuck`] if restoring a previous value failed as well.
    pub fn set(&self, settings: &Settings) -> Result<PreviousValues, KernelError> {
        self.require_loaded()?;
        let values = settings.values();
        // Read every previous value before writing the first new one: a value that cannot be read could not be restored.
        let mut previous = PreviousValues { module: self.clone(), values: Vec::new() };
        let mut old = Vec::new();
        for (name, _) in &values {
            old.push((*name, self.text(&self.parameter(name))?));
        }
        for ((name, value), old) in values.into_iter().zip(old) {
            if let Err(source) = self.write(name, &value) {
                let meaning = meaning(&source, name);
                return Err(match previous.restore() {
                    Ok(()) => KernelError::Refused { name, value, meaning, source },
                    Err(stuck) => KernelError::Stuck { name, value, meaning, stuck, source },
                });
            }
            previous.values.push(old);
        }
        Ok(previous)
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn parameters(&self) -> PathBuf {
        self.path("sys/module/bulkmem/parameters")
    }

    pub(crate) fn parameter(&self, name: &str) -> PathBuf {
        self.parameters().join(name)
    }

    /// Returns the text of a file, trimmed.
    pub(crate) fn text(&self, path: &Path) -> Result<String, KernelError> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes))
            .map_err(|source| KernelError::Unreadable { path: path.to_owned(), source })?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.trim_matches(|letter: char| letter.is_whitespace() || letter == '\0').to_owned())
    }

    /// Returns the value in a file.
    pub(crate) fn value<T: FromStr>(&self, path: &Path) -> Result<T, KernelError> {
        let found = self.text(path)?;
        found.parse().map_err(|_| KernelError::Unexpected { path: path.to_owned(), found })
    }

    /// Returns a boolean: the kernel writes Y and N, or 1 and 0.
    pub(crate) fn switch(&self, path: &Path) -> Result<bool, KernelError> {
        let found = self.text(path)?;
        match found.as_str() {
            "Y" | "y" | "1" => Ok(true),
            "N" | "n" | "0" => Ok(false),
            _ => Err(KernelError::Unexpected { path: path.to_owned(), found }),
        }
    }

    /// Returns every parameter.
    pub(crate) fn settings(&self) -> Result<Settings, KernelError> {
        let number = |name| self.value::<u64>(&self.parameter(name)).map(Some);
        let method = |name| self.value::<Method>(&self.parameter(name)).map(Some);
        let copy = |name| self.value::<CopyMethod>(&self.parameter(name)).map(Some);
        Ok(Settings {
            ignore_quirks: Some(self.switch(&self.parameter("ignore_quirks"))?),
            chunk: number("chunk")?,
            prefetch_distance: number("prefetch_distance")?,
            threshold: number("threshold")?,
            cached_method: method("cached_method")?,
            method: method("method")?,
            copy_threshold: number("copy_threshold")?,
            copy_cached_method: copy("copy_cached_method")?,
            copy_method: copy("copy_method")?,
            automatic: Some(self.switch(&self.parameter("automatic"))?),
        })
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.parameter(name))?;
        // In one call: the kernel takes each write for a complete value.
        match file.write(format!("{value}\n").as_bytes())? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            _ => Ok(()),
        }
    }

    /// Returns the module's file for a kernel release, as `depmod` lists it; `None` if none is installed.
    pub(crate) fn installed(&self, release: &str) -> Option<PathBuf> {
        let folder = self.path("lib/modules").join(release);
        let list = fs::read_to_string(folder.join("modules.dep")).ok()?;
        let files = list.lines().filter_map(|line| line.split_once(':')).map(|(file, _)| file);
        let ours = |file: &&str| {
            let name = file.rsplit('/').next().unwrap_or_default();
            ["bulkmem.ko", "bulkmem.ko.xz", "bulkmem.ko.zst", "bulkmem.ko.gz"].contains(&name)
        };
        files.into_iter().find(ours).map(|file| folder.join(file))
    }
}

/// The values that parameters had before [`Module::set`].
#[derive(Debug)]
pub struct PreviousValues {
    module: Module,
    /// In the order of the writes.
    values: Vec<(&'static str, String)>,
}

impl PreviousValues {
    /// Restores every value, the last one first.
    ///
    /// # Errors
    /// The first parameter that the kernel refused; the others have their previous values.
    pub fn restore(self) -> Result<(), &'static str> {
        let mut outcome = Ok(());
        for (name, value) in self.values.iter().rev() {
            if self.module.write(name, value).is_err() {
                outcome = outcome.and(Err(*name));
            }
        }
        outcome
    }

    /// Returns names and values in the order of the writes.
    pub fn values(&self) -> &[(&'static str, String)] {
        &self.values
    }
}

/// Explains the kernel's answer to a write of a parameter.
fn meaning(error: &io::Error, name: &str) -> &'static str {
    match (error.raw_os_error(), name) {
        (Some(libc::EINVAL), _) => "the parameter does not take this value",
        (Some(libc::EOPNOTSUPP), "method" | "cached_method") => {
            "this processor does not have the instruction, or is known to be slow with it (ignore_quirks=1 overrides that)"
        }
        (Some(libc::EOPNOTSUPP), _) => "this processor does not support it",
        (Some(libc::EACCES | libc::EPERM), _) => "only root may set it",
        (Some(libc::ENOENT), _) => "the loaded module has no such parameter",
        (Some(libc::EBUSY), _) => "the module is busy; try again",
        _ => "it could not be written",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const NAMES: [(&str, &str); 10] = [
        ("ignore_quirks", "N"),
        ("chunk", "2097152"),
        ("prefetch_distance", "4096"),
        ("threshold", "8388608"),
        ("cached_method", "rep_stosb"),
        ("method", "movnti"),
        ("copy_threshold", "2097152"),
        ("copy_cached_method", "stock"),
        ("copy_method", "rep_movsb"),
        ("automatic", "N"),
    ];

    fn planted() -> (tempfile::TempDir, Module) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/module/bulkmem/parameters");
        fs::create_dir_all(&folder).unwrap();
        for (name, value) in NAMES {
            fs::write(folder.join(name), format!("{value}\n")).unwrap();
        }
        let module = Module::with_root(root.path());
        (root, module)
    }

    fn values(module: &Module) -> Vec<String> {
        NAMES.map(|(name, _)| module.text(&module.parameter(name)).unwrap()).to_vec()
    }

    #[test]
    fn everything_is_set_and_can_be_restored() {
        let (_root, module) = planted();
        let old = values(&module);
        let settings = Settings {
            ignore_quirks: Some(true),
            chunk: Some(4096),
            threshold: Some(0),
            method: Some(Method::Clzero),
            copy_method: Some(CopyMethod::Movnti),
            automatic: Some(true),
            ..Settings::default()
        };
        let before = module.set(&settings).unwrap();
        let expected = ["1", "4096", "4096", "0", "rep_stosb", "clzero", "2097152", "stock", "movnti", "1"];
        assert_eq!(values(&module), expected);
        let now = module.settings().unwrap();
        assert_eq!((now.ignore_quirks, now.method), (Some(true), Some(Method::Clzero)));
        assert_eq!((now.copy_threshold, now.copy_cached_method), (Some(2 << 20), Some(CopyMethod::Stock)));
        assert_eq!((now.copy_method, now.automatic), (Some(CopyMethod::Movnti), Some(true)));
        before.restore().unwrap();
        assert_eq!(values(&module), old);
    }

    /// A full disk stands for a kernel that refuses a value.
    #[test]
    fn a_refusal_restores_everything_and_is_explained() {
        let (_root, module) = planted();
        let refused = module.parameter("cached_method");
        fs::remove_file(&refused).unwrap();
        symlink("/dev/full", &refused).unwrap();
        let settings = Settings {
            chunk: Some(4096),
            threshold: Some(1),
            cached_method: Some(Method::Stock),
            method: Some(Method::Clzero),
            ..Settings::default()
        };
        let error = module.set(&settings).unwrap_err();
        assert!(matches!(error, KernelError::Refused { name: "cached_method", .. }), "{error}");
        assert!(error.to_string().contains("cached_method=stock: it could not be written"), "{error}");
        let left: Vec<String> = values(&module);
        assert_eq!((left[1].as_str(), left[3].as_str(), left[5].as_str()), ("2097152", "8388608", "movnti"));
    }

    #[test]
    fn answers_of_the_kernel_are_explained() {
        for (number, name, word) in [
            (libc::EINVAL, "chunk", "does not take this value"),
            (libc::EOPNOTSUPP, "method", "ignore_quirks=1"),
            (libc::EOPNOTSUPP, "chunk", "does not support it"),
            (libc::EACCES, "chunk", "only root"),
            (libc::ENOENT, "chunk", "no such parameter"),
        ] {
            let text = meaning(&io::Error::from_raw_os_error(number), name);
            assert!(text.contains(word), "{number}: {text}");
        }
    }

    #[test]
    fn missing_and_unknown_values_are_refused_by_name() {
        let (root, module) = planted();
        fs::write(module.parameter("method"), "memset\n").unwrap();
        let error = module.settings().unwrap_err();
        assert!(matches!(&error, KernelError::Unexpected { found, .. } if found == "memset"), "{error}");
        fs::remove_file(module.parameter("chunk")).unwrap();
        let error = module.set(&Settings { chunk: Some(4096), ..Settings::default() }).unwrap_err();
        assert!(matches!(error, KernelError::Unreadable { .. }), "{error}");
        let nowhere = Module::with_root(root.path().join("nowhere"));
        let error = nowhere.set(&Settings::default()).unwrap_err();
        assert!(matches!(error, KernelError::NotLoaded { .. }), "{error}");
    }

    #[test]
    fn an_installed_file_is_found_by_its_name() {
        let (root, module) = planted();
        let folder = root.path().join("lib/modules/6.1.0");
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(module.installed("6.1.0"), None);
        let list =
            "kernel/a/notbulkmem.ko: \nkernel/bulkmem.ko.old:\nupdates/dkms/bulkmem.ko.xz: kernel/b.ko\n";
        fs::write(folder.join("modules.dep"), list).unwrap();
        assert_eq!(module.installed("6.1.0"), Some(folder.join("updates/dkms/bulkmem.ko.xz")));
        assert_eq!(module.installed("6.2.0"), None);
    }
}
