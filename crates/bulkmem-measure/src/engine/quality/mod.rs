//! Reasons to doubt rows: noise, drift, and other use of the machine at the same time.
//!
//! Rows are marked as soon as their group is complete. Notes sum up all groups, so that a long run ends in a few notes and
//! not in one for each group.

pub(crate) mod host;

use std::collections::BTreeMap;

use self::host::Snapshot;
use crate::engine::stats::{ENOUGH, median, two_speeds};
use crate::engine::{Metric, QualityFlag, Row, Stats, Trend};

/// A standard deviation above this share of the mean is reported.
const NOISY_PERCENT: f64 = 5.0;
/// A drift of less than this share is a trifle.
const DRIFT: f64 = 0.03;
/// A drift must be this improbable by chance, as every group is tested.
const DRIFT_PROBABILITY: f64 = 0.01;
/// An outlier lies off by more than this share of the median, and by more than so many times the usual distance.
const OUTLYING: (f64, f64) = (0.1, 8.0);

#[derive(Debug, Default)]
pub(super) struct Quality {
    rows: usize,
    groups: usize,
    told: BTreeMap<QualityFlag, Told>,
    /// The machine at the beginning of the first group that was not yet looked at, and that group's first row.
    since: Option<(Snapshot, usize)>,
    first: usize,
}

impl Quality {
    /// A group begins; so many rows are there already.
    pub(super) fn begin(&mut self, rows: usize) {
        self.first = rows;
        if self.since.is_none() {
            self.since = Snapshot::here().map(|snapshot| (snapshot, rows));
        }
    }

    /// A group ended, and its rows were added to the others: marks those that are doubtful.
    pub(super) fn end(&mut self, group: &str, rows: &mut [Row]) {
        let new = &mut rows[self.first..];
        self.groups += 1;
        self.rows += new.len();
        for row in new.iter_mut().filter(|row| !row.metric.is_difference()) {
            if let Some((doubt, percent)) = doubt(row) {
                row.flags.push(doubt);
                self.add(doubt, percent, group, format!("{}, {group}", row.candidate.name));
            }
        }
        if let Some(change) = drift(new) {
            mark(new, QualityFlag::Drift);
            self.add(QualityFlag::Drift, change, group, String::new());
        }
        let Some((before, first)) = &self.since else { return };
        let Some(after) = Snapshot::here() else { return };
        // Groups too short for the kernel's ticks are looked at together.
        let (first, Some(disturbance)) = (*first, host::between(before, &after)) else { return };
        for (doubt, share) in disturbance.flags() {
            mark(&mut rows[first..], doubt);
            self.add(doubt, share, group, disturbance.others_in_words());
        }
        self.since = None;
    }

    fn add(&mut self, doubt: QualityFlag, size: f64, group: &str, detail: String) {
        let told = self.told.entry(doubt).or_default();
        told.count += 1;
        if told.groups.last().is_none_or(|last| last != group) {
            told.groups.push(group.to_owned());
        }
        if told.count == 1 || size.abs() > told.worst.abs() {
            (told.worst, told.worst_group, told.detail) = (size, group.to_owned(), detail);
        }
    }

    /// At most one sentence for each kind of doubt, each with its remedy.
    pub(super) fn notes(&self) -> Vec<String> {
        use QualityFlag::*;
        let doubts = [Busy, Stolen, Throttled, Drift, Noise, Outliers, TwoSpeeds];
        doubts.iter().filter_map(|doubt| Some(self.note(*doubt, self.told.get(doubt)?))).collect()
    }

    fn note(&self, doubt: QualityFlag, told: &Told) -> String {
        let Told { count, groups, worst, worst_group, detail } = told;
        let when = match groups.as_slice() {
            [only] => format!("“{only}” was measured"),
            _ => {
                let of = self.groups;
                format!("{} of {of} groups were measured (worst: “{worst_group}”)", groups.len())
            }
        };
        let percent = (worst.abs() * 100.0).max(1.0);
        let of_rows = format!("{count} of {} rows", self.rows);
        match doubt {
            QualityFlag::Busy => format!(
                "other processes used {detail} while {when}: stop them, or measure when the machine rests"
            ),
            QualityFlag::Stolen => format!(
                "the hypervisor took {percent:.0} % of the processors' time (steal) while {when}: the host is shared; measure \
                 at another time, or on a machine of your own"
            ),
            QualityFlag::Throttled => format!(
                "a limit on processor time (cgroup cpu.max) held this process back for {percent:.0} % of the time while \
                 {when}: raise the limit"
            ),
            QualityFlag::Drift => format!(
                "the machine became {} by {percent:.0} % while {when}: rows of one group still compare, as their samples \
                 are interleaved, but figures of different groups or runs do not; let the machine rest, or warm up, and \
                 measure again",
                if *worst < 0.0 { "slower" } else { "faster" },
            ),
            QualityFlag::Noise => format!(
                "{of_rows} vary by more than {NOISY_PERCENT} % (most: {detail}, by {worst:.0} %; ~ marks doubtful \
                 rows): let the machine rest, pin the measurement (--cpu 1), or ask for more --runs"
            ),
            QualityFlag::Outliers => format!(
                "{of_rows} have single samples far off the others (most: {detail}, ±{worst:.0} %): compare by medians, \
                 which ignore them; more --runs show how often that happens"
            ),
            QualityFlag::TwoSpeeds => format!(
                "{of_rows} have two speeds rather than one (most: {detail}, {worst:.0} % apart): look at the samples; \
                 often clocks that change, or another placement of the memory; pin the measurement (--cpu 1), or \
                 fix the clock (cpupower frequency-set -g performance)"
            ),
        }
    }
}

fn mark(rows: &mut [Row], doubt: QualityFlag) {
    for row in rows.iter_mut().filter(|row| !row.flags.contains(&doubt)) {
        row.flags.push(doubt);
    }
}

/// What is to be said of one kind of doubt: its groups, and the worst of it.
#[derive(Debug, Default)]
struct Told {
    count: usize,
    groups: Vec<String>,
    /// A share of the time or of the speed; of samples, percent.
    worst: f64,
    worst_group: String,
    /// The worst row, or what others used meanwhile.
    detail: String,
}

/// The worst that the samples of a row make doubtful, with its size in percent.
fn doubt(row: &Row) -> Option<(QualityFlag, f64)> {
    if let Some(speeds) = two_speeds(&row.samples) {
        return Some((QualityFlag::TwoSpeeds, speeds.gap * 100.0));
    }
    let spread = row.stats.pstdev_percent();
    // Written so that what is no number is noise too.
    if spread <= NOISY_PERCENT {
        return None;
    }
    Some((if single(&row.samples) { QualityFlag::Outliers } else { QualityFlag::Noise }, spread))
}

/// Returns true if the samples agree, except for a few.
fn single(samples: &[f64]) -> bool {
    if samples.len() < ENOUGH as usize {
        return false;
    }
    let middle = median(samples);
    let distance = |sample: f64| (sample - middle).abs();
    let usual = median(&samples.iter().map(|it| distance(*it)).collect::<Vec<f64>>());
    let far = (OUTLYING.0 * middle.abs()).max(OUTLYING.1 * usual);
    let others: Vec<f64> = samples.iter().copied().filter(|it| distance(*it) <= far).collect();
    let out = samples.len() - others.len();
    let agree = Stats::of(&others).is_some_and(|stats| stats.pstdev_percent() <= NOISY_PERCENT);
    out > 0 && out * 4 <= samples.len() && agree
}

/// The share by which the machine became faster (above 0) or slower during a group; `None` if it is a trifle, or chance.
fn drift(rows: &[Row]) -> Option<f64> {
    let trend = Trend::of(&in_turn(rows))?;
    (trend.change.abs() >= DRIFT && trend.probability <= DRIFT_PROBABILITY).then_some(trend.change)
}

/// The speeds of a group in the order in which they were measured, each over its row's median: rounds go forth and
/// back, and the first that counts goes back.
fn in_turn(rows: &[Row]) -> Vec<f64> {
    let rounds = rows.iter().map(|row| row.samples.len()).max().unwrap_or_default();
    let speed = |row: &Row, sample: f64| match row.metric {
        Metric::Seconds | Metric::Nanoseconds => row.stats.median / sample,
        _ => sample / row.stats.median,
    };
    let mut speeds: Vec<f64> = Vec::new();
    for round in 0..rounds {
        let of_row = |row: &Row| Some(speed(row, *row.samples.get(round)?));
        let from = speeds.len();
        speeds.extend(rows.iter().filter(|row| !row.metric.is_difference()).filter_map(of_row));
        if round % 2 == 0 {
            speeds[from..].reverse();
        }
    }
    speeds.retain(|speed| speed.is_finite());
    speeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::engine::{Config, Measurement, testing};

    /// However long a run, each kind of doubt is said once, with the worst of it.
    #[test]
    fn a_long_run_ends_in_few_notes() {
        let mut tally = Quality::default();
        for group in 0..60 {
            tally.groups += 1;
            tally.rows += 8;
            let name = format!("clear {group} MiB");
            for (at, doubt) in
                [QualityFlag::Noise, QualityFlag::Outliers, QualityFlag::TwoSpeeds].into_iter().enumerate()
            {
                tally.add(doubt, (group + at) as f64, &name, format!("movnti, {name}"));
            }
            tally.add(QualityFlag::Drift, if group == 30 { -0.4 } else { 0.1 }, &name, String::new());
            for doubt in [QualityFlag::Busy, QualityFlag::Stolen, QualityFlag::Throttled] {
                tally.add(doubt, 0.01 * group as f64, &name, "0.50 of 2 processors".to_owned());
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
        assert_eq!(Quality::default().notes(), Vec::<String>::new());
    }

    #[test]
    fn a_single_group_is_named() {
        let mut tally = Quality { groups: 3, rows: 24, ..Quality::default() };
        tally.add(QualityFlag::Drift, 0.071, "copy 16 MiB", String::new());
        assert_eq!(tally.notes().len(), 1);
        assert!(
            tally.notes()[0]
                .starts_with("the machine became faster by 7 % while “copy 16 MiB” was measured: ")
        );
    }

    fn row(samples: &[f64], metric: Metric) -> Row {
        testing::row(Measurement::Clear, (Kind::Method, "movnti"), Config::default(), (metric, samples), &[])
    }

    fn doubt_of(samples: &[f64]) -> Option<QualityFlag> {
        doubt(&row(samples, Metric::Bandwidth)).map(|(doubt, _)| doubt)
    }

    /// Normal deviates, by the sum of twelve uniform ones.
    fn normal(random: &mut fastrand::Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    #[test]
    fn noise_outliers_and_two_speeds_are_told_apart() {
        assert_eq!(doubt_of(&[10.0, 10.1, 9.9, 10.0, 10.2]), None);
        assert_eq!(doubt_of(&[10.0, 12.0, 8.0, 11.0, 9.0]), Some(QualityFlag::Noise));
        assert_eq!(doubt_of(&[10.0, 10.1, 9.9, 10.0, 10.2, 10.0, 7.0]), Some(QualityFlag::Outliers));
        let heaps = [10.0, 10.1, 9.9, 12.0, 12.1, 10.0, 12.2, 10.2, 12.0, 10.1, 12.1, 9.9];
        assert_eq!(doubt_of(&heaps), Some(QualityFlag::TwoSpeeds));
        // Too few to tell heaps from noise.
        assert_eq!(doubt_of(&heaps[..6]), Some(QualityFlag::Noise));
        assert_eq!(doubt_of(&[5.0]), None);
    }

    #[test]
    fn one_heap_is_seldom_taken_for_two() {
        let mut random = fastrand::Rng::with_seed(9);
        for size in [10, 15, 30, 100] {
            let mut seen = [0; 3];
            for _ in 0..300 {
                let normal: Vec<f64> = (0..size).map(|_| 100.0 + 15.0 * normal(&mut random)).collect();
                let uniform: Vec<f64> = (0..size).map(|_| 100.0 + 50.0 * random.f64()).collect();
                let skewed: Vec<f64> = (0..size).map(|_| 100.0 - 30.0 * random.f64().ln()).collect();
                for (seen, samples) in seen.iter_mut().zip([normal, uniform, skewed]) {
                    *seen += usize::from(two_speeds(&samples).is_some());
                }
            }
            assert!(seen.iter().all(|seen| *seen <= 6), "{size} samples: {seen:?} of 300");
        }
    }

    /// Rows of one group, whose machine changes its speed by `change` from the first turn to the last.
    fn group(rows: usize, rounds: usize, change: f64, noise: f64, metric: Metric) -> Vec<Row> {
        let mut random = fastrand::Rng::with_seed(5);
        let mut samples = vec![Vec::new(); rows];
        for turn in 0..rows * rounds {
            let (round, step) = (turn / rows, turn % rows);
            let at = if round % 2 == 0 { rows - 1 - step } else { step };
            let progress = turn as f64 / (rows * rounds - 1) as f64;
            let speed = (10.0 + at as f64) * (1.0 + change * progress) * (1.0 + noise * normal(&mut random));
            samples[at].push(if metric == Metric::Bandwidth { speed } else { 1.0 / speed });
        }
        samples.iter().map(|samples| row(samples, metric)).collect()
    }

    #[test]
    fn drift_is_seen_whatever_the_metric_and_says_which_way() {
        for metric in [Metric::Bandwidth, Metric::Seconds] {
            for change in [-0.2, -0.08, 0.08, 0.2] {
                let seen = drift(&group(8, 5, change, 0.01, metric)).expect("a drift");
                assert!((seen - change).abs() < 0.05, "{metric:?}: {seen} for {change}");
            }
        }
    }

    #[test]
    fn trifles_and_noise_are_no_drift() {
        assert_eq!(drift(&group(8, 5, 0.01, 0.001, Metric::Bandwidth)), None, "certain, but a trifle");
        assert_eq!(drift(&group(8, 5, 0.0, 0.2, Metric::Bandwidth)), None);
        assert_eq!(drift(&group(1, 5, 0.5, 0.0, Metric::Bandwidth)), None, "five samples are too few");
        assert_eq!(drift(&[]), None);
        // An interrupted group: some rows have a sample less.
        let mut rows = group(6, 5, -0.2, 0.01, Metric::Bandwidth);
        for row in &mut rows[..3] {
            row.samples.pop();
        }
        assert!(drift(&rows).is_some_and(|change| change < -0.1));
    }
}
