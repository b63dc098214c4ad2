//! Where the C library is chosen.

use super::*;

/// Where the C library has few samples, a quick calibration must not choose without it.
#[test]
fn the_c_library_bars_slower_methods_by_few_samples_too() {
    let warm = Condition { warm: true, ..COLD };
    let figure = |method, length, condition, gb_per_s, samples| Figure {
        samples,
        condition,
        ..at(method, length, gb_per_s, 0.01)
    };
    let of_each = |samples: [u32; 2], when_warm: f64| {
        let figures = [
            figure("c_library", 64 << 10, COLD, 20.0, 9),
            figure("clzero", 64 << 10, COLD, 10.0, 9),
            figure("c_library", MIB, COLD, 10.0, 3),
            figure("clzero", MIB, COLD, 20.0, 3),
            figure("c_library", MIB, warm, 40.0, samples[0]),
            figure("clzero", MIB, warm, when_warm, samples[1]),
        ];
        let choices = choices(&figures, Operation::Clear, Situation::Throughput);
        choices.last().map(|(_, key)| key.method.clone()).unwrap()
    };
    let by = |samples: u32, when_warm: f64| of_each([samples; 2], when_warm);
    assert_eq!(by(1, 20.0), "c_library");
    assert_eq!(by(2, 34.0), "c_library");
    assert_eq!(by(1, 34.0), "clzero", "one disturbed sample of each differs by as much");
    assert_eq!(of_each([9, 1], 34.0), "clzero", "or of either");
}

/// memcpy of glibc takes non-temporal stores from a length on, here 182 MiB, and copies twice as fast then.
#[test]
fn the_c_library_is_chosen_from_the_length_at_which_it_begins_to_bypass_the_cache() {
    let from = |bypasses: Option<u64>, threshold_of: Operation, cached: u64| {
        let threshold = Threshold { operation: threshold_of, cached: cached * MIB, uncached: bypasses };
        let samples = Samples { thresholds: vec![threshold], ..Samples::default() };
        let figures = [
            at("c_library", 16 * MIB, 6.0, 0.01),
            at("movnti", 16 * MIB, 11.0, 0.01),
            at("c_library", 64 * MIB, 6.0, 0.01),
            at("movnti", 64 * MIB, 11.0, 0.01),
            at("c_library", 256 * MIB, 11.0, 0.01),
            at("portable", 256 * MIB, 7.0, 0.01),
        ];
        let rules = derive(&figures, &samples).rules.into_iter();
        let rules = rules.filter(|rule| rule.situation == Situation::Throughput && rule.from > 0);
        rules.map(|rule| (rule.method, rule.from)).next_back().unwrap()
    };
    let c_library = |from| ("c_library".to_owned(), from);
    assert_eq!(from(Some(182 * MIB), Operation::Clear, 180), c_library(182 * MIB));
    assert_eq!(from(Some(256 * MIB), Operation::Clear, 252), c_library(256 * MIB));
    assert_eq!(
        from(None, Operation::Clear, 180),
        c_library(128 * MIB),
        "in the middle: MOVNTI was not measured at 256 MiB"
    );
    assert_eq!(from(Some(48 * MIB), Operation::Clear, 47), c_library(128 * MIB), "not between");
    assert_eq!(from(Some(64 * MIB), Operation::Clear, 63), c_library(128 * MIB), "at the lower length");
    assert_eq!(from(Some(192 * MIB), Operation::Clear, 96), c_library(128 * MIB), "not narrowed down");
    assert_eq!(from(Some(182 * MIB), Operation::Clear, 0), c_library(128 * MIB), "not located");
    assert_eq!(from(Some(182 * MIB), Operation::Copy, 180), c_library(128 * MIB), "another function");
}
