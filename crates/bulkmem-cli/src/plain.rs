//! Text from elsewhere, made safe to show: fields of profiles and results, names of files and processes, the
//! environment.
//!
//! A control character in such a text could move the cursor, forge a line, or reverse the order of letters. Tables,
//! notes, errors, Markdown, HTML and comma-separated values show what [`plain`] returns. JSON has escapes of its own.

use bulkmem::policy::CpuIdentity;
use bulkmem_measure::Provenance;
use bulkmem_measure::calibration::Profile;
use bulkmem_measure::engine::{Candidate, Comparison, Config, Differences, Results};

/// The text in one line, with an escape in place of each character that is a control or has no shape of its own:
/// `\n`, `\t`, `\u{1b}`, `\u{202e}`.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || is_invisible(letter) {
            plain.extend(letter.escape_default());
        } else {
            plain.push(letter);
        }
    }
    plain
}

/// JSON whose texts mean the same, with escapes in place of the characters that [`plain`] replaces: serde leaves those
/// beyond ASCII as they are.
pub(crate) fn json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        // Ends of lines stand between texts; within them serde has escaped these.
        if letter != '\n' && (letter.is_control() || is_invisible(letter)) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                escaped += &format!("\\u{unit:04x}");
            }
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

/// True if a character only acts on others: order, joining, breaking, tagging.
fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Results whose texts are all [`plain`].
pub(crate) fn results(found: &Results) -> Results {
    let mut found = found.clone();
    let Results { format, version: _, provenance, command, rows, findings, notes, complete: _ } = &mut found;
    clean([format]);
    clean(command);
    clean(notes);
    clean(findings.iter_mut().map(|finding| &mut finding.text));
    for row in rows {
        clean_key(&mut row.candidate, &mut row.config);
        clean(&mut row.chosen);
        row.also = std::mem::take(&mut row.also).into_iter().map(|(name, it)| (plain(&name), it)).collect();
    }
    let Provenance { cpu, microcode, kernel, date, bulkmem, commit, .. } = provenance;
    clean([microcode, kernel, date, bulkmem, commit]);
    clean_cpu(cpu);
    let Provenance { hypervisor, transparent_huge_pages, governor, clock_source, .. } = provenance;
    clean([hypervisor, transparent_huge_pages, governor, clock_source].into_iter().flatten());
    found
}

/// A profile whose texts are all [`plain`].
pub(crate) fn profile(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    clean([&mut profile.format]);
    let about = &mut profile.provenance;
    clean_cpu(&mut about.cpu);
    clean([&mut about.microcode, &mut about.kernel, &mut about.date, &mut about.bulkmem, &mut about.commit]);
    clean(profile.rules.iter_mut().flat_map(|rule| [&mut rule.method, &mut rule.reason]));
    clean(profile.figures.iter_mut().map(|figure| &mut figure.method));
    profile
}

/// A comparison, and what differs between its machines, whose texts are all [`plain`].
pub(crate) fn comparison(mut found: Comparison, differences: &Differences) -> (Comparison, Differences) {
    let compared = found.rows.iter_mut().map(|change| &mut change.row);
    for row in compared.chain(&mut found.only_old).chain(&mut found.only_new) {
        clean_key(&mut row.candidate, &mut row.config);
    }
    let mut differences = differences.clone();
    clean(differences.machine.iter_mut().chain(&mut differences.settings));
    (found, differences)
}

fn clean_key(candidate: &mut Candidate, config: &mut Config) {
    clean([&mut candidate.name]);
    clean([&mut config.target, &mut config.attribute, &mut config.content].into_iter().flatten());
}

fn clean_cpu(cpu: &mut CpuIdentity) {
    clean([&mut cpu.vendor, &mut cpu.name]);
}

fn clean<'t>(texts: impl IntoIterator<Item = &'t mut String>) {
    for text in texts {
        *text = plain(text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_acts_on_the_screen_is_shown_as_an_escape() {
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
    fn json_means_the_same() {
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

    /// Puts an escape character after every text, at any depth, but where a fixed word is expected.
    fn plant(value: &mut Value, key: &str) {
        const WORDS: [&str; 13] = [
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

    /// A text field that is added later and forgotten here is noticed.
    #[test]
    fn no_text_of_results_is_left_out() {
        let row = serde_json::json!({
            "measurement": "clear",
            "candidate": { "kind": "method", "name": "movnti" },
            "place": { "operation": "clear", "page_size": "4K", "target": "t", "attribute": "a", "content": "c" },
            "metric": "bandwidth", "samples": [1.0], "chosen": "it", "also": { "pages\u{1b}": 1.0 },
            "stats": { "median": 1.0, "mean": 1.0, "pstdev": 0.0, "min": 1.0, "max": 1.0, "interval": [1.0, 1.0] },
        });
        let mut value = serde_json::json!({
            "format": "f", "version": 1, "provenance": Provenance::default(), "command": ["bench"], "rows": [row],
            "findings": [{ "measurement": "clear", "text": "t" }], "notes": ["n"], "complete": true,
        });
        let provenance = value["provenance"].as_object_mut().unwrap();
        for name in ["hypervisor", "transparent_huge_pages", "governor", "clock_source"] {
            provenance.insert(name.to_owned(), "x".into());
        }
        plant(&mut value, "");
        let hostile: Results = serde_json::from_value(value).unwrap();
        let whole = serde_json::to_string(&hostile).unwrap();
        assert!(whole.matches("\\u001b").count() > 20, "{whole}");
        let whole = serde_json::to_string(&results(&hostile)).unwrap();
        assert!(!whole.contains("\\u001b"), "{whole}");
    }

    #[test]
    fn no_text_of_a_profile_is_left_out() {
        let about = serde_json::json!({
            "cpu": CpuIdentity::default(), "microcode": "m", "caches": [1, 2, 3], "processors": 1, "kernel": "k",
            "page_size": 4096, "backing_page_size": 4096, "date": "d", "bulkmem": "b", "commit": "c",
            "mode": "quick", "seconds": 1.0, "samples": 1, "complete": true,
        });
        let rule = serde_json::json!({
            "operation": "clear", "intent": "throughput", "from": 0, "method": "m", "reason": "r", "parameters": {},
        });
        let figure = serde_json::json!({
            "operation": "clear", "cost": "throughput", "method": "m", "length": 64, "median_ns": 1.0, "parameters": {},
            "quartiles_ns": [1.0, 1.0], "samples": 5,
            "condition": { "aligned": true, "warm": false, "threads": 1 },
        });
        let mut value = serde_json::json!({
            "format": "f", "version": 1, "provenance": about, "rules": [rule], "threads": [], "figures": [figure],
        });
        plant(&mut value, "");
        let hostile: Profile = serde_json::from_value(value).unwrap();
        assert!(serde_json::to_string(&hostile).unwrap().matches("\\u001b").count() > 8);
        let whole = serde_json::to_string(&profile(&hostile)).unwrap();
        assert!(!whole.contains("\\u001b"), "{whole}");
    }
}
