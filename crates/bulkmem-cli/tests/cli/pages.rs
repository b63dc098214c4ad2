//! `bulkmem completions` and `bulkmem man`.

use predicates::str::contains;

use crate::home::Home;

const COMMANDS: [&str; 13] = [
    "calibrate",
    "bench",
    "info",
    "explain",
    "methods",
    "reproduce",
    "report",
    "run",
    "tunables",
    "kmod",
    "pool",
    "completions",
    "man",
];

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Home::new().text(&["completions", shell], 80);
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
}

#[test]
fn bash_accepts_its_script() {
    let script = Home::new().text(&["completions", "bash"], 80);
    let checked = std::process::Command::new("bash").args(["-n", "-c", &script]).status();
    match checked {
        Ok(status) => assert!(status.success()),
        Err(error) => eprintln!("skipped: bash cannot be run here: {error}"),
    }
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let home = Home::new();
    home.bulkmem().args(["man", "--output", "pages/deep"]).assert().success();
    for command in COMMANDS {
        let page =
            std::fs::read_to_string(home.path().join(format!("pages/deep/bulkmem-{command}.1"))).unwrap();
        assert!(page.contains(".TH"), "{command}");
    }
    for page in ["kmod-status", "kmod-apply", "pool-serve", "pool-run", "pool-status"] {
        assert!(home.path().join(format!("pages/deep/bulkmem-{page}.1")).exists(), "{page}");
    }
    let run = std::fs::read_to_string(home.path().join("pages/deep/bulkmem-run.1")).unwrap();
    let synopsis = "\n.SH SYNOPSIS\nbulkmem run [OPTIONS] \\-\\- <PROGRAM>...\n.SH DESCRIPTION\n";
    assert!(run.contains(synopsis) && run.contains("\n.SH NOTES\n") && !run.contains(".SH EXTRA"), "{run}");
    let page = home.text(&["man"], 80);
    for word in ["BULKMEM_METHOD", "BULKMEM_PROFILE", "130"] {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn pages_that_cannot_be_written_are_an_error() {
    let home = Home::new();
    std::fs::write(home.path().join("file"), "").unwrap();
    home.bulkmem().args(["man", "--output", "file/pages"]).assert().code(1).stderr(contains("help: "));
}
