//! The lengths from which the C library's `memset` and `memcpy` bypass the cache: a step in their speed, in what they leave in the
//! cache, and in what a neighbour loses there.

use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::policy::Choice;
use bulkmem::{Operation, Pages, method};

use crate::engine::clock::time;
use crate::engine::threshold::{self, LONGEST, SHORTEST};
use crate::engine::units::bytes;
use crate::engine::{
    Arena, Candidate, Config, Contrast, Measure, Measurement, Metric, Neighbour, PageSize, Result, Row, Run,
    Sample, Threshold, fits, workload,
};
use crate::measurements::checks::require;
use crate::measurements::participants::sampler;
use crate::measurements::{Tunable, tunables_here};

/// The field of `also` with how much of what was written last is not in the cache, percent.
pub const UNCACHED: &str = "uncached_percent";
/// The field with the time of a walk after the call, in percent of one before it.
pub const WALK: &str = "walk_percent";
/// Time to locate both thresholds.
const LOCATING: Duration = Duration::from_secs(4);

/// Options for locating the thresholds.
#[derive(Clone, Debug)]
pub struct ThresholdOptions {
    /// Clear for `memset`, copy for `memcpy`.
    pub operations: Vec<Operation>,
    /// The longest length to try, bytes. A shorter one if memory does not suffice.
    pub longest: u64,
    /// Samples of each length.
    pub runs: usize,
}

impl Default for ThresholdOptions {
    /// Both functions, up to 512 MiB, 5 samples.
    fn default() -> ThresholdOptions {
        ThresholdOptions { operations: vec![Operation::Clear, Operation::Copy], longest: LONGEST, runs: 5 }
    }
}

impl Measure for ThresholdOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Threshold
    }

    fn validate(&self) -> Result<()> {
        for operation in &self.operations {
            let reason =
                format!("the threshold is that of memset or memcpy, not of {operation}; name clear or copy");
            require(matches!(operation, Operation::Clear | Operation::Copy), "--op", reason)?;
        }
        let reason = format!("{} bytes are less than {}", self.longest, bytes(SHORTEST));
        require(self.longest >= SHORTEST, "--longest", reason)?;
        fits(64 << 20)
    }

    fn uncounted(&self) -> Option<&'static str> {
        Some("a sample also re-reads what was written and walks a list")
    }

    fn seconds(&self) -> f64 {
        // Two calls in each sample, of lengths that double.
        let calls = 2.0 * (self.runs + 1) as f64 * 2.5 * self.longest as f64 / 8e9;
        self.operations.len() as f64 * calls + LOCATING.as_secs_f64() / 2.0
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        run.say("getting memory ready", 0.0);
        let cached = workload::second_level(Machine::current());
        let arena = Arena::new(self.longest, cached, Pages::Transparent, Duration::MAX)?;
        let longest = self.longest.min(arena.longest());
        if longest < self.longest {
            let why = arena.shortened.as_deref().unwrap_or_default();
            run.note(format!("lengths above {} are left out {why}", bytes(longest)));
        }
        run.backed_by(Some(arena.backing_page_size()));
        run.say("locating the thresholds", 0.0);
        let thresholds = Threshold::locate_all(&arena, longest, LOCATING, run.observer.stop);
        if thresholds.is_empty() && !run.stopped() {
            run.note("what is in the cache cannot be told here: only speeds are measured");
        }
        // SAFETY: the arena keeps the range for its neighbour, and lives longer.
        let neighbour = unsafe { Neighbour::new(arena.neighbour, cached as usize / 2) };
        let mut lengths: Vec<u64> = std::iter::successors(Some(SHORTEST), |length| Some(2 * length))
            .take_while(|it| *it < longest)
            .collect();
        lengths.push(longest);
        run.expect_groups(self.operations.len() * (lengths.len() + 2));
        for &operation in &self.operations {
            let found = thresholds.iter().filter(|it| it.operation == operation);
            let mut lengths = lengths.clone();
            lengths
                .extend(found.flat_map(|it| [Some(it.cached), it.uncached]).flatten().filter(|it| *it > 0));
            lengths.sort_unstable();
            lengths.dedup();
            for length in lengths {
                let config = Config::of(operation, length, PageSize(Pages::Transparent));
                let candidate = Candidate::method(&Choice::of(method::c_library(), operation));
                let sample = || Ok(sample(&arena, &neighbour, operation, length));
                let what = format!("{operation} of {}", bytes(length));
                let mut samplers = [sampler(candidate, &config, false, sample)];
                run.interleave(&what, Metric::Bandwidth, self.runs, &mut samplers)?;
            }
        }
        Ok(())
    }

    fn conclude(&self, run: &mut Run<'_>) {
        let tunables = tunables_here();
        for &operation in &self.operations {
            let rows: Vec<&Row> = run.rows().filter(|row| row.config.operation == Some(operation)).collect();
            if let Some(found) = located(&rows) {
                let text = found.map_or_else(|why| why + ".", |it| conclusion(&it, &rows, &tunables));
                run.add_finding(text);
            }
        }
    }
}

/// Times a call and, before and after it, a walk in the cache; and tells whether a further call leaves its result there.
fn sample(arena: &Arena, neighbour: &Neighbour, operation: Operation, length: u64) -> Sample {
    neighbour.walk();
    let before = time(|| neighbour.walk());
    let ns = time(|| threshold::call(arena, operation, length));
    let after = time(|| neighbour.walk());
    let uncached = threshold::uncached_share(arena, operation, length).map(|share| (UNCACHED, share * 100.0));
    let also = [(WALK, after / before * 100.0)].into_iter().chain(uncached).collect();
    Sample { value: length as f64 / ns, also }
}

/// Returns the threshold that the rows of one operation show, or why it is unclear: a length whose result is in the cache, above
/// one whose result is not. `None` if no row shows what is in the cache.
pub fn located(rows: &[&Row]) -> Option<Result<Threshold, String>> {
    let of = |row: &&Row| Some((row.config.size?, *row.also.get(UNCACHED)? > 50.0));
    let mut states: Vec<(u64, bool)> = rows.iter().filter_map(of).collect();
    states.sort_unstable();
    let operation = rows.first()?.config.operation?;
    let longest = states.iter().rfind(|(_, uncached)| !uncached).map_or(0, |it| it.0);
    let shortest = states.iter().find(|(_, uncached)| *uncached).map(|it| it.0);
    (!states.is_empty()).then(|| match shortest {
        Some(uncached) if uncached < longest => Err(format!(
            "{}: unclear from where on it bypasses the cache, because of noise: the result of {} is not in the cache, that of \
             {} is",
            c_function(operation),
            bytes(uncached),
            bytes(longest)
        )),
        uncached => Ok(Threshold { operation, cached: longest, uncached }),
    })
}

/// Returns the C library's function for an operation.
pub fn c_function(operation: Operation) -> &'static str {
    if operation == Operation::Copy { "memcpy" } else { "memset" }
}

impl Threshold {
    /// Returns it in words: `memcpy bypasses the cache from 287 MiB to 289 MiB on`.
    pub fn text(&self) -> String {
        let function = c_function(self.operation);
        match (self.cached, self.uncached) {
            (cached, None) => format!("{function} does not bypass the cache up to {}", bytes(cached)),
            (0, Some(uncached)) => {
                format!("{function} bypasses the cache from {} on, or earlier", bytes(uncached))
            }
            (cached, Some(uncached)) => format!(
                "{function} bypasses the cache from between {} and {} on",
                bytes(cached),
                bytes(uncached)
            ),
        }
    }

    /// Returns the tunable that sets it, in words, if there is one.
    pub fn tunable(&self, tunables: &[Tunable]) -> String {
        let mut tunables = tunables.iter().filter(|it| it.is_non_temporal());
        match tunables.find(|it| it.operation == self.operation) {
            Some(tunable) => format!("{} is {}", tunable.name, Tunable::text(tunable.current)),
            None => "no tunable listed".to_owned(),
        }
    }
}

/// Summarizes a threshold, with the steps of speed and of a neighbour's walk.
fn conclusion(found: &Threshold, rows: &[&Row], tunables: &[Tunable]) -> String {
    let mut text = format!("{} ({})", found.text(), found.tunable(tunables));
    let at = |length| rows.iter().find(|row| row.config.size == Some(length));
    if let Some((below, above)) = at(found.cached).zip(found.uncached.and_then(at))
        && let Some(step) = Contrast::of(above, below)
    {
        let (speeds, [low, high]) = ([below, above].map(|row| row.stats.median), step.interval);
        text += &format!(
            ": {:.1} GB/s below, {:.1} above ({:+.0} %, {low:+.0} to {high:+.0})",
            speeds[0], speeds[1], step.by
        );
        let walks = [below, above].map(|row| row.also.get(WALK));
        if let [Some(below), Some(above)] = walks {
            text += &format!(
                "; a neighbour's walk in the cache takes {below:.0} % of the time before after a call below, {above:.0} % after one above"
            );
        }
    }
    text + "."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Kind, testing};

    /// Recorded: (length in KiB, GB/s, percent uncached), of memcpy.
    type Recorded = [(u64, f64, f64)];

    fn rows(recorded: &Recorded) -> Vec<Row> {
        let row = |&(kibibytes, speed, uncached): &(u64, f64, f64)| {
            let config = Config::of(Operation::Copy, kibibytes << 10, PageSize::TRANSPARENT);
            let also = [(UNCACHED, uncached), (WALK, if uncached > 50.0 { 210.0 } else { 340.0 })];
            let samples = [0.99, 1.0, 1.01, 1.0, 1.0].map(|noise| speed * noise);
            testing::row(
                Measurement::Threshold,
                (Kind::Peer, "c_library"),
                config,
                (Metric::Bandwidth, &samples),
                &also,
            )
        };
        recorded.iter().map(row).collect()
    }

    fn of(recorded: &Recorded) -> Option<(u64, Option<u64>)> {
        let rows = rows(recorded);
        let found = located(&rows.iter().collect::<Vec<_>>())?.expect("no contradiction");
        Some((found.cached >> 10, found.uncached.map(|it| it >> 10)))
    }

    #[test]
    fn the_step_in_recorded_rows_is_found() {
        let recorded = [
            (32, 40.0, 1.0),
            (8192, 18.0, 9.0),
            (12288, 17.0, 12.0),
            (12480, 14.0, 97.0),
            (16384, 14.0, 99.0),
        ];
        assert_eq!(of(&recorded), Some((12288, Some(12480))));
        assert_eq!(of(&recorded[..3]), Some((12288, None)));
        assert_eq!(of(&recorded[3..]), Some((0, Some(12480))));
        assert_eq!(of(&[]), None);
        let rows = rows(&recorded);
        let rows: Vec<&Row> = rows.iter().collect();
        let tunable = Tunable {
            name: "x86_non_temporal_threshold",
            operation: Operation::Copy,
            current: 0xc0_0000,
            limits: [0x4040, u64::MAX],
            recommended: None,
        };
        let found = located(&rows).unwrap().unwrap();
        let text = conclusion(&found, &rows, &[tunable]);
        for part in [
            "memcpy bypasses the cache from between 12 MiB and 12.2 MiB on (x86_non_temporal_threshold is 12 MiB)",
            "17.0 GB/s below, 14.0 above (-18 %, -18 to -17)",
            "takes 340 % of the time before after a call below, 210 % after one above.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let none = conclusion(&Threshold { uncached: None, ..found }, &rows, &[]);
        assert_eq!(none, "memcpy does not bypass the cache up to 12 MiB (no tunable listed).");
    }

    #[test]
    fn lengths_that_contradict_each_other_show_no_threshold() {
        let noisy = rows(&[(16 << 10, 18.0, 3.0), (32 << 10, 14.0, 88.0), (64 << 10, 14.0, 45.0)]);
        let text = located(&noisy.iter().collect::<Vec<_>>()).unwrap().unwrap_err();
        assert_eq!(
            text,
            "memcpy: unclear from where on it bypasses the cache, because of noise: the result of 32 MiB is not in the cache, \
             that of 64 MiB is"
        );
    }

    #[test]
    fn every_length_has_a_row_with_speed_cache_and_neighbour() {
        let options = ThresholdOptions { longest: 256 << 10, runs: 2, ..ThresholdOptions::default() };
        let found = testing::run(&options, false).0.unwrap();
        for operation in [Operation::Clear, Operation::Copy] {
            let rows = || found.rows.iter().filter(move |row| row.config.operation == Some(operation));
            for length in [32 << 10, 64 << 10, 128 << 10, 256 << 10] {
                let row = rows().find(|row| row.config.size == Some(length)).expect("a row");
                assert!(row.stats.median > 0.0 && row.also[WALK] > 0.0, "{row:?}");
            }
            if rows().any(|row| row.also.contains_key(UNCACHED)) {
                let function = if operation == Operation::Copy { "memcpy" } else { "memset" };
                assert!(
                    found.findings.iter().any(|it| it.text.starts_with(function)),
                    "{:?}",
                    found.findings
                );
            }
        }
    }

    #[test]
    fn options_that_make_no_sense_are_refused_by_name() {
        for (options, said) in [
            (
                ThresholdOptions { operations: vec![Operation::Persist], ..ThresholdOptions::default() },
                "--op: ",
            ),
            (ThresholdOptions { longest: 1000, ..ThresholdOptions::default() }, "--longest: "),
        ] {
            let error = testing::run(&options, false).0.unwrap_err().to_string();
            assert!(error.starts_with(said), "{said}: {error}");
        }
    }
}
