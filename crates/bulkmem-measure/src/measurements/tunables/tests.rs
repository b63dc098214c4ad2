use std::io::Cursor;

use super::*;
use crate::engine::{Row, testing};

const LISTING: &str = "\
glibc.rtld.nns: 0x4 (min: 0x1, max: 0x10)
glibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xffffffffffffffff)
glibc.malloc.perturb: 0 (min: 0, max: 255)
glibc.cpu.x86_rep_stosb_threshold: 0x800 (min: 0x1, max: 0xffffffffffffffff)
glibc.cpu.x86_non_temporal_threshold: 0x12000000 (min: 0x4040, max: 0xfffffffffffffff)
glibc.cpu.x86_shstk:
";
const NON_TEMPORAL: &str = "x86_non_temporal_threshold";
const MOVSB: &str = judge::MOVSB;

/// Options with the tunables of [`LISTING`], whose processes run a shell script.
fn options(script: &str) -> TunablesOptions {
    TunablesOptions {
        tunables: listing::parse(LISTING),
        existing: String::new(),
        command: ["sh", "-c", script].map(Into::into).into(),
        budget: Duration::from_millis(200),
    }
}

#[test]
fn the_list_of_the_dynamic_linker_is_read() {
    let found = listing::parse(LISTING);
    let values: Vec<_> = found.iter().map(|it| (it.name, it.operation, it.current, it.limits)).collect();
    assert_eq!(
        values,
        [
            (MOVSB, Operation::Copy, 0x840, [0x200, u64::MAX]),
            ("x86_rep_stosb_threshold", Operation::Clear, 0x800, [1, u64::MAX]),
            (NON_TEMPORAL, Operation::Copy, 0x1200_0000, [0x4040, u64::MAX >> 4]),
        ]
    );
    let decimal = "glibc.cpu.x86_memset_non_temporal_threshold: 12 (min: 3, max: 99)";
    assert_eq!((listing::parse(decimal)[0].current, listing::parse(decimal)[0].limits), (12, [3, 99]));
    for text in [
        "",
        "usage: ld.so",
        "glibc.cpu.x86_rep_movsb_threshold:",
        "glibc.cpu.x86_rep_movsb_threshold: 1",
        "glibc.cpu.x86_rep_movsb_threshold: x (min: 1, max: 2)",
        "glibc.cpu.x86_rep_movsb_threshold: 1 (min: 1, max: 2",
        "glibc.cpu.x86_rep_movsb_threshold_2: 1 (min: 1, max: 2)",
    ] {
        assert_eq!(listing::parse(text), [], "{text}");
    }
}

#[test]
fn the_line_keeps_other_tunables() {
    let settings = Settings::from([(NON_TEMPORAL, 4096), (MOVSB, 7)]);
    let ours = "glibc.cpu.x86_non_temporal_threshold=4096:glibc.cpu.x86_rep_movsb_threshold=7";
    assert_eq!(listing::value("", &settings), ours);
    let others = "glibc.malloc.check=3:glibc.cpu.x86_rep_stosb_threshold=9";
    let existing = format!("glibc.cpu.x86_rep_movsb_threshold=5::{others}");
    assert_eq!(listing::value(&existing, &settings), format!("{others}:{ours}"));
    assert_eq!(listing::value(others, &Settings::new()), others);
}

/// The C library ignores values that it does not accept, without a word.
#[test]
fn the_c_library_accepts_what_is_measured() {
    let tunables = match listing::list("") {
        Ok(tunables) => tunables,
        Err(error) => return println!("skipped: values of tunables: {error}"),
    };
    let options = TunablesOptions { tunables, ..options("") };
    assert!(options.extremes().len() > 1);
    for settings in options.extremes() {
        for tunable in listing::list(&listing::value("", &settings)).unwrap() {
            let usual = options.tunables.iter().find(|it| it.name == tunable.name).unwrap().current;
            assert_eq!(tunable.current, *settings.get(tunable.name).unwrap_or(&usual), "{}", tunable.name);
        }
    }
}

#[test]
fn each_pair_of_tunables_is_measured_with_its_extremes() {
    let settings = options("").extremes();
    let stosb = "x86_rep_stosb_threshold";
    assert_eq!(
        settings,
        [
            Settings::new(),
            Settings::from([(MOVSB, 0x201), (stosb, 2)]),
            Settings::from([(MOVSB, u64::MAX), (stosb, u64::MAX)]),
            Settings::from([(NON_TEMPORAL, 0x4041)]),
            Settings::from([(NON_TEMPORAL, u64::MAX >> 4)]),
        ]
    );
}

/// Planted rows of a run: `speed` returns how fast settings are in a configuration, against 10 GB/s without changes.
fn rows(run: usize, settings: &Settings, samples: usize, speed: impl Fn(&Config) -> f64) -> Vec<Row> {
    let row = |config: &Config, settings: &Settings, speed: f64| {
        let noise = [1.0, 0.99, 1.01, 1.005, 0.995];
        let samples: Vec<f64> = noise.iter().cycle().take(samples).map(|noise| speed * noise).collect();
        let name = judge::label(settings, run);
        let config = config.clone();
        testing::row(Measurement::Tunables, (Kind::Peer, &name), config, (Metric::Bandwidth, &samples), &[])
    };
    let both = |config: &Config| [row(config, &Settings::new(), 10.0), row(config, settings, speed(config))];
    configs(2 * LONGEST, 32 << 20).iter().flat_map(both).collect()
}

/// Planted rows of the first run: non-temporal stores gain from 32 MiB on; with string instructions nothing changes.
fn first_run(samples: usize, non_temporal: impl Fn(&Config) -> f64) -> Vec<Row> {
    let extremes = options("").extremes();
    let mut all = Vec::new();
    for (at, settings) in extremes.iter().enumerate().skip(1) {
        all.extend(rows(1, settings, samples, |config| if at == 3 { non_temporal(config) } else { 10.0 }));
    }
    all
}

fn gains_from_32_mib(config: &Config) -> f64 {
    if config.operation == Some(Operation::Copy) && size(config) >= 32 << 20 { 13.0 } else { 8.0 }
}

fn advice(rows: &[Row]) -> Advice {
    options("").advice(&rows.iter().collect::<Vec<_>>())
}

fn settle(rows: &[Row]) -> (Settings, Option<usize>) {
    options("").settle(&rows.iter().collect::<Vec<_>>())
}

#[test]
fn a_gain_that_a_second_run_confirms_is_recommended() {
    let mut all = first_run(9, gains_from_32_mib);
    let selected = Settings::from([(NON_TEMPORAL, 24 << 20)]);
    assert_eq!(settle(&all), (selected.clone(), Some(2)), "between 16 and 32 MiB");
    assert_eq!(advice(&all).glibc_tunables, None, "not confirmed yet");
    all.extend(rows(2, &selected, 9, |config| if size(config) >= 32 << 20 { 12.0 } else { 10.0 }));
    assert_eq!(settle(&all), (selected, None));
    let found = advice(&all);
    let line = "glibc.cpu.x86_non_temporal_threshold=25165824";
    assert_eq!(found.glibc_tunables.as_deref(), Some(line));
    let recommended: Vec<_> = found.tunables.iter().map(|it| it.recommended).collect();
    assert_eq!(recommended, [None, None, Some(24 << 20)]);
    assert!(found.gains.iter().all(|it| size(&it.config) >= 32 << 20), "only lengths that it affects");
    assert!(found.gains.iter().all(|it| (it.percent - 20.0).abs() < 0.1), "of the second run");
    for part in [line, "gains up to 20 % at 32 MiB to 128 MiB"] {
        assert!(found.text.contains(part), "{}", found.text);
    }
}

#[test]
fn nothing_is_recommended_if_the_second_run_does_not_confirm_it() {
    let selected = Settings::from([(NON_TEMPORAL, 24 << 20)]);
    let warm = |config: &Config| config.cache == Some(CacheState::Warm);
    let speeds: [fn(&Config) -> f64; 2] =
        [|_| 10.1, |config| if config.intent == Some(Intent::Reuse) { 8.0 } else { 12.0 }];
    for speed in speeds {
        let mut all = first_run(9, gains_from_32_mib);
        all.extend(rows(2, &selected, 9, |config| if warm(config) { speed(config) } else { 10.0 }));
        assert_eq!(settle(&all), (Settings::new(), None));
        assert!(advice(&all).text.starts_with("Leave the tunables alone"));
    }
}

#[test]
fn a_loss_anywhere_noise_and_few_samples_are_no_reason_to_change() {
    let loses_warm = |config: &Config| match config.cache {
        Some(CacheState::Warm) if size(config) >= 16 << 10 => 7.0,
        _ => 15.0,
    };
    // Only lengths that are too long to be warm are left.
    assert_eq!(settle(&first_run(9, loses_warm)).0.get(NON_TEMPORAL).map(|it| *it > 16 << 20), Some(true));
    let noise = first_run(9, |_| 10.2);
    assert_eq!(settle(&noise), (Settings::new(), None));
    assert!(advice(&noise).text.starts_with("Leave the tunables alone"));
    let few = first_run(4, gains_from_32_mib);
    assert_eq!(settle(&few), (Settings::new(), None));
    assert!(advice(&few).text.contains("give more --budget"));
}

#[test]
fn what_is_not_confirmed_is_dropped_and_the_rest_measured_again() {
    let extremes = options("").extremes();
    let short = |config: &Config| config.operation == Some(Operation::Copy) && size(config) < 16 << 10;
    let never = |config: &Config| if short(config) { 14.0 } else { 6.0 };
    let mut all = first_run(9, gains_from_32_mib);
    let name = judge::label(&extremes[2], 1);
    all.retain(|row| row.candidate.name != name);
    all.extend(rows(1, &extremes[2], 9, never));
    let both = Settings::from([(MOVSB, 16 << 10), (NON_TEMPORAL, 24 << 20)]);
    assert_eq!(settle(&all), (both.clone(), Some(2)));
    all.extend(rows(2, &both, 9, |config| if size(config) >= 32 << 20 { 12.0 } else { 10.0 }));
    let rest = Settings::from([(NON_TEMPORAL, 24 << 20)]);
    assert_eq!(settle(&all), (rest.clone(), Some(3)), "without the other, it is another setting");
    all.extend(rows(3, &rest, 9, |config| if size(config) >= 32 << 20 { 12.0 } else { 10.0 }));
    assert_eq!(settle(&all), (rest, None));
}

/// Copies by REP MOVSB take 20 times as long from 4 to 512 KiB, if they are aliased.
fn slow_if_aliased(config: &Config) -> f64 {
    let slow = config.alignment == Some(Alignment::PageAliased) && (4 << 10..1 << 20).contains(&size(config));
    if slow { 200.0 } else { 10.0 }
}

/// Planted rows of the first run, in which REP MOVSB is never used at that speed.
fn without_movsb(speed: impl Fn(&Config) -> f64) -> Vec<Row> {
    let mut all = first_run(9, |_| 10.0);
    let never = &options("").extremes()[2];
    all.retain(|row| row.candidate.name != judge::label(never, 1));
    all.extend(rows(1, never, 9, speed));
    all
}

#[test]
fn a_threshold_that_avoids_page_aliasing_is_recommended_if_it_loses_nowhere() {
    let mut all = without_movsb(slow_if_aliased);
    let selected = Settings::from([(MOVSB, 1 << 20)]);
    assert_eq!(settle(&all), (selected.clone(), Some(2)), "up to the first length that is not slow");
    all.extend(rows(2, &selected, 9, slow_if_aliased));
    assert_eq!(settle(&all), (selected, None));
    let found = advice(&all);
    assert_eq!(found.glibc_tunables.as_deref(), Some("glibc.cpu.x86_rep_movsb_threshold=1048576"));
    let slow = found.page_aliasing.unwrap();
    assert_eq!((slow.lengths, slow.threshold, slow.loss), ([4 << 10, 512 << 10], 1 << 20, None));
    assert!((slow.times - 20.0).abs() < 0.1, "{slow:?}");
    for part in ["loses 3 % or more nowhere", "4 KiB to 512 KiB", "20 times as long", "The value avoids that"]
    {
        assert!(found.text.contains(part), "{part}: {}", found.text);
    }
    assert!(!found.text.contains("gains up to"), "{}", found.text);
}

#[test]
fn page_aliasing_is_reported_if_avoiding_it_loses_elsewhere() {
    let loses_cold = |config: &Config| match (config.operation, config.cache, size(config)) {
        (Some(Operation::Copy), Some(CacheState::Cold), 4096..8192) => 9.0,
        _ => slow_if_aliased(config),
    };
    let all = without_movsb(loses_cold);
    assert_eq!(settle(&all), (Settings::new(), None));
    let found = advice(&all);
    let slow = found.page_aliasing.unwrap();
    assert_eq!((slow.lengths, slow.threshold), ([4 << 10, 512 << 10], 1 << 20));
    assert!((slow.loss.unwrap() - 10.0).abs() < 0.1, "{slow:?}");
    for part in ["Leave the tunables alone", "threshold=1048576 avoids that", "because it loses up to 10 %"] {
        assert!(found.text.contains(part), "{part}: {}", found.text);
    }
    // A second run that does not confirm it is another reason.
    let mut all = without_movsb(slow_if_aliased);
    all.extend(rows(2, &Settings::from([(MOVSB, 1 << 20)]), 9, |_| 10.0));
    let found = advice(&all);
    assert_eq!((found.glibc_tunables, found.page_aliasing.unwrap().loss), (None, None));
    assert!(found.text.contains("did not confirm"), "{}", found.text);
}

#[test]
fn without_slow_copies_page_aliasing_is_not_mentioned() {
    for speed in [10.0, 19.0] {
        let aliased = |config: &Config| config.alignment == Some(Alignment::PageAliased);
        let found = advice(&without_movsb(|config| if aliased(config) { speed } else { 10.0 }));
        assert_eq!(found.page_aliasing, None, "{speed}");
        assert!(!found.text.contains("aliasing"), "{}", found.text);
    }
    assert_eq!(advice(&[]).page_aliasing, None, "nothing was measured");
}

#[test]
fn a_process_that_ends_or_talks_nonsense_is_an_error_that_says_so() {
    for (script, parts) in [
        ("read first; echo no memory >&2; exit 3", ["exit status: 3", "no memory"]),
        ("read first; echo 4096; read next; kill -9 $$", ["signal: 9", "it ended early"]),
        ("read first; echo hello; read next", ["it wrote", "hello"]),
    ] {
        let error = testing::run(&options(script), false).0.unwrap_err();
        let text = format!("{error}: {}", std::error::Error::source(&error).expect("a cause"));
        assert!(text.starts_with("cannot measure in a process with other tunables: "), "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{script}: {text}");
    }
}

#[test]
fn without_time_nothing_is_recommended() {
    let mut options = options("read first; echo 4096; while read line; do echo 1000; done");
    options.existing = "glibc.malloc.check=3".into();
    let found = testing::run(&options, false).0.unwrap();
    let advice = options.advice(&found.rows.iter().collect::<Vec<_>>());
    assert!(found.complete && advice.text.contains("give more --budget"), "{found:?}");
    assert!(found.notes.iter().any(|it| it.contains("GLIBC_TUNABLES is set")), "{:?}", found.notes);
    let speed = |row: &Row| (row.samples[0], size(&row.config) as f64 / 1000.0);
    assert!(found.rows.iter().map(speed).all(|(speed, expected)| speed == expected));
    assert!(testing::run(&options, true).0.is_err(), "interrupted");
}

#[test]
fn requests_are_answered_with_times_until_they_end() {
    let mut requests = format!("[{LEAST_SIDE},{}]\n", sched_getcpu());
    let asked = configs(32 * SHORTEST, 32 << 20);
    for config in &asked {
        requests += &(serde_json::to_string(config).unwrap() + "\n");
    }
    // In a thread, since it stays on its processor.
    let answers = std::thread::spawn(|| {
        let mut answers = Vec::new();
        answer_requests(Cursor::new(requests), &mut answers).unwrap();
        String::from_utf8(answers).unwrap()
    });
    let answers = answers.join().unwrap();
    let answers: Vec<f64> = answers.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(answers.len(), 1 + asked.len());
    assert!(answers.iter().all(|ns| *ns > 0.0), "{answers:?}");
    assert!(answer_requests(Cursor::new(""), Vec::new()).is_ok());
    let error = answer_requests(Cursor::new("what\n"), Vec::new()).unwrap_err();
    assert!(error.to_string().contains("cannot measure"), "{error}");
}
