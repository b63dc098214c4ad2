//! The module's files, read and written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{KernelError, Method, Settings};

/// No file of the module is longer.
const MOST_BYTES: u64 = 4096;

/// The module as `/sys` shows it.
#[derive(Clone, Debug)]
pub struct Module {
    root: PathBuf,
}

impl Module {
    /// That of the running kernel.
    pub fn here() -> Module {
        Module::below("/")
    }

    /// That of which the files, `sys/…` and `proc/…`, lie below another folder.
    pub fn below(root: impl Into<PathBuf>) -> Module {
        Module { root: root.into() }
    }

    /// The folder below which everything lies.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether it is loaded.
    pub fn loaded(&self) -> bool {
        self.parameters().is_dir()
    }

    /// As [`Module::loaded`], with the way to get it where it is not.
    ///
    /// # Errors
    /// [`KernelError::NotLoaded`].
    pub fn must_be_loaded(&self) -> Result<(), KernelError> {
        if self.loaded() {
            Ok(())
        } else {
            Err(KernelError::NotLoaded { path: self.path("sys/module/bulkmem") })
        }
    }

    /// Sets parameters, all or none: what was set before one is refused is set back.
    ///
    /// # Errors
    /// [`KernelError::NotLoaded`]; [`KernelError::Refused`] names the parameter and what the kernel's answer means;
    /// [`KernelError::Stuck`] where setting back failed as well.
    pub fn set(&self, settings: &Settings) -> Result<Before, KernelError> {
        self.must_be_loaded()?;
        let values = settings.values();
        // All old values before the first new one.
        let mut before = Before { module: self.clone(), values: Vec::new() };
        let mut old = Vec::new();
        for (name, _) in &values {
            old.push((*name, self.text(&self.parameter(name))?));
        }
        for ((name, value), old) in values.into_iter().zip(old) {
            if let Err(source) = self.write(name, &value) {
                let meaning = meaning(&source, name);
                return Err(match before.restore() {
                    Ok(()) => KernelError::Refused { name, value, meaning, source },
                    Err(stuck) => KernelError::Stuck { name, value, meaning, stuck, source },
                });
            }
            before.values.push(old);
        }
        Ok(before)
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn parameters(&self) -> PathBuf {
        self.path("sys/module/bulkmem/parameters")
    }

    pub(super) fn parameter(&self, name: &str) -> PathBuf {
        self.parameters().join(name)
    }

    /// What a file says, without the line's end.
    pub(super) fn text(&self, path: &Path) -> Result<String, KernelError> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes))
            .map_err(|source| KernelError::Unreadable { path: path.to_owned(), source })?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.trim_matches(|letter: char| letter.is_whitespace() || letter == '\0').to_owned())
    }

    /// The value in a file.
    pub(super) fn value<T: FromStr>(&self, path: &Path) -> Result<T, KernelError> {
        let found = self.text(path)?;
        found.parse().map_err(|_| KernelError::Unexpected { path: path.to_owned(), found })
    }

    /// A switch: the kernel writes Y and N, or 1 and 0.
    pub(super) fn switch(&self, path: &Path) -> Result<bool, KernelError> {
        let found = self.text(path)?;
        match found.as_str() {
            "Y" | "y" | "1" => Ok(true),
            "N" | "n" | "0" => Ok(false),
            _ => Err(KernelError::Unexpected { path: path.to_owned(), found }),
        }
    }

    /// What all parameters are.
    pub(super) fn settings(&self) -> Result<Settings, KernelError> {
        let number = |name| self.value::<u64>(&self.parameter(name)).map(Some);
        let method = |name| self.value::<Method>(&self.parameter(name)).map(Some);
        Ok(Settings {
            ignore_quirks: Some(self.switch(&self.parameter("ignore_quirks"))?),
            chunk: number("chunk")?,
            prefetch_distance: number("prefetch_distance")?,
            threshold: number("threshold")?,
            cached_method: method("cached_method")?,
            method: method("method")?,
        })
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.parameter(name))?;
        // In one call, as the kernel takes each for a value of its own.
        match file.write(format!("{value}\n").as_bytes())? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            _ => Ok(()),
        }
    }

    /// The module's file for the running kernel, as `depmod` lists it; `None` where none is installed.
    pub(super) fn installed(&self, release: &str) -> Option<PathBuf> {
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

/// What parameters were before they were set.
#[derive(Debug)]
pub struct Before {
    module: Module,
    /// In the order in which they were set.
    values: Vec<(&'static str, String)>,
}

impl Before {
    /// Sets everything back, the last first.
    ///
    /// # Errors
    /// The first parameter that was refused; the others were set back.
    pub fn restore(self) -> Result<(), &'static str> {
        let mut outcome = Ok(());
        for (name, value) in self.values.iter().rev() {
            if self.module.write(name, value).is_err() {
                outcome = outcome.and(Err(*name));
            }
        }
        outcome
    }

    /// Names and values, in the order in which they were set.
    pub fn values(&self) -> &[(&'static str, String)] {
        &self.values
    }
}

/// What an answer of the kernel means for a parameter.
fn meaning(error: &io::Error, name: &str) -> &'static str {
    match (error.raw_os_error(), name) {
        (Some(libc::EINVAL), _) => "it is none of the values that the parameter takes",
        (Some(libc::EOPNOTSUPP), "method" | "cached_method") => {
            "this processor lacks the instruction, or is published to be slow with it (ignore_quirks=1 overrules that)"
        }
        (Some(libc::EOPNOTSUPP), _) => "this processor cannot do it",
        (Some(libc::EACCES | libc::EPERM), _) => "only root may set it",
        (Some(libc::ENOENT), _) => "the module that is loaded has no such parameter",
        (Some(libc::EBUSY), _) => "the module is busy; try again",
        _ => "it could not be written",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const NAMES: [(&str, &str); 6] = [
        ("ignore_quirks", "N"),
        ("chunk", "2097152"),
        ("prefetch_distance", "4096"),
        ("threshold", "8388608"),
        ("cached_method", "rep_stosb"),
        ("method", "movnti"),
    ];

    fn planted() -> (tempfile::TempDir, Module) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/module/bulkmem/parameters");
        fs::create_dir_all(&folder).unwrap();
        for (name, value) in NAMES {
            fs::write(folder.join(name), format!("{value}\n")).unwrap();
        }
        let module = Module::below(root.path());
        (root, module)
    }

    fn values(module: &Module) -> Vec<String> {
        NAMES.map(|(name, _)| module.text(&module.parameter(name)).unwrap()).to_vec()
    }

    #[test]
    fn everything_is_set_and_can_be_set_back() {
        let (_root, module) = planted();
        let old = values(&module);
        let settings = Settings {
            ignore_quirks: Some(true),
            chunk: Some(4096),
            threshold: Some(0),
            method: Some(Method::Clzero),
            ..Settings::default()
        };
        let before = module.set(&settings).unwrap();
        assert_eq!(values(&module), ["1", "4096", "4096", "0", "rep_stosb", "clzero"]);
        let now = module.settings().unwrap();
        assert_eq!((now.ignore_quirks, now.method), (Some(true), Some(Method::Clzero)));
        before.restore().unwrap();
        assert_eq!(values(&module), old);
    }

    /// A disk that is full stands for a kernel that refuses.
    #[test]
    fn a_refusal_leaves_everything_as_it_was_and_is_explained() {
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
    fn answers_of_the_kernel_have_a_meaning() {
        for (number, name, word) in [
            (libc::EINVAL, "chunk", "none of the values"),
            (libc::EOPNOTSUPP, "method", "ignore_quirks=1"),
            (libc::EOPNOTSUPP, "chunk", "cannot do it"),
            (libc::EACCES, "chunk", "only root"),
            (libc::ENOENT, "chunk", "no such parameter"),
        ] {
            let text = meaning(&io::Error::from_raw_os_error(number), name);
            assert!(text.contains(word), "{number}: {text}");
        }
    }

    #[test]
    fn what_is_missing_or_strange_is_refused_by_name() {
        let (root, module) = planted();
        fs::write(module.parameter("method"), "memset\n").unwrap();
        let error = module.settings().unwrap_err();
        assert!(matches!(&error, KernelError::Unexpected { found, .. } if found == "memset"), "{error}");
        fs::remove_file(module.parameter("chunk")).unwrap();
        let error = module.set(&Settings { chunk: Some(4096), ..Settings::default() }).unwrap_err();
        assert!(matches!(error, KernelError::Unreadable { .. }), "{error}");
        let nowhere = Module::below(root.path().join("nowhere"));
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
