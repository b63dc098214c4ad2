//! Rows and rejected options, and what the tests of both applications share.

use std::ops::Range;

use bulkmem::machine::{Features, Machine};
use bulkmem::policy::Policy;
use testkit::x86_64::store_tracker::{State, StoreTracker};
use testkit::x86_64::trace::Trace;

use super::*;
use crate::engine::{Kind, MeasureError, MethodSet, Peers, Results, testing};
use crate::measurements::participants::tests::named;

fn run(options: &ApplicationOptions) -> Result<Results, MeasureError> {
    testing::run(options, false).0
}

fn small(options: ApplicationOptions) -> ApplicationOptions {
    let target =
        TargetOptions { size: Some(1 << 20), page_size: "4K".parse().unwrap(), ..TargetOptions::ram() };
    let candidates = Candidates { runs: 2, ..Candidates::default() };
    ApplicationOptions { target, time: Duration::from_millis(1), candidates, ..options }
}

/// Everything that persists here, by name: the policy, every method, and libpmem if it is installed.
pub(super) fn everybody(policy: &Policy) -> Vec<(String, Implementation<'_>)> {
    let methods = implementation::methods(&MethodSet::All, Operation::CopyPersist).unwrap();
    let (libraries, _) = implementation::libraries(Operation::CopyPersist, Peers::All);
    let policy = Implementation::policy(policy, Intent::Throughput, 4096);
    let all = [policy].into_iter().chain(methods.into_iter().map(Implementation::Method)).chain(libraries);
    all.map(|it| (it.candidate().name, it)).collect()
}

pub(super) fn range(memory: &mut [u64]) -> RawRange {
    RawRange { start: memory.as_mut_ptr().cast(), length: size_of_val(memory) }
}

/// Returns a range of addresses.
pub(super) fn at(start: *mut u8, length: usize) -> Range<usize> {
    start.addr()..start.addr() + length
}

/// Checks that a range is durable before anything is stored to another one.
#[track_caller]
pub(super) fn durable_before(trace: &Trace, first: Range<usize>, then: Range<usize>, case: &str) {
    let tracked = StoreTracker::before_store(trace, first, State::Untouched, then).unwrap();
    assert_eq!(tracked.worst().unwrap().1, State::Durable, "{case}: byte {}", tracked.worst().unwrap().0);
}

/// Checks that a range is durable at the end.
#[track_caller]
pub(super) fn durable_at_the_end(trace: &Trace, range: Range<usize>, case: &str) {
    let tracked = StoreTracker::of_trace(trace, range, State::Untouched).unwrap();
    assert_eq!(tracked.worst().unwrap().1, State::Durable, "{case}");
}

/// Records the instructions of a call.
pub(super) fn traced(call: impl FnOnce()) -> Trace {
    Trace::record(1 << 16, Features::empty(), call).unwrap()
}

#[test]
fn each_group_has_a_row_of_everybody_with_latencies() {
    for (options, reads, groups) in [
        (ApplicationOptions::write_cache(), Some(30), &[1, 64][..]),
        (ApplicationOptions::log(), None, &[1, 8, 64]),
    ] {
        let options = small(options);
        let results = run(&options).unwrap();
        for group in groups {
            let rows: Vec<&Row> =
                results.rows.iter().filter(|row| row.config.group == Some(*group)).collect();
            let policy = Policy::defaults(Machine::current());
            let expected: Vec<String> = everybody(&policy).into_iter().map(|(name, _)| name).collect();
            let names: Vec<&str> = rows.iter().map(|row| row.candidate.name.as_str()).collect();
            assert_eq!(names, expected);
            for row in rows {
                assert_eq!(row.measurement, options.measurement());
                assert_eq!((row.config.chunk, row.config.mix), (Some(options.lengths[0]), reads));
                assert_eq!(row.chosen.is_some(), row.candidate.kind == Kind::Policy);
                assert!(row.stats.median > 0.0 && row.also["operations"] >= 1.0, "{row:?}");
                let latencies = ["p50_ns", "p99_ns", "p999_ns", "p9999_ns"].map(|name| row.also[name]);
                assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{row:?}");
            }
        }
        let findings: Vec<&str> = results.findings.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(findings.len(), groups.len());
        for text in findings {
            assert!(text.contains("the best that stores and writes back, runs at"), "{text}");
            assert_eq!(text.contains("Published (Patocka 2020)"), reads.is_some(), "{text}");
        }
    }
}

#[test]
fn nonsense_is_refused_before() {
    let (cache, log) = (small(ApplicationOptions::write_cache()), small(ApplicationOptions::log()));
    for (options, message) in [
        (ApplicationOptions { lengths: vec![100], ..cache.clone() }, "--block: 100 bytes are not whole"),
        (ApplicationOptions { lengths: vec![7], ..log.clone() }, "--record: shorter records do not hold"),
        (
            ApplicationOptions { groups: vec![8, 0], ..log.clone() },
            "--group: groups of 0 are never committed",
        ),
        (ApplicationOptions { groups: vec![1 << 20], ..log.clone() }, "are too small"),
        (ApplicationOptions { groups: vec![u64::MAX], ..cache.clone() }, "are too small"),
        (ApplicationOptions { time: Duration::from_secs(60), ..log.clone() }, "give 1ms to 2s"),
        (ApplicationOptions { mix: Some(101), ..cache.clone() }, "--mix: 101 % is more than all"),
        (ApplicationOptions { candidates: named(&["rep_movsb"], Peers::All, 2), ..cache }, "rep_movsb"),
    ] {
        let error = options.validate().unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
}

/// A group that just fits: its slots are never taken before they are free.
#[test]
fn the_largest_group_fits() {
    let options = ApplicationOptions { groups: vec![100], ..small(ApplicationOptions::write_cache()) };
    let target = |size| TargetOptions { size: Some(size), ..options.target.clone() };
    let least = options.want().least;
    let fits = ApplicationOptions { target: target(least), ..options.clone() };
    assert_eq!(run(&fits).unwrap().rows.len(), run(&options).unwrap().rows.len());
    assert!(Cache::slots_in(least as usize, 4096) >= 200);
    ApplicationOptions { target: target(least - 1), ..options }.validate().unwrap_err();
}
