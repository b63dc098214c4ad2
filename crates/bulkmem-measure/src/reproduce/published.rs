//! The published measurements, as facts.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bulkmem::policy::CpuIdentity;
use serde::Deserialize;

/// All tables.
#[derive(Debug, Deserialize)]
pub(super) struct Published {
    pub(super) sources: BTreeMap<String, String>,
    pub(super) memset_by_size: MemsetBySize,
    pub(super) write_allocate: WriteAllocate,
    pub(super) clear_by_chunk: ClearByChunk,
    pub(super) vm_creation: VmCreation,
    pub(super) persist_by_width: Table<Width>,
    pub(super) persist_throughput: Table<Throughput>,
    pub(super) cache_pollution: Table<Pollution>,
    pub(super) zero_then_read: Table<ByLength>,
    pub(super) fork_copy: Table<ByLength>,
    pub(super) random_4k: Table<Random4K>,
    pub(super) conclusions: Vec<PublishedConclusion>,
}

/// A conclusion of a source.
#[derive(Debug, Deserialize)]
pub(super) struct PublishedConclusion {
    pub(super) id: String,
    pub(super) source: String,
    pub(super) claim: String,
    /// The figures that support it, in words.
    pub(super) published: String,
    /// The measurements needed to judge it.
    pub(super) needs: String,
}

/// GB/s by size.
#[derive(Debug, Deserialize)]
pub(super) struct MemsetBySize {
    pub(super) sizes_mib: Vec<u64>,
    pub(super) machines: Vec<Measured<MeanBySize>>,
}

/// A machine with the speeds of its methods.
#[derive(Debug, Deserialize)]
pub(super) struct Measured<T> {
    pub(super) uarch: String,
    pub(super) cpu: CpuIdentity,
    pub(super) llc_mib: u64,
    pub(super) methods: BTreeMap<String, T>,
}

#[derive(Debug, Deserialize)]
pub(super) struct MeanBySize {
    pub(super) mean: Vec<f64>,
}

/// L1 lines replaced while so many lines were written.
#[derive(Debug, Deserialize)]
pub(super) struct WriteAllocate {
    pub(super) lines: u64,
    pub(super) machines: Vec<Replaced>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Replaced {
    pub(super) uarch: String,
    pub(super) replaced: BTreeMap<String, u64>,
}

/// MB/s by chunk.
#[derive(Debug, Deserialize)]
pub(super) struct ClearByChunk {
    pub(super) chunks: Vec<u64>,
    pub(super) machines: Vec<Measured<Vec<f64>>>,
}

/// Seconds for a virtual machine of `extent` bytes.
#[derive(Debug, Deserialize)]
pub(super) struct VmCreation {
    pub(super) extent: u64,
    pub(super) machines: Vec<VmMachine>,
}

#[derive(Debug, Deserialize)]
pub(super) struct VmMachine {
    pub(super) uarch: String,
    pub(super) rows: Vec<VmRow>,
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

/// GB/s of sequential writes by method.
#[derive(Debug, Deserialize)]
pub(super) struct Width {
    pub(super) method: String,
    pub(super) ram: f64,
}

/// GB/s of sequential writes, more precisely.
#[derive(Debug, Deserialize)]
pub(super) struct Throughput {
    pub(super) target: String,
    pub(super) method: String,
    pub(super) mean: f64,
}

/// Cycles of a walk before and after writing.
#[derive(Debug, Deserialize)]
pub(super) struct Pollution {
    pub(super) target: String,
    pub(super) method: String,
    pub(super) before: f64,
    pub(super) after: f64,
}

/// Seconds for a number of loops, with stores that fill the cache and with those that bypass it.
#[derive(Debug, Deserialize)]
pub(super) struct ByLength {
    pub(super) length: u64,
    pub(super) loops: f64,
    pub(super) cached: f64,
    pub(super) bypassing: f64,
}

/// Operations a second by cache attribute.
#[derive(Debug, Deserialize)]
pub(super) struct Random4K {
    pub(super) attribute: String,
    pub(super) read: f64,
    pub(super) write: f64,
}

/// The facts.
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
            (5, 3, 2)
        );
        for machine in &all.memset_by_size.machines {
            assert!(machine.methods.values().all(|row| row.mean.len() == all.memset_by_size.sizes_mib.len()));
        }
        for machine in &all.clear_by_chunk.machines {
            assert!(machine.methods.values().all(|row| row.len() == all.clear_by_chunk.chunks.len()));
        }
        assert_eq!(
            (all.fork_copy.rows.len(), all.random_4k.rows.len(), all.zero_then_read.rows.len()),
            (7, 5, 2)
        );
    }
}
