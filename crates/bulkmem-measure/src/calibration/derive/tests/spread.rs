//! Conditions whose samples vary by a factor, as small pages do in some virtual machines.

use super::*;

const UNALIGNED: Condition = Condition { aligned: false, ..COLD };

/// A figure of many samples, whose quartiles are the median divided and multiplied by a factor.
fn varying(method: &str, condition: Condition, gb_per_s: f64, factor: f64) -> Figure {
    let it = at(method, MIB, gb_per_s, 0.0);
    Figure { condition, samples: 31, quartiles_ns: [it.median_ns / factor, it.median_ns * factor], ..it }
}

/// The C library and CLZERO with these GB/s in aligned and unaligned ranges, whose quartiles vary by these factors.
fn both(c_library: [f64; 2], clzero: [f64; 2], factors: [f64; 2]) -> Vec<Figure> {
    let of = |method, gb_per_s: [f64; 2]| {
        let condition = |at: usize, condition| varying(method, condition, gb_per_s[at], factors[at]);
        [condition(0, COLD), condition(1, UNALIGNED)]
    };
    [of("c_library", c_library), of("clzero", clzero)].concat()
}

/// CLZERO is twice as fast in aligned ranges, and at a fifth of the speed in unaligned ones.
fn contradicting(factor: f64) -> Vec<Figure> {
    both([10.0, 10.0], [20.0, 2.0], [1.02, factor])
}

#[test]
fn a_condition_that_varies_tenfold_bars_nothing_and_counts_little() {
    let chosen = |factor| {
        let choices = choices(&contradicting(factor), Operation::Clear, Situation::Throughput);
        choices[0].1.method.clone()
    };
    assert_eq!(chosen(3.0), "clzero");
    assert_eq!(chosen(1.02), "c_library", "it loses there for certain");
    assert_eq!(chosen(1.15), "c_library", "it loses more than it gains");
}

/// A gain by chance excuses no loss where the figures are reliable.
#[test]
fn a_gain_where_samples_vary_tenfold_allows_no_loss_elsewhere() {
    let figures = both([10.0, 1.0], [8.5, 50.0], [1.02, 2.0]);
    assert_eq!(choices(&figures, Operation::Clear, Situation::Throughput)[0].1.method, "c_library");
}

/// On a busy machine, too, a method must not lose to the C library.
#[test]
fn where_all_conditions_vary_each_bars_as_ever() {
    let figures = both([10.0, 10.0], [100.0, 4.0], [1.6, 1.6]);
    assert_eq!(choices(&figures, Operation::Clear, Situation::Throughput)[0].1.method, "c_library");
}

/// Each state of the cache keeps its part: a program may find either.
#[test]
fn aligned_and_unaligned_ranges_share_the_part_of_their_state() {
    let warm = |condition| Condition { warm: true, ..condition };
    let figures = [
        varying("c_library", COLD, 10.0, 1.02),
        varying("c_library", UNALIGNED, 10.0, 2.0),
        varying("c_library", warm(COLD), 10.0, 1.02),
        varying("c_library", warm(UNALIGNED), 10.0, 1.02),
    ];
    let rows = table::rows(&figures, Operation::Clear, Cost::Throughput);
    let row = &rows[&MIB];
    let weights: BTreeMap<_, _> = table::weigh(row, &table::shared_conditions(row)).into_iter().collect();
    let near = |condition: Condition, weight: f64| (weights[&condition] - weight).abs() < 0.01;
    assert!(near(warm(COLD), 0.25) && near(warm(UNALIGNED), 0.25), "{weights:?}");
    assert!(near(COLD, 0.46) && near(UNALIGNED, 0.04), "{weights:?}");
}

/// What small pages do at one length is known from the others, too.
#[test]
fn how_much_samples_vary_is_known_from_all_lengths() {
    let mut figures = contradicting(3.0);
    let once =
        |it: &Figure| Figure { length: 2 * MIB, samples: 1, quartiles_ns: [it.median_ns; 2], ..it.clone() };
    figures.extend(contradicting(3.0).iter().map(once));
    let choices = choices(&figures, Operation::Clear, Situation::Throughput);
    assert_eq!(choices.iter().map(|it| it.1.method.as_str()).collect::<Vec<_>>(), ["clzero"; 2]);
}

/// Nor does it move the threshold between two lengths to the upper one.
#[test]
fn a_condition_that_varies_tenfold_moves_no_threshold() {
    let at = |length: u64, c_library: f64, clzero: f64| {
        let of = |method, aligned| {
            [varying(method, COLD, aligned, 1.02), varying(method, UNALIGNED, aligned.min(9.0), 3.0)]
        };
        let slower = |it: Figure| match it.condition.aligned {
            false if it.method == "clzero" => Figure { median_ns: it.median_ns * 1.1, ..it },
            _ => it,
        };
        let times = length as f64 / MIB as f64;
        [of("c_library", c_library), of("clzero", clzero)].concat().into_iter().map(slower).map(move |it| {
            let quartiles_ns = it.quartiles_ns.map(|ns| ns * times);
            Figure { length, median_ns: it.median_ns * times, quartiles_ns, ..it }
        })
    };
    let figures: Vec<Figure> = at(MIB, 20.0, 10.0).chain(at(4 * MIB, 10.0, 40.0)).collect();
    let rules = derive_policy(&figures).rules;
    let rule = rules.iter().find(|it| it.situation == Situation::Throughput && it.method == "clzero");
    // Aligned ranges cross at a third of the way: 1.6 MiB.
    assert!((MIB..2 * MIB).contains(&rule.unwrap().from), "{rule:?}");
}
