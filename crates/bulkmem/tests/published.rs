//! On the machines of published measurements, the defaults choose the fastest measured method. The figures are in
//! `bulkmem-measure/data/published.json`.
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;

use bulkmem::machine::{Caches, CpuIdentity, Features, Machine};
use bulkmem::method::{self, CacheEffect};
use bulkmem::policy::{Policy, Rule};
use bulkmem::{Intent, Operation};
use serde::Deserialize;

const MIB: usize = 1 << 20;

#[derive(Deserialize)]
struct Published {
    sources: BTreeMap<String, String>,
    memset_by_size: MemsetBySize,
    write_allocate: WriteAllocate,
    clear_by_chunk: ClearByChunk,
    vm_creation: VmCreation,
    persist_by_width: Block<Width>,
    persist_by_block: Block<ByBlock>,
    persist_throughput: Block<Throughput>,
    cache_pollution: Block<Pollution>,
    zero_then_read: ZeroThenRead,
}

#[derive(Deserialize)]
struct MemsetBySize {
    sizes_mib: Vec<usize>,
    machines: Vec<Measured>,
}

/// A machine, and the result of each method on it.
#[derive(Deserialize)]
struct Measured {
    uarch: String,
    cpu: CpuIdentity,
    llc_mib: u64,
    methods: BTreeMap<String, Vec<f64>>,
    #[serde(default)]
    pstdev_pct: BTreeMap<String, Vec<f64>>,
}

#[derive(Deserialize)]
struct WriteAllocate {
    lines: u64,
    machines: Vec<Replaced>,
}

#[derive(Deserialize)]
struct Replaced {
    uarch: String,
    replaced: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct ClearByChunk {
    extent: usize,
    chunks: Vec<usize>,
    machines: Vec<Measured>,
}

#[derive(Deserialize)]
struct VmCreation {
    extent: usize,
    non_caching_threshold: usize,
    machines: Vec<VmMachine>,
}

#[derive(Deserialize)]
struct VmMachine {
    uarch: String,
    cpu: CpuIdentity,
    llc_mib: u64,
    rows: Vec<VmRow>,
}

#[derive(Deserialize)]
struct VmRow {
    method: String,
    chunk: usize,
    seconds: f64,
}

#[derive(Deserialize)]
struct Block<T> {
    rows: Vec<T>,
}

#[derive(Deserialize)]
struct ByBlock {
    length: usize,
    movnti: f64,
    store_8_clflushopt: f64,
}

#[derive(Deserialize)]
struct Width {
    method: String,
    ram: f64,
    nvdimm: f64,
}

#[derive(Deserialize)]
struct Throughput {
    target: String,
    method: String,
    mean: f64,
}

#[derive(Deserialize)]
struct Pollution {
    target: String,
    method: String,
    before: u64,
    after: u64,
}

#[derive(Deserialize)]
struct ZeroThenRead {
    cache: u64,
    rows: Vec<ZeroRow>,
}

#[derive(Deserialize)]
struct ZeroRow {
    length: usize,
    cached: f64,
    bypassing: f64,
}

fn text() -> &'static str {
    include_str!("../../bulkmem-measure/data/published.json")
}

fn published() -> Published {
    serde_json::from_str(text()).unwrap()
}

/// Returns a machine with the features of its processor.
fn machine(cpu: CpuIdentity, llc: u64) -> Machine {
    let mut features =
        Features::SSE2 | Features::SSE4_1 | Features::AVX | Features::AVX2 | Features::PREFETCHW;
    match (cpu.vendor.as_str(), cpu.family, cpu.model) {
        ("GenuineIntel", 6, 79) => features |= Features::ERMS,
        ("AuthenticAMD", 23, 49) => features |= Features::CLZERO | Features::CLFLUSHOPT | Features::CLWB,
        ("AuthenticAMD", 25, 1) => {
            features |= Features::CLZERO | Features::CLFLUSHOPT | Features::CLWB | Features::ERMS;
        }
        ("GenuineIntel", 6, 85 | 106) => {
            features |= Features::AVX512F | Features::CLFLUSHOPT | Features::CLWB | Features::ERMS;
        }
        other => panic!("no features are listed for {other:?}"),
    }
    Machine {
        cpu,
        microcode: String::new(),
        features,
        caches: Caches { l1d: 32 << 10, l2: 1 << 20, l3: llc },
        processors: 1,
        nodes: 1,
        memory: 256 << 30,
        kernel: String::new(),
        page_size: 4096,
        huge_page_sizes: Vec::new(),
        transparent_huge_pages: None,
        hypervisor: None,
        emulator: None,
    }
}

fn cascade_lake() -> Machine {
    let cpu =
        published().memset_by_size.machines.into_iter().find(|one| one.uarch == "Skylake-X").unwrap().cpu;
    machine(cpu, 36 << 20)
}

fn without(machine: &Machine, lacking: Features) -> Machine {
    Machine { features: machine.features - lacking, ..machine.clone() }
}

fn clear(policy: &Policy, length: usize) -> &'static str {
    policy.choose(Operation::Clear, length, Intent::Throughput).unwrap().method.name
}

/// Every block is checked below, or listed here with the reason why not.
#[test]
fn no_block_is_forgotten() {
    let checked = [
        "memset_by_size",
        "write_allocate",
        "clear_by_chunk",
        "vm_creation",
        "persist_by_width",
        "persist_by_block",
        "persist_throughput",
        "cache_pollution",
        "zero_then_read",
    ];
    let not_checked = [
        (
            "fork_copy",
            "times of whole forks, whose page copies the kernel makes: no caller's length or intent",
        ),
        ("random_4k", "compares cache attributes of mappings, not methods"),
    ];
    let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text()).unwrap();
    let published = published();
    for (name, block) in
        all.iter().filter(|(name, _)| !["note", "sources", "conclusions"].contains(&name.as_str()))
    {
        let source = block["source"].as_str().unwrap();
        assert!(published.sources.contains_key(source), "{name} names the unknown source {source}");
        let reason = not_checked.iter().find(|(other, _)| other == name);
        assert!(
            checked.contains(&name.as_str()) != reason.is_some(),
            "{name} is checked or excused, not both"
        );
        if let Some((name, reason)) = reason {
            println!("not checked: {name}: {reason}");
        }
    }
}

#[test]
fn clearing_by_size() {
    let table = published().memset_by_size;
    for measured in &table.machines {
        // Without PREFETCHW, because the table has no prefetched stores.
        let described = machine(measured.cpu.clone(), measured.llc_mib << 20);
        let policy = Policy::defaults(&without(&described, Features::PREFETCHW));
        for (at, size) in table.sizes_mib.iter().enumerate() {
            let choice = clear(&policy, size * MIB);
            let chosen = measured.methods.get(choice);
            let chosen = chosen.unwrap_or_else(|| panic!("{}: {choice} was not measured", measured.uarch));
            let (name, best) = measured.methods.iter().max_by(|a, b| a.1[at].total_cmp(&b.1[at])).unwrap();
            let within = chosen[at] * (1.0 + measured.pstdev_pct[choice][at] / 100.0);
            assert!(
                choice == name || within >= best[at],
                "{} at {size} MiB: {choice} is chosen, {name} is faster",
                measured.uarch
            );
        }
    }
}

#[test]
fn broadwell_and_rome_bypass_the_cache_from_128_mib_but_not_at_16() {
    for measured in &published().memset_by_size.machines {
        let policy = Policy::defaults(&machine(measured.cpu.clone(), measured.llc_mib << 20));
        let answers = [16, 128, 1024, 4096].map(|size| clear(&policy, size * MIB));
        match measured.uarch.as_str() {
            "Broadwell-X" => assert_eq!(answers, ["rep_stosb", "movnti", "movnti", "movnti"]),
            "Rome" => assert_eq!(answers, ["rep_stosq", "movnti", "movnti", "movnti"]),
            other => assert_eq!(other, "Skylake-X"),
        }
    }
}

#[test]
fn skylake_never_bypasses_the_cache_for_throughput() {
    let full = cascade_lake();
    for described in
        [full.clone(), without(&full, Features::PREFETCHW), without(&full, Features::all() - Features::SSE2)]
    {
        let policy = Policy::defaults(&described);
        for operation in [Operation::Clear, Operation::Fill, Operation::Copy] {
            for Rule { from, choice, .. } in policy.rules(operation, Intent::Throughput) {
                assert_eq!(choice.method.effect, CacheEffect::Allocates, "{operation} from {from}: {choice}");
            }
        }
    }
    let choice = Policy::defaults(&full).choose(Operation::Clear, 256 * MIB, Intent::Throughput).unwrap();
    assert_eq!(choice.to_string(), "write_prefetch_avx[write_distance=4096]");
}

#[test]
fn clearing_by_chunk() {
    let table = published().clear_by_chunk;
    for measured in &table.machines {
        let full = machine(measured.cpu.clone(), measured.llc_mib << 20);
        for described in [full.clone(), without(&full, Features::CLZERO)] {
            let policy = Policy::defaults(&described);
            for (at, &chunk) in table.chunks.iter().enumerate() {
                let part =
                    policy.choose_part(Operation::Clear, chunk, table.extent, Intent::Throughput).unwrap();
                let able = measured
                    .methods
                    .iter()
                    .filter(|(name, _)| described.features.contains(method::by_name(name).unwrap().requires));
                let (best, _) = able.max_by(|a, b| a.1[at].total_cmp(&b.1[at])).unwrap();
                assert_eq!(part.method.name, best, "{}: chunks of {chunk}", measured.uarch);
                // From the threshold of the publication on, a single call of that length uses the same method.
                if chunk >= published().vm_creation.non_caching_threshold {
                    assert_eq!(clear(&policy, chunk), best, "{}: an extent of {chunk}", measured.uarch);
                }
            }
        }
    }
}

#[test]
fn milan_without_clzero_takes_movnti_in_small_chunks_and_rep_stosb_in_large() {
    let table = published().clear_by_chunk;
    let milan = table.machines.iter().find(|one| one.uarch == "Milan").unwrap();
    let policy = Policy::defaults(&without(&machine(milan.cpu.clone(), 32 << 20), Features::CLZERO));
    let answers = table.chunks.iter().map(|&chunk| {
        policy.choose_part(Operation::Clear, chunk, table.extent, Intent::Throughput).unwrap().method.name
    });
    let answers: Vec<_> = answers.collect();
    assert_eq!(answers[..4], ["movnti"; 4]);
    assert_eq!(answers[4..], ["rep_stosb"; 3]);
}

#[test]
fn clearing_a_virtual_machines_memory() {
    let table = published().vm_creation;
    for measured in &table.machines {
        let policy = Policy::defaults(&machine(measured.cpu.clone(), measured.llc_mib << 20));
        let best = measured.rows.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap();
        let choice =
            policy.choose_part(Operation::Clear, best.chunk, table.extent, Intent::Throughput).unwrap();
        assert_eq!(choice.method.name, best.method, "{}", measured.uarch);
    }
}

#[test]
fn the_table_of_methods_says_what_the_counters_say_of_the_cache() {
    let table = published().write_allocate;
    for measured in &table.machines {
        for (name, replaced) in &measured.replaced {
            let allocates = *replaced > table.lines / 2;
            let effect = method::by_name(name).unwrap().effect;
            let expected = if allocates { CacheEffect::Allocates } else { CacheEffect::Bypasses };
            assert_eq!(effect, expected, "{}: {name}", measured.uarch);
        }
    }
}

#[test]
fn persisting_by_width() {
    let rows = published().persist_by_width.rows;
    let best = |of: fn(&Width) -> f64| rows.iter().map(of).fold(0.0, f64::max);
    // The paper does not name the processor. Cascade Lake was the one with such memory at that time.
    for (described, lengths) in [(cascade_lake(), [4096, 1 << 30]), (unknown(), [4096, 1 << 20])] {
        let policy = Policy::defaults(&described);
        for length in lengths {
            let choice =
                policy.choose(Operation::CopyPersist, length, Intent::Throughput).unwrap().method.name;
            let row = rows.iter().find(|row| row.method == choice);
            let row = row.unwrap_or_else(|| panic!("{choice} was not measured"));
            assert_eq!((row.ram, row.nvdimm), (best(|row| row.ram), best(|row| row.nvdimm)), "{choice}");
        }
        // Below 768 bytes, the best of the methods that bypass the cache.
        let choice = policy.choose(Operation::CopyPersist, 512, Intent::Throughput).unwrap().method;
        assert_eq!(choice.effect, CacheEffect::Bypasses);
        let bypassing =
            rows.iter().filter(|row| method::by_name(&row.method).unwrap().effect == CacheEffect::Bypasses);
        let best = bypassing.max_by(|a, b| a.ram.total_cmp(&b.ram)).unwrap();
        assert_eq!(choice.name, best.method);
    }
}

#[test]
fn persisting_a_block_goes_the_way_that_was_faster_at_its_length() {
    let policy = Policy::defaults(&cascade_lake());
    for ByBlock { length, movnti, store_8_clflushopt } in published().persist_by_block.rows {
        let choice = policy.choose(Operation::CopyPersist, length, Intent::Throughput).unwrap().method;
        let bypasses = choice.effect == CacheEffect::Bypasses;
        assert_eq!(bypasses, movnti > store_8_clflushopt, "{length}: {}", choice.name);
    }
}

fn unknown() -> Machine {
    let known = cascade_lake();
    Machine { cpu: CpuIdentity { model: 255, ..known.cpu.clone() }, ..known }
}

#[test]
fn persisting_goes_the_way_that_was_faster() {
    let rows = published().persist_throughput.rows;
    let policy = Policy::defaults(&cascade_lake());
    for target in ["ram", "pmem"] {
        let at_target = rows.iter().filter(|row| row.target == target);
        let best = at_target.max_by(|a, b| a.mean.total_cmp(&b.mean)).unwrap();
        let way = method::by_name(&best.method).unwrap().effect;
        assert_eq!(
            policy.choose(Operation::CopyPersist, 1 << 30, Intent::Throughput).unwrap().method.effect,
            way,
            "{target}"
        );
    }
}

#[test]
fn persisting_for_stream_disturbs_least() {
    let rows = published().cache_pollution.rows;
    let policy = Policy::defaults(&cascade_lake());
    for target in ["ram", "pmem"] {
        let least =
            rows.iter().filter(|row| row.target == target).min_by_key(|row| row.after - row.before).unwrap();
        let way = method::by_name(&least.method).unwrap().effect;
        for length in [64, 4096, 1 << 30] {
            let choice = policy.choose(Operation::CopyPersist, length, Intent::Stream).unwrap();
            assert_eq!(choice.method.effect, way, "{target}, {length}: {choice}");
        }
    }
}

/// Bytes that are cleared and then read should stay in the cache if they fit, and bypass it otherwise. Tested with an
/// unknown processor whose last level is as large as that machine's caches together.
#[test]
fn clearing_what_is_read_next() {
    let table = published().zero_then_read;
    let described = Machine { caches: Caches { l1d: 64 << 10, l2: 64 << 10, l3: table.cache }, ..unknown() };
    let policy = Policy::defaults(&described);
    let mut seen = [false; 2];
    for row in &table.rows {
        let fits = row.length as u64 <= table.cache;
        seen[usize::from(fits)] = true;
        assert_eq!(fits, row.cached < row.bypassing, "the table itself, at {}", row.length);
        let intent = if fits { Intent::Reuse } else { Intent::Throughput };
        let effect = policy.choose(Operation::Clear, row.length, intent).unwrap().method.effect;
        assert_eq!(effect == CacheEffect::Bypasses, row.bypassing < row.cached, "at {}", row.length);
    }
    assert_eq!(seen, [true; 2]);
}
