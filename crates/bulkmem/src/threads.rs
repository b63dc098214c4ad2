//! How many threads an operation may use, and how it is split among them.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread;

use crate::signals::without_signals;
use crate::workers::Workers;

/// The number of threads that one operation may use. The library starts threads only on request. They block every signal
/// except those of their own faults. Starting one takes 50 to 100 µs in every call; [`Workers`] are started once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub enum Threads {
    /// The calling thread alone.
    #[default]
    One,
    /// The fewest threads that saturate memory at the length of the call, as the policy file says; one if it says nothing.
    /// Ignores the total length: each call starts its own threads, so each call must be worth them.
    Auto,
    /// This many, including the calling thread, but at most one for each whole page.
    Exactly(NonZeroUsize),
}

/// Large pieces end on multiples of this, so that no two threads share a huge page: one of them would clear all of it.
const HUGE: usize = 2 << 20;
/// Huge pages a piece must have for that. With fewer, some threads would do much more than others.
const HUGE_PAGES_EACH: usize = 8;

/// A range in pieces, in order and without gaps. Every piece holds whole pages, besides the partial ones at both ends.
#[derive(Clone, Copy)]
struct Split {
    address: usize,
    length: usize,
    /// Bytes before the first whole page.
    head: usize,
    /// Bytes of a page.
    page: usize,
    pages: usize,
    pieces: usize,
}

impl Split {
    /// Splits `length` bytes from `address` into at most `threads` pieces, by pages of `page` bytes.
    fn new(address: usize, length: usize, threads: usize, page: usize) -> Split {
        let head = (address.wrapping_neg() & (page - 1)).min(length);
        let pages = (length - head) / page;
        Split { address, length, head, page, pages, pieces: threads.min(pages).max(1) }
    }

    /// The offset at which the piece of that number starts; shares differ by one page at most, or if they are large by less than two
    /// huge pages.
    fn boundary(&self, at: usize) -> usize {
        if at == 0 {
            return 0;
        }
        if at == self.pieces {
            return self.length;
        }
        let share = at * (self.pages / self.pieces) + at.min(self.pages % self.pieces);
        let offset = self.head + share * self.page;
        if self.length / self.pieces < HUGE_PAGES_EACH * HUGE || HUGE <= self.page {
            return offset;
        }
        // The nearest multiple.
        let end = self.address.wrapping_add(offset).wrapping_add(HUGE / 2);
        (end - end % HUGE).wrapping_sub(self.address)
    }

    /// The piece of that number, counted from 0. Offsets count from the address.
    fn piece(&self, at: usize) -> Range<usize> {
        self.boundary(at)..self.boundary(at + 1)
    }
}

/// Calls `work` with pieces that make up `length` bytes from `address`, at most `threads`: the first on the calling
/// thread, the others each on one of the workers, or each on a new thread if there are none. Returns when every piece is
/// done; passes a panic on. The calling thread also does the pieces for which there is no other.
pub(crate) fn run(
    address: usize,
    length: usize,
    threads: usize,
    workers: Option<&Workers>,
    work: impl Fn(Range<usize>) + Sync,
) {
    let split = Split::new(address, length, threads, rustix::param::page_size());
    let work = |at| work(split.piece(at));
    match workers {
        Some(workers) if split.pieces > 1 => workers.run(split.pieces, work),
        _ => run_on_new_threads(split.pieces, work),
    }
}

/// Calls `work` with each number below `pieces`: 0 on the calling thread, the others each on a new thread.
fn run_on_new_threads(pieces: usize, work: impl Fn(usize) + Sync) {
    let work = &work;
    thread::scope(|scope| {
        for at in 1..pieces {
            let builder = thread::Builder::new().name("bulkmem".to_owned());
            let spawned = without_signals(|| builder.spawn_scoped(scope, move || work(at)));
            if spawned.is_err() {
                work(at);
            }
        }
        work(0);
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const PAGE: usize = 4096;

    fn split(
        address: usize,
        length: usize,
        threads: usize,
        page: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let split = Split::new(address, length, threads, page);
        (0..split.pieces).map(move |at| split.piece(at))
    }

    #[test]
    fn pieces_cover_everything_once_in_whole_pages() {
        for address in [0, 1, 63, 4095, 4096, 4097, HUGE - 1, HUGE, HUGE + 4096] {
            for length in [
                0,
                1,
                4095,
                4096,
                4097,
                8191,
                8192,
                12_345,
                3 * PAGE + 1,
                HUGE,
                5 * HUGE + 7,
                49 * HUGE,
                70 * HUGE + 1,
            ] {
                for workers in 1..=8 {
                    let pieces: Vec<_> = split(address, length, workers, PAGE).collect();
                    let case = format!("{address} {length} {workers}: {pieces:?}");
                    assert!(!pieces.is_empty() && pieces.len() <= workers, "{case}");
                    assert_eq!((pieces[0].start, pieces[pieces.len() - 1].end), (0, length), "{case}");
                    for pair in pieces.windows(2) {
                        assert_eq!(pair[0].end, pair[1].start, "{case}");
                        assert!((address + pair[0].end) % PAGE == 0, "{case}");
                    }
                    if pieces.len() > 1 {
                        assert!(pieces.iter().all(|piece| piece.len() >= PAGE), "{case}");
                    }
                    let head = address.next_multiple_of(PAGE) - address;
                    let whole = length.saturating_sub(head) / PAGE;
                    assert_eq!(pieces.len(), workers.min(whole).max(1), "{case}");
                    let large = length / pieces.len() >= HUGE_PAGES_EACH * HUGE;
                    if large {
                        let inner = pieces.windows(2).all(|pair| (address + pair[0].end) % HUGE == 0);
                        assert!(inner, "{case}");
                    }
                    let (least, most) = pieces.iter().fold((usize::MAX, 0), |(least, most), piece| {
                        (least.min(piece.len()), most.max(piece.len()))
                    });
                    assert!(most - least <= if large { 2 * HUGE } else { 3 * PAGE }, "{case}");
                }
            }
        }
    }

    #[test]
    fn absurd_worker_counts_get_a_page_each() {
        assert_eq!(split(0, 10 * PAGE, usize::MAX, PAGE).count(), 10);
        assert_eq!(split(usize::MAX - PAGE, PAGE, usize::MAX, PAGE).count(), 1);
    }

    #[test]
    fn one_worker_is_the_calling_thread() {
        let ran = Mutex::new(Vec::new());
        run(0, 10 * PAGE, 1, None, |piece| ran.lock().unwrap().push((thread::current().id(), piece)));
        assert_eq!(ran.into_inner().unwrap(), [(thread::current().id(), 0..10 * PAGE)]);
    }

    #[test]
    fn several_workers_run_on_as_many_threads() {
        let ran = Mutex::new(Vec::new());
        run(0, 10 * PAGE, 3, None, |piece| ran.lock().unwrap().push((thread::current().id(), piece.len())));
        let mut ran = ran.into_inner().unwrap();
        assert_eq!(ran.iter().map(|(_, length)| length).sum::<usize>(), 10 * PAGE);
        assert!(ran.iter().any(|(id, _)| *id == thread::current().id()));
        ran.dedup_by_key(|(id, _)| *id);
        assert_eq!(ran.len(), 3);
    }

    /// The signals that this thread blocks, a bit each.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn blocked_signals() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn new_threads_block_every_signal_but_faults_and_the_caller_none_more() {
        let bit = |signal: libc::c_int| 1_u64 << (signal - 1);
        // The first two cannot be blocked; the C library reserves the next two.
        let never = [libc::SIGKILL, libc::SIGSTOP, 32, 33];
        let faults = [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];
        let expected = never.into_iter().chain(faults).fold(u64::MAX, |mask, signal| mask & !bit(signal));

        // A thread of its own, whose mask no other test sees.
        let caller = thread::spawn(move || {
            // SAFETY: both sets are valid, and only this thread's mask changes.
            unsafe {
                let mut mine = std::mem::zeroed();
                libc::sigaddset(&raw mut mine, libc::SIGUSR1);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mine, std::ptr::null_mut());
            }
            let before = blocked_signals();
            assert_eq!(before, bit(libc::SIGUSR1));
            let seen = Mutex::new(Vec::new());
            let note = || seen.lock().unwrap().push((thread::current().id(), blocked_signals()));
            run(0, 10 * PAGE, 3, None, |_| note());
            assert_eq!(blocked_signals(), before, "after the call");

            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run(0, 10 * PAGE, 3, None, |_| panic!("on purpose"));
            }));
            assert!(panicked.is_err());
            assert_eq!(blocked_signals(), before, "after a panic");

            let (own, others): (Vec<_>, Vec<_>) =
                seen.into_inner().unwrap().into_iter().partition(|(id, _)| *id == thread::current().id());
            assert_eq!(own, [(thread::current().id(), before)], "while it works");
            others.into_iter().map(|(_, mask)| mask).collect::<Vec<_>>()
        });
        for mask in caller.join().unwrap().try_into().map(|masks: [u64; 2]| masks).unwrap() {
            assert_eq!(mask, expected, "{mask:x} is not {expected:x}");
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_after_all_pieces_ended() {
        let done = Mutex::new(0);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(0, 10 * PAGE, 5, None, |piece| {
                *done.lock().unwrap() += 1;
                assert!(piece.start == 0 || piece.end < 10 * PAGE, "the last piece");
            });
        }));
        assert!(panicked.is_err());
        assert_eq!(done.into_inner().unwrap(), 5);
    }
}
