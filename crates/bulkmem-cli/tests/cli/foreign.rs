//! Texts from profiles, results, files and the environment are escaped in terminals, pages and tables.

use std::fs;

use bulkmem_measure::engine::Results;

use crate::home::{Home, profile};
use crate::planted;

/// Colours, titles, lines, tabs, the 8-bit introducer of sequences, and an order of letters turned round.
const EVIL: &str = "x\u{1b}[31my\u{1b}]0;t\u{7}\nline\r\ttab\u{9b}2J\u{202e}end";

/// Checks an output that is not a terminal: no control characters except line ends, and none that reverse letters.
fn assert_plain(text: &str, case: &str) {
    let bad: Vec<char> = text
        .chars()
        .filter(|letter| (letter.is_control() && *letter != '\n') || *letter == '\u{202e}')
        .collect();
    assert!(bad.is_empty(), "{case}: {bad:?}\n{text}");
    assert!(!text.contains("\nline"), "{case}: a line was forged\n{text}");
}

fn hostile() -> Results {
    let mut results = planted::everything(EVIL, 1.0);
    let provenance = &mut results.provenance;
    for text in
        [&mut provenance.kernel, &mut provenance.microcode, &mut provenance.date, &mut provenance.commit]
    {
        text.push_str(EVIL);
    }
    provenance.hypervisor = Some(EVIL.to_owned());
    results.notes.push(format!("other processes used 1 processor (most: `{EVIL}`, pid 7)"));
    results.command.push(EVIL.to_owned());
    for finding in &mut results.findings {
        finding.text.push_str(EVIL);
    }
    for row in &mut results.rows {
        row.candidate.name.push_str(EVIL);
        row.chosen = Some(EVIL.to_owned());
        row.config.target = row.config.target.as_ref().map(|target| format!("{target}{EVIL}"));
    }
    results
}

fn home() -> Home {
    let home = Home::new();
    let mut profile = profile();
    for rule in &mut profile.rules {
        rule.reason.push_str(EVIL);
    }
    let about = &mut profile.provenance;
    for text in [&mut about.date, &mut about.commit, &mut about.bulkmem] {
        text.push_str(EVIL);
    }
    home.write_profile(&profile);
    fs::write(home.path().join("evil.json"), serde_json::to_string(&hostile()).unwrap()).unwrap();
    home
}

#[test]
fn tables_notes_pages_and_comma_separated_values_show_escapes() {
    let home = home();
    let cases: &[&[&str]] = &[
        &["compare", "evil.json", "evil.json", "--all"],
        &["compare", "evil.json", "evil.json", "--csv", "-"],
        &["reproduce", "evil.json", "--figures"],
        &["report", "evil.json", "--output", "-"],
        &["report", "evil.json", "--format", "markdown", "--output", "-"],
        &["report", "evil.json", "--format", "svg", "--chart", "clear-4k-pages", "--output", "-"],
        &["info"],
        &["explain", "--op", "clear", "--size", "1M"],
        &["explain", "--op", "clear", "--size", "4M"],
    ];
    for arguments in cases {
        // With colours forced, so that nothing is stripped on the way: styles of ours alone may remain.
        let mut command = home.bulkmem();
        command.args(*arguments).env("CLICOLOR_FORCE", "1");
        let assert = command.assert().success();
        let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
        let complaints = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        let case = format!("{arguments:?}");
        assert!(text.contains("\\u{1b}") || text.contains("\\\\u{1b}"), "{case} shows none of it\n{text}");
        assert_plain(&without_styles(&text), &case);
        assert_plain(&without_styles(&complaints), &case);
    }
}

/// The text without the styles that the command itself uses: bold, faint, underlined, three colours, and their ends.
fn without_styles(text: &str) -> String {
    // The red of the planted text is also one of ours; there it stands behind an x.
    assert!(!text.contains("x\u{1b}[31m"), "{text}");
    [
        "\u{1b}[0m",
        "\u{1b}[1m",
        "\u{1b}[2m",
        "\u{1b}[4m",
        "\u{1b}[31m",
        "\u{1b}[32m",
        "\u{1b}[33m",
        "\u{1b}[39m",
        "\u{1b}[49m",
    ]
    .iter()
    .fold(text.to_owned(), |text, style| text.replace(style, ""))
}

#[test]
fn json_keeps_every_text_as_it_is() {
    let home = home();
    let found = home.json(&["compare", "evil.json", "evil.json", "--json"]);
    assert!(found["rows"][0]["candidate"]["name"].as_str().unwrap().ends_with(EVIL));
    let found = home.json(&["explain", "--op", "clear", "--size", "4M", "--json"]);
    assert!(found["reason"].as_str().unwrap().ends_with(EVIL), "{}", found["reason"]);
}

#[test]
fn errors_and_names_of_files_show_escapes() {
    let home = home();
    let name = format!("no{EVIL}.json");
    fs::write(home.path().join(format!("bad{}", EVIL.replace('/', ""))), "{\"format\": \"\\u001b[31m\"")
        .unwrap();
    let bad = format!("bad{EVIL}");
    for arguments in [
        &["compare", name.as_str(), "evil.json"][..],
        &["compare", bad.as_str(), "evil.json"],
        &["report", bad.as_str()],
        &["compare", "evil.json", "evil.json", "--only", EVIL],
        &["calibrate", "--output", "/proc/x\u{1b}[31m/profile.json"],
        &["bench", "clear", "--output", "/proc/x\u{1b}[31m/results.json"],
    ] {
        let assert = home.bulkmem().args(arguments).env("CLICOLOR_FORCE", "1").assert().failure();
        let complaints = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert!(complaints.contains("\\u{1b}"), "{arguments:?}: {complaints}");
        assert_plain(&without_styles(&complaints), &format!("{arguments:?}"));
    }
    // A profile that is refused, and the environment.
    let assert = home.bulkmem().arg("info").env("BULKMEM_PROFILE", &name).env("CLICOLOR_FORCE", "1").assert();
    assert_plain(&without_styles(&String::from_utf8_lossy(&assert.get_output().stdout)), "BULKMEM_PROFILE");
    let method = format!("clear:{EVIL}");
    let assert = home.bulkmem().arg("info").env("BULKMEM_METHOD", method).env("CLICOLOR_FORCE", "1").assert();
    let complaints = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert_plain(&without_styles(&complaints), "BULKMEM_METHOD");
}
