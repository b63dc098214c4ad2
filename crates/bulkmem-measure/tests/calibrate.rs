//! Calibration for real, in little time: what comes out is a profile that this machine accepts, whatever the figures.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::{Cost, Mode, Profile};
use bulkmem_measure::{CalibrateOptions, MeasureError, Progress, calibrate};

/// Calibrations at the same time would leave each other too little of their time.
fn alone() -> MutexGuard<'static, ()> {
    static CALIBRATING: Mutex<()> = Mutex::new(());
    CALIBRATING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Small and short: every operation, up to 256 KiB, in 20 s: memory for a large last-level cache takes up to half of them.
fn options() -> CalibrateOptions {
    CalibrateOptions {
        budget: Duration::from_secs(20),
        max_length: 256 << 10,
        ..CalibrateOptions::new(Mode::Quick)
    }
}

#[test]
fn the_profile_is_accepted_and_serves_everything() {
    let _alone = alone();
    let mut progress = Vec::new();
    let mut saved: Vec<Profile> = Vec::new();
    let profile = calibrate(
        &options(),
        &mut |step| progress.push(step.clone()),
        &AtomicBool::new(false),
        &mut |profile| saved.push(profile.clone()),
    )
    .unwrap();

    let machine = Machine::current();
    profile.check(machine).unwrap();
    assert!(profile.coverage.complete && profile.provenance.samples > 100);
    assert_eq!(profile.provenance.cpu, machine.cpu);
    let policy = profile.policy(machine).unwrap();
    for operation in Operation::ALL {
        let measured = |cost| profile.figures.iter().any(|f| f.operation == operation && f.cost == cost);
        assert_eq!(
            measured(Cost::Throughput),
            bulkmem::method::all().any(|m| m.does(operation) && m.available())
        );
        for intent in Intent::ALL {
            for length in [0, 1, 64, 5000, 1 << 18, 1 << 34] {
                let choice = policy.choose(operation, length, intent);
                if measured(Cost::Throughput) {
                    let method = choice.expect("it was measured").method;
                    assert!(method.does(operation) && method.available());
                }
            }
        }
    }
    assert!(
        profile.figures.iter().any(|figure| figure.cost == Cost::Stream && figure.disturbance_ns.is_some())
    );
    assert!(profile.figures.iter().any(|figure| figure.cost == Cost::Reuse));

    assert_eq!(saved.len(), Operation::ALL.len(), "saved after each operation");
    let (last, before) = saved.split_last().unwrap();
    assert!(before.iter().all(|profile| !profile.coverage.complete));
    assert!(last.coverage.complete);
    assert!(progress.iter().all(|step| (0.0..=1.0).contains(&step.done)));
    assert!(progress.windows(2).all(|pair| pair[0].elapsed <= pair[1].elapsed));
}

#[test]
fn unaligned_ranges_are_in_base_pages_or_a_note_says_why_not() {
    let _alone = alone();
    let options = |mode| CalibrateOptions {
        budget: Duration::from_secs(4),
        max_length: 64 << 10,
        operations: vec![Operation::Fill],
        ..CalibrateOptions::new(mode)
    };
    let calibrated = |mode| {
        let mut notes = Vec::new();
        let mut progress = |step: &Progress| notes.extend(step.note.clone());
        let profile = calibrate(&options(mode), &mut progress, &AtomicBool::new(false), &mut |_| {}).unwrap();
        (profile, notes)
    };
    let (profile, notes) = calibrated(Mode::Default);
    let noted = notes.iter().any(|note| note.starts_with("base pages are not measured: "));
    let in_base_pages = profile.provenance.backing_page_size > Machine::current().page_size && !noted;
    let mut unaligned = 0;
    for figure in &profile.figures {
        let expected = in_base_pages && figure.cost == Cost::Throughput && !figure.condition.aligned;
        assert_eq!(figure.condition.base_pages, expected, "{figure:?}");
        unaligned += usize::from(!figure.condition.aligned);
    }
    assert!(unaligned > 0);
    let (profile, notes) = calibrated(Mode::Quick);
    assert!(profile.figures.iter().all(|figure| !figure.condition.base_pages));
    assert!(notes.iter().all(|note| !note.starts_with("base pages")), "{notes:?}");
}

#[test]
fn stopping_at_once_is_an_error_and_stopping_later_keeps_what_is_known() {
    let _alone = alone();
    let stopped = calibrate(&options(), &mut |_| {}, &AtomicBool::new(true), &mut |_| {});
    assert!(matches!(stopped, Err(MeasureError::Interrupted)), "{stopped:?}");

    let stop = AtomicBool::new(false);
    let mut saves = 0;
    let profile = calibrate(&options(), &mut |_| {}, &stop, &mut |_| {
        saves += 1;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(saves, 1);
    assert!(!profile.coverage.complete);
    assert!(profile.figures.iter().all(|figure| figure.operation == Operation::Clear));
    profile.check(Machine::current()).unwrap();
}

#[test]
fn bad_options_are_refused_before_anything_is_measured() {
    let bad = CalibrateOptions { operations: Vec::new(), ..options() };
    let refused =
        calibrate(&bad, &mut |_| panic!("nothing is measured"), &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(refused, Err(MeasureError::Option { option: "--op", .. })));
}
