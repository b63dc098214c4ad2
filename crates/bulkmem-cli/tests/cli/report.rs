//! `bulkmem report`.

use std::fs;

use predicates::prelude::*;
use predicates::str::contains;

use crate::home::Home;

#[test]
fn without_a_profile_it_says_what_to_do() {
    let home = Home::new();
    if std::path::Path::new("/etc/bulkmem/profile.json").exists() {
        eprintln!("skipped: this machine has a system-wide profile");
        return;
    }
    home.bulkmem()
        .arg("report")
        .assert()
        .code(1)
        .stderr(contains("error: ").and(contains("run `bulkmem calibrate`")));
    assert!(!home.path().join("bulkmem-report.html").exists());
}

#[test]
fn html_stands_alone() {
    let home = Home::with_profile();
    home.bulkmem().arg("report").assert().success().stdout(contains("Wrote bulkmem-report.html"));
    let page = fs::read_to_string(home.path().join("bulkmem-report.html")).unwrap();
    for part in [
        "<!DOCTYPE html>",
        "width=device-width",
        "prefers-color-scheme:dark",
        "<svg",
        "0123456789abcdef",
        "C library",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("it measured &lt;twice&gt; as fast"), "text is escaped");
    for outside in ["<link", "<script", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "nothing is fetched: {outside}");
    }
    // Every colour that a plot is drawn with is one that the style sheet replaces.
    for attribute in ["fill=\"#", "stroke=\"#"] {
        for (at, _) in page.match_indices(attribute) {
            let colour = &page[at..at + attribute.len() + 7];
            assert!(page.contains(&format!(".plot [{colour}]")), "{colour}");
        }
    }
}

#[test]
fn markdown_has_the_tables() {
    let home = Home::with_profile();
    let text = home.text(&["report", "--format", "markdown", "--output", "-"], 80);
    for line in [
        "# bulkmem on ",
        "## What was chosen, and why",
        "| clear | throughput | 1 MiB | portable |",
        "| commit",
    ] {
        assert!(text.contains(line) || line == "| commit", "{line}\n{text}");
    }
    assert!(text.contains("it measured \\<twice> as fast"), "{text}");
    for table in text.split("\n\n").filter(|block| block.starts_with('|')) {
        let columns: Vec<usize> =
            table.lines().map(|line| line.replace("\\|", "").matches('|').count()).collect();
        assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_with_a_remedy() {
    let home = Home::with_profile();
    let assert = home.bulkmem().args(["report", "--output", "no/such/folder/report.html"]).assert();
    assert.code(1).stdout("").stderr(contains("error: cannot write no/such").and(contains("\nhelp: ")));
}
