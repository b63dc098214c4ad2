//! `bulkmem methods`.

use crate::home::{Home, assert_fits, keys};

#[test]
fn every_method_is_in_the_table_at_every_width() {
    for columns in [80, 120, 200] {
        let text = Home::new().text(&["methods"], columns);
        assert_fits(&text, columns as usize);
        for method in bulkmem::method::all() {
            assert!(
                text.lines().any(|line| line.starts_with(&format!("{} ", method.name))),
                "{}\n{text}",
                method.name
            );
        }
    }
}

#[test]
fn json_has_the_documented_keys() {
    let rows = Home::new().json(&["methods", "--json"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), bulkmem::method::all().count());
    for row in rows {
        let expected = [
            "available",
            "effect",
            "missing",
            "name",
            "operations",
            "ordering",
            "requires",
            "summary",
            "tunables",
        ];
        assert_eq!(keys(row), expected);
        assert_eq!(row["available"], row["missing"].as_array().unwrap().is_empty());
        for tunable in row["tunables"].as_array().unwrap() {
            assert_eq!(
                keys(tunable),
                ["default", "largest", "name", "operations", "search", "smallest", "step"]
            );
        }
    }
}

#[test]
fn filters_leave_what_they_name() {
    let persist = Home::new().json(&["methods", "--op", "persist", "--json"]);
    for row in persist.as_array().unwrap() {
        assert!(row["operations"].as_array().unwrap().contains(&"persist".into()), "{row}");
    }
    let here = Home::new().json(&["methods", "--available", "--json"]);
    assert!(here.as_array().unwrap().iter().all(|row| row["available"] == true));
    assert_eq!(here.as_array().unwrap().len(), bulkmem::method::all().filter(|it| it.available()).count());
}
