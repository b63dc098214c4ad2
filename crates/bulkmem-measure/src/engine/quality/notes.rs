//! Notes on doubtful rows, summed up over the groups of a run.

use crate::engine::quality::host::Disturbance;
use crate::engine::quality::{NOISY_PERCENT, QualityFlag};

/// The groups of which something is to be said, and the worst of it.
#[derive(Debug, Default)]
struct Told {
    count: usize,
    groups: Vec<String>,
    worst: f64,
    /// The worst row or group.
    of: String,
    disturbance: Option<Disturbance>,
}

impl Told {
    fn add(&mut self, size: f64, group: &str, of: String) -> bool {
        self.count += 1;
        if self.groups.last().is_none_or(|last| last != group) {
            self.groups.push(group.to_owned());
        }
        let worse = self.count == 1 || size.abs() > self.worst.abs();
        if worse {
            (self.worst, self.of) = (size, of);
        }
        worse
    }
}

/// All that is to be said by now.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) rows: usize,
    pub(super) groups: usize,
    noise: Told,
    outliers: Told,
    speeds: Told,
    drift: Told,
    busy: Told,
    stolen: Told,
    throttled: Told,
}

impl Tally {
    /// A row's samples are doubtful, by so many percent.
    pub(super) fn sampled(&mut self, doubt: QualityFlag, percent: f64, group: &str, candidate: &str) {
        let told = match doubt {
            QualityFlag::TwoSpeeds => &mut self.speeds,
            QualityFlag::Outliers => &mut self.outliers,
            _ => &mut self.noise,
        };
        told.add(percent, group, format!("{candidate}, {group}"));
    }

    /// A group drifted, by such a share.
    pub(super) fn drifted(&mut self, change: f64, group: &str) {
        self.drift.add(change, group, group.to_owned());
    }

    /// A group was disturbed, so much.
    pub(super) fn disturbed(&mut self, doubt: QualityFlag, size: f64, group: &str, by: &Disturbance) {
        let told = match doubt {
            QualityFlag::Busy => &mut self.busy,
            QualityFlag::Stolen => &mut self.stolen,
            _ => &mut self.throttled,
        };
        if told.add(size, group, group.to_owned()) {
            told.disturbance = Some(by.clone());
        }
    }

    /// At most one sentence for each kind of doubt, each with its remedy.
    pub(super) fn notes(&self) -> Vec<String> {
        let Tally { rows, noise, outliers, speeds, drift, busy, stolen, throttled, .. } = self;
        let some = |told: &Told, text: String| (told.count > 0).then_some(text);
        let by = |told: &Told| told.disturbance.clone().unwrap_or_default();
        let notes = [
            some(
                busy,
                format!(
                    "other processes used {} while {}: stop them, or measure when the machine rests",
                    by(busy).others_in_words(),
                    self.when(busy)
                ),
            ),
            some(
                stolen,
                format!(
                    "the hypervisor took {:.0} % of the processors' time (steal) while {}: the host is shared; measure \
                     at another time, or on a machine of your own",
                    (stolen.worst * 100.0).max(1.0),
                    self.when(stolen)
                ),
            ),
            some(
                throttled,
                format!(
                    "a limit on processor time (cgroup cpu.max) held this process back for {:.0} % of the time while {}: \
                     raise the limit",
                    (throttled.worst * 100.0).max(1.0),
                    self.when(throttled)
                ),
            ),
            some(
                drift,
                format!(
                    "the machine became {} by {:.0} % while {}: rows of one group still compare, as their samples \
                     are interleaved, but figures of different groups or runs do not; let the machine rest, or warm up, and \
                     measure again",
                    if drift.worst < 0.0 { "slower" } else { "faster" },
                    drift.worst.abs() * 100.0,
                    self.when(drift)
                ),
            ),
            some(
                noise,
                format!(
                    "{} of {rows} rows vary by more than {NOISY_PERCENT} % (most: {}, by {:.0} %; ~ marks doubtful \
                     rows): let the machine rest, pin the command (taskset -c 1 bulkmem …), or ask for more --runs",
                    noise.count, noise.of, noise.worst
                ),
            ),
            some(
                outliers,
                format!(
                    "{} of {rows} rows have single samples far off the others (most: {}, ±{:.0} %): compare by medians, \
                     which ignore them; more --runs show how often that happens",
                    outliers.count, outliers.of, outliers.worst
                ),
            ),
            some(
                speeds,
                format!(
                    "{} of {rows} rows have two speeds rather than one (most: {}, {:.0} % apart): look at the samples; \
                     often clocks that change, or another placement of the memory; pin the command (taskset -c 1 \
                     bulkmem …), or fix the clock (cpupower frequency-set -g performance)",
                    speeds.count, speeds.of, speeds.worst
                ),
            ),
        ];
        notes.into_iter().flatten().collect()
    }

    /// During which groups, in words.
    fn when(&self, told: &Told) -> String {
        match told.groups.as_slice() {
            [only] => format!("“{only}” was measured"),
            _ => format!(
                "{} of {} groups were measured (worst: “{}”)",
                told.groups.len(),
                self.groups,
                told.of
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However long a run, each kind of doubt is said once, with the worst of it.
    #[test]
    fn a_long_run_ends_in_few_notes() {
        let mut tally = Tally::default();
        let mut by = Disturbance::default();
        (by.others, by.processors) = (0.5, 2);
        for group in 0..60 {
            tally.groups += 1;
            tally.rows += 8;
            let name = format!("clear {group} MiB");
            for (at, doubt) in
                [QualityFlag::Noise, QualityFlag::Outliers, QualityFlag::TwoSpeeds].into_iter().enumerate()
            {
                tally.sampled(doubt, (group + at) as f64, &name, "movnti");
            }
            tally.drifted(if group == 30 { -0.4 } else { 0.1 }, &name);
            for doubt in [QualityFlag::Busy, QualityFlag::Stolen, QualityFlag::Throttled] {
                tally.disturbed(doubt, 0.01 * group as f64, &name, &by);
            }
        }
        let notes = tally.notes();
        assert_eq!(notes.len(), 7);
        let text = notes.join("\n");
        for part in [
            "60 of 480 rows vary by more than 5 % (most: movnti, clear 59 MiB, by 59 %",
            "slower by 40 % while 60 of 60 groups were measured (worst: “clear 30 MiB”)",
            "other processes used 0.50 of 2 processors",
            "the hypervisor took 59 %",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(Tally::default().notes(), Vec::<String>::new());
    }

    #[test]
    fn a_single_group_is_named() {
        let mut tally = Tally { groups: 3, rows: 24, ..Tally::default() };
        tally.drifted(0.071, "copy 16 MiB");
        assert_eq!(tally.notes().len(), 1);
        assert!(
            tally.notes()[0]
                .starts_with("the machine became faster by 7 % while “copy 16 MiB” was measured: ")
        );
    }
}
