use super::*;
use crate::engine::testing;

fn small() -> ReuseOptions {
    ReuseOptions {
        sizes: vec![4096, 10_000],
        shares: vec![0.0, 50.0, 100.0],
        footprint: Some(1 << 16),
        page_size: "4K".parse().unwrap(),
        candidates: Candidates { runs: 2, ..Candidates::default() },
        ..ReuseOptions::default()
    }
}

#[test]
fn each_size_and_share_has_a_row_of_everybody() {
    let options = small();
    let (results, saves) = testing::run(&options, false);
    let results = results.unwrap();
    assert!(results.complete && testing::saved_after_each(2 * 2 * 3, saves), "{saves}");
    for operation in &options.operations {
        for (size, share) in
            options.sizes.iter().flat_map(|size| options.shares.iter().map(move |it| (size, it)))
        {
            let here = |row: &&Row| {
                row.config.operation == Some(*operation)
                    && row.config.size == Some(*size)
                    && row.config.read_back == Some(*share)
            };
            let names: Vec<&str> =
                results.rows.iter().filter(here).map(|row| row.candidate.name.as_str()).collect();
            for name in ["policy", "policy, reuse", "policy, stream", "c_library"] {
                assert!(names.contains(&name), "{operation} {size} {share}: {names:?}");
            }
        }
        let said = results.findings.iter().map(|finding| &finding.text).chain(&results.notes);
        assert!(said.filter(|text| text.starts_with(&format!("{operation}: "))).count() == 1);
    }
    assert!(results.rows.iter().all(|row| row.samples.len() == 2 && row.stats.median > 0.0));
}

#[test]
fn what_cannot_be_measured_is_refused_before() {
    let refused = |change: &dyn Fn(&mut ReuseOptions)| {
        let mut options = small();
        change(&mut options);
        options.validate().unwrap_err().to_string()
    };
    assert!(refused(&|it| it.operations = vec![Operation::Persist]).contains("name clear, fill or copy"));
    assert!(refused(&|it| it.shares = vec![101.0]).contains("from 0 to 100"));
    assert!(refused(&|it| it.shares = vec![f64::NAN]).contains("from 0 to 100"));
    assert!(refused(&|it| it.shares = vec![50.0, 25.0]).contains("rising order"));
    assert!(refused(&|it| it.shares = vec![]).contains("at least one"));
    assert!(refused(&|it| it.sizes = vec![63]).contains("at least 64 bytes"));
    assert!(refused(&|it| it.sizes = vec![1 << 46]).contains("of memory"));
    assert!(refused(&|it| it.footprint = Some(u64::MAX)).contains("of memory"));
}

#[test]
fn destinations_are_whole_places() {
    let options = small();
    assert_eq!(options.destinations(10_000), 70_000);
    assert_eq!(
        ReuseOptions { footprint: Some(1), ..small() }.destinations(4096),
        4096,
        "the same again and again"
    );
    let usual = ReuseOptions { footprint: None, ..small() };
    assert!(usual.destinations(4096) >= 2 * Machine::current().caches.sane().l3);
    assert_eq!(usual.destinations(1 << 40), 2 << 40);
    assert_eq!(usual.needed(Operation::Copy, 1 << 40), 4 << 40);
}

/// Every line that is read lies in the range; as many as asked for, spread over it.
#[test]
fn any_share_of_any_length_can_be_read() {
    let memory = vec![1u8; 100 * LINE + 17];
    for length in [0, 1, 63, 64, 65, 640, memory.len()] {
        for share in [0.0, 0.1, 6.25, 33.0, 50.0, 99.0, 100.0] {
            // SAFETY: the vector has that many bytes.
            unsafe { read_share(memory.as_ptr(), length, share) }
        }
    }
}

#[test]
fn the_share_lies_where_the_lead_changes() {
    let shares = [0.0, 50.0, 100.0];
    assert_eq!(pays_from(&shares, &[1.0, 0.5, -0.5]), 75.0);
    assert_eq!(pays_from(&shares, &[1.0, -1.0, -3.0]), 25.0);
    assert_eq!(pays_from(&shares, &[1.0, -1.0, 1.0]), NEVER, "not even where everything is read");
    assert_eq!(pays_from(&shares, &[-1.0, 1.0, -1.0]), 75.0, "from the last change on");
    assert_eq!(pays_from(&shares, &[-1.0, -1.0, -1.0]), ALWAYS);
    assert_eq!(pays_from(&shares, &[1.0, 1.0, 0.0]), NEVER, "even is no gain");
    let texts = [ALWAYS, 0.0, 37.5, 100.0, NEVER].map(pays_text);
    assert_eq!(texts, ["always", "0 %", "38 %", "100 %", "never"]);
}

/// A row of a method at a share, with a planted time a byte, ±1 %.
fn row(name: &str, size: u64, share: f64, time: f64) -> Row {
    let kind = if name == "policy" { Kind::Policy } else { Kind::Method };
    let samples: Vec<f64> = [0.99, 1.0, 1.01, 0.995, 1.005].iter().map(|noise| noise / time).collect();
    let config = Config {
        operation: Some(Operation::Clear),
        size: Some(size),
        read_back: Some(share),
        ..Config::default()
    };
    testing::row(Measurement::Reuse, (kind, name), config, (Metric::Bandwidth, &samples), &[])
}

#[test]
#[cfg(target_arch = "x86_64")]
fn planted_costs_are_found() {
    let mut rows = Vec::new();
    for share in [0.0, 25.0, 50.0, 100.0] {
        // Caching writes cost 2, reading then nothing; others cost 1, and what is read as much as it is.
        rows.push(row("rep_stosb", 1 << 20, share, 2.0));
        rows.push(row("portable", 1 << 20, share, 9.0));
        rows.push(row("movnti", 1 << 20, share, 1.0 + share / 100.0 * 2.5));
        rows.push(row("policy", 1 << 20, share, 0.1));
        rows.push(row("rep_stosb", 1 << 30, share, 5.0));
        rows.push(row("movnti", 1 << 30, share, 1.0 + share / 100.0));
        rows.push(row("rep_stosb", 4096, share, 0.5));
        rows.push(row("movnti", 4096, share, 1.0));
        // One side alone says nothing.
        rows.push(row("rep_stosb", 1 << 12 | 1, share, 0.5));
    }
    let found = payoffs(&rows.iter().collect::<Vec<_>>());
    assert_eq!(found.iter().map(|it| it.size).collect::<Vec<_>>(), [1 << 20, 1 << 30, 4096]);
    let share = found[0].pays;
    assert!((share - 40.0).abs() < 0.5, "{share}");
    let [low, high] = found[0].interval;
    assert!(low > 38.0 && low < share && share < high && high < 42.0, "{low} {high}");
    assert!((found[0].at_most - 3.5 / 2.0).abs() < 0.05);
    assert_eq!(found[0].best, ["rep_stosb", "movnti"]);
    assert_eq!((found[1].pays, found[1].interval), (NEVER, [NEVER; 2]));
    assert_eq!((found[2].pays, found[2].interval), (ALWAYS, [ALWAYS; 2]));

    let text = conclusion(Operation::Clear, &found.iter().collect::<Vec<_>>()).unwrap();
    for part in [
        "1 MiB from 40 % (",
        "1 GiB never,",
        "4 KiB always.",
        "rep_stosb and the reading are 2.00 times as fast as movnti",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let text = conclusion(Operation::Clear, &[&found[1]]).unwrap();
    assert!(text.contains("With no share read back"), "{text}");
    assert_eq!(conclusion(Operation::Clear, &[]), None);
}
