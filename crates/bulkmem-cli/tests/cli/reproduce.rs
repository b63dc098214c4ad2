//! `bulkmem reproduce`.

use crate::home::{Home, assert_fits, keys};

/// Results of a tiny run: enough for a conclusion or two, and no more.
fn measured(home: &Home) {
    let arguments = ["bench", "clear", "--size", "16M", "--method", "movnti,rep_stosb", "--runs", "1"];
    home.bulkmem().args(arguments).args(["--output", "found.json"]).assert().success();
}

#[test]
#[cfg(target_arch = "x86_64")]
fn saved_results_are_compared_with_the_published_tables() {
    let home = Home::new();
    measured(&home);
    for columns in [80, 160] {
        let text = home.text(&["reproduce", "found.json", "--figures"], columns);
        assert_fits(&text, columns as usize);
        for word in ["Broadwell-X", "Milan", "hold here", "not measured here", "clearing by size", "MOVNTI"] {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }
    let found = home.json(&["reproduce", "found.json", "--json"]);
    assert_eq!(keys(&found), ["alike", "choices", "conclusions", "figures", "provenance"]);
    let first = &found["conclusions"][0];
    assert!(first["verdict"] == "holds" || first["verdict"] == "fails", "{first}");
    assert_eq!(found["choices"].as_array().unwrap().len(), 1, "one size was measured");
    let judged = found["conclusions"].as_array().unwrap().iter();
    assert!(judged.filter(|one| one["verdict"] == "not-measured").count() > 5);
    let text = home.text(&["reproduce", "found.json", "--figures"], 160);
    for word in
        ["no persistent memory was measured", "L1 list, persistent memory", "512 B, persistent memory"]
    {
        assert!(text.contains(word), "{word}\n{text}");
    }
}

#[test]
fn bad_files_and_options_are_refused() {
    let home = Home::new();
    home.bulkmem().args(["reproduce", "nosuch.json"]).assert().code(1);
    let options: [&[&str]; 7] = [
        &["--quick"],
        &["--output", "new.json"],
        &["--target", "ram"],
        &["--size", "64K"],
        &["--keep"],
        &["--overwrite"],
        &["--page-size", "4K"],
    ];
    for options in options {
        let assert = home.bulkmem().args(["reproduce", "nosuch.json"]).args(options).assert().code(2);
        assert.stderr(predicates::str::contains("cannot be used with"));
    }
}
