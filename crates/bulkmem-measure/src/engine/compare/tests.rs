use super::*;
use crate::engine::testing;

/// A run with these rows: name, size, samples.
fn run(metric: Metric, rows: &[(&str, u64, &[f64])]) -> Results {
    let row = |(name, size, samples): &(&str, u64, &[f64])| {
        let kind = if *name == "read" { Kind::Read } else { Kind::Method };
        let config = Config { size: Some(*size), ..Config::default() };
        testing::row(Measurement::Clear, (kind, name), config, (metric, samples), &[])
    };
    Results {
        format: Results::FORMAT.to_owned(),
        version: Results::VERSION,
        provenance: Provenance::default(),
        command: Vec::new(),
        rows: rows.iter().map(row).collect(),
        findings: Vec::new(),
        notes: Vec::new(),
        complete: true,
    }
}

fn compare(metric: Metric, old: &[(&str, u64, &[f64])], new: &[(&str, u64, &[f64])]) -> Comparison {
    Comparison::of(&run(metric, old), &run(metric, new), 0.05, &[])
}

const TEN: [f64; 5] = [10.0, 10.1, 9.9, 10.05, 9.95];
const EIGHT: [f64; 5] = [8.0, 8.1, 7.9, 8.05, 7.95];

#[test]
fn better_and_worse_follow_the_metric() {
    for (metric, verdict) in [
        (Metric::Bandwidth, Verdict::Worse),
        (Metric::Iops, Verdict::Worse),
        (Metric::Seconds, Verdict::Better),
        (Metric::Nanoseconds, Verdict::Better),
    ] {
        let found = compare(metric, &[("movnti", 1, &TEN)], &[("movnti", 1, &EIGHT)]);
        let row = &found.rows[0];
        assert_eq!(row.verdict, verdict, "{metric:?}: {row:?}");
        let times = row.times.unwrap();
        assert!((times - if verdict == Verdict::Worse { 0.8 } else { 1.25 }).abs() < 1e-9, "{row:?}");
        assert!(row.interval[0] <= times && times <= row.interval[1], "{row:?}");
        assert_eq!((found.count(verdict), found.count(Verdict::Same)), (1, 0));
    }
}

#[test]
fn noise_thresholds_and_few_samples_are_no_change() {
    let noisy = ([10.0, 14.0, 7.0, 12.0, 9.0], [9.0, 13.0, 6.0, 11.0, 8.0]);
    assert_eq!(
        compare(Metric::Bandwidth, &[("a", 1, &noisy.0)], &[("a", 1, &noisy.1)]).rows[0].verdict,
        Verdict::Same
    );
    // Certain, but three percent.
    let less = TEN.map(|it| it * 0.97);
    let (old, new) = (run(Metric::Bandwidth, &[("a", 1, &TEN)]), run(Metric::Bandwidth, &[("a", 1, &less)]));
    let verdict = |threshold| Comparison::of(&old, &new, threshold, &[]).rows[0].verdict;
    assert_eq!((verdict(0.05), verdict(0.02), verdict(0.0)), (Verdict::Same, Verdict::Worse, Verdict::Worse));
    let few = compare(Metric::Bandwidth, &[("a", 1, &TEN[..4])], &[("a", 1, &EIGHT)]);
    assert_eq!((few.rows[0].verdict, few.rows[0].probability), (Verdict::TooFew, None));
    assert!(few.rows[0].times.is_some(), "the ratio is shown all the same");
}

#[test]
fn rows_are_matched_by_who_where_and_what() {
    let old: &[(&str, u64, &[f64])] = &[("a", 1, &TEN), ("a", 2, &TEN), ("b", 1, &TEN), ("read", 1, &TEN)];
    let faster = TEN.map(|it| it * 1.1);
    let new: &[(&str, u64, &[f64])] =
        &[("read", 1, &faster), ("b", 2, &EIGHT), ("a", 2, &EIGHT), ("a", 1, &TEN)];
    let found = compare(Metric::Bandwidth, old, new);
    let verdicts: Vec<_> = found
        .rows
        .iter()
        .map(|row| (row.row.candidate.name.as_str(), row.row.config.size.unwrap(), row.verdict))
        .collect();
    assert_eq!(
        verdicts,
        [("a", 1, Verdict::Same), ("a", 2, Verdict::Worse), ("read", 1, Verdict::Better)],
        "in the old order"
    );
    assert_eq!((found.only_old.len(), found.only_new.len()), (1, 1));
    assert_eq!((found.only_old[0].candidate.name.as_str(), found.only_new[0].config.size), ("b", Some(2)));
    assert!((found.reading.unwrap() - 1.1).abs() < 1e-9);
    // The same row twice in a run is two rows.
    let twice =
        compare(Metric::Bandwidth, &[("a", 1, &TEN), ("a", 1, &EIGHT)], &[("a", 1, &TEN), ("a", 1, &EIGHT)]);
    assert_eq!((twice.rows.len(), twice.count(Verdict::Same), twice.reading), (2, 2, None));
    let found =
        Comparison::of(&run(Metric::Bandwidth, old), &run(Metric::Bandwidth, new), 0.05, &["b".into()]);
    assert_eq!((found.rows.len(), found.only_old.len(), found.only_new.len()), (0, 1, 1));
    assert_eq!(
        Comparison::of(&run(Metric::Bandwidth, old), &run(Metric::Bandwidth, old), 0.05, &["clear".into()])
            .rows
            .len(),
        4
    );
}

#[test]
fn differences_have_no_ratio_but_a_verdict() {
    let around = |center: f64| [-2.0, -1.0, 0.0, 1.0, 2.0].map(|it| it + center);
    let found = compare(
        Metric::Growth,
        &[("a", 1, &around(0.0)), ("b", 1, &around(0.0)), ("c", 1, &around(500.0))],
        &[("a", 1, &around(0.5)), ("b", 1, &around(300.0)), ("c", 1, &around(100.0))],
    );
    let verdicts: Vec<_> = found.rows.iter().map(|row| (row.times, row.difference, row.verdict)).collect();
    assert_eq!(
        verdicts,
        [(None, 0.5, Verdict::Same), (None, 300.0, Verdict::Worse), (None, -400.0, Verdict::Better)]
    );
    // A figure of nothing has no ratio either, whatever its metric.
    let found = compare(Metric::Seconds, &[("a", 1, &[0.0; 5])], &[("a", 1, &[0.0; 5])]);
    assert_eq!((found.rows[0].times, found.rows[0].verdict), (None, Verdict::Same));
}

/// Runs of the same distribution, hundreds of rows, noise far above the threshold: chance is not called a change.
#[test]
fn many_rows_without_a_change_are_the_same() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut samples = || (0..5).map(|_| 100.0 * (1.0 + 0.3 * (random.f64() - 0.5))).collect::<Vec<f64>>();
    let (mut worst, rows) = (0, 300);
    for _ in 0..10 {
        let sides = [0, 1].map(|_| (0..rows).map(|_| samples()).collect::<Vec<_>>());
        let [old, new] = sides.each_ref().map(|side| {
            let rows: Vec<_> =
                side.iter().enumerate().map(|(at, it)| ("a", at as u64, it.as_slice())).collect();
            run(Metric::Bandwidth, &rows)
        });
        let found = Comparison::of(&old, &new, 0.05, &[]);
        worst = worst.max(rows - found.count(Verdict::Same));
    }
    assert!(worst <= 2, "{worst} of {rows}");
}

#[test]
fn machines_are_told_apart() {
    let here = Provenance::collect(4096, 1.0, 1);
    assert_eq!(Differences::between(&here, &here), Differences::default());
    let mut other = here.clone();
    other.cpu.model += 1;
    other.backing_page_size = 2 << 20;
    let found = Differences::between(&here, &other);
    assert_eq!(found.machine.len(), 2, "{found:?}");
    assert!(found.machine[1].contains("4 KiB before, 2048 KiB now"), "{found:?}");
    let mut updated = here.clone();
    updated.kernel += "-new";
    updated.microcode += "0";
    updated.turbo = Some(updated.turbo != Some(true));
    let found = Differences::between(&here, &updated);
    assert_eq!((found.machine.len(), found.settings.len()), (0, 3), "{found:?}");
    let mut elsewhere = here.clone();
    (elsewhere.processor_list, elsewhere.memory_nodes) = (Some("0-3,8".to_owned()), Some("1".to_owned()));
    let found = Differences::between(&Provenance { processor_list: None, ..here.clone() }, &elsewhere);
    let texts = ["processors: all before, 0-3,8 now", "NUMA nodes of the memory: any before, 1 now"];
    assert_eq!((found.machine.len(), found.settings), (0, texts.map(str::to_owned).to_vec()));
    // A brand string of its own is no other machine.
    let mut renamed = here.clone();
    renamed.cpu.name = "another".to_owned();
    assert_eq!(Differences::between(&here, &renamed), Differences::default());
}
