//! The tables of bytes that are used next.

use super::*;

/// Bytes that are read back are read from memory if the stores bypassed the cache.
#[test]
fn what_is_used_next_bypasses_the_cache_where_that_pays_in_uncached_memory() {
    let reuse = |length: u64, warm: bool, speeds: [f64; 2]| {
        ["c_library", "movnti"].into_iter().zip(speeds).map(move |(method, gb_per_s)| Figure {
            cost: Cost::Reuse,
            condition: Condition { warm, ..COLD },
            ..at(method, length, gb_per_s, 0.01)
        })
    };
    let figures: Vec<Figure> = reuse(MIB, false, [10.0, 8.0])
        .chain(reuse(MIB, true, [20.0, 5.0]))
        .chain(reuse(16 * MIB, false, [10.0, 16.0]))
        .chain(reuse(16 * MIB, true, [20.0, 19.0]))
        .chain(reuse(256 * MIB, false, [10.0, 13.0]))
        .collect();
    let of = |situation| -> Vec<String> {
        choices(&figures, Operation::Clear, situation).into_iter().map(|(_, key)| key.method).collect()
    };
    assert_eq!(of(Situation::UncachedReuse), ["c_library", "movnti", "movnti"]);
    assert_eq!(of(Situation::CachedReuse), ["c_library", "c_library", "movnti"]);
    // Where nothing is known, both states decide.
    assert_eq!(of(Situation::Reuse), ["c_library", "movnti", "movnti"]);
}

#[test]
fn cached_memory_has_rules_of_its_own_for_bytes_that_are_used_next_if_they_differ() {
    let looked = |state, storing| look::Looked {
        operation: Operation::Clear,
        length: 64 << 10,
        state,
        times: vec![bulkmem::probe::Times { reaching: 600, storing: Some(storing) }; 9],
    };
    let looks = vec![looked(MemoryState::Cached, 100), looked(MemoryState::Uncached, 400)];
    let samples = Samples { looks, ns_per_tick: 0.4, second_level: 2 << 20, ..Samples::default() };
    // Of the C library and MOVNTI, in cached and in uncached memory; the first decide that calls look.
    let figures = |cost: Cost, cached: [f64; 2], uncached: [f64; 2]| {
        let all = [(true, cached), (false, uncached)].into_iter();
        all.flat_map(|(warm, speeds)| {
            ["c_library", "movnti"].into_iter().zip(speeds).map(move |it| (warm, it))
        })
        .flat_map(move |(warm, (method, gb_per_s))| {
            let condition = Condition { warm, ..COLD };
            let figure = move |length| Figure { cost, condition, ..at(method, length, gb_per_s, 0.01) };
            [MIB, 4 * MIB, 16 * MIB].map(figure)
        })
    };
    let situations = |cached: [f64; 2], uncached: [f64; 2], samples: &Samples| {
        let all = figures(Cost::Throughput, [80.0, 10.0], [10.0, 30.0]);
        let all: Vec<Figure> = all.chain(figures(Cost::Reuse, cached, uncached)).collect();
        let rules = derive(&all, samples).rules;
        [Situation::CachedReuse, Situation::UncachedReuse]
            .map(|situation| rules.iter().any(|rule| rule.situation == situation))
    };
    assert_eq!(situations([20.0, 19.0], [10.0, 16.0], &samples), [true, true], "by length as uncached");
    assert_eq!(situations([20.0, 5.0], [10.0, 16.0], &samples), [false, true], "by length as cached");
    assert_eq!(situations([20.0, 19.0], [10.0, 9.0], &samples), [false, false], "no difference");
    assert_eq!(situations([20.0, 19.0], [10.0, 16.0], &Samples::default()), [false, false], "no look");
}
