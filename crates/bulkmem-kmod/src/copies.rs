//! Counters of the huge pages that the module copied on write.

use serde::Serialize;

use crate::{CopyMethod, KernelError, Module};

/// The module's counters of copies since it was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// Counters of each method. The pages around the written address, which are copied last, count as stock.
    pub methods: Vec<CopyMethodCounters>,
}

impl CopyCounters {
    /// Returns the bytes that a method copied.
    pub fn bytes(&self, method: CopyMethod) -> u64 {
        self.methods.iter().filter(|it| it.method == method).map(|it| it.bytes).sum()
    }
}

/// The counters of one method of copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CopyMethodCounters {
    /// The method.
    pub method: CopyMethod,
    /// Contiguous ranges copied.
    pub extents: u64,
    /// Bytes copied.
    pub bytes: u64,
}

impl Module {
    /// Returns the counters of copies; `None` if the module is not loaded.
    ///
    /// # Errors
    /// If a counter cannot be read.
    pub fn copies(&self) -> Result<Option<CopyCounters>, KernelError> {
        let folder = self.counters_folder().join("copies");
        if !folder.is_dir() {
            return Ok(None);
        }
        let count = |name: &str| self.value::<u64>(&folder.join(name));
        let counters = |method| {
            Ok(CopyMethodCounters {
                method,
                extents: count(&format!("{method}_extents"))?,
                bytes: count(&format!("{method}_bytes"))?,
            })
        };
        Ok(Some(CopyCounters {
            faults: count("faults")?,
            skipped: count("skipped")?,
            redone: count("redone")?,
            failed: count("failed")?,
            methods: CopyMethod::ALL.into_iter().map(counters).collect::<Result<_, KernelError>>()?,
        }))
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
        let names = ["faults", "skipped", "redone", "failed"];
        let of_methods =
            CopyMethod::ALL.into_iter().flat_map(|it| [format!("{it}_extents"), format!("{it}_bytes")]);
        let folder = root.path().join("sys/devices/bulkmem/copies");
        fs::create_dir_all(&folder).unwrap();
        for (value, name) in names.into_iter().map(str::to_owned).chain(of_methods).enumerate() {
            fs::write(folder.join(name), format!("{value}\n")).unwrap();
        }
        let copies = module.copies().unwrap().unwrap();
        let values = serde_json::to_value(&copies).unwrap();
        for (value, name) in names.into_iter().enumerate() {
            assert_eq!(values[name], value);
        }
        let found = copies.methods.iter().map(|it| (it.method.name(), it.extents, it.bytes));
        assert_eq!(found.collect::<Vec<_>>(), [("stock", 4, 5), ("rep_movsb", 6, 7), ("movnti", 8, 9)]);
        assert_eq!(CopyMethod::ALL.map(|method| copies.bytes(method)), [5, 7, 9]);
        fs::remove_file(folder.join("failed")).unwrap();
        assert!(matches!(module.copies(), Err(KernelError::Unreadable { .. })));
    }
}
