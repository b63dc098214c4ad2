//! The published measurements, as facts.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bulkmem::policy::CpuIdentity;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Published {
    pub(super) sources: BTreeMap<String, String>,
    /// GB/s by MiB.
    pub(super) memset_by_size: Curves,
    /// L1 lines that each method replaced while so many lines were written.
    pub(super) write_allocate: ByMachine<BTreeMap<String, u64>>,
    /// MB/s by the bytes of a chunk.
    pub(super) clear_by_chunk: Curves,
    /// Times to create a virtual machine of so many bytes.
    pub(super) vm_creation: ByMachine<Vec<VmRow>>,
    pub(super) persist_by_width: Table<ByWidth>,
    pub(super) persist_throughput: Table<Speed>,
    pub(super) persist_by_block: Table<ByBlock>,
    pub(super) cache_pollution: Table<Pollution>,
    pub(super) zero_then_read: Table<ByLength>,
    pub(super) fork_copy: Table<ForkCopy>,
    pub(super) random_4k: Table<Random4K>,
    pub(super) conclusions: Vec<PublishedConclusion>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PublishedConclusion {
    pub(super) id: String,
    pub(super) source: String,
    pub(super) claim: String,
    /// The figures that support it, in words.
    pub(super) published: String,
    /// The measurements needed to judge it.
    pub(super) needs: String,
    /// The processors that it is about, if not all.
    pub(super) processors: Option<Processors>,
}

/// Processors of a vendor; of some families and models, if any are named.
#[derive(Debug, Deserialize)]
pub(super) struct Processors {
    pub(super) vendor: String,
    #[serde(default)]
    pub(super) models: Vec<(u32, u32)>,
    /// In words.
    pub(super) name: String,
}

impl Processors {
    pub(super) fn include(&self, cpu: &CpuIdentity) -> bool {
        let models = &self.models;
        self.vendor == cpu.vendor && (models.is_empty() || models.contains(&(cpu.family, cpu.model)))
    }
}

/// Speeds of clearing along sizes or chunks.
#[derive(Debug, Deserialize)]
pub(super) struct Curves {
    #[serde(alias = "sizes_mib", alias = "chunks")]
    pub(super) lengths: Vec<u64>,
    pub(super) machines: Vec<Measured>,
}

/// A machine with the speeds of its methods at each length.
#[derive(Debug, Deserialize)]
pub(super) struct Measured {
    pub(super) uarch: String,
    pub(super) cpu: CpuIdentity,
    pub(super) llc_mib: u64,
    pub(super) methods: BTreeMap<String, Vec<f64>>,
}

/// Figures of machines, all for one amount.
#[derive(Debug, Deserialize)]
pub(super) struct ByMachine<T> {
    #[serde(alias = "lines", alias = "extent")]
    pub(super) amount: u64,
    pub(super) machines: Vec<Rows<T>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rows<T> {
    pub(super) uarch: String,
    #[serde(alias = "replaced")]
    pub(super) rows: T,
}

#[derive(Debug, Deserialize)]
pub(super) struct VmRow {
    pub(super) method: String,
    pub(super) chunk: u64,
    pub(super) seconds: f64,
}

/// A table of a single machine that is not named.
#[derive(Debug, Deserialize)]
pub(super) struct Table<T> {
    pub(super) rows: Vec<T>,
}

/// GB/s of sequential persistent writes to ordinary and to persistent memory.
#[derive(Debug, Deserialize)]
pub(super) struct ByWidth {
    pub(super) method: String,
    pub(super) ram: f64,
    pub(super) nvdimm: f64,
}

/// GB/s of sequential persistent writes.
#[derive(Debug, Deserialize)]
pub(super) struct Speed {
    pub(super) target: String,
    pub(super) method: String,
    pub(super) mean: f64,
}

/// MB/s of writes to a cache in persistent memory, by its block.
#[derive(Debug, Deserialize)]
pub(super) struct ByBlock {
    pub(super) length: u64,
    pub(super) movnti: f64,
    pub(super) store_8_clflushopt: f64,
}

/// Cycles of a walk before and after writing.
#[derive(Debug, Deserialize)]
pub(super) struct Pollution {
    pub(super) target: String,
    pub(super) method: String,
    pub(super) before: f64,
    pub(super) after: f64,
}

/// Seconds with stores that fill the cache and with those that bypass it.
#[derive(Debug, Deserialize)]
pub(super) struct ByLength {
    pub(super) length: u64,
    pub(super) cached: f64,
    pub(super) bypassing: f64,
}

/// Seconds for a number of forks, with the kernel's pages cleared and copied by different routines.
#[derive(Debug, Deserialize)]
pub(super) struct ForkCopy {
    pub(super) length: u64,
    pub(super) loops: f64,
    pub(super) string: f64,
    pub(super) cached: f64,
    pub(super) bypassing: f64,
    pub(super) bypassing_copy_only: Option<f64>,
}

/// Operations a second by cache attribute.
#[derive(Debug, Deserialize)]
pub(super) struct Random4K {
    pub(super) attribute: String,
    pub(super) read: f64,
    pub(super) write: f64,
}

pub(super) fn published() -> &'static Published {
    static PUBLISHED: OnceLock<Published> = OnceLock::new();
    PUBLISHED.get_or_init(|| {
        serde_json::from_str(include_str!("../../data/published.json"))
            .expect("the facts are part of the program, and tested")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_are_whole() {
        let all = published();
        assert_eq!(
            (all.sources.len(), all.memset_by_size.machines.len(), all.clear_by_chunk.machines.len()),
            (6, 3, 2)
        );
        for curves in [&all.memset_by_size, &all.clear_by_chunk] {
            let mut rows = curves.machines.iter().flat_map(|machine| machine.methods.values());
            assert!(rows.all(|row| row.len() == curves.lengths.len()));
        }
        assert_eq!(
            (all.fork_copy.rows.len(), all.random_4k.rows.len(), all.zero_then_read.rows.len()),
            (7, 5, 2)
        );
    }
}
