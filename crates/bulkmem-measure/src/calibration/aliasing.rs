//! Measures whether page aliasing slows down the C library's copies, between which lengths, and which method is faster.

use bulkmem::Operation;
use bulkmem::method;
use bulkmem::policy::Choice;

use crate::calibration::AliasingRule;
use crate::calibration::plan::Setting;
use crate::calibration::session::{Meter, Session};
use crate::engine::stats::{geometric_mean, median};

/// Distances of destination and source, modulo the page size: one at which [`bulkmem::policy::PageAliasing`] slows copies down
/// most, and one at which it does not.
const ALIASED: usize = 8;
const APART: usize = 1024;
/// Copies that take so many times as long are slow: far more than noise, and than unaligned copies of other methods.
const SLOW: f64 = 2.0;
const SHORTEST: u64 = 1024;
const LONGEST: u64 = 4 << 20;
const SAMPLES: usize = 5;
/// How often the distance between a fast and a slow length is halved.
const HALVINGS: usize = 4;

/// Returns the lengths that are slow and the fastest method for them; `None` if there are none, if no method is better, or
/// if the calibration was stopped.
pub(super) fn measure<M: Meter>(session: &mut Session<'_, M>, setting: &Setting) -> Option<AliasingRule> {
    session.report("copy, page aliasing", None);
    let library = Choice::of(method::c_library(), Operation::Copy);
    let steps = (0..).map(|step| SHORTEST << step);
    let lengths: Vec<u64> = steps.take_while(|length| *length <= LONGEST.min(setting.max_length)).collect();
    let mut slow = |length: u64| {
        let aliased = time(session, library, length, ALIASED)?;
        Some(aliased / time(session, library, length, APART)? >= SLOW)
    };
    let speeds: Vec<bool> = lengths.iter().map(|length| slow(*length)).collect::<Option<_>>()?;
    let first = speeds.iter().position(|slow| *slow)?;
    let after = first + speeds[first..].iter().position(|slow| !*slow)?;
    let mut between = |mut before: u64, mut at: u64| {
        let wanted = slow(at)?;
        for _ in 0..HALVINGS {
            let middle = before.midpoint(at);
            *(if slow(middle)? == wanted { &mut at } else { &mut before }) = middle;
        }
        Some(at)
    };
    let from = if first == 0 { SHORTEST } else { between(lengths[first - 1], lengths[first])? };
    let below = between(lengths[after - 1], lengths[after])?;

    let mut best: Option<(f64, Choice)> = None;
    for name in ["store_avx512", "store_avx", "store_sse2", "store_8"] {
        let Some(method) = method::by_name(name).filter(|method| method.available()) else { continue };
        let choice = Choice::of(method, Operation::Copy);
        let mut gains = Vec::new();
        for length in &lengths[first..after] {
            gains.push(time(session, library, *length, ALIASED)? / time(session, choice, *length, ALIASED)?);
        }
        let gain = geometric_mean(gains)?;
        if best.is_none_or(|(known, _)| gain > known) {
            best = Some((gain, choice));
        }
    }
    let (gain, Choice { method, parameters }) = best.filter(|(gain, _)| *gain >= SLOW)?;
    let reason = format!(
        "{gain:.0} × as fast as the C library, if the destination begins 1 to 31 bytes after the source modulo 4 KiB"
    );
    Some(AliasingRule { from, below, method: method.name.to_owned(), parameters, reason })
}

/// The median time of a copy, in nanoseconds.
fn time<M: Meter>(session: &mut Session<'_, M>, choice: Choice, length: u64, distance: usize) -> Option<f64> {
    let samples: Option<Vec<f64>> =
        (0..SAMPLES).map(|_| session.copy_at(&choice, length as usize, distance)).collect();
    Some(median(&samples?))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;
    use crate::calibration::Mode;
    use crate::calibration::fake::Planted;
    use crate::engine::cell::Cell;

    const SETTING: Setting = Setting {
        mode: Mode::Default,
        max_length: 1 << 30,
        second_level: 1 << 20,
        last_level: 32 << 20,
        threads: 1,
        longest_in_base_pages: 0,
    };

    /// Measures where the C library takes so many times as long if it is aliased, from a length to another.
    fn found(times: f64, (from, below): (usize, usize), stopped: bool) -> Option<AliasingRule> {
        let meter = Planted::new(0.05, |cell: &Cell, choice: &Choice| {
            let library = choice.method == method::c_library();
            cell.length as f64 / if library { 60.0 } else { 50.0 }
        });
        let meter = meter.slow_when_aliased(times, from..below);
        let stop = AtomicBool::new(stopped);
        let mut progress = |_: &crate::Progress| {};
        let mut session = Session::new(meter, &stop, &mut progress, Duration::from_secs(60));
        measure(&mut session, &SETTING)
    }

    #[test]
    fn slow_lengths_are_found_and_get_a_method_of_stores() {
        for (from, below) in [(2113, 786_432), (1024, 5000), (16384, 2 << 20)] {
            let rule = found(15.0, (from, below), false).unwrap();
            let near = |found: u64, planted: usize| found.abs_diff(planted as u64) * 16 <= planted as u64;
            assert!(near(rule.from, from) && rule.from >= from as u64, "{rule:?}");
            assert!(near(rule.below, below) && rule.below >= below as u64, "{rule:?}");
            let gain: u64 = rule.reason.split(' ').next().unwrap().parse().unwrap();
            assert!(rule.method.starts_with("store_") && (11..=14).contains(&gain), "{rule:?}");
        }
    }

    #[test]
    fn without_slow_lengths_there_is_no_rule() {
        assert_eq!(found(1.3, (2113, 786_432), false), None, "hardly slower");
        assert_eq!(found(2.2, (2113, 786_432), false), None, "no method is twice as fast");
        assert_eq!(found(15.0, (2113, 786_432), true), None, "stopped");
        assert_eq!(found(15.0, (2113, usize::MAX), false), None, "every length: something else is wrong");
    }
}
