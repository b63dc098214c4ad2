//! `bulkmem report`.

use std::fs;

use bulkmem_measure::engine::{Measurement, Results, Row};
use predicates::prelude::*;
use predicates::str::contains;
use sha2::{Digest, Sha256};

use crate::home::Home;
use crate::planted;

const MACHINE: &str = "AMD EPYC 9B14";

/// A home with results of everything in `found.json`.
fn with_results() -> Home {
    let home = Home::new();
    save(&home, "found.json", &planted::everything(MACHINE, 1.0));
    home
}

fn save(home: &Home, name: &str, found: &Results) {
    fs::write(home.path().join(name), serde_json::to_string(found).unwrap()).unwrap();
}

fn page(home: &Home, files: &[&str]) -> String {
    let arguments = [&["report", "--output", "page.html"], files].concat();
    home.bulkmem().args(arguments).assert().success().stdout(contains("Wrote page.html ("));
    fs::read_to_string(home.path().join("page.html")).unwrap()
}

#[test]
fn without_a_profile_it_says_what_to_do() {
    let home = Home::new();
    if std::path::Path::new("/etc/bulkmem/profile.policy").exists() {
        println!("skipped: report without a profile: this machine has a system-wide one");
        return;
    }
    let assert = home.bulkmem().arg("report").assert().code(1);
    assert
        .stderr(contains("error: ").and(contains("run `bulkmem calibrate`")).and(contains("--output FILE")));
    assert!(!home.path().join("bulkmem-report.html").exists());
}

#[test]
fn a_profile_alone_makes_a_page() {
    let home = Home::with_profile();
    home.bulkmem().arg("report").assert().success().stdout(contains("Wrote bulkmem-report.html"));
    let page = fs::read_to_string(home.path().join("bulkmem-report.html")).unwrap();
    for part in [
        "<!DOCTYPE html>",
        "0123456789abcdef",
        "The policy, and the reasons for it",
        "<section id=\"ways\">",
        "bulkmem run -- PROGRAM",
        "figure id=\"chart-calibration-clear-",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("it measured &#60;twice&#62; as fast"), "text is escaped");
}

#[test]
fn each_measurement_has_a_section_with_its_figures() {
    let home = with_results();
    let found = planted::everything(MACHINE, 1.0);
    let page = page(&home, &["found.json"]);
    for measurement in found.measurements() {
        assert!(page.contains(&format!("<section id=\"{measurement}\">")), "{measurement}");
    }
    let missing = Measurement::ALL.into_iter().filter(|it| found.of(*it).next().is_none());
    for measurement in missing {
        assert!(!page.contains(&format!("<section id=\"{measurement}\">")), "{measurement}");
    }
    // Each row's median is in a table, and to the last digit in what the charts are drawn from. A bar alone is no chart.
    let whole_calls = |row: &&Row| row.measurement == Measurement::Persist && row.config.width.is_none();
    assert!(page.contains("<td data-title=\"measured\">Persistent writes, whole calls</td>"));
    assert!(!page.contains("figure id=\"chart-persist-calls"));
    for row in found.rows.iter().filter(|row| !whole_calls(row)) {
        let exact = format!("\"value\":{},", serde_json::to_string(&row.stats.median).unwrap());
        assert!(page.contains(&exact), "{row:?}");
    }
    for text in [
        "a planted finding",
        "Next to rep_stosb the command takes 13 % longer",
        "libpmem is not installed",
        "Regret by size",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(
        page.contains("To clear 1 GiB, bulkmem picks clzero and reaches 23.1 GB/s: 2.52 times the speed of")
    );
}

#[test]
fn axes_and_titles_say_what_was_measured() {
    let home = with_results();
    let page = page(&home, &["found.json"]);
    for title in ["Latency of one group, groups of 64", "Latency of one operation, groups of 64"] {
        assert!(page.contains(&format!("<h3>{title}</h3>")), "{title}");
    }
    // The ends of the intervals are within the chart.
    let corun = page.split("\"name\":\"corun\",").next().unwrap();
    assert!(corun.rsplit("\"max\":").next().unwrap().starts_with("25.0,"));
    let log = page.split("\"name\":\"log\",").nth(1).unwrap();
    assert!(log.contains("\"x_axis\":{\"name\":\"group\",\"scale\":\"powers\"}"), "{}", &log[..400]);
}

/// The page names no address to fetch from, and its content security policy would forbid it.
#[test]
fn the_page_is_self_contained_for_any_names() {
    let home = with_results();
    let page = page(&home, &["found.json"]);
    assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none';"));
    let library = fs::read_to_string(asset("echarts/echarts.common.min.js")).unwrap();
    let own = page.replace(&library, "");
    assert!(own.len() + library.len() == page.len(), "the library is in it once, unchanged");
    for outside in
        ["<link", "src=\"", "src='", "@import", "url(", "http://", "https://", "fetch(", "XMLHttpRequest"]
    {
        assert!(!own.contains(outside), "{outside}");
    }
    // The hostile name only occurs as text: in JSON with escaped brackets, and as escaped markup.
    assert!(!own.contains("<img") && own.contains("\\u003cimg") && own.contains("&#60;img"));
    assert_eq!(own.matches("</script>").count(), own.matches("<script").count());
}

fn asset(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name)
}

/// The checksums of the embedded files are those of the published versions.
#[test]
fn assets_are_as_published() {
    let about = fs::read_to_string(asset("README.md")).unwrap();
    for name in ["echarts/echarts.common.min.js", "dejavu/DejaVuSans-subset.ttf"] {
        let sum: String =
            Sha256::digest(fs::read(asset(name)).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
        let line = about.lines().find(|line| line.contains(&format!("({name})"))).expect(name);
        assert!(line.contains(&sum), "{name}: {sum}");
    }
    for licence in ["echarts/LICENSE", "echarts/NOTICE", "dejavu/LICENSE"] {
        assert!(fs::metadata(asset(licence)).unwrap().len() > 100, "{licence}");
    }
}

#[test]
fn several_machines_are_compared_and_files_of_one_machine_are_merged() {
    let home = with_results();
    save(&home, "other.json", &planted::everything("Other <Processor>", 0.5));
    let text = page(&home, &["found.json", "other.json"]).replace("&#39;", "'");
    for part in [
        "bulkmem on 2 machines",
        "The machines compared",
        "chart-chunks-amd-epyc-9b14",
        "chart-chunks-other-processor",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(text.contains(
        "To clear 1 GiB, the policy's choice reaches 23.1 GB/s on AMD EPYC 9B14 and 11.6 GB/s on Other"
    ));
    // A later file of the same machine replaces rows and adds others.
    let mut later = planted::everything(MACHINE, 1.0);
    later.rows.retain(|row| row.measurement == Measurement::Corun);
    later.findings.clear();
    for row in &mut later.rows {
        row.stats.median = 77.7;
    }
    save(&home, "later.json", &later);
    let text =
        home.text(&["report", "found.json", "later.json", "--format", "markdown", "--output", "-"], 80);
    let text_of = |name: &str| text.split("\n## ").find(|part| part.starts_with(name)).unwrap().to_owned();
    assert!(!text.contains("13 % longer"), "the later run replaces the finding");
    assert!(text_of("A program next to").contains("| (same processor time) |"));
    assert!(
        text.starts_with("# bulkmem on AMD EPYC 9B14, Zen 4\n") && text.contains("## Clearing in chunks")
    );
}

#[test]
fn markdown_has_the_tables() {
    let home = with_results();
    let text = home.text(&["report", "found.json", "--format", "markdown", "--output", "-"], 80);
    for line in [
        "# bulkmem on AMD EPYC 9B14, Zen 4",
        "## Findings",
        "- **Clearing**: To clear 1 GiB, bulkmem picks clzero",
        "## Random input and output",
        "| GB/s | 4 KiB | 64 KiB |",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("<img"), "markup is escaped");
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    for table in text.split("\n\n").filter(|block| block.starts_with('|')) {
        let counts: Vec<usize> = table.lines().map(columns).collect();
        assert!(counts.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }
    let one = home
        .text(&["report", "found.json", "--format", "markdown", "--chart", "chunks", "--output", "-"], 80);
    assert!(
        one.starts_with("### Clearing in chunks\n\n| GB/s | 4 KiB |") && one.lines().count() < 12,
        "{one}"
    );
    assert!(one.contains("| clzero | 23.1 ±0.7 % \\*"), "{one}");
    // The policy takes 1 / 0.95 times as long as the best method, and is 0.95 / 0.7 times as fast as the best library.
    for (cache, pages) in [("cold", "thp"), ("warm", "thp"), ("fresh", "4K")] {
        let row = format!(
            "| clear | throughput | 256 MiB | {cache} | {pages} | 1 | 1.36 | libpmem | 5.26 | clzero |"
        );
        assert!(text.contains(&row), "{text}");
    }
}

#[test]
fn one_chart_is_a_picture() {
    let home = with_results();
    for chart in [
        "chunks",
        "corun",
        "blocks",
        "iops-read",
        "log",
        "writecache",
        "clear-4k-pages",
        "vm",
        "persist-random",
    ] {
        let svg =
            home.text(&["report", "found.json", "--format", "svg", "--chart", chart, "--output", "-"], 80);
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{chart}");
        assert!(!svg.contains("<img"), "{chart}");
    }
    let arguments = ["report", "found.json", "--format", "png", "--chart", "chunks"];
    home.bulkmem().args(arguments).assert().success().stdout(contains("bulkmem-report-chunks.png"));
    let file = fs::File::open(home.path().join("bulkmem-report-chunks.png")).unwrap();
    let mut reader = png::Decoder::new(std::io::BufReader::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    let mut colours: Vec<&[u8]> = pixels.chunks_exact(3).collect();
    colours.sort_unstable();
    colours.dedup();
    assert!(colours.len() > 20, "{} colours", colours.len());
}

#[test]
fn a_chart_must_be_named_if_there_are_several() {
    let home = with_results();
    let names = || contains("chunks").and(contains("corun")).and(contains("iops-latency-"));
    for arguments in [&["--format", "svg"][..], &["--format", "png", "--chart", "nosuch"]] {
        let assert = home.bulkmem().args(["report", "found.json"]).args(arguments).assert().code(2);
        assert.stdout("").stderr(names().and(contains("help:")));
    }
    let assert =
        home.bulkmem().args(["report", "found.json", "--format", "svg", "--chart", "clear"]).assert();
    assert.code(2).stderr(contains("there are 2 charts of `clear`").and(contains("--chart clear-4k-pages")));
    let assert = home.bulkmem().args(["report", "found.json", "--chart", "clear"]).assert();
    assert.code(2).stderr(contains("--format svg"));
}

#[test]
fn unusable_files_are_refused_with_cause_and_remedy() {
    let home = with_results();
    let whole = fs::read_to_string(home.path().join("found.json")).unwrap();
    let newer = whole.replacen("\"version\":2", "\"version\":99", 1);
    let older = whole.replacen("\"version\":2", "\"version\":1", 1);
    let other = whole.replacen("bulkmem-results", "something-else", 1);
    let profile = r#"{"format":"bulkmem-profile","version":1}"#;
    save(&home, "empty.json", &planted::nothing(MACHINE));
    for (name, text) in [
        ("damaged.json", &whole[..whole.len() / 2]),
        ("newer.json", newer.as_str()),
        ("older.json", older.as_str()),
        ("other.json", &other),
        ("profile.json", profile),
        ("text.json", "hello"),
        ("nothing.json", ""),
    ] {
        fs::write(home.path().join(name), text).unwrap();
    }
    for (name, message) in [
        ("missing.json", "cannot read missing.json"),
        (".", "cannot read ."),
        ("damaged.json", "damaged.json is damaged"),
        ("newer.json", "newer bulkmem"),
        ("other.json", "something-else"),
        ("profile.json", "cannot use the profile profile.json"),
        ("text.json", "text.json is damaged"),
        ("nothing.json", "nothing.json is damaged"),
        ("older.json", "older.json is of version 1"),
        ("empty.json", "empty.json contains no rows"),
    ] {
        // Also next to a valid file.
        let assert =
            home.bulkmem().args(["report", "found.json", name, "--output", "out.html"]).assert().code(1);
        assert.stdout("").stderr(contains(message).and(contains("\nhelp: ")));
        assert!(!home.path().join("out.html").exists(), "{name}: nothing is written");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_with_a_remedy() {
    let home = with_results();
    let assert =
        home.bulkmem().args(["report", "found.json", "--output", "no/such/folder/report.html"]).assert();
    assert.code(1).stdout("").stderr(contains("error: cannot write no/such").and(contains("\nhelp: ")));
}
