//! Counters of the huge pages that the module copied on write.

use std::path::Path;

use serde::Serialize;

use crate::{KernelError, Module};

/// The module's counters of copies since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CopyCounters {
    /// Huge pages copied.
    pub faults: u64,
    /// How many of these were below `copy_threshold`, so that `copy_cached_method` copied them.
    pub skipped: u64,
    /// Huge pages that the kernel's functions copied because the method met a hardware error or another exception.
    pub redone: u64,
    /// Huge pages that could not be copied because of a hardware error.
    pub failed: u64,
    /// Bytes copied page by page, as the kernel does without the module.
    pub stock_bytes: u64,
    /// Bytes copied by REP MOVSB.
    pub rep_movsb_bytes: u64,
    /// Bytes copied by MOVNTI, which bypasses the cache.
    pub movnti_bytes: u64,
}

impl Module {
    /// Returns the counters of copies; `None` if the module is not loaded.
    ///
    /// # Errors
    /// If a counter cannot be read.
    pub fn copies(&self) -> Result<Option<CopyCounters>, KernelError> {
        // Without /dev/bulkmem (hint_device=0), the counters are elsewhere.
        let folders = ["sys/class/misc/bulkmem/copies", "sys/devices/bulkmem/copies"];
        let found = folders.map(|folder| self.path(folder)).into_iter().find(|folder| folder.is_dir());
        found.map(|folder| self.copy_counters(&folder)).transpose()
    }

    fn copy_counters(&self, folder: &Path) -> Result<CopyCounters, KernelError> {
        let count = |name: &str| self.value::<u64>(&folder.join(name));
        Ok(CopyCounters {
            faults: count("faults")?,
            skipped: count("skipped")?,
            redone: count("redone")?,
            failed: count("failed")?,
            stock_bytes: count("stock_bytes")?,
            rep_movsb_bytes: count("rep_movsb_bytes")?,
            movnti_bytes: count("movnti_bytes")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let root = tempfile::tempdir().unwrap();
        let module = Module::with_root(root.path());
        assert_eq!(module.copies().unwrap(), None);
        let names =
            ["faults", "skipped", "redone", "failed", "stock_bytes", "rep_movsb_bytes", "movnti_bytes"];
        let folder = root.path().join("sys/devices/bulkmem/copies");
        fs::create_dir_all(&folder).unwrap();
        for (value, name) in names.into_iter().enumerate() {
            fs::write(folder.join(name), format!("{value}\n")).unwrap();
        }
        let copies = module.copies().unwrap().unwrap();
        let values = serde_json::to_value(copies).unwrap();
        for (value, name) in names.into_iter().enumerate() {
            assert_eq!(values[name], value);
        }
        fs::remove_file(folder.join("failed")).unwrap();
        assert!(matches!(module.copies(), Err(KernelError::Unreadable { .. })));
    }
}
