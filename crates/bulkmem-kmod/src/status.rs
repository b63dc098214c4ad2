//! What the module is, does, and has done.

use std::path::PathBuf;

use serde::Serialize;

use crate::{KernelError, Method, Module, Settings};

/// The module's state at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The running kernel's release; empty where `/proc` does not tell.
    pub kernel: String,
    /// The module's file for this kernel, as `depmod` lists it.
    pub installed: Option<PathBuf>,
    /// Whether it is loaded.
    pub loaded: bool,
    /// Whether `/dev/bulkmem` is there.
    pub device: bool,
    /// The patch of the kernel's clearing; `None` where it is not loaded.
    pub livepatch: Option<Livepatch>,
    /// The letters of the kernel's taint that the module causes: O (built outside of the kernel), E (unsigned).
    pub taint: Option<String>,
    /// The taint of the whole kernel as a number; bit 15 is set by any live patch.
    pub kernel_taint: Option<u64>,
    /// All parameters; `None` where the module is not loaded.
    pub parameters: Option<Settings>,
    /// The methods that this processor can run.
    pub available: Vec<Method>,
    /// What it has done since it was loaded.
    pub counters: Option<Counters>,
    /// What the module will be loaded with: `/etc/modprobe.d/bulkmem.conf`, without its comments.
    pub persisted: Option<String>,
}

/// How far the patch is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Livepatch {
    /// Whether page faults are to be cleared by the module.
    pub enabled: bool,
    /// Whether some processes still have to leave the old code, or the new one.
    pub transition: bool,
}

/// What the module has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Huge pages cleared for page faults.
    pub faults: u64,
    /// Of these, those below the threshold, which `cached_method` cleared.
    pub skipped: u64,
    /// Hints that are in force now.
    pub hints: u64,
    /// By method. The pages around the faulting address, cleared last, count as stock.
    pub methods: Vec<Done>,
}

/// What one method has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Done {
    /// The method.
    pub method: Method,
    /// Contiguous stretches that it was handed.
    pub extents: u64,
    /// Pages of 4 KiB.
    pub pages: u64,
    /// Bytes.
    pub bytes: u64,
    /// Extents whose size came from a hint.
    pub hinted: u64,
}

impl Module {
    /// The state at this moment. A module that is not there is a state, not an error.
    ///
    /// # Errors
    /// Where a file of a module that is loaded cannot be read, or says what this library does not know.
    pub fn status(&self) -> Result<Status, KernelError> {
        let kernel = self.text(&self.path("proc/sys/kernel/osrelease")).unwrap_or_default();
        let loaded = self.loaded();
        let if_loaded = |wanted: bool| loaded && wanted;
        let patch = self.path("sys/kernel/livepatch/bulkmem");
        let livepatch = if if_loaded(patch.is_dir()) {
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
            device: self.path("dev/bulkmem").exists(),
            livepatch,
            taint: self.text(&self.path("sys/module/bulkmem/taint")).ok().filter(|taint| !taint.is_empty()),
            kernel_taint: self.value(&self.path("proc/sys/kernel/tainted")).ok(),
            parameters: if loaded { Some(self.settings()?) } else { None },
            available: if loaded { self.available()? } else { Vec::new() },
            counters: if loaded { Some(self.counters()?) } else { None },
            persisted: self.persisted(),
        })
    }

    fn available(&self) -> Result<Vec<Method>, KernelError> {
        let path = self.parameter("available");
        let found = self.text(&path)?;
        let methods: Result<Vec<Method>, _> = found.split_whitespace().map(str::parse).collect();
        methods.map_err(|_| KernelError::Unexpected { path, found })
    }

    fn counters(&self) -> Result<Counters, KernelError> {
        let folder = self.path("sys/class/misc/bulkmem");
        let count = |name: &str| self.value::<u64>(&folder.join(name));
        let of = |method: Method, name: &str| count(&format!("{method}/{name}"));
        let done = |method| {
            Ok(Done {
                method,
                extents: of(method, "extents")?,
                pages: of(method, "pages")?,
                bytes: of(method, "bytes")?,
                hinted: of(method, "hinted")?,
            })
        };
        Ok(Counters {
            faults: count("faults")?,
            skipped: count("skipped")?,
            hints: count("hints")?,
            methods: Method::ALL.into_iter().map(done).collect::<Result<_, KernelError>>()?,
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
    use std::fs;

    use super::*;

    #[test]
    fn a_module_that_is_not_there_is_a_state() {
        let root = tempfile::tempdir().unwrap();
        let status = Module::below(root.path()).status().unwrap();
        assert!(!status.loaded && !status.device && status.livepatch.is_none() && status.counters.is_none());
        assert_eq!((status.kernel.as_str(), status.installed), ("", None));
        // What serves on this very machine can be read, too.
        Module::here().status().unwrap();
    }

    #[test]
    fn comments_are_not_what_is_persisted() {
        let root = tempfile::tempdir().unwrap();
        let module = Module::below(root.path());
        let settings = Settings { threshold: Some(0), ..Settings::default() };
        settings.persist(root.path(), "a test").unwrap();
        assert_eq!(module.status().unwrap().persisted.as_deref(), Some("options bulkmem threshold=0"));
        fs::write(Settings::file(root.path()), "# nothing\n\n").unwrap();
        assert_eq!(module.status().unwrap().persisted, None);
    }
}
