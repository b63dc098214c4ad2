use bulkmem::Operation;
use bulkmem::method::Parameters;
use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Candidate, Config, Measurement, Metric};
use bulkmem_measure::stats::Stats;

use super::*;
use crate::output::exact_size;

const SIZES: [u64; 3] = [16 << 20, 128 << 20, 1 << 30];

fn row(kind: Kind, name: &str, size: u64, median: f64) -> Row {
    let samples = vec![median * 0.99, median, median * 1.01];
    Row {
        measurement: Measurement::Clear,
        candidate: Candidate::named(kind, name),
        config: Config { operation: Some(Operation::Clear), size: Some(size), ..Config::default() },
        metric: Metric::Bandwidth,
        stats: Stats::of(&samples).unwrap(),
        samples,
        chosen: (kind == Kind::Policy)
            .then(|| if size > 64 << 20 { "clzero" } else { "c_library" }.to_owned()),
        also: Default::default(),
        counters: None,
        flags: Vec::new(),
    }
}

fn rows(sizes: &[u64]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, size) in sizes.iter().enumerate() {
        let at = at as f64;
        rows.push(row(Kind::Policy, "policy", *size, 30.0 + at));
        rows.push(row(Kind::Peer, "c_library", *size, 20.0 - at));
        let mut long = row(Kind::Method, "write_prefetch_avx512", *size, 10.0);
        long.candidate.parameters = Parameters { write_distance: 4096, ..Parameters::default() };
        rows.push(long);
        rows.push(row(Kind::Read, "read", *size, 100.0));
    }
    rows
}

fn text(pivot: Pivot<'_>, rows: &[Row], width: usize) -> String {
    let rows: Vec<&Row> = rows.iter().collect();
    let text = anstream::adapter::strip_str(&pivot.text(&rows, width)).to_string();
    for line in text.lines() {
        assert!(line.chars().count() <= width, "wider than {width}: {line}\n{text}");
    }
    text
}

fn line<'t>(text: &'t str, start: &str) -> &'t str {
    text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}\n{text}"))
}

#[test]
fn subjects_stand_down_and_the_best_of_a_column_is_marked() {
    let rows = rows(&SIZES);
    let text = text(Pivot { baseline: Some("c_library"), ..Pivot::across(Dimension::Size) }, &rows, 80);
    assert!(text.starts_with("clear: GB/s, mean ± standard deviation of 3 runs\n"), "{text}");
    let policy = line(&text, "the policy's choice");
    assert_eq!(policy.matches('*').count(), 3, "{text}");
    assert!(policy.contains("30.0 ±0.8%*") && policy.contains("32.0 ±0.8%*"), "{text}");
    let heading = text.lines().nth(1).unwrap();
    assert!(heading.contains("16 MiB") && heading.contains("1 GiB"), "{text}");
    // Reading does not compete.
    assert!(!line(&text, "(reading)").contains('*'), "{text}");
    let speed_ups = text.split("speed-up").nth(1).unwrap();
    assert!(line(speed_ups, "the policy's choice").contains("+50.0%"), "{text}");
    assert!(line(speed_ups, "write_prefetch").contains("-50.0%"), "{text}");
    assert!(
        text.contains("The policy's choice: c_library at 16 MiB; clzero from 128 MiB to 1 GiB."),
        "{text}"
    );
    assert!(text.contains("With parameters: write_prefetch_avx512[write_distance=4096]."), "{text}");
    assert!(text.contains("* the best of a column, by median. Speed-ups are by medians, over c_library."));
}

#[test]
fn subjects_stand_across_and_the_best_of_a_line_is_marked() {
    let rows = rows(&SIZES);
    let text = text(Pivot::down(Dimension::Size), &rows, 80);
    let heading = text.lines().nth(1).unwrap();
    assert!(heading.starts_with("size ") && heading.contains("c_library"), "{text}");
    assert!(line(&text, "16 MiB").contains("30.0 ±0.8%*"), "{text}");
    assert!(text.contains("* the best of a line"), "{text}");
}

#[test]
fn one_column_has_bars_and_its_speed_up_beside_it() {
    let rows = rows(&SIZES[..1]);
    let pivot = Pivot { baseline: Some("c_library"), ..Pivot::across(Dimension::Size) };
    let wide = text(pivot, &rows, 80);
    let bars = |of: &str| line(&wide, of).matches('█').count();
    assert_eq!(bars("(reading)"), 30, "{wide}");
    assert_eq!((bars("the policy"), bars("c_library"), bars("write")), (9, 6, 3), "{wide}");
    assert!(line(&wide, "the policy").contains("+50.0%"), "{wide}");
    let narrow = text(pivot, &rows, 52);
    assert!(!narrow.contains('█') && narrow.contains("+50.0%"), "{narrow}");
}

#[test]
fn what_does_not_fit_continues_below() {
    let sizes: Vec<u64> = (12..28).map(|shift| 1 << shift).collect();
    let rows = rows(&sizes);
    for pivot in [Pivot::across(Dimension::Size), Pivot::down(Dimension::Size)] {
        for width in [46, 60, 80, 120, 250] {
            let text = text(pivot, &rows, width);
            for size in &sizes {
                assert!(text.contains(&exact_size(*size)), "{width}\n{text}");
            }
        }
    }
}

#[test]
fn other_keys_and_metrics_make_tables_of_their_own_and_cells_may_say_anything() {
    let mut some = rows(&SIZES[..2]);
    for row in &mut some {
        row.config.page_size = Some("4K".parse().unwrap());
    }
    let mut others = some.clone();
    for row in &mut others {
        row.config.page_size = Some("2M".parse().unwrap());
        row.metric = Metric::Seconds;
    }
    some.extend(others);
    let cell = |row: &Row| format!("<{:.0}>", row.stats.median);
    let text = text(Pivot { cell: Some(cell), ..Pivot::across(Dimension::Size) }, &some, 80);
    assert!(
        text.contains("clear, page size 4K: GB/s\n") && text.contains("clear, page size 2M: s\n"),
        "{text}"
    );
    let tables: Vec<&str> = text.split("clear, page size ").collect();
    assert!(line(tables[1], "the policy's").contains("<30>*"), "{text}");
    // Of seconds, fewer are better.
    assert!(line(tables[2], "write_prefetch").contains("<10>*"), "{text}");
}

/// Differences have no ratios: without the control, each would be the best.
#[test]
fn the_nearest_to_a_control_is_the_best() {
    let growth = |kind, name: &str, growth: f64| {
        let samples: Vec<f64> = [-2.0, -1.0, 0.0, 1.0, 2.0].iter().map(|noise| growth + noise).collect();
        let stats = Stats::of(&samples).unwrap();
        Row { metric: Metric::Growth, samples, stats, ..row(kind, name, 4096, growth) }
    };
    let rows = [
        growth(Kind::Method, "movnti", 20.0),
        growth(Kind::Method, "rep_stosb", 700.0),
        growth(Kind::Method, "clzero", 0.5),
        growth(Kind::Control, "still", 0.0),
    ];
    let text = text(Pivot { control: Some("still"), ..Pivot::across(Dimension::Size) }, &rows, 80);
    assert!(line(&text, "clzero").contains('*'), "{text}");
    assert!(!line(&text, "movnti").contains('*') && !line(&text, "rep_stosb").contains('*'), "{text}");
    assert!(text.contains("* the best of a column, within the noise."), "{text}");
}

#[test]
fn nothing_and_one_alone_are_shown_too() {
    assert_eq!(Pivot::across(Dimension::Size).text(&[], 80), "");
    let alone = [row(Kind::Method, "clzero", 4096, 3.0)];
    let text = text(Pivot { baseline: Some("c_library"), ..Pivot::across(Dimension::Size) }, &alone, 80);
    assert!(text.contains("3.00") && !text.contains('*') && !text.contains("speed-up"), "{text}");
}

#[test]
fn subjects_of_one_name_keep_their_parameters() {
    let mut rows = rows(&SIZES[..1]);
    let mut other = rows[2].clone();
    other.candidate.parameters.write_distance = 8192;
    rows.push(other);
    let text = text(Pivot::across(Dimension::Size), &rows, 80);
    assert!(text.contains("write_prefetch_avx512[write_distance=4096]"), "{text}");
    assert!(text.contains("write_prefetch_avx512[write_distance=8192]"), "{text}");
    assert!(!text.contains("With parameters"), "{text}");
}

#[test]
fn doubtful_figures_are_marked_and_the_mark_is_explained() {
    let mut rows = rows(&SIZES);
    let plain = text(Pivot::across(Dimension::Size), &rows, 80);
    assert!(!plain.contains('~'), "{plain}");
    rows[1].flags.push(bulkmem_measure::engine::QualityFlag::Noise);
    let marked = text(Pivot::across(Dimension::Size), &rows, 80);
    assert_eq!(line(&marked, "c_library").matches("~±").count(), 1, "{marked}");
    assert!(marked.contains("~ doubtful: the notes say why."), "{marked}");
    assert_eq!(marked.replace("~±", " ±").lines().nth(2), plain.lines().nth(2), "nothing moves");
}

#[test]
fn bars_have_the_length_of_their_share() {
    assert_eq!(bar(1.0, 10), "██████████");
    assert_eq!(bar(0.5, 10), "█████");
    assert_eq!(bar(0.55, 10), "█████▌");
    assert_eq!(bar(1e-9, 10), "▏");
    for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(bar(nothing, 10), "", "{nothing}");
    }
    assert_eq!(bar(7.0, 4), "████");
}
