use proptest::prelude::*;

use super::*;

#[test]
fn median_and_quartiles() {
    let summary = Summary::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
    assert_eq!(summary.median, 3.0);
    assert!(summary.quartiles[0] >= 1.0 && summary.quartiles[0] <= 2.0);
    assert!(summary.quartiles[1] >= 4.0 && summary.quartiles[1] <= 5.0);
    assert_eq!(summary.samples, 5);
    assert_eq!(Summary::of(&[]), None);
    assert_eq!(Summary::of(&[7.0]).unwrap().median, 7.0);
}

#[test]
fn separation_needs_samples_and_distance() {
    let samples = |center: f64, n: usize| -> Vec<f64> {
        (0..n).map(|i| center + (i as f64 / n as f64 - 0.5) * 10.0).collect()
    };
    let far = |n| {
        Summary::of(&samples(100.0, n)).unwrap().separated_by(&Summary::of(&samples(110.0, n)).unwrap(), 1.0)
    };
    assert!(!far(4), "four samples prove nothing");
    assert!(far(40));
    let a = Summary::of(&samples(100.0, 40)).unwrap();
    let b = Summary::of(&samples(100.5, 40)).unwrap();
    assert!(!a.separated_by(&b, 1.0), "half a nanosecond is inside the noise");
}

#[test]
fn statistics_of_known_samples() {
    let stats = Stats::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
    assert_eq!((stats.mean, stats.pstdev, stats.median), (5.0, 2.0, 4.5));
    assert_eq!((stats.min, stats.max), (2.0, 9.0));
    assert!(stats.interval[0] >= 4.0 && stats.interval[1] <= 7.0, "{stats:?}");
    assert!(stats.interval[0] < stats.median && stats.median < stats.interval[1], "{stats:?}");
    assert_eq!(stats.pstdev_percent(), 40.0);
    let one = Stats::of(&[3.0]).unwrap();
    assert_eq!((one.pstdev, one.interval), (0.0, [3.0, 3.0]));
    assert_eq!(Stats::of(&[]), None);
}

/// Of many samples around known medians the interval holds the truth about as often as it says.
#[test]
fn intervals_cover_what_they_should() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut sample = || (0..25).map(|_| 100.0 + random.f64() + random.f64()).collect::<Vec<f64>>();
    let covered = (0..200).filter(|_| {
        let [low, high] = Stats::of(&sample()).unwrap().interval;
        (low..=high).contains(&101.0)
    });
    let covered = covered.count();
    assert!((175..=200).contains(&covered), "{covered} of 200");
}

#[test]
fn ratios_of_two_groups_have_an_interval() {
    let (old, new) = ([10.0, 11.0, 10.5, 10.2, 10.8], [20.0, 21.0, 20.4, 20.9, 20.7]);
    let [low, high] = medians_interval(&new, &old, |new, old| new / old);
    assert!(low > 1.7 && high < 2.2 && low < high, "{low} {high}");
}

#[test]
fn geometric_mean_of_ratios() {
    assert!((geometric_mean([2.0, 0.5]).unwrap() - 1.0).abs() < 1e-12);
    assert_eq!(geometric_mean([]), None);
}

#[test]
fn what_is_no_number_has_no_statistics() {
    for samples in [&[][..], &[1.0, f64::NAN], &[f64::INFINITY], &[1.0, f64::NEG_INFINITY, 2.0]] {
        assert_eq!(Stats::of(samples), None, "{samples:?}");
    }
}

/// Published values: Welch's test of Student's sleep data (1908), as R's `t.test(extra ~ group, data = sleep)` prints.
#[test]
fn welch_agrees_with_a_published_example() {
    let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    let two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
    assert!((welch(&one, &two, 0.0) - 0.079_39).abs() < 1e-5, "{}", welch(&one, &two, 0.0));
    assert_eq!(welch(&one, &one, 0.0), 1.0);
    let same = |b: f64| welch(&[2.0; 5], &[b; 5], 0.2);
    assert_eq!((welch(&[1.0], &two, 0.0), same(2.0), same(3.0)), (1.0, 1.0, 0.0));
    assert_eq!(welch(&[1.0, 2.0, 3.0], &[7.0, 8.0, 9.0], 0.4), 1.0, "nothing is left of them");
}

/// A bad sample on either side hides a difference from means, not from trimmed ones.
#[test]
fn trimming_sees_past_single_samples() {
    let old = [10.0, 10.1, 9.9, 10.05, 9.95, 10.02, 9.98, 2.0];
    let new = [8.0, 8.1, 7.9, 8.05, 7.95, 8.02, 7.98, 30.0];
    assert!(welch(&old, &new, 0.0) > 0.3 && welch(&old, &new, 0.2) < 1e-4);
}

/// Of five samples each, with and without bad ones among them, chance is seldom taken for a difference.
#[test]
fn trimming_finds_no_difference_where_there_is_none() {
    let mut random = fastrand::Rng::with_seed(12);
    let mut samples = || {
        let mut sample = || 100.0 + random.f64() + random.f64() - if random.f64() < 0.1 { 50.0 } else { 0.0 };
        (0..5).map(|_| sample()).collect::<Vec<f64>>()
    };
    let seen = (0..1000).filter(|_| welch(&samples(), &samples(), 0.2) < 0.05).count();
    assert!(seen < 90, "{seen} of 1000 at 5 %");
}

/// The values of the example in Benjamini and Hochberg's paper (section 3.2: 15 tests, 4 of them significant at 5 %).
#[test]
fn correction_agrees_with_the_paper() {
    let probabilities = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
        0.6528, 0.7590, 1.0,
    ];
    let corrected = corrected(&probabilities);
    assert_eq!(corrected.iter().filter(|it| **it <= 0.05).count(), 4, "{corrected:?}");
    assert!((corrected[0] - 0.0015).abs() < 1e-9);
    assert_eq!(crate::engine::stats::corrected(&[]), Vec::<f64>::new());
}

#[test]
fn a_trend_is_seen_through_noise_and_outliers() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut values: Vec<f64> = (0..60).map(|at| 1.0 + 0.1 * at as f64 / 59.0 + 0.02 * random.f64()).collect();
    values[7] = 9.0;
    let trend = Trend::of(&values).unwrap();
    assert!((trend.change - 0.1).abs() < 0.02 && trend.probability < 1e-6, "{trend:?}");
    values.reverse();
    assert!((Trend::of(&values).unwrap().change + 0.1).abs() < 0.02);
    assert_eq!(Trend::of(&values[..7]), None);
    // Put together, many values show the same.
    let many: Vec<f64> = (0..100_000).map(|at| at as f64).collect();
    assert!((Trend::of(&many).unwrap().change / 1e5 - 1.0).abs() < 0.01);
}

/// Values without a trend are seldom taken for one.
#[test]
fn noise_is_no_trend() {
    let mut random = fastrand::Rng::with_seed(4);
    let mut noise = || (0..50).map(|_| random.f64()).collect::<Vec<f64>>();
    let seen = (0..500).filter(|_| Trend::of(&noise()).unwrap().probability < 0.01).count();
    assert!(seen < 15, "{seen} of 500 at 1 %");
    assert_eq!(Trend::of(&[2.5; 20]), Some(Trend { change: 0.0, probability: 1.0 }));
}

/// Which speed the median is depends on chance; the geometric mean does not.
#[test]
fn of_two_speeds_the_mean_counts() {
    let of = |slow: usize| {
        let samples: Vec<f64> =
            (0..21).map(|at| if at < slow { 200.0 } else { 100.0 } + f64::from(at as u8 % 3)).collect();
        Summary::of_one_or_two_speeds(&samples).unwrap().median
    };
    assert!((of(0) - 101.0).abs() < 0.5 && (of(2) - 101.0).abs() < 0.5, "outliers: {} {}", of(0), of(2));
    assert!((of(10) / of(11) - 1.0).abs() < 0.05, "{} {}", of(10), of(11));
}

proptest! {
    #[test]
    fn statistics_are_in_order(samples in prop::collection::vec(-1e9..1e9, 1..60)) {
        let stats = Stats::of(&samples).unwrap();
        let [low, high] = stats.interval;
        prop_assert!(stats.min <= low && low <= high && high <= stats.max, "{stats:?}");
        prop_assert!(low <= stats.median && stats.median <= high, "{stats:?}");
        prop_assert!(stats.pstdev >= 0.0 && stats.pstdev <= stats.max - stats.min, "{stats:?}");
        let ordered = [stats.min, stats.median, stats.max];
        prop_assert!(ordered.is_sorted());
        prop_assert!((samples.iter().filter(|it| **it <= stats.median).count() * 2) >= samples.len());
    }

    #[test]
    fn order_does_not_matter_and_units_scale(samples in prop::collection::vec(0.001..1e6, 1..40), seed: u64) {
        let stats = Stats::of(&samples).unwrap();
        let mut shuffled = samples.clone();
        fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
        prop_assert_eq!(Stats::of(&shuffled), Some(stats));
        // By a power of two, so that nothing is rounded.
        let scaled: Vec<f64> = samples.iter().map(|it| it * 1024.0).collect();
        let scaled = Stats::of(&scaled).unwrap();
        prop_assert_eq!(scaled.median, stats.median * 1024.0);
        prop_assert_eq!(scaled.interval, stats.interval.map(|it| it * 1024.0));
    }

    #[test]
    fn medians_agree_with_sorting(mut samples in prop::collection::vec(-1e3..1e3, 1..50)) {
        let found = median(&samples);
        samples.sort_unstable_by(f64::total_cmp);
        let (half, odd) = (samples.len() / 2, samples.len() % 2 == 1);
        let expected = if odd { samples[half] } else { samples[half - 1].midpoint(samples[half]) };
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn ratios_turn_around(a in prop::collection::vec(1.0..100.0, 1..20), b in prop::collection::vec(1.0..100.0, 1..20)) {
        let [low, high] = medians_interval(&a, &b, |a, b| a / b);
        let ratio = median(&a) / median(&b);
        prop_assert!(low <= ratio * (1.0 + 1e-9) && ratio <= high * (1.0 + 1e-9), "{low} {ratio} {high}");
        let p = welch(&a, &b, 0.2);
        prop_assert!((0.0..=1.0 + 1e-12).contains(&p) && (p - welch(&b, &a, 0.2)).abs() < 1e-9);
    }

    #[test]
    fn correction_keeps_the_order_and_never_lowers(probabilities in prop::collection::vec(0.0..=1.0, 0..30)) {
        let corrected = corrected(&probabilities);
        for (a, corrected_a) in probabilities.iter().zip(&corrected) {
            // But for rounding.
            prop_assert!(*corrected_a >= a * (1.0 - 1e-12) && *corrected_a <= 1.0);
            for (b, corrected_b) in probabilities.iter().zip(&corrected) {
                prop_assert!(a > b || corrected_a <= corrected_b);
            }
        }
    }
}

#[test]
fn what_happens_to_a_whole_round_is_taken_out() {
    let own: [&[f64]; 4] =
        [&[10.0, 10.2, 9.9, 10.1, 10.0], &[20.0; 5], &[31.0, 30.0, 30.0, 29.0, 30.0], &[5.0; 5]];
    // Other load takes half of the machine in two of the rounds.
    let load = [1.0, 2.0, 1.0, 1.0, 2.0];
    let loaded: Vec<Vec<f64>> = own.map(|it| it.iter().zip(load).map(|(a, b)| a * b).collect()).to_vec();
    let without = without_rounds(&loaded);
    for (own, without) in own.iter().zip(&without) {
        assert!((median(without) / median(own) - 1.0).abs() < 0.02, "{without:?}");
        let [before, after] = [own, &without[..]].map(|it| Summary::of(it).unwrap().half_width());
        assert!(after <= before + 0.02 * median(own), "{without:?}");
    }
    let few = loaded[..3].to_vec();
    assert_eq!(without_rounds(&few), few);
}

#[test]
fn a_single_bad_sample_changes_no_other() {
    let samples = [
        vec![10.0, 11.0, 500.0, 10.0],
        vec![20.0, 22.0, 20.0, 20.0],
        vec![30.0, 33.0, 30.0, 30.0],
        vec![40.0; 4],
    ];
    let without = without_rounds(&samples);
    assert_eq!(without[0][2], 500.0);
    assert!((1..4).all(|other| without[other][2] == samples[other][2]), "{without:?}");
    // The last round ended before all had their sample.
    let partial = [vec![10.0, 15.0, 90.0], vec![20.0, 30.0, 31.0], vec![30.0, 45.0], vec![40.0, 60.0]];
    let without = without_rounds(&partial);
    assert_eq!((without[0][2], without[1][2]), (90.0, 31.0));
    assert_eq!(without_rounds(&[vec![], vec![], vec![], vec![]]), vec![Vec::<f64>::new(); 4]);
}

#[test]
fn samples_that_differ_by_more_than_the_round_stay_as_they_are() {
    // Each has two speeds by its own place in memory, whatever the others have.
    let speeds =
        |pattern: &str| pattern.chars().map(|it| if it == '1' { 1.0 } else { 1.5 }).collect::<Vec<f64>>();
    let samples = ["112121122121", "121122112211", "211211212112", "122112121211"].map(speeds).to_vec();
    let without = without_rounds(&samples);
    assert_eq!(without, samples);
    assert!(two_speeds(&without[0]).is_some());
}
