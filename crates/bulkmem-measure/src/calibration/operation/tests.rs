//! What calibration measures around a change of the choice.

use std::sync::atomic::AtomicBool;

use bulkmem::method::Parameters;

use super::*;
use crate::calibration::fake::{COLD, Planted};
use crate::calibration::tests::SETTING;
use crate::engine::Progress;

const MIB: u64 = 1 << 20;

fn figure(method: &str, length: u64, gb_per_s: f64) -> Figure {
    let median_ns = length as f64 / gb_per_s;
    Figure {
        operation: Operation::Clear,
        cost: Cost::Throughput,
        method: method.to_owned(),
        parameters: Parameters::default(),
        length,
        condition: COLD,
        median_ns,
        quartiles_ns: [median_ns; 2],
        samples: 31,
        disturbance_ns: None,
    }
}

/// The choice changes, and neither was measured where the other is.
fn one_at_each_end() -> [Figure; 4] {
    [
        figure("c_library", 4 * MIB, 5.0),
        figure("portable", 4 * MIB, 20.0),
        figure("c_library", 16 * MIB, 5.0),
        figure("movnti", 16 * MIB, 10.0),
    ]
}

fn ledger(figures: &[Figure]) -> Ledger {
    Ledger { figures: figures.to_vec(), ..Ledger::default() }
}

/// What is missing, and where; the most urgent first.
fn missing(ledger: &Ledger) -> Vec<(u64, &'static str)> {
    let mut steps = steps(ledger, Operation::Clear, Situation::Throughput);
    steps.sort_by(|a, b| b.urgency.total_cmp(&a.urgency));
    steps.iter().map_while(|step| Some((step.length, step.missing?.method.name))).collect()
}

/// The best choice up to some length would be the best beyond, too, but nobody tried.
#[test]
fn a_change_is_compared_at_both_its_ends_first() {
    let at_both = one_at_each_end();
    assert_eq!(missing(&ledger(&at_both)), [(4 * MIB, "movnti"), (16 * MIB, "portable")]);
    let mut complete = at_both.to_vec();
    complete.extend([figure("movnti", 4 * MIB, 10.0), figure("portable", 16 * MIB, 8.0)]);
    assert_eq!(missing(&ledger(&complete)), []);
    let long = at_both.map(|it| Figure { length: it.length * 16, ..it });
    assert_eq!(missing(&ledger(&long)), [(64 * MIB, "movnti")], "256 MiB take long");
    // Where the choice stays, nothing is missing.
    let same = [figure("portable", 4 * MIB, 20.0), figure("portable", 16 * MIB, 10.0)];
    assert_eq!(missing(&ledger(&same)), []);
}

/// The machine has become half as fast since the others were measured.
#[test]
fn what_was_missing_is_added_in_relation_to_what_is_known() {
    let figures = one_at_each_end();
    let answer = |cell: &Cell, choice: &Choice| {
        let gb_per_s = match choice.method.name {
            "portable" => 9.0,
            "movnti" => 5.0,
            _ => 2.5,
        };
        cell.length as f64 / gb_per_s
    };
    let stop = AtomicBool::new(false);
    let mut quiet = |_: &Progress| {};
    let mut session = Session::new(Planted::new(0.0, answer), &stop, &mut quiet, Duration::from_secs(20));
    let mut ledger = ledger(&figures);
    let mut run = OperationRun {
        session: &mut session,
        setting: &SETTING,
        ledger: &mut ledger,
        operation: Operation::Clear,
    };
    run.refine(Duration::from_secs(10));
    let speed = |method: &str, length: u64| {
        let mut own = ledger.figures.iter().filter(|it| (&*it.method, it.length) == (method, length));
        let own = own.find(|it| it.condition == COLD).unwrap();
        (own.length as f64 / own.median_ns).round()
    };
    assert_eq!(speed("portable", 16 * MIB), 18.0);
    assert_eq!([speed("c_library", 16 * MIB), speed("movnti", 16 * MIB)], [5.0, 10.0], "as before");
}
