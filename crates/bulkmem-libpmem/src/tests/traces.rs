//! By single-stepping: what is durable when a function returns, what only after a drain, and which instructions the
//! variables forbid.

use bulkmem::machine::{self, Features};
use testkit::guard::Guarded;
use testkit::x86_64::instruction::{Instruction, bypasses, text, writes_back};
use testkit::x86_64::store_tracker::{State, StoreTracker};
use testkit::x86_64::trace::Trace;

use super::oracle::all_methods;
use crate::copy::*;
use crate::flush::*;
use crate::methods::Stores;

/// Limit of instructions per traced call.
const LIMIT: usize = 1 << 15;
const LENGTHS: [usize; 5] = [1, 63, 65, 256, 700];
/// Offsets of the destination and of the source.
const PLACES: [(usize, usize); 3] = [(0, 8192), (5, 8200), (70, 33)];

/// Memory for a destination and a source, with the policy loaded: that would be in the trace of the first call.
fn memory() -> Guarded {
    bulkmem::init().unwrap();
    Guarded::new(16 << 10)
}

/// Traces calls for every place and length, by destination, source and length.
fn each(memory: &Guarded, call: impl Fn(*mut u8, *mut u8, usize, StoreTracked<'_>)) {
    for length in LENGTHS {
        for (to, from) in PLACES {
            let (to, from) = (memory.as_ptr().wrapping_add(to), memory.as_ptr().wrapping_add(from));
            let tracked = |before: State, traced: &dyn Fn()| {
                StoreTracker::during(LIMIT, to.addr()..to.addr() + length, before, traced).unwrap()
            };
            call(to, from, length, &tracked);
        }
    }
}

/// Traces a call and follows the bytes of the destination.
type StoreTracked<'t> = &'t dyn Fn(State, &dyn Fn()) -> StoreTracker;

#[track_caller]
fn assert_all(tracker: &StoreTracker, least: State, case: &str) {
    let worst = tracker.worst().unwrap();
    assert!(worst.1 >= least, "{case}: byte {} is {:?}", worst.0, worst.1);
}

#[test]
fn bytes_are_durable_unless_a_flag_says_otherwise() {
    let memory = memory();
    let own_fence = !machine::features().intersects(Features::CLWB | Features::CLFLUSHOPT);
    for flags in 0..1 << 6 {
        each(&memory, |to, from, length, tracked| {
            let apart = to.addr().abs_diff(from.addr()) >= length;
            let copy = || {
                // SAFETY: both ranges are within the memory.
                unsafe { pmem_memmove(to.cast(), from.cast(), length, flags) };
            };
            let fill = || {
                // SAFETY: the range is within the memory.
                unsafe { pmem_memset(to.cast(), 7, length, flags) };
            };
            for (call, apart) in [(&copy as &dyn Fn(), apart), (&fill, true)] {
                let case = format!("{length} bytes, flags {flags:#b}, apart: {apart}");
                let tracker = tracked(State::Untouched, call);
                let noflush = flags & PMEM_F_MEM_NOFLUSH != 0;
                let nodrain = flags & PMEM_F_MEM_NODRAIN != 0;
                let hinted = flags & (PMEM_F_MEM_NONTEMPORAL | PMEM_F_MEM_TEMPORAL) != 0;
                let least = match (noflush, nodrain) {
                    (true, _) => State::Cached,
                    (false, true) => State::Pending,
                    (false, false) => State::Durable,
                };
                assert_all(&tracker, least, &case);
                if noflush {
                    let persist = || {
                        call();
                        // SAFETY: the range is within the memory.
                        unsafe { pmem_persist(to.cast(), length) }
                    };
                    assert_all(&tracked(State::Untouched, &persist), State::Durable, &case);
                } else if nodrain {
                    assert!(!hinted || !apart || own_fence || tracker.fences == 0, "{case}: needless fence");
                    let drain = || {
                        call();
                        pmem_drain();
                    };
                    assert_all(&tracked(State::Untouched, &drain), State::Durable, &case);
                } else {
                    assert_eq!(tracker.weak_pending, 0, "{case}");
                }
            }
        });
    }
}

#[test]
fn functions_without_flags_persist_or_leave_the_drain() {
    let memory = memory();
    each(&memory, |to, from, length, tracked| {
        let (dst, src) = (to.cast(), from.cast_const().cast());
        // SAFETY: both ranges are within the memory.
        let calls: [(&str, State, &dyn Fn()); 6] = unsafe {
            [
                ("memmove", State::Durable, &|| _ = pmem_memmove_persist(dst, src, length)),
                ("memcpy", State::Durable, &|| _ = pmem_memcpy_persist(dst, src, length)),
                ("memset", State::Durable, &|| _ = pmem_memset_persist(dst, 1, length)),
                ("memmove", State::Pending, &|| _ = pmem_memmove_nodrain(dst, src, length)),
                ("memcpy", State::Pending, &|| _ = pmem_memcpy_nodrain(dst, src, length)),
                ("memset", State::Pending, &|| _ = pmem_memset_nodrain(dst, 1, length)),
            ]
        };
        for (name, least, call) in calls {
            assert_all(&tracked(State::Untouched, call), least, &format!("{name} of {length} bytes"));
        }
        // SAFETY: the range is within the memory.
        let flushes: [(&str, State, &dyn Fn()); 4] = unsafe {
            [
                ("flush", State::Pending, &|| pmem_flush(dst, length)),
                ("persist", State::Durable, &|| pmem_persist(dst, length)),
                ("deep flush", State::Pending, &|| pmem_deep_flush(dst, length)),
                ("deep persist", State::Durable, &|| {
                    pmem_deep_flush(dst, length);
                    pmem_drain();
                }),
            ]
        };
        for (name, least, call) in flushes {
            assert_all(&tracked(State::Cached, call), least, &format!("{name} of {length} bytes"));
        }
    });
}

/// The instructions of a call with a property.
fn executed(property: fn(&Instruction) -> bool, call: impl FnOnce()) -> Vec<String> {
    let trace = Trace::record(LIMIT, Features::empty(), call).unwrap();
    // Without the address.
    let name = |it| text(&it).split_once(' ').map(|(_, name)| name.to_owned()).unwrap_or_default();
    trace.steps().filter(|(instruction, _)| property(instruction)).map(|(it, _)| name(it)).collect()
}

#[test]
fn variables_forbid_instructions() {
    let memory = memory();
    let (to, from) = (memory.as_ptr().wrapping_add(3), memory.as_ptr().wrapping_add(8192));
    for (name, methods) in all_methods() {
        let survive = name.ends_with("survive: true");
        for stores in [Stores::ByPolicy, Stores::Temporal, Stores::NonTemporal] {
            let case = format!("{name} {stores:?}");
            // SAFETY: both ranges are within the memory.
            let copy = || unsafe { methods.copy(to, from, 500, stores) };
            // SAFETY: the range is within the memory.
            let fill = || unsafe { methods.fill(to, 1, 500, stores) };
            for call in [&copy as &dyn Fn(), &fill] {
                let range = to.addr()..to.addr() + 500;
                let tracker = StoreTracker::during(LIMIT, range, State::Untouched, call).unwrap();
                assert!(survive || tracker.worst().unwrap().1 >= State::Pending, "{case}");
                let flushed = executed(writes_back, call);
                let used = |word: &str| flushed.iter().any(|text| text.starts_with(word));
                assert!(
                    !survive || stores == Stores::NonTemporal || flushed.is_empty(),
                    "{case}: {flushed:?}"
                );
                assert!(!name.contains("no_clwb: true") || !used("clwb"), "{case}: {flushed:?}");
                assert!(!name.contains("no_clflushopt: true") || !used("clflushopt"), "{case}: {flushed:?}");
                let past_cache = executed(bypasses, call);
                let movnt = match stores {
                    _ if name.contains("no_movnt: true") => Some(false),
                    Stores::Temporal => Some(false),
                    Stores::NonTemporal => Some(true),
                    Stores::ByPolicy if name.contains("Some(256)") => Some(true),
                    Stores::ByPolicy => None,
                };
                assert!(movnt.is_none_or(|movnt| movnt != past_cache.is_empty()), "{case}: {past_cache:?}");
            }
        }
        // SAFETY: the range is within the memory.
        let flushed = executed(writes_back, || unsafe { methods.flush(to, 500) });
        assert_eq!(flushed.is_empty(), survive, "{name}");
        // SAFETY: the range is within the memory.
        let deeply = executed(writes_back, || unsafe { methods.deep_flush(to, 500) });
        assert_eq!(deeply.len(), 8, "{name}: {deeply:?}");
    }
}
