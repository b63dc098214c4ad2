//! The replacement of `__memcpy_flushcache()`, by which the kernel copies to persistent memory.

use serde::Serialize;

use crate::{KernelError, Module};

/// How the module copies to persistent memory, and what it has copied since it was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Flushcache {
    /// True if the module replaces the kernel's function: it was loaded with `flushcache=1`.
    pub replaced: bool,
    /// Method for copies of `threshold` bytes and more.
    pub method: String,
    /// Method for smaller copies.
    pub small_method: String,
    /// Smallest large copy in bytes.
    pub threshold: u64,
    /// Counters of each method that this processor supports.
    pub methods: Vec<FlushcacheCounters>,
}

/// The counters of one method of copying to persistent memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FlushcacheCounters {
    /// The method: `stock`, `movnti`, `clwb` or `clflushopt`.
    pub method: String,
    /// Calls of the kernel's function.
    pub calls: u64,
    /// Bytes copied by them.
    pub bytes: u64,
}

impl Module {
    /// Returns how the module copies to persistent memory; `None` if it is not loaded, or too old to do so.
    ///
    /// # Errors
    /// If a file of the loaded module cannot be read.
    pub fn flushcache(&self) -> Result<Option<Flushcache>, KernelError> {
        let switch = self.parameter("flushcache");
        if !switch.exists() {
            return Ok(None);
        }
        let folder = self.counters_folder().join("flushcache");
        let counters = |method: &str| {
            Ok(FlushcacheCounters {
                method: method.to_owned(),
                calls: self.value(&folder.join(format!("{method}_calls")))?,
                bytes: self.value(&folder.join(format!("{method}_bytes")))?,
            })
        };
        let available = self.text(&self.parameter("flushcache_available"))?;
        Ok(Some(Flushcache {
            replaced: self.switch(&switch)?,
            method: self.text(&self.parameter("flushcache_method"))?,
            small_method: self.text(&self.parameter("flushcache_small_method"))?,
            threshold: self.value(&self.parameter("flushcache_threshold"))?,
            methods: available.split_whitespace().map(counters).collect::<Result<_, KernelError>>()?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn parameters_and_counters_are_read_by_name() {
        let root = tempfile::tempdir().unwrap();
        let module = Module::with_root(root.path());
        assert_eq!(module.flushcache().unwrap(), None);
        let parameters = root.path().join("sys/module/bulkmem/parameters");
        let counters = root.path().join("sys/devices/bulkmem/flushcache");
        fs::create_dir_all(&parameters).unwrap();
        fs::create_dir_all(&counters).unwrap();
        for (name, value) in [
            ("flushcache", "Y\n"),
            ("flushcache_method", "clwb\n"),
            ("flushcache_small_method", "stock\n"),
            ("flushcache_threshold", "768\n"),
            ("flushcache_available", "stock clwb\n"),
        ] {
            fs::write(parameters.join(name), value).unwrap();
        }
        assert!(matches!(module.flushcache(), Err(KernelError::Unreadable { .. })));
        for (name, value) in [("stock_calls", 1), ("stock_bytes", 2), ("clwb_calls", 3), ("clwb_bytes", 4)] {
            fs::write(counters.join(name), format!("{value}\n")).unwrap();
        }
        let found = module.flushcache().unwrap().unwrap();
        assert!(found.replaced);
        assert_eq!(
            (found.method.as_str(), found.small_method.as_str(), found.threshold),
            ("clwb", "stock", 768)
        );
        let counted = found.methods.iter().map(|it| (it.method.as_str(), it.calls, it.bytes));
        assert_eq!(counted.collect::<Vec<_>>(), [("stock", 1, 2), ("clwb", 3, 4)]);
    }
}
