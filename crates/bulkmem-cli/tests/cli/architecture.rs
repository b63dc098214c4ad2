//! The command on the architecture that it was built for: on this machine, or on another under the emulator that the
//! variable `BULKMEM_TEST_COMMAND` names. They do not ask the library in this process, which may be that of another
//! architecture.

use std::fs;

use bulkmem::machine::Machine;
use serde_json::Value;

use crate::home::{Home, keys, profile};

/// Clear alone, in little time.
const CALIBRATE: [&str; 9] =
    ["calibrate", "--quick", "--op", "clear", "--max-size", "64K", "--budget", "3s", "--json"];

/// Runs the command and reads what it prints as JSON.
fn json(home: &Home, arguments: &[&str]) -> Value {
    let output = home.built().args(arguments).assert().success().get_output().stdout.clone();
    serde_json::from_slice(&output).expect("JSON")
}

/// The emulator that must be found; `None` on a processor.
fn emulator() -> Option<String> {
    match std::env::var(Home::BUILT) {
        Ok(command) => {
            let program = command.split_whitespace().next().expect("the command is not empty").to_owned();
            Some(program.rsplit('/').next().expect("it has a name").to_owned())
        }
        Err(_) => Machine::current().emulator.clone(),
    }
}

#[test]
fn info_names_the_processor_and_its_emulator() {
    let info = json(&Home::new(), &["info", "--json"]);
    assert_eq!(info["machine"]["emulator"].as_str(), emulator().as_deref(), "{}", info["machine"]);
    let available = info["instructions"].as_array().unwrap().iter().filter(|set| set["available"] == true);
    assert!(available.count() > 0, "{}", info["instructions"]);
    let output = Home::new().built().arg("info").assert().success().get_output().stdout.clone();
    let text = String::from_utf8(output).unwrap();
    let row = text.lines().find(|line| line.starts_with("emulator ")).expect("a row");
    assert!(row.contains(emulator().as_deref().unwrap_or("none detected")), "{row}");
}

#[test]
fn methods_are_those_of_the_architecture() {
    let rows = json(&Home::new(), &["methods", "--json"]);
    let rows = rows.as_array().unwrap();
    let here = |row: &&Value| row["available"] == true;
    let special = |row: &&Value| !["c_library", "portable"].contains(&row["name"].as_str().unwrap());
    assert!(rows.iter().filter(here).filter(special).count() >= 4, "{rows:?}");
    for row in rows {
        assert_eq!(row["available"], row["missing"].as_array().unwrap().is_empty(), "{row}");
    }
}

#[test]
fn explain_answers_for_every_operation() {
    let methods = json(&Home::new(), &["methods", "--json"]);
    for operation in ["clear", "fill", "copy", "copy_persist", "fill_persist", "persist"] {
        let does = |row: &&Value| {
            row["available"] == true && row["operations"].as_array().unwrap().contains(&operation.into())
        };
        let able = methods.as_array().unwrap().iter().any(|row| does(&row));
        let home = Home::new();
        let mut command = home.built();
        command.args(["explain", "--op", operation, "--size", "1M", "--json"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.success(), able, "{operation}: {output:?}");
    }
}

/// Calibrates, and uses what that wrote.
#[test]
fn a_calibration_under_an_emulator_is_labelled_and_no_default() {
    let home = Home::new();
    let assert = home.built().args(CALIBRATE).assert().success();
    let said = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    let shown: Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    let stored: Value = serde_json::from_slice(&fs::read(home.profile()).unwrap()).unwrap();
    let policy = fs::read_to_string(home.policy()).unwrap();
    let emulator = emulator();
    assert_eq!(stored["provenance"]["emulator"].as_str(), emulator.as_deref(), "{}", stored["provenance"]);
    assert_eq!(shown["profile"]["provenance"]["emulator"], stored["provenance"]["emulator"]);
    let label = emulator.as_ref().map(|name| format!("emulator {name}"));
    assert_eq!(policy.lines().find(|line| line.starts_with("emulator")), label.as_deref(), "{policy}");
    let warned =
        "times say nothing about a processor: programs use this policy file only if BULKMEM_PROFILE names it";
    assert_eq!(
        said.split_whitespace().collect::<Vec<_>>().join(" ").contains(warned),
        emulator.is_some(),
        "{said}"
    );

    // By default.
    let info = json(&home, &["info", "--json"]);
    let refused = info["policy"]["refused"].as_array().unwrap();
    assert_eq!(info["provenance"].is_null(), emulator.is_some(), "{}", info["policy"]);
    if emulator.is_some() {
        assert!(refused[0]["reason"].as_str().unwrap().contains("under an emulator"), "{refused:?}");
        home.built().arg("report").assert().code(1);
    }

    // By its name.
    let named = |arguments: &[&str]| {
        let mut command = home.built();
        command.env("BULKMEM_PROFILE", home.policy()).args(arguments);
        String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
    };
    let info: Value = serde_json::from_str(&named(&["info", "--json"])).unwrap();
    assert_eq!(info["provenance"], stored["provenance"]);
    named(&["report"]);
    let page = fs::read_to_string(home.path().join("bulkmem-report.html")).unwrap();
    assert_eq!(page.contains("emulated by"), emulator.is_some());
    assert!(keys(&info).contains(&"rules"));

    // Another calibration of the same kind is merged.
    let again = ["calibrate", "--quick", "--op", "fill", "--max-size", "64K", "--budget", "3s", "--force"];
    named(&again);
    let merged: Value = serde_json::from_slice(&fs::read(home.profile()).unwrap()).unwrap();
    let measured = merged["coverage"]["operations"].as_array().unwrap();
    assert!(measured.iter().any(|it| it["operation"] == "clear"), "{measured:?}");
}

/// Measurements of an emulator are not mixed with those of a processor.
#[test]
fn a_calibration_of_the_other_kind_is_not_merged() {
    let home = Home::new();
    home.built().args(CALIBRATE).assert().success();
    let mut other: Value = serde_json::from_slice(&fs::read(home.profile()).unwrap()).unwrap();
    other["provenance"]["emulator"] = emulator().map_or("qemu-planted".into(), |_| Value::Null);
    let before = other.to_string();
    fs::write(home.profile(), &before).unwrap();
    let assert = home.built().args(CALIBRATE).assert().failure();
    let said = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let (planted, here) = match emulator() {
        Some(name) => ("on the processor itself".to_owned(), format!("under the emulator {name}")),
        None => ("under the emulator qemu-planted".to_owned(), "on the processor itself".to_owned()),
    };
    assert!(said.contains(&format!("it was measured {planted}, and this calibration {here}")), "{said}");
    assert_eq!(fs::read_to_string(home.profile()).unwrap(), before);
}

/// On this machine, with a profile that another machine's emulator left.
#[test]
fn an_emulators_profile_is_refused_here() {
    let home = Home::new();
    let mut planted = profile();
    planted.provenance.emulator = Some("qemu-planted".to_owned());
    home.write_profile(&planted);
    let info = home.json(&["info", "--json"]);
    let reason = info["policy"]["refused"][0]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("under an emulator") && reason.contains("BULKMEM_PROFILE"), "{reason}");
    let mut named = home.bulkmem();
    named.env("BULKMEM_PROFILE", home.policy()).args(["info", "--json"]);
    let output = named.assert().success().get_output().stdout.clone();
    let info: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(info["provenance"]["emulator"], "qemu-planted");
}
