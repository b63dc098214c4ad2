//! `bulkmem bench chunks`.

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{Home, assert_fits};

const SHORT: [&str; 9] =
    ["bench", "chunks", "--total", "1M", "--method", "portable,rep_stosb", "--runs", "2", "--page-size=4K"];

#[test]
fn chunks_stand_down_and_methods_across() {
    for columns in [60, 80, 160] {
        let text = Home::new().text(&SHORT, columns);
        assert_fits(&text, columns as usize);
        let words = [
            "chunk",
            "4 KiB",
            "64 KiB",
            "portable",
            "c_library",
            "(reading)",
            "* the best of a line",
            "4K pages: ",
        ];
        for word in words {
            assert!(text.contains(word), "{word}\n{text}");
        }
        // What the extent does not hold is not measured.
        assert!(!text.contains("2 MiB"), "{text}");
    }
}

#[test]
fn rows_say_extent_chunk_and_choice() {
    let results =
        Home::new().json(&[&SHORT[..], &["--chunk", "8K-16K", "--peers", "none", "--json"]].concat());
    let rows = results["rows"].as_array().unwrap();
    let of_chunk = |chunk: u64| rows.iter().filter(|row| row["config"]["chunk"] == chunk).count();
    assert_eq!((of_chunk(8192), of_chunk(16384), rows.len()), (3, 3, 6), "{rows:?}");
    assert!(rows.iter().all(|row| row["measurement"] == "chunks" && row["config"]["size"] == 1 << 20));
    assert!(rows.iter().all(|row| row["chosen"].is_string() == (row["candidate"]["kind"] == "policy")));
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    for (arguments, message) in [
        (&["--chunk", "2M", "--total", "1M"][..], "1 byte to as many as the total length: 1048576 bytes"),
        (&["--total", "100T"], "of memory"),
        (&["--total", "0"], "at least 1 byte"),
        (&["--page-size", "8K"], "it has 4K"),
        (&["--method", "nosuch"], "unknown method `nosuch`"),
    ] {
        let assert = Home::new().bulkmem().args(["bench", "chunks"]).args(arguments).assert().failure();
        assert.stderr(contains("error:").and(contains(message))).stdout("");
    }
}
