//! Made-up results of every measurement, with figures that are easy to recognize.

use bulkmem::policy::CpuIdentity;
use bulkmem::{Intent, Operation};
use bulkmem_measure::engine::{
    Alignment, CacheState, Candidate, Config, Direction, Finding, Measurement, Memory, Metric, PageSize,
    Pattern, Results, Row,
};
use bulkmem_measure::stats::Stats;
use bulkmem_measure::{Kind, Provenance};

/// A name that ends an element, starts a script and breaks a table unless it is escaped.
pub(crate) const HOSTILE: &str = "/dev/</script><img src=x onerror=alert(1)>|`*";

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;

/// Results of every measurement, on a machine with this name and relative speed.
pub(crate) fn everything(machine: &str, speed: f64) -> Results {
    let mut results = nothing(machine);
    sizes(&mut results, Measurement::Clear, Operation::Clear, speed);
    sizes(&mut results, Measurement::Copy, Operation::Copy, speed * 0.6);
    chunks(&mut results, speed);
    vm(&mut results, speed);
    persist(&mut results, speed);
    blocks(&mut results, speed);
    pollution(&mut results, speed);
    corun(&mut results);
    reuse(&mut results, speed);
    fork(&mut results, speed);
    iops(&mut results, speed);
    applications(&mut results, speed);
    threshold(&mut results, speed);
    numa(&mut results, speed);
    choice(&mut results, speed);
    results
}

/// Results without rows.
pub(crate) fn nothing(machine: &str) -> Results {
    Results {
        format: Results::FORMAT.to_owned(),
        version: Results::VERSION,
        provenance: Provenance {
            cpu: CpuIdentity {
                vendor: "AuthenticAMD".to_owned(),
                family: 25,
                model: 17,
                stepping: 1,
                name: machine.to_owned(),
            },
            microcode: "0xa101148".to_owned(),
            caches: [32 * K, M, 32 * M],
            processors: 2,
            kernel: "6.18.0".to_owned(),
            page_size: 4096,
            backing_page_size: 2 << 20,
            date: "2026-11-21T09:00:00Z".to_owned(),
            bulkmem: "0.1.0".to_owned(),
            commit: "0123456789abcdef".to_owned(),
            policy: String::new(),
            seconds: 61.5,
            samples: 1234,
            hypervisor: Some("kvm".to_owned()),
            emulator: None,
            memory: 24 * G,
            nodes: 1,
            processor_list: None,
            memory_nodes: None,
            transparent_huge_pages: Some("madvise".to_owned()),
            governor: None,
            turbo: None,
            smt: Some(true),
            clock_source: Some("tsc".to_owned()),
            load: [Some(0.1), None],
            libraries: vec!["glibc 2.36".to_owned(), "libpmem 1.12.1 <2>".to_owned()],
            thresholds: Vec::new(),
        },
        command: ["bench", "all", "--quick"].map(str::to_owned).to_vec(),
        rows: Vec::new(),
        findings: Vec::new(),
        notes: vec!["libpmem is not installed: apt-get install libpmem1".to_owned()],
        complete: true,
    }
}

/// A row with five samples around `value`.
pub(crate) fn row(
    measurement: Measurement,
    candidate: Candidate,
    config: Config,
    metric: Metric,
    value: f64,
) -> Row {
    let samples: Vec<f64> = [0.99, 1.01, 1.0, 0.995, 1.004].iter().map(|share| share * value).collect();
    let chosen = (candidate.kind == Kind::Policy).then(|| "clzero".to_owned());
    let stats = Stats::of(&samples).expect("there are samples");
    Row {
        measurement,
        candidate,
        config,
        metric,
        samples,
        stats,
        also: Default::default(),
        chosen,
        counters: None,
        flags: Vec::new(),
    }
}

fn method(name: &str) -> Candidate {
    Candidate::named(if name == "c_library" { Kind::Peer } else { Kind::Method }, name)
}

fn policy() -> Candidate {
    Candidate::named(Kind::Policy, "policy")
}

fn pages(name: &str) -> Option<PageSize> {
    Some(name.parse().expect("a page size"))
}

fn find(results: &mut Results, measurement: Measurement, text: &str) {
    results.findings.push(Finding { measurement, text: text.to_owned(), check: None });
}

/// A method's speed: the first within the caches, the second beyond.
const CURVES: [(&str, f64, f64); 9] = [
    ("rep_stosb", 60.0, 9.0),
    ("rep_stosq", 52.0, 8.9),
    ("movnti", 11.0, 11.5),
    ("clzero", 17.0, 23.5),
    ("nontemporal_sse2", 11.2, 11.8),
    ("nontemporal_avx512", 11.4, 12.4),
    ("store_avx512", 71.0, 8.4),
    ("write_prefetch_avx512", 55.0, 9.9),
    ("c_library", 66.0, 9.2),
];

fn at_size(size: u64, [small, large]: [f64; 2]) -> f64 {
    let beyond = (size as f64 / (24 * M) as f64).powi(3);
    (small + large * beyond) / (1.0 + beyond)
}

fn sizes(results: &mut Results, measurement: Measurement, operation: Operation, speed: f64) {
    for page_size in ["thp", "4K"] {
        for shift in (12..=30).step_by(2) {
            let size = 1u64 << shift;
            let config = || Config {
                operation: Some(operation),
                size: Some(size),
                page_size: pages(page_size),
                ..Config::default()
            };
            let slower = if page_size == "4K" { 0.93 } else { 1.0 };
            let mut add = |candidate, value: f64| {
                results.rows.push(row(
                    measurement,
                    candidate,
                    config(),
                    Metric::Bandwidth,
                    value * speed * slower,
                ));
            };
            let speeds = CURVES.map(|(name, small, large)| (name, at_size(size, [small, large])));
            let best = speeds.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
            add(policy(), best * 0.985);
            for (name, speed) in speeds {
                add(method(name), speed);
            }
            add(Candidate::named(Kind::Peer, "libpmem"), at_size(size, [40.0, 12.1]));
            add(Candidate::named(Kind::Read, "read"), at_size(size, [90.0, 14.0]));
        }
    }
    find(results, measurement, &format!("{operation}: a planted finding."));
}

fn chunks(results: &mut Results, speed: f64) {
    for chunk in [4 * K, 64 * K, 2 * M, 8 * M, 32 * M, 128 * M, G] {
        for (candidate, value) in [
            (policy(), 23.0),
            (method("rep_stosb"), 8.0 + (chunk as f64).log2() * 0.4),
            (method("movnti"), 11.9),
            (method("clzero"), 23.1),
        ] {
            let config = Config {
                operation: Some(Operation::Clear),
                size: Some(4 * G),
                chunk: Some(chunk),
                page_size: pages("4K"),
                ..Config::default()
            };
            results.rows.push(row(Measurement::Chunks, candidate, config, Metric::Bandwidth, value * speed));
        }
    }
}

fn vm(results: &mut Results, speed: f64) {
    for (page_size, seconds) in [("4K", 4.2), ("thp", 1.9), ("2M", 1.5)] {
        for threads in [1, 2] {
            let config = |memory| Config {
                operation: Some(Operation::Clear),
                size: Some(8 * G),
                page_size: pages(page_size),
                threads: Some(threads),
                memory: Some(memory),
                ..Config::default()
            };
            let seconds = seconds / threads as f64 / speed;
            let kernel = Candidate::named(Kind::Kernel, "prefault");
            let mut fresh = row(Measurement::Vm, kernel, config(Memory::Fresh), Metric::Seconds, seconds);
            fresh.also.insert("bytes_per_ns".to_owned(), (8 * G) as f64 / seconds / 1e9);
            results.rows.push(fresh);
            results.rows.push(row(
                Measurement::Vm,
                policy(),
                config(Memory::Reused),
                Metric::Seconds,
                seconds * 0.4,
            ));
        }
    }
}

fn persist(results: &mut Results, speed: f64) {
    for pattern in [Pattern::Sequential, Pattern::Random] {
        for width in [4, 8, 16, 32, 64] {
            for (name, value) in [
                ("nontemporal", 4.1),
                ("store, clwb", 5.1),
                ("store, clflushopt", 5.0),
                ("store, clflush", 1.2),
            ] {
                let config = Config {
                    operation: Some(Operation::CopyPersist),
                    width: Some(width),
                    pattern: Some(pattern),
                    target: Some(HOSTILE.to_owned()),
                    ..Config::default()
                };
                let value = value * speed * if pattern == Pattern::Random { 0.3 } else { 1.0 };
                results.rows.push(row(Measurement::Persist, method(name), config, Metric::Bandwidth, value));
            }
        }
    }
    let config = Config {
        operation: Some(Operation::CopyPersist),
        pattern: Some(Pattern::Sequential),
        target: Some(HOSTILE.to_owned()),
        ..Config::default()
    };
    results.rows.push(row(Measurement::Persist, policy(), config, Metric::Bandwidth, 5.2 * speed));
}

fn blocks(results: &mut Results, speed: f64) {
    for (block, scale) in [(64, 0.5), (512, 1.5), (4 * K, 4.0)] {
        for (candidate, value) in [
            (method("movnti"), 1.1),
            (method("store_8_clflushopt"), 0.7),
            (Candidate::named(Kind::Control, "whole lines"), 1.2),
            (Candidate::named(Kind::Control, "half lines"), 0.9),
        ] {
            let config = Config {
                operation: Some(Operation::CopyPersist),
                chunk: Some(block),
                pattern: Some(Pattern::Sequential),
                target: Some(HOSTILE.to_owned()),
                durable: Some(true),
                ..Config::default()
            };
            let it = row(Measurement::Blocks, candidate, config, Metric::Bandwidth, value * scale * speed);
            results.rows.push(it);
        }
    }
}

fn pollution(results: &mut Results, speed: f64) {
    for (list, by) in [(16 * K, 1.0), (512 * K, 20.0), (16 * M, 900.0)] {
        for (candidate, value) in [
            (policy(), 40.0),
            (Candidate::named(Kind::Policy, "policy, stream"), 3.0),
            (method("rep_stosb"), 950.0),
            (method("movnti"), 12.0),
            (method("clzero"), 15.0),
            (Candidate::named(Kind::Control, "same time, no memory"), 10.0),
        ] {
            let config = Config {
                operation: Some(Operation::Clear),
                size: Some(2 * list),
                list: Some(list),
                page_size: pages("thp"),
                ..Config::default()
            };
            let mut it =
                row(Measurement::Pollution, candidate, config, Metric::Nanoseconds, value * by / speed);
            it.also.insert("before_ns".to_owned(), 100.0 * by);
            results.rows.push(it);
        }
    }
}

fn corun(results: &mut Results) {
    for (candidate, value) in [
        (policy(), 20.3),
        (method("rep_stosb"), 22.8),
        (method("movnti"), 20.6),
        (Candidate::named(Kind::Control, "same processor time"), 20.1),
    ] {
        let config = Config { operation: Some(Operation::Clear), rate: Some(2.0), ..Config::default() };
        results.rows.push(row(Measurement::Corun, candidate, config, Metric::Seconds, value));
    }
    find(
        results,
        Measurement::Corun,
        "Next to rep_stosb the command takes 13 % longer than next to the control.",
    );
}

fn reuse(results: &mut Results, speed: f64) {
    for size in [256 * K, 16 * M] {
        for share in [0.0, 12.5, 25.0, 50.0, 75.0, 100.0] {
            for (name, first, last) in
                [("rep_stosb", 12.0, 9.0), ("movnti", 16.0, 5.0), ("clzero", 20.0, 6.5)]
            {
                let config = Config {
                    operation: Some(Operation::Clear),
                    size: Some(size),
                    read_back: Some(share),
                    page_size: pages("thp"),
                    ..Config::default()
                };
                let value = (first + (last - first) * share / 100.0) * speed;
                results.rows.push(row(Measurement::Reuse, method(name), config, Metric::Bandwidth, value));
            }
        }
    }
}

fn fork(results: &mut Results, speed: f64) {
    for size in [4 * K, 16 * K, 64 * K, 256 * K] {
        let kernel = Candidate::named(Kind::Kernel, "fork, then write");
        let config = Config { size: Some(size), page_size: pages("4K"), ..Config::default() };
        let value = (60_000.0 + size as f64 * 0.4) / speed;
        let mut it = row(Measurement::Fork, kernel, config, Metric::Nanoseconds, value);
        it.also.insert("pages_copied".to_owned(), (size / 4096) as f64);
        results.rows.push(it);
    }
}

/// memcpy bypasses the cache from 24 MiB on.
fn threshold(results: &mut Results, speed: f64) {
    for (size, value, uncached) in
        [(M, 40.0, 2.0), (16 * M, 18.0, 9.0), (24 * M, 15.0, 98.0), (32 * M, 15.0, 99.0)]
    {
        let config = Config {
            operation: Some(Operation::Copy),
            size: Some(size),
            page_size: pages("thp"),
            ..Config::default()
        };
        let c_library = Candidate::named(Kind::Peer, "c_library");
        let mut it = row(Measurement::Threshold, c_library, config, Metric::Bandwidth, value * speed);
        it.also.insert("uncached_percent".to_owned(), uncached);
        results.rows.push(it);
    }
    find(results, Measurement::Threshold, "memcpy bypasses the cache from between 16 MiB and 24 MiB on.");
}

/// The memory of another node has 0.6 times the speed.
fn numa(results: &mut Results, speed: f64) {
    for (node, memory) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for (candidate, value) in [(policy(), 20.0), (Candidate::named(Kind::Peer, "c_library"), 10.0)] {
            let config = Config {
                operation: Some(Operation::Clear),
                size: Some(128 * M),
                page_size: pages("thp"),
                processor_node: Some(node),
                memory_node: Some(memory),
                ..Config::default()
            };
            let value = value * speed * if node == memory { 1.0 } else { 0.6 };
            results.rows.push(row(Measurement::Numa, candidate, config, Metric::Bandwidth, value));
        }
    }
    find(results, Measurement::Numa, "clear to remote memory: 0.60 times the speed of local memory.");
}

fn iops(results: &mut Results, speed: f64) {
    for direction in [Direction::Read, Direction::Write] {
        for threads in [1, 2, 4] {
            for (candidate, value) in
                [(policy(), 3.1e6), (method("movntdqa"), 2.4e6), (method("nontemporal_avx512"), 2.9e6)]
            {
                let config = Config {
                    size: Some(G),
                    chunk: Some(4096),
                    threads: Some(threads),
                    direction: Some(direction),
                    target: Some("ram".to_owned()),
                    ..Config::default()
                };
                let value = value * speed * (threads as f64).sqrt();
                let mut it = row(Measurement::Iops, candidate, config, Metric::Iops, value);
                for (name, times) in [("p50_ns", 1.0), ("p99_ns", 2.1), ("p999_ns", 9.0), ("p9999_ns", 80.0)]
                {
                    it.also.insert(name.to_owned(), times * 1e9 / value);
                }
                results.rows.push(it);
            }
        }
    }
}

fn applications(results: &mut Results, speed: f64) {
    for (measurement, mix) in [(Measurement::WriteCache, Some(30)), (Measurement::Log, None)] {
        for group in [1, 64] {
            for (candidate, value) in
                [(policy(), 9e5), (method("movnti"), 8e5), (method("store_8_clwb"), 6e5)]
            {
                let config = Config {
                    size: Some(G),
                    chunk: Some(4096),
                    group: Some(group),
                    mix,
                    target: Some("ram".to_owned()),
                    ..Config::default()
                };
                let value = value * speed * (group as f64).log2().max(1.0);
                let mut it = row(measurement, candidate, config, Metric::Iops, value);
                it.also.insert("p50_ns".to_owned(), 1e9 / value);
                it.also.insert("p999_ns".to_owned(), 9e9 / value);
                results.rows.push(it);
            }
        }
    }
}

fn choice(results: &mut Results, speed: f64) {
    for (cache, page_size) in
        [(CacheState::Cold, "thp"), (CacheState::Warm, "thp"), (CacheState::Fresh, "4K")]
    {
        for shift in (12..=28).step_by(4) {
            let size = 1u64 << shift;
            for (candidate, share) in [
                (policy(), 0.95),
                (method("c_library"), 0.5),
                (method("movnti"), 0.6),
                (method("clzero"), 1.0),
                (Candidate::named(Kind::Peer, "libpmem"), 0.7),
            ] {
                let config = Config {
                    operation: Some(Operation::Clear),
                    size: Some(size),
                    threads: Some(1),
                    alignment: Some(Alignment::Aligned),
                    cache: Some(cache),
                    page_size: pages(page_size),
                    intent: Some(Intent::Throughput),
                    ..Config::default()
                };
                let value = at_size(size, [60.0, 20.0]) * share * speed;
                results.rows.push(row(Measurement::Choice, candidate, config, Metric::Bandwidth, value));
            }
        }
    }
    find(results, Measurement::Choice, "clear: a planted regret of 5.3 %.");
}
