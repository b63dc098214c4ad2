//! What calls do whose bytes are used next.

use super::*;

/// Figures of two methods with these speeds.
fn figures(
    length: u64,
    warm: bool,
    methods: [&'static str; 2],
    gb_per_s: [f64; 2],
) -> impl Iterator<Item = Figure> {
    methods.into_iter().zip(gb_per_s).map(move |(method, gb_per_s)| Figure {
        cost: Cost::Reuse,
        condition: Condition { warm, ..COLD },
        ..at(method, length, gb_per_s, 0.01)
    })
}

/// Bytes that are read back are read from memory if the stores bypassed the cache.
#[test]
fn what_is_used_next_bypasses_the_cache_where_that_pays_in_uncached_memory() {
    let reuse = |length, warm, speeds| figures(length, warm, ["c_library", "movnti"], speeds);
    let figures: Vec<Figure> = reuse(MIB, false, [10.0, 8.0])
        .chain(reuse(MIB, true, [20.0, 5.0]))
        .chain(reuse(16 * MIB, false, [10.0, 13.0]))
        .chain(reuse(16 * MIB, true, [20.0, 14.0]))
        .chain(reuse(256 * MIB, false, [10.0, 13.0]))
        .collect();
    let of = |situation| -> Vec<String> {
        choices(&figures, Operation::Clear, situation).into_iter().map(|(_, key)| key.method).collect()
    };
    assert_eq!(of(Situation::UncachedReuse), ["c_library", "movnti", "movnti"]);
    assert_eq!(of(Situation::Reuse), ["c_library", "c_library", "movnti"]);
}

/// A method that is faster in uncached memory alone must not slow down the calls that find cached memory.
#[test]
fn where_calls_look_cached_memory_alone_decides_what_cached_memory_gets() {
    let reuse = |length, warm, speeds| figures(length, warm, ["c_library", "store_avx"], speeds);
    let figures: Vec<Figure> = [1, 4, 8, 16, 32]
        .map(|mib| mib * MIB)
        .into_iter()
        .flat_map(|length| reuse(length, false, [10.0, 16.0]).chain(reuse(length, true, [20.0, 19.2])))
        .chain(reuse(256 * MIB, false, [10.0, 16.0]))
        .collect();
    let all = table::rows(&figures, Operation::Clear, Cost::Reuse);
    let chosen = |looks_from| -> Vec<String> {
        let rows = beside_look(all.clone(), of_state(&all, Situation::Cached), looks_from);
        fitted(&rows, Situation::Reuse, None).into_iter().map(|(_, key)| key.method).collect()
    };
    let of = |runs: [(&str, usize); 3]| -> Vec<String> {
        runs.into_iter().flat_map(|(method, count)| vec![method.to_owned(); count]).collect()
    };
    assert_eq!(chosen(None), of([("store_avx", 6), ("", 0), ("", 0)]), "no look");
    let beside = of([("store_avx", 1), ("c_library", 4), ("store_avx", 1)]);
    assert_eq!(chosen(Some(2 * MIB)), beside, "256 MiB are not cached");
    assert_eq!(chosen(Some(MIB)), of([("c_library", 5), ("store_avx", 1), ("", 0)]));
}

#[test]
fn calls_look_from_where_uncached_memory_is_bypassed() {
    let pick = |from, method: &str| {
        let key = Key { method: method.to_owned(), parameters: Parameters::default() };
        Pick { from, key, reason: String::new() }
    };
    let picks =
        [pick(0, "c_library"), pick(MIB, "store_avx"), pick(4 * MIB, "movnti"), pick(64 * MIB, "clzero")];
    assert_eq!(bypassed_from(&picks, 64 << 10), Some(4 * MIB));
    assert_eq!(bypassed_from(&picks, 16 * MIB), Some(16 * MIB), "no call below looks");
    assert_eq!(bypassed_from(&picks, 128 * MIB), Some(128 * MIB));
    assert_eq!(bypassed_from(&picks[..2], MIB), None);
    assert_eq!(bypassed_from(&[], MIB), None);
}
