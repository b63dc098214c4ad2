//! The module's state and counters.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::device::{HINT_PATH, MEMORY_PATH};
use crate::{CopyCounters, CopyMethod, Flushcache, KernelError, Method, Module, Settings};

/// The module's state at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The running kernel's release; empty if `/proc` does not contain it.
    pub kernel: String,
    /// The module's file for this kernel, as `depmod` lists it.
    pub installed: Option<PathBuf>,
    /// True if the module is loaded.
    pub loaded: bool,
    /// The state of `/dev/bulkmem`.
    pub hint_device: DeviceState,
    /// The state of `/dev/bulkmem-memory`.
    pub memory_device: DeviceState,
    /// The livepatch of the kernel's clearing; `None` if it is not loaded.
    pub livepatch: Option<Livepatch>,
    /// The livepatch that is in force in place of ours: a later one of the same function, or, if ours has disappeared, one
    /// that may have replaced it.
    pub superseded_by: Option<String>,
    /// The taint flags that the module causes, as letters: O (built outside of the kernel), E (unsigned).
    pub taint: Option<String>,
    /// The taint flags of the kernel as a number; any livepatch sets bit 15.
    pub kernel_taint: Option<u64>,
    /// The parameters; `None` if the module is not loaded.
    pub parameters: Option<Settings>,
    /// The methods that this processor supports.
    pub available: Vec<Method>,
    /// The methods of copying that can be used on this processor.
    pub copy_available: Vec<CopyMethod>,
    /// The counters since the module was loaded; `None` if it is not.
    pub counters: Option<Counters>,
    /// The counters of copies since the module was loaded; `None` if it is not.
    pub copies: Option<CopyCounters>,
    /// The control groups whose processes are hinted.
    pub hinted_cgroups: Vec<HintedCgroup>,
    /// The parameters for later loads: the lines of `/etc/modprobe.d/bulkmem.conf` without comments.
    pub persisted: Option<String>,
    /// How it copies to persistent memory; `None` if the module is not loaded.
    pub flushcache: Option<Flushcache>,
}

/// A control group whose processes are hinted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HintedCgroup {
    /// Its number: the inode number of its folder.
    pub id: u64,
    /// Its folder; `None` if it is not below `/sys/fs/cgroup`.
    pub path: Option<PathBuf>,
}

/// The state of one of the module's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeviceState {
    /// It exists.
    Present,
    /// The module was loaded without it (`hint_device=0`, `memory_device=0`).
    Disabled,
    /// The module is not loaded.
    NotLoaded,
    /// The module provides it, but `/dev` does not have it, as in a container.
    Missing,
}

/// The state of the livepatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Livepatch {
    /// True if the module clears the huge pages of page faults, or will after the transition.
    pub enabled: bool,
    /// True while some processes still run the code from before the change.
    pub transition: bool,
}

/// The module's counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Huge pages cleared for page faults.
    pub faults: u64,
    /// How many of these were below the threshold, so that `cached_method` cleared them.
    pub skipped: u64,
    /// Hints in force now.
    pub hints: u64,
    /// Processes that are hinted as a whole now.
    pub hinted_processes: u64,
    /// Children of such processes for which there was no room, so that they are not hinted.
    pub unhinted_processes: u64,
    /// Counters of each method. The pages around the faulting address, which are cleared last, count as stock.
    pub methods: Vec<MethodCounters>,
}

/// The counters of one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MethodCounters {
    /// The method.
    pub method: Method,
    /// Contiguous ranges cleared.
    pub extents: u64,
    /// Pages of 4 KiB cleared.
    pub pages: u64,
    /// Bytes cleared.
    pub bytes: u64,
    /// Nanoseconds that this took, interruptions included.
    pub ns: u64,
    /// Ranges whose total length came from a hint.
    pub hinted: u64,
    /// The most bytes between two points at which the kernel may reschedule; a maximum, not a sum.
    pub longest: u64,
}

impl Module {
    /// Returns the state at this moment. A module that is not loaded is a state, not an error.
    ///
    /// # Errors
    /// If a file of a loaded module cannot be read, or contains something that this crate does not know.
    pub fn status(&self) -> Result<Status, KernelError> {
        let kernel = self.text(&self.path("proc/sys/kernel/osrelease")).unwrap_or_default();
        let loaded = self.is_loaded();
        let patch = self.path("sys/kernel/livepatch/bulkmem");
        let livepatch = if loaded && patch.is_dir() {
            let (enabled, transition) =
                (self.switch(&patch.join("enabled"))?, self.switch(&patch.join("transition"))?);
            Some(Livepatch { enabled, transition })
        } else {
            None
        };
        Ok(Status {
            installed: self.installed(&kernel),
            kernel,
            loaded,
            hint_device: self.device(Path::new(HINT_PATH))?,
            memory_device: self.device(Path::new(MEMORY_PATH))?,
            superseded_by: if loaded { self.superseded_by(livepatch.is_some()) } else { None },
            livepatch,
            taint: self.text(&self.path("sys/module/bulkmem/taint")).ok().filter(|taint| !taint.is_empty()),
            kernel_taint: self.value(&self.path("proc/sys/kernel/tainted")).ok(),
            parameters: if loaded { Some(self.settings()?) } else { None },
            available: if loaded { self.available("available")? } else { Vec::new() },
            copy_available: if loaded { self.available("copy_available")? } else { Vec::new() },
            counters: if loaded { Some(self.counters()?) } else { None },
            copies: if loaded { self.copies()? } else { None },
            hinted_cgroups: if loaded { self.hinted_cgroups()? } else { Vec::new() },
            persisted: self.persisted(),
            flushcache: if loaded { self.flushcache()? } else { None },
        })
    }

    /// Returns the state of a device, `HINT_PATH` or `MEMORY_PATH`.
    fn device(&self, path: &Path) -> Result<DeviceState, KernelError> {
        let parameter = if path == Path::new(MEMORY_PATH) { "memory_device" } else { "hint_device" };
        Ok(if !self.is_loaded() {
            DeviceState::NotLoaded
        } else if !self.switch(&self.parameter(parameter))? {
            DeviceState::Disabled
        } else if self.root().join(path.strip_prefix("/").unwrap_or(path)).exists() {
            DeviceState::Present
        } else {
            DeviceState::Missing
        })
    }

    /// Returns the reason why a device cannot be opened because it does not exist.
    pub(crate) fn no_device(&self, path: PathBuf) -> KernelError {
        match self.device(&path) {
            Ok(DeviceState::Disabled) if path == Path::new(MEMORY_PATH) => {
                KernelError::Disabled { path, parameter: "memory_device" }
            }
            Ok(DeviceState::Disabled) => KernelError::Disabled { path, parameter: "hint_device" },
            Ok(DeviceState::Present | DeviceState::Missing) => KernelError::NoDevice { path },
            Ok(DeviceState::NotLoaded) | Err(_) => KernelError::NotLoaded { path },
        }
    }

    fn superseded_by(&self, ours_is_there: bool) -> Option<String> {
        let folder = self.path("sys/kernel/livepatch");
        let names = |folder: PathBuf| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<BTreeSet<String>>()
        };
        let says = |patch: &str, file: &str, value| {
            self.text(&folder.join(patch).join(file)).is_ok_and(|it| it == value)
        };
        let replaced = |patch: &str| names(folder.join(patch).join("vmlinux"));
        // The kernel lists the module that was loaded last first.
        let modules = fs::read_to_string(self.path("proc/modules")).unwrap_or_default();
        let place = |name: &str| modules.lines().position(|line| line.split(' ').next() == Some(name));
        let supersedes = |patch: &String| {
            if !ours_is_there {
                // Older kernels, such as 6.1, do not tell whether a livepatch replaces others.
                return !says(patch, "replace", "0");
            }
            place(patch) < place("bulkmem") && !replaced(patch).is_disjoint(&replaced("bulkmem"))
        };
        let others = names(folder.clone())
            .into_iter()
            .filter(|patch| patch != "bulkmem" && says(patch, "enabled", "1"));
        others.into_iter().find(supersedes)
    }

    /// Returns the methods that a parameter lists.
    fn available<M: FromStr>(&self, parameter: &str) -> Result<Vec<M>, KernelError> {
        let path = self.parameter(parameter);
        let found = self.text(&path)?;
        let methods: Result<Vec<M>, _> = found.split_whitespace().map(str::parse).collect();
        methods.map_err(|_| KernelError::Unexpected { path, found })
    }

    /// Returns the folder of the counters, which are elsewhere without /dev/bulkmem (hint_device=0).
    pub(crate) fn counters_folder(&self) -> PathBuf {
        match self.path("sys/class/misc/bulkmem") {
            folder if folder.is_dir() => folder,
            _ => self.path("sys/devices/bulkmem"),
        }
    }

    fn hinted_cgroups(&self) -> Result<Vec<HintedCgroup>, KernelError> {
        let path = self.counters_folder().join("hinted_cgroups");
        let found = self.text(&path)?;
        let numbers: Result<Vec<u64>, _> = found.split_whitespace().map(str::parse).collect();
        let numbers = numbers.map_err(|_| KernelError::Unexpected { path, found })?;
        let mut cgroups: Vec<_> = numbers.into_iter().map(|id| HintedCgroup { id, path: None }).collect();
        let mut folders = vec![self.path("sys/fs/cgroup")];
        while let Some(folder) = folders.pop().filter(|_| cgroups.iter().any(|it| it.path.is_none())) {
            // A control group may end at any moment.
            let Ok(number) = fs::metadata(&folder).map(|folder| folder.ino()) else { continue };
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(below.map(|entry| entry.path()));
            // Folders of version 1, which do not have the file, have numbers of their own.
            let is_version_2 = folder.join("cgroup.controllers").exists();
            let cgroup = cgroups.iter_mut().find(|it| is_version_2 && it.id == number && it.path.is_none());
            if let Some(cgroup) = cgroup {
                cgroup.path = Some(folder);
            }
        }
        Ok(cgroups)
    }

    fn counters(&self) -> Result<Counters, KernelError> {
        let folder = self.counters_folder();
        let count = |name: &str| self.value::<u64>(&folder.join(name));
        let of = |method: Method, name: &str| count(&format!("{method}/{name}"));
        let counters = |method| {
            Ok(MethodCounters {
                method,
                extents: of(method, "extents")?,
                pages: of(method, "pages")?,
                bytes: of(method, "bytes")?,
                ns: of(method, "ns")?,
                hinted: of(method, "hinted")?,
                longest: of(method, "longest")?,
            })
        };
        Ok(Counters {
            faults: count("faults")?,
            skipped: count("skipped")?,
            hints: count("hints")?,
            hinted_processes: count("hinted_processes")?,
            unhinted_processes: count("unhinted_processes")?,
            methods: Method::ALL.into_iter().map(counters).collect::<Result<_, KernelError>>()?,
        })
    }

    fn persisted(&self) -> Option<String> {
        let text = self.text(&Settings::file(self.root())).ok()?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines: Vec<&str> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_not_loaded_is_a_state() {
        let root = tempfile::tempdir().unwrap();
        let status = Module::with_root(root.path()).status().unwrap();
        assert!(!status.loaded && status.livepatch.is_none() && status.counters.is_none());
        assert_eq!(
            (status.hint_device, status.memory_device),
            (DeviceState::NotLoaded, DeviceState::NotLoaded)
        );
        assert_eq!((status.kernel.as_str(), status.installed), ("", None));
        // The files of this machine can be read, whether the module is loaded or not.
        Module::running().status().unwrap();
    }

    #[test]
    fn a_device_that_does_not_exist_has_a_reason() {
        let root = tempfile::tempdir().unwrap();
        let module = Module::with_root(root.path());
        let reason = |path: &str| module.no_device(PathBuf::from(path)).to_string();
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/bulkmem"), "").unwrap();
        // A node that outlived the module.
        assert_eq!(module.device(Path::new(HINT_PATH)).unwrap(), DeviceState::NotLoaded);
        assert!(matches!(module.no_device(HINT_PATH.into()), KernelError::NotLoaded { .. }));

        let parameters = root.path().join("sys/module/bulkmem/parameters");
        fs::create_dir_all(&parameters).unwrap();
        fs::write(parameters.join("hint_device"), "Y\n").unwrap();
        fs::write(parameters.join("memory_device"), "N\n").unwrap();
        assert_eq!(module.device(Path::new(HINT_PATH)).unwrap(), DeviceState::Present);
        assert_eq!(module.device(Path::new(MEMORY_PATH)).unwrap(), DeviceState::Disabled);
        for word in [MEMORY_PATH, "memory_device=0", "/etc/modprobe.d"] {
            assert!(reason(MEMORY_PATH).contains(word), "{word}: {}", reason(MEMORY_PATH));
        }
        fs::write(parameters.join("hint_device"), "N\n").unwrap();
        assert!(reason(HINT_PATH).contains("hint_device=0"), "{}", reason(HINT_PATH));
        fs::write(parameters.join("hint_device"), "Y\n").unwrap();
        fs::remove_file(root.path().join("dev/bulkmem")).unwrap();
        assert_eq!(module.device(Path::new(HINT_PATH)).unwrap(), DeviceState::Missing);
        assert!(matches!(module.no_device(HINT_PATH.into()), KernelError::NoDevice { .. }));
        assert!(reason(HINT_PATH).contains("--device /dev/bulkmem"), "{}", reason(HINT_PATH));
    }

    #[test]
    fn comments_are_not_persisted_parameters() {
        let root = tempfile::tempdir().unwrap();
        let module = Module::with_root(root.path());
        let settings = Settings { threshold: Some(0), ..Settings::default() };
        settings.save(root.path(), "a test").unwrap();
        assert_eq!(module.status().unwrap().persisted.as_deref(), Some("options bulkmem threshold=0"));
        fs::write(Settings::file(root.path()), "# nothing\n\n").unwrap();
        assert_eq!(module.status().unwrap().persisted, None);
    }
}
