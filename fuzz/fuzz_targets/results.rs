//! Any bytes are either refused as results, or are results that can be written, read again, compared, and checked against
//! the published tables.
#![no_main]

use bulkmem_measure::engine::{Comparison, Results};
use bulkmem_measure::reproduce::Reproduction;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let results = match Results::parse(bytes) {
        Ok(results) => results,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let again = serde_json::to_vec(&results).expect("results can be written");
    assert_eq!(Results::parse(&again).expect("written results can be read"), results);
    for measurement in results.rows.iter().map(|row| row.measurement) {
        let part = results.only(measurement);
        assert!(part.of(measurement).next().is_some());
    }
    let _ = Comparison::of(&results, &results, 0.05, &[]);
    let _ = Reproduction::of(&results).tally();
});
