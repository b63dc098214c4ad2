//! Makes text from files, processes and the environment safe to show.
//!
//! A control character in such a text could move the cursor, forge a line, or reverse the order of letters. Tables,
//! notes, errors, Markdown, HTML and comma-separated values show what [`plain`] returns. JSON has its own escapes.

use std::io;

use bulkmem_measure::Provenance;
use bulkmem_measure::calibration::Profile;
use bulkmem_measure::engine::{Config, Results};
use serde::Serialize;

/// Returns the text in one line, with escapes for control characters and invisible characters: `\n`, `\t`, `\u{1b}`,
/// `\u{202e}`.
pub(crate) fn plain(text: &str) -> String {
    escaped(text, |letter, plain| plain.extend(letter.escape_default()))
}

/// Returns a value as JSON with escapes for the characters that [`plain`] replaces.
pub(crate) fn pretty_json(value: &impl Serialize) -> io::Result<String> {
    Ok(json(&serde_json::to_string_pretty(value)?) + "\n")
}

/// Returns equivalent JSON with escapes for the characters that [`plain`] replaces; serde escapes only those of ASCII.
pub(crate) fn json(text: &str) -> String {
    escaped(text, |letter, json| match letter {
        // Line ends only occur between texts; serde escapes those in texts.
        '\n' => json.push(letter),
        _ => letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| *json += &format!("\\u{unit:04x}")),
    })
}

/// Returns the text, with what `escape` writes for control characters and invisible characters.
fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || is_invisible(letter) {
            escape(letter, &mut escaped);
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

/// Returns true if a character only affects other characters: their order, joining, breaking or tagging.
fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Makes all texts of results [`plain`].
pub(crate) fn results(mut found: Results) -> Results {
    let Results { format, version: _, provenance, command, rows, findings, notes, complete: _ } = &mut found;
    clean([format]);
    clean(command);
    clean(notes);
    clean(findings.iter_mut().map(|finding| &mut finding.text));
    clean(findings.iter_mut().filter_map(|it| it.check.as_mut()).flat_map(|it| [&mut it.what, &mut it.note]));
    clean_provenance(provenance);
    for row in rows {
        clean([&mut row.candidate.name]);
        let Config { target, attribute, content, .. } = &mut row.config;
        clean([target, attribute, content, &mut row.chosen].into_iter().flatten());
        row.also = std::mem::take(&mut row.also).into_iter().map(|(name, it)| (plain(&name), it)).collect();
    }
    found
}

/// Makes all texts of a profile [`plain`].
pub(crate) fn profile(mut profile: Profile) -> Profile {
    clean([&mut profile.format]);
    clean_provenance(&mut profile.provenance);
    clean(profile.rules.iter_mut().flat_map(|rule| [&mut rule.method, &mut rule.reason]));
    clean(profile.looks.iter_mut().map(|look| &mut look.reason));
    clean(profile.looks.iter_mut().flat_map(|look| &mut look.unmapped).map(|it| &mut it.method));
    clean(profile.aliasing.iter_mut().flat_map(|rule| [&mut rule.method, &mut rule.reason]));
    clean(profile.figures.iter_mut().map(|figure| &mut figure.method));
    clean(profile.module.iter_mut().map(|figure| &mut figure.method));
    profile
}

fn clean_provenance(provenance: &mut Provenance) {
    let Provenance { cpu, microcode, kernel, date, bulkmem, commit, policy, libraries, .. } = provenance;
    clean(libraries);
    clean([&mut cpu.vendor, &mut cpu.name, microcode, kernel, date, bulkmem, commit, policy]);
    let Provenance { hypervisor, emulator, transparent_huge_pages, governor, clock_source, .. } = provenance;
    clean([hypervisor, emulator, transparent_huge_pages, governor, clock_source].into_iter().flatten());
}

fn clean<'t>(texts: impl IntoIterator<Item = &'t mut String>) {
    for text in texts {
        *text = plain(text);
    }
}

#[cfg(test)]
mod tests {
    use bulkmem::policy::CpuIdentity;
    use serde_json::Value;

    use super::*;

    #[test]
    fn characters_that_affect_the_screen_are_escaped() {
        for (text, shown) in [
            (
                "AMD EPYC 9B14, ±1 % – “quoted” \\ é e\u{301} 日本",
                "AMD EPYC 9B14, ±1 % – “quoted” \\ é e\u{301} 日本",
            ),
            ("a\u{1b}[31mb\u{1b}]0;title\u{7}", "a\\u{1b}[31mb\\u{1b}]0;title\\u{7}"),
            ("one\ntwo\r\tthree\0", "one\\ntwo\\r\\tthree\\u{0}"),
            // Control sequence introducer, delete, next line.
            ("\u{9b}2J\u{7f}\u{85}", "\\u{9b}2J\\u{7f}\\u{85}"),
            // Order of letters, lines, joiners, tags.
            (
                "\u{202e}\u{2066}\u{2028}\u{200d}\u{feff}\u{e0041}",
                "\\u{202e}\\u{2066}\\u{2028}\\u{200d}\\u{feff}\\u{e0041}",
            ),
        ] {
            assert_eq!(plain(text), shown);
        }
    }

    #[test]
    fn escaped_json_is_equivalent() {
        let value = serde_json::json!({ "a\u{9b}": "b\u{202e}\u{7f}\u{e0041}\n\u{1b}é 😀" });
        for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
            let escaped = json(&text);
            assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
            assert!(
                escaped.chars().all(|it| it == '\n' || !it.is_control() && !is_invisible(it)),
                "{escaped}"
            );
            assert!(escaped.contains("é 😀"), "{escaped}");
        }
    }

    /// Appends an escape character to every text at any depth, except if a fixed word is expected.
    fn plant(value: &mut Value, key: &str) {
        const WORDS: [&str; 15] = [
            "unit",
            "measurement",
            "kind",
            "metric",
            "operation",
            "page_size",
            "memory",
            "pattern",
            "direction",
            "flags",
            "intent",
            "situation",
            "cost",
            "mode",
            "parameters",
        ];
        match value {
            Value::String(text) if !WORDS.contains(&key) => text.push('\u{1b}'),
            Value::Array(list) => list.iter_mut().for_each(|it| plant(it, key)),
            Value::Object(map) => map.iter_mut().for_each(|(key, it)| plant(it, key)),
            _ => {}
        }
    }

    /// Detects text fields that are added later and forgotten here.
    #[test]
    fn no_text_of_results_is_left_out() {
        let row = serde_json::json!({
            "measurement": "clear",
            "candidate": { "kind": "method", "name": "movnti" },
            "config": { "operation": "clear", "page_size": "4K", "target": "t", "attribute": "a", "content": "c" },
            "metric": "bandwidth", "samples": [1.0], "chosen": "it", "also": { "pages\u{1b}": 1.0 },
            "stats": { "median": 1.0, "mean": 1.0, "pstdev": 0.0, "min": 1.0, "max": 1.0, "interval": [1.0, 1.0] },
        });
        let check = serde_json::json!({
            "what": "w", "bound": { "at_least": 1.0 }, "unit": "ratio", "measured": 2.0, "met": true, "note": "n",
        });
        let mut value = serde_json::json!({
            "format": "f", "version": 2, "provenance": Provenance::default(), "command": ["bench"], "rows": [row],
            "findings": [{ "measurement": "targets", "text": "t", "check": check }], "notes": ["n"], "complete": true,
        });
        let provenance = value["provenance"].as_object_mut().unwrap();
        for name in ["hypervisor", "transparent_huge_pages", "governor", "clock_source"] {
            provenance.insert(name.to_owned(), "x".into());
        }
        plant(&mut value, "");
        let hostile: Results = serde_json::from_value(value).unwrap();
        let whole = serde_json::to_string(&hostile).unwrap();
        assert!(whole.matches("\\u001b").count() > 20, "{whole}");
        let whole = serde_json::to_string(&results(hostile)).unwrap();
        assert!(!whole.contains("\\u001b"), "{whole}");
    }

    #[test]
    fn no_text_of_a_profile_is_left_out() {
        let about = serde_json::json!({
            "cpu": CpuIdentity::default(), "microcode": "m", "caches": [1, 2, 3], "processors": 1, "kernel": "k",
            "page_size": 4096, "backing_page_size": 4096, "date": "d", "bulkmem": "b", "commit": "c",
            "seconds": 1.0, "samples": 1, "hypervisor": "h", "transparent_huge_pages": "t", "governor": "g",
            "clock_source": "c",
        });
        let coverage = serde_json::json!({ "mode": "quick", "complete": true });
        let rule = serde_json::json!({
            "operation": "clear", "situation": "throughput", "from": 0, "method": "m", "reason": "r", "parameters": {},
        });
        let look = serde_json::json!({
            "operation": "clear", "from": 65536, "cached_below": 9, "reason": "r",
            "unmapped": { "from": 9, "method": "m", "parameters": {} },
        });
        let figure = serde_json::json!({
            "operation": "clear", "cost": "throughput", "method": "m", "length": 64, "median_ns": 1.0, "parameters": {},
            "quartiles_ns": [1.0, 1.0], "samples": 5,
            "condition": { "aligned": true, "warm": false, "threads": 1 },
        });
        let mut value = serde_json::json!({
            "format": "f", "version": 2, "provenance": about, "coverage": coverage, "rules": [rule], "looks": [look], "threads": [], "figures": [figure],
        });
        plant(&mut value, "");
        let hostile: Profile = serde_json::from_value(value).unwrap();
        assert!(serde_json::to_string(&hostile).unwrap().matches("\\u001b").count() > 8);
        let whole = serde_json::to_string(&profile(hostile)).unwrap();
        assert!(!whole.contains("\\u001b"), "{whole}");
    }
}
