//! Calls that look, with planted clocks and kernels.

use super::*;
use crate::carried::{AGREED, CARRIED, MOST_LENGTH};
use crate::method::{self, Entry, FillFn, Parameters};
use crate::policy::{Unmapped, built_in};

const FROM: usize = 64 << 10;

/// Kernels that show by the byte that they write which of them ran.
macro_rules! writes {
    ($name:ident, $byte:literal) => {
        static $name: Entry<FillFn> = {
            unsafe fn kernel(dst: *mut u8, len: usize, _: u8, _: &Parameters) {
                // SAFETY: as for every fill kernel.
                unsafe { dst.write_bytes($byte, len) }
            }
            Entry { unfenced: kernel, fenced: kernel, tunables: &[] }
        };
    };
}
writes!(CACHED, b'c');
writes!(UNCACHED, b'u');
writes!(UNMAPPED, b'm');
writes!(OTHERWISE, b'o');
writes!(POPULATED, b'p');

type Planted = Looking<'static, Kernels>;

#[derive(Clone, Copy)]
struct Kernels {
    uncached_may_be_cut: bool,
    populates: bool,
    huge_from: Option<u64>,
    /// Cached memory is the C library's, whose function may not be cut.
    c_library: bool,
}

impl Steps<'static> for Kernels {
    type Kernel = FillFn;

    fn after(&self, verdict: CacheVerdict) -> Step<'static, FillFn> {
        match verdict {
            CacheVerdict::Cached if self.c_library => {
                step(FillFn::entry(&method::c_library().code, Operation::Clear).unwrap(), false)
            }
            CacheVerdict::Cached => step(&CACHED, false),
            CacheVerdict::Uncached => step(&UNCACHED, true),
            CacheVerdict::Unmapped => step(&UNMAPPED, false),
        }
    }

    fn by_length(&self) -> Step<'static, FillFn> {
        step(&OTHERWISE, false)
    }

    fn populated(&self) -> Option<Step<'static, FillFn>> {
        self.populates.then(|| step(&POPULATED, true))
    }

    fn huge_from(&self) -> Option<u64> {
        self.huge_from
    }

    fn may_be_cut(&self, verdict: CacheVerdict) -> bool {
        match verdict {
            CacheVerdict::Cached => !self.c_library,
            CacheVerdict::Uncached => self.uncached_may_be_cut,
            CacheVerdict::Unmapped => true,
        }
    }
}

fn step(entry: &'static Entry<FillFn>, weak: bool) -> Step<'static, FillFn> {
    Step { entry, parameters: &Parameters::NONE, weak }
}

fn looking() -> Planted {
    let unmapped = Unmapped { from: 1000, choice: *built_in(Operation::Clear), huge: None };
    Looking {
        // Of those that persist, calls on the same memory depend on what they find alone.
        operation: Operation::FillPersist,
        look: Box::leak(Box::new(Look { from: FROM, cached_below: 100, unmapped: Some(unmapped) })),
        from: FROM,
        whole: FROM,
        steps: Kernels { uncached_may_be_cut: true, populates: false, huge_from: None, c_library: false },
        stream: Box::leak(Box::new(Stream::new())),
    }
}

fn with(populates: bool, huge_from: Option<u64>) -> Planted {
    let looking = looking();
    Looking { steps: Kernels { populates, huge_from, ..looking.steps }, ..looking }
}

/// One that does not look at the beginning first.
fn without_unmapped() -> Planted {
    let look = Box::leak(Box::new(Look { unmapped: None, ..*looking().look }));
    Looking { look, ..looking() }
}

/// # Safety
/// The memory is valid for its length.
unsafe fn run_by(looking: &Planted, memory: &Memory, length: usize, clock: impl FnMut() -> u64) -> bool {
    // SAFETY: passed on from the caller.
    unsafe {
        if looks_again(length, looking.from) {
            looking.by_interval(memory, 0..length, clock)
        } else {
            looking.carry(memory, 0..length, clock)
        }
    }
}

/// The time until lines in their pages were reached, or after that of storing to others.
const FINDS_CACHED: &[u64] = &[99];
const FINDS_UNCACHED: &[u64] = &[999, 100];
/// In a long range, where single stores follow.
const FINDS_ALL_UNCACHED: &[u64] = &[999, 100, 0, 100, 100, 100, 100];
const FINDS_ONE_CACHED: &[u64] = &[999, 300, 0, 100, 100, 99, 100];
const FINDS_UNMAPPED: &[u64] = &[1000, 50];

/// Works on `length` bytes with looks that take those times; returns the kernels that ran and the lengths of their work, and
/// whether a fence is needed. A further look would find a clock that stands still.
fn run(looking: &Planted, length: usize, looks: &[&[u64]]) -> (Vec<(u8, usize)>, bool) {
    let steps: Vec<u64> = looks.iter().flat_map(|times| [&0].into_iter().chain(*times)).copied().collect();
    run_at(0, looking, length, &steps)
}

/// The same, so many bytes after the beginning of a huge page, by a clock that makes these steps.
fn run_at(offset: usize, looking: &Planted, length: usize, steps: &[u64]) -> (Vec<(u8, usize)>, bool) {
    // Where a huge page begins, which decides how long an interval is.
    let mut bytes = vec![0; length + 2 * HUGE_PAGE];
    let start = bytes.as_ptr().addr().wrapping_neg() % HUGE_PAGE + offset;
    let bytes = &mut bytes[start..][..length];
    let memory = Memory::filled(bytes.as_mut_ptr(), length, 0);
    let mut now = 7_u64;
    let mut steps = steps.iter();
    let clock = || {
        now = now.wrapping_add(steps.next().copied().unwrap_or(0));
        now
    };
    // SAFETY: the memory is valid for its length.
    let weak = unsafe { run_by(looking, &memory, length, clock) };
    assert_eq!(steps.next(), None, "a look less");
    let runs = bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
    (runs, weak)
}

#[test]
fn the_times_decide() {
    let length = 1 << 20;
    assert_eq!(run(&looking(), length, &[&[99]]), (vec![(b'c', length)], false));
    assert_eq!(run(&looking(), length, &[&[100, 99]]), (vec![(b'c', length)], false));
    assert_eq!(run(&looking(), length, &[&[100, 100]]), (vec![(b'u', length)], true));
    assert_eq!(run(&looking(), length, &[&[999, 5000]]), (vec![(b'u', length)], true));
    assert_eq!(run(&looking(), length, &[&[1000, 1]]), (vec![(b'm', length)], false));
}

#[test]
fn a_clock_that_cannot_be_trusted_leaves_the_rule_by_length() {
    let length = 20 << 20;
    let backwards = 1_u64.wrapping_neg();
    for times in [&[0][..], &[backwards, 50], &[1 << 40, 50], &[100, 0], &[100, backwards], &[100, 1 << 40]] {
        assert_eq!(run(&looking(), length, &[times]), (vec![(b'o', length)], false), "{times:?}");
    }
}

#[test]
fn it_looks_again_after_each_interval() {
    let (c, u) = ((b'c', INTERVAL), (b'u', LONGEST_INTERVAL));
    let looks = [
        FINDS_ONE_CACHED,
        FINDS_CACHED,
        FINDS_ALL_UNCACHED,
        FINDS_ONE_CACHED,
        FINDS_ALL_UNCACHED,
        FINDS_ALL_UNCACHED,
        FINDS_CACHED,
    ];
    let mut looking = without_unmapped();
    let expected = [(b'c', INTERVAL + LONGEST_INTERVAL), u, c, (b'u', 2 * LONGEST_INTERVAL), c];
    let length = expected.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(run(&looking, length, &looks), (expected.to_vec(), true));
    for (interval, finds) in [(INTERVAL, FINDS_ONE_CACHED), (LONGEST_INTERVAL, FINDS_CACHED)] {
        let length = interval + WORTH_ANOTHER;
        let not_worth_another = length - 1;
        assert_eq!(run(&looking, not_worth_another, &[finds]), (vec![(b'c', not_worth_another)], false));
        assert_eq!(
            run(&looking, length, &[finds, FINDS_UNCACHED]),
            (vec![(b'c', interval), (b'u', WORTH_ANOTHER)], true)
        );
    }
    looking.steps.uncached_may_be_cut = false;
    let length = 3 * LONGEST_INTERVAL;
    assert_eq!(
        run(&looking, length, &[FINDS_ALL_UNCACHED]).0,
        [(b'u', length)],
        "its speed depends on the call"
    );
}

#[test]
fn a_look_at_more_than_a_huge_page_reaches_no_page_ahead_if_the_first_is_unmapped() {
    let length = INTERVAL;
    assert_eq!(run(&looking(), length, &[FINDS_UNMAPPED]), (vec![(b'm', length)], false));
    assert_eq!(run(&looking(), length, &[FINDS_CACHED, FINDS_UNMAPPED]), (vec![(b'm', length)], false));
    // Of mapped memory, the whole range decides.
    assert_eq!(run(&looking(), length, &[FINDS_UNCACHED, FINDS_CACHED]), (vec![(b'c', length)], false));
    assert_eq!(run(&looking(), length, &[FINDS_CACHED, FINDS_ALL_UNCACHED]), (vec![(b'u', length)], true));
    assert_eq!(run(&looking(), HUGE_PAGE, &[FINDS_CACHED]), (vec![(b'c', HUGE_PAGE)], false));
}

#[test]
fn work_on_unmapped_memory_ends_with_a_huge_page() {
    let (runs, weak) = run_at(12_345, &looking(), 3 * INTERVAL, &[0, 1000, 50]);
    let first = INTERVAL - 12_345;
    assert_eq!((runs, weak), (vec![(b'm', first), (b'o', 3 * INTERVAL - first)], false));
}

/// A page that an earlier look or call has had the kernel map, between new ones: a look at a longer range would take more times.
#[test]
fn a_look_after_unmapped_memory_reaches_no_further_than_a_huge_page() {
    // At its beginning, and at all of it.
    let mapped = [FINDS_UNCACHED, FINDS_UNCACHED];
    let looks =
        [&[FINDS_UNMAPPED], &mapped[..], &[FINDS_UNMAPPED], &mapped, &[FINDS_CACHED, FINDS_CACHED]].concat();
    let parts = [(b'm', 4), (b'u', 2), (b'm', 4), (b'u', 2), (b'c', 8)].map(|(by, mib)| (by, mib << 20));
    // Nor does the work, even by a method that is not cut elsewhere.
    for uncached_may_be_cut in [true, false] {
        let looking = looking();
        let looking = Looking { steps: Kernels { uncached_may_be_cut, ..looking.steps }, ..looking };
        assert_eq!(run(&looking, 20 << 20, &looks), (parts.to_vec(), true));
    }
}

#[test]
fn new_huge_pages_may_be_treated_as_memory_that_is_not_cached() {
    const REACHES_HUGE: &[u64] = &[5000, 50];
    let looking = with(true, Some(5000));
    // The kernel need not map them in advance.
    assert_eq!(run(&looking, INTERVAL, &[REACHES_HUGE]), (vec![(b'u', INTERVAL)], true));
    let looking = with(false, Some(5000));
    assert_eq!(run(&looking, INTERVAL, &[&[4999, 50]]), (vec![(b'm', INTERVAL)], false), "base pages");
    assert_eq!(run(&with(false, None), INTERVAL, &[REACHES_HUGE]), (vec![(b'm', INTERVAL)], false));
    // The work ends with a huge page, and the next look is at another one.
    let looks = [&[0], REACHES_HUGE, &[0], FINDS_UNMAPPED].concat();
    let (runs, weak) = run_at(12_345, &looking, LONGEST_INTERVAL + 2 * WORTH_ANOTHER, &looks);
    let first = LONGEST_INTERVAL - 12_345;
    assert_eq!((runs[0], runs[1].0, weak), ((b'u', first), b'm', true));
}

#[test]
#[cfg(not(miri))]
fn the_kernel_maps_unmapped_memory_if_it_may() {
    if !populate::kernel_can() {
        return;
    }
    let looking = || with(true, None);
    // Memory of the allocator may be written to, whether it is mapped or not.
    assert_eq!(run(&looking(), 1 << 20, &[FINDS_UNMAPPED]), (vec![(b'p', 1 << 20)], true));
    assert_eq!(run(&looking(), FROM, &[FINDS_UNMAPPED]), (vec![(b'p', FROM)], true));
    let looks = [FINDS_UNMAPPED, FINDS_UNMAPPED];
    let (runs, weak) = run(&looking(), 2 * INTERVAL, &looks);
    assert_eq!((runs, weak), (vec![(b'p', 2 * INTERVAL)], true));
    assert_eq!(run(&looking(), 1 << 20, &[FINDS_CACHED]), (vec![(b'c', 1 << 20)], false));
    assert_eq!(run(&looking(), 1 << 20, &[FINDS_UNCACHED]), (vec![(b'u', 1 << 20)], true));
}

#[test]
fn short_pieces_follow_the_rule_by_length() {
    for length in [0, 1, probe::LEAST, FROM - 1] {
        let runs = run(&looking(), length, &[]).0;
        assert!(runs.iter().all(|run| *run == (b'o', length)), "{length}: {runs:?}");
    }
    assert_eq!(run(&looking(), FROM, &[FINDS_CACHED]).0, [(b'c', FROM)]);
    let from = 4 * WORTH_ANOTHER;
    let looking = Looking { from, whole: from, ..without_unmapped() };
    assert_eq!(run(&looking, from - 1, &[]).0, [(b'o', from - 1)], "a piece of a longer call");
    assert_eq!(run(&looking, from, &[FINDS_CACHED]).0, [(b'c', from)]);
}

#[test]
fn the_first_short_call_of_a_total_looks_for_those_that_follow() {
    let call = probe::LEAST;
    let looking = Looking { whole: call, ..looking() };
    assert_eq!(run(&looking, call - 1, &[]), (vec![(b'o', call - 1)], false), "no room to look");
    assert_eq!(run(&looking, call, &[FINDS_CACHED]), (vec![(b'c', call)], false));
    for _ in 1..INTERVAL / call {
        assert_eq!(run(&looking, call, &[]), (vec![(b'c', call)], false));
    }
    // Each interval begins with another look.
    assert_eq!(run(&looking, call, &[FINDS_UNCACHED]), (vec![(b'u', call)], true));
    assert_eq!(run(&looking, 64, &[]), (vec![(b'u', 64)], true));
    for _ in 2..=INTERVAL / call {
        assert_eq!(run(&looking, call, &[]), (vec![(b'u', call)], true));
    }
    assert_eq!(run(&looking, call, &[FINDS_UNMAPPED]), (vec![(b'm', call)], false));
    for _ in 1..INTERVAL / call {
        assert_eq!(run(&looking, call, &[]), (vec![(b'm', call)], false));
    }
    // A clock that fails.
    assert_eq!(run(&looking, call, &[&[0]]), (vec![(b'o', call)], false));
    assert_eq!(run(&looking, call, &[]), (vec![(b'o', call)], false));
}

#[test]
fn calls_look_less_often_while_looks_agree() {
    let looking = looking();
    let carried = CARRIED as usize / FROM;
    let calls = |times: usize, looks: &[&[u64]], method: u8| {
        for _ in 0..times {
            assert_eq!(run(&looking, FROM, looks), (vec![(method, FROM)], method == b'u'));
        }
    };
    calls(usize::from(AGREED), &[FINDS_CACHED], b'c');
    for carried in [1, 2, 4, 8, 16, 32, 16, 32].map(|times| times * carried) {
        calls(1, &[FINDS_CACHED], b'c');
        calls(carried, &[], b'c');
    }
    // One that disagrees is believed immediately, and ends it.
    calls(usize::from(AGREED), &[FINDS_UNCACHED], b'u');
    for carried in [carried, 2 * carried, 4 * carried, 2 * carried] {
        calls(1, &[FINDS_UNCACHED], b'u');
        calls(carried, &[], b'u');
    }
    calls(1, &[FINDS_UNCACHED], b'u');
    // Long ones look as ever, and so do those of another length.
    calls(1, &[], b'u');
    let looks = [FINDS_CACHED, FINDS_ONE_CACHED];
    assert_eq!(run(&looking, INTERVAL, &looks), (vec![(b'c', INTERVAL)], false));
    calls(1, &[], b'u');
    assert_eq!(run(&looking, 2 * FROM, &[FINDS_CACHED]), (vec![(b'c', 2 * FROM)], false));
    calls(1, &[FINDS_UNCACHED], b'u');
}

#[test]
fn long_calls_in_memory_that_is_cached_throughout_are_followed() {
    let looking = without_unmapped();
    let long = |length: usize, looks: &[&[u64]]| _ = run(&looking, length, looks);
    for _ in 0..AGREED {
        long(INTERVAL, &[FINDS_CACHED]);
        assert_eq!(looking.stream.load().left, 0);
    }
    for length in [CARRIED, 2 * CARRIED, 4 * CARRIED, 8 * CARRIED] {
        long(INTERVAL, &[FINDS_CACHED]);
        assert_eq!(looking.stream.load().left, length);
    }
    let class = Stream::class(false, INTERVAL);
    assert_eq!(looking.stream.follow(class, INTERVAL), Some(Some(CacheVerdict::Cached)));
    // Not where only a part is cached, also if the call looks again; nor after several looks.
    let kept = looking.stream.load();
    for (length, looks) in
        [(INTERVAL, &[FINDS_ONE_CACHED][..]), (INTERVAL + WORTH_ANOTHER, &[FINDS_ONE_CACHED, FINDS_CACHED])]
    {
        looking.stream.store(kept);
        long(length, looks);
        assert_eq!(looking.stream.load(), Known::default());
    }
    long(2 * LONGEST_INTERVAL, &[FINDS_CACHED, FINDS_CACHED]);
    assert_eq!(looking.stream.load(), Known::default());
}

#[test]
fn a_verdict_by_the_c_librarys_function_is_known_as_such() {
    let clear = without_unmapped();
    let steps = Kernels { c_library: true, ..clear.steps };
    let clear = Looking { operation: Operation::Clear, steps, ..clear };
    let is_known = || clear.stream.load().by_c_library as usize == FROM;
    assert_eq!(run(&clear, FROM, &[FINDS_UNCACHED]), (vec![(b'u', FROM)], true));
    assert!(!is_known());
    for _ in 0..=AGREED {
        assert_eq!(run(&clear, FROM, &[FINDS_CACHED]), (vec![(0, FROM)], false));
        assert!(is_known());
    }
    assert!(clear.stream.follow_by_c_library(FROM));
    // Parts of a total follow by the method for the whole length.
    let part = Looking { whole: FROM - 1, ..clear };
    _ = run(&part, FROM - 1, &[FINDS_CACHED]);
    assert_eq!(part.stream.load().by_c_library, 0);
}

#[test]
fn verdicts_of_longer_calls_than_a_look_are_not_kept() {
    let clear = without_unmapped();
    let steps = Kernels { c_library: true, ..clear.steps };
    let clear = Looking { operation: Operation::Clear, steps, ..clear };
    let longest = LONGEST_INTERVAL + WORTH_ANOTHER;
    for (length, kept) in [(longest, longest), (longest + 1, 0), (MOST_LENGTH as usize + 1, 0)] {
        assert_eq!(run(&clear, length, &[FINDS_CACHED]), (vec![(0, length)], false));
        assert_eq!(clear.stream.load().by_c_library as usize, kept);
        assert_eq!(clear.stream.load().left, 0);
    }
}

#[test]
fn memory_that_was_bypassed_before_is_written_through_the_cache() {
    let mut bytes = vec![0; INTERVAL];
    let mut call = |looking: &Planted, start: usize, length: usize, looks: &[u64]| {
        let memory = Memory::filled(bytes[start..][..length].as_mut_ptr(), length, 0);
        let (mut now, mut steps) = (7, looks.first().map(|_| &0).into_iter().chain(looks));
        let clock = || {
            now += steps.next().unwrap();
            now
        };
        // SAFETY: the memory is valid for its length.
        let weak = unsafe { run_by(looking, &memory, length, clock) };
        assert_eq!(steps.next(), None);
        assert_eq!(weak, bytes[start] == b'u', "a fence for the step that ran");
        bytes[start]
    };
    let looking = |operation| Looking { operation, ..without_unmapped() };
    let clear = looking(Operation::Clear);
    assert_eq!(call(&clear, 0, FROM, FINDS_UNCACHED), b'u');
    assert_eq!(call(&clear, FROM, FROM, FINDS_UNCACHED), b'u', "other memory");
    assert_eq!(call(&clear, 0, FROM, FINDS_UNCACHED), b'c');
    // Calls that follow a verdict follow the one that was acted upon.
    assert_eq!(clear.stream.load().verdict, Some(CacheVerdict::Cached));
    assert_eq!(call(&clear, 0, FROM, FINDS_CACHED), b'c');
    assert_eq!(call(&clear, FROM, FROM, FINDS_UNCACHED), b'c');
    assert_eq!(call(&clear, FROM, FROM, FINDS_UNCACHED), b'u', "it did not stay");
    // Looks at more than this find cached memory if only a part is cached.
    for (length, looks, second) in
        [(probe::LONG, FINDS_UNCACHED, b'c'), (probe::LONG + 1, FINDS_ALL_UNCACHED, b'u')]
    {
        let looking = looking(Operation::Copy);
        assert_eq!([(); 2].map(|()| call(&looking, 0, length, looks)), [b'u', second], "{length}");
    }
    let persisting = looking(Operation::FillPersist);
    assert_eq!([(); 3].map(|()| call(&persisting, 0, FROM, FINDS_UNCACHED)), [b'u'; 3]);
    // Of these parts of a total, every second one looks.
    let parts = Looking { whole: probe::LONG, from: 2 * probe::LONG, ..looking(Operation::Clear) };
    for looks in [FINDS_UNCACHED, &[], FINDS_UNCACHED, &[], FINDS_UNCACHED] {
        assert_eq!(call(&parts, 0, probe::LONG, looks), b'u');
    }
}

#[test]
fn verdicts_are_counted() {
    let looking = looking();
    let length = 3 * INTERVAL + 2 * LONGEST_INTERVAL + WORTH_ANOTHER;
    let (cached, uncached) =
        ([FINDS_CACHED, FINDS_ONE_CACHED].repeat(3), [FINDS_UNCACHED, FINDS_ALL_UNCACHED].repeat(2));
    run(&looking, length, &[&cached[..], &uncached[..], &[FINDS_UNMAPPED]].concat());
    assert_eq!(looking.stream.counts(), [3, 2, 1]);
}
