//! `bulkmem schema`, and files checked against it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::home::{Home, profile};

pub(crate) fn schema(home: &Home, format: &str) -> (Value, jsonschema::Validator) {
    let schema = home.json(&["schema", format]);
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    (schema, validator)
}

pub(crate) fn assert_valid(validator: &jsonschema::Validator, document: &Value, what: &str) {
    let errors: Vec<String> =
        validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{what}: {errors:#?}");
}

/// Each measurement, short.
const MEASUREMENTS: &[&[&str]] = &[
    &["clear", "--size", "64K", "--method", "portable", "--runs", "5", "--counters"],
    &["fill", "--size", "64K,128K", "--method", "portable", "--runs", "2"],
    &["copy", "--size", "64K", "--method", "portable", "--runs", "1", "--peers", "none"],
    &["chunks", "--total", "64K", "--method", "portable", "--runs", "2", "--page-size", "4K"],
    &["vm", "--size", "2M", "--page-size", "4K", "--method", "portable", "--runs", "2"],
    &["fork", "--size", "8K", "--loops", "3", "--method", "portable", "--runs", "2"],
    &["pollution", "--list", "4K", "--size", "64K", "--method", "portable", "--runs", "5", "--walks", "3"],
    &[
        "corun",
        "--rate",
        "0.1",
        "--size",
        "1M",
        "--chunk",
        "64K",
        "--method",
        "portable",
        "--runs",
        "1",
        "--builtin",
    ],
    &["reuse", "--size", "4K", "--share", "0,100", "--footprint", "256K", "--runs", "2"],
    &["numa", "--size", "1M", "--method", "c_library", "--runs", "2", "--page-size", "4K"],
    &["iops", "--working-set", "1M", "--runs", "2", "--time", "2ms"],
    #[cfg(target_arch = "x86_64")]
    &["persist", "--size", "64K", "--runs", "2"],
    #[cfg(target_arch = "x86_64")]
    &["writecache", "--size", "1M", "--runs", "2", "--time", "1ms"],
    #[cfg(target_arch = "x86_64")]
    &["log", "--size", "1M", "--runs", "2", "--time", "1ms"],
];

#[test]
fn every_measurement_writes_valid_files() {
    let home = Home::new();
    let (_, validator) = schema(&home, "results");
    for arguments in MEASUREMENTS {
        let found = home.json(&[&["bench"], *arguments, &["--json"]].concat());
        assert_valid(&validator, &found, arguments[0]);
        assert!(!found["rows"].as_array().unwrap().is_empty(), "{arguments:?}");
        // Persistent writes end with a comparison by block.
        let own = [arguments[0], if arguments[0] == "persist" { "blocks" } else { arguments[0] }];
        let mut rows = found["rows"].as_array().unwrap().iter();
        assert!(rows.all(|row| own.contains(&row["measurement"].as_str().unwrap())), "{arguments:?}");
    }
}

/// The schema does not accept everything.
#[test]
fn invalid_files_are_found() {
    let home = Home::new();
    let (_, validator) = schema(&home, "results");
    let found =
        home.json(&["bench", "clear", "--size", "64K", "--method", "portable", "--runs", "1", "--json"]);
    type Damage = fn(&mut Value);
    let damages: &[(&str, Damage)] = &[
        ("format", |it| it["format"] = json!("bulkmem-profile")),
        ("version", |it| it["version"] = json!(1)),
        ("no provenance", |it| drop(it.as_object_mut().unwrap().remove("provenance"))),
        ("a measurement", |it| it["rows"][0]["measurement"] = json!("wipe")),
        ("a sample", |it| it["rows"][0]["samples"][0] = json!("fast")),
        ("no number", |it| it["rows"][0]["stats"]["median"] = Value::Null),
        ("a dimension", |it| it["rows"][0]["config"]["planet"] = json!("Mars")),
        ("a size", |it| it["rows"][0]["config"]["size"] = json!(-1)),
        ("a flag", |it| it["rows"][0]["flags"] = json!(["sad"])),
    ];
    for (what, damage) in damages {
        let mut damaged = found.clone();
        damage(&mut damaged);
        assert!(!validator.is_valid(&damaged), "{what} passes");
    }
}

#[test]
fn profiles_have_a_schema_too() {
    let home = Home::new();
    let (_, validator) = schema(&home, "profile");
    assert_valid(&validator, &serde_json::to_value(profile()).unwrap(), "a profile");
    let mut damaged = serde_json::to_value(profile()).unwrap();
    damaged["rules"][0]["operation"] = json!("wipe");
    assert!(!validator.is_valid(&damaged));
}

/// The names of all fields in a schema.
fn fields(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Object(properties)) = object.get("properties") {
                names.extend(properties.keys().cloned());
            }
            object.values().for_each(|value| fields(value, names));
        }
        Value::Array(list) => list.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}

/// The pages of the formats name every field. The page of results refers to that of profiles for what both have.
#[test]
fn the_pages_name_every_field() {
    let home = Home::new();
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |page: &str| std::fs::read_to_string(docs.join(page)).unwrap();
    let profile = read("profile-format.md");
    let results = read("results-format.md");
    assert!(
        results.contains("(profile-format.md#"),
        "the page of results does not refer to that of profiles"
    );
    for (format, page, text) in [
        ("results", "results-format.md", results + &profile),
        ("profile", "profile-format.md", profile),
        ("histogram", "preload.md", read("preload.md")),
    ] {
        let (schema, _) = schema(&home, format);
        let mut names = BTreeSet::new();
        fields(&schema, &mut names);
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            assert!(text.contains(&format!("`{name}`")), "{page} does not name `{name}`");
        }
    }
}
