//! The opening of `bulkmem report`: the chart of the choices, three sentences and a table.

use std::fs;

use bulkmem_measure::Kind;
use bulkmem_measure::calibration::{Condition, Cost, Figure, Profile};
use bulkmem_measure::engine::{CacheState, Measurement, Results};

use crate::home::{Home, persisting, profile};
use crate::planted::{self, HOSTILE};

/// Results of `bench choice` alone: the choice is 0.95 / 0.5 times as fast as the C library, and 0.95 / 0.7 times as fast
/// as libpmem.
fn choices() -> Results {
    let mut found = planted::everything("AMD EPYC 9B14", 1.0);
    found.rows.retain(|row| row.measurement == Measurement::Choice);
    found
}

/// Returns the opening as HTML, and the whole report as Markdown.
fn opening(home: &Home, found: Option<&Results>, profile: Option<&Profile>) -> (String, String) {
    let save = |name: &str, text: String| {
        fs::write(home.path().join(name), text).unwrap();
        name.to_owned()
    };
    let found = found.map(|found| save("found.json", serde_json::to_string(found).unwrap()));
    let profile = profile.map(|it| save("profile.json", serde_json::to_string(it).unwrap()));
    let files: Vec<String> = found.into_iter().chain(profile).collect();
    let report = |format: &str| {
        let options = ["--format", format, "--output", "-"].map(str::to_owned);
        let arguments = [vec!["report".to_owned()], files.clone(), options.to_vec()].concat();
        home.text(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), 80)
    };
    let page = report("html");
    let from = page.find("<section class=\"opening\">").expect("an opening");
    let page = page[from..].split("</section>").next().unwrap();
    (page.to_owned(), report("markdown"))
}

/// Returns the sentences of advice.
fn advice(opening: &str) -> Vec<&str> {
    let list = opening.split("<ul class=\"advice\">").nth(1).and_then(|it| it.split("</ul>").next()).unwrap();
    list.split("<li>").skip(1).map(|it| it.trim_end_matches("</li>")).collect()
}

#[test]
fn it_has_a_labelled_gauge_for_each_length_and_cache_state() {
    let (page, text) = opening(&Home::new(), Some(&choices()), None);
    for state in ["cold", "warm"] {
        // Of 4 KiB to 256 MiB, 64 KiB, 1 MiB and 16 MiB are shown.
        let gauge = format!("<li class=\"gauge {state} more\"");
        assert_eq!(page.matches(&gauge).count(), 3, "{page}");
        assert_eq!(page.matches(&format!("<span class=\"state\">{state}</span>")).count(), 3);
        let line =
            format!("| clear | 64 KiB | {state} | clzero | 57.0 | 1.90 | 1.36 | 64 KiB | bench choice |");
        assert!(text.contains(&line), "{text}");
    }
    let described = "title=\"clear of 64 KiB, cold: clzero, 57.0 GB/s, memset 30.0 GB/s, libpmem 42.0 GB/s\"";
    for part in [
        "<h3>clear</h3>",
        "<h4>16 MiB</h4>",
        described,
        "<span>1.90 × memset</span> <span>1.36 × libpmem</span>",
        "--bar:95.0%;--one:50.0%",
        "style=\"left:70.0%\">◆",
        "glibc 2.36 · libpmem 1.12.1 &#60;2&#62; · Linux 6.18.0 · measured 2026-11-21",
        "Measured by bench choice.",
        "Not measured: clear of 1 GiB, fill, copy; bulkmem bench choice OPERATION --cold --warm",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(text.starts_with(
        "# bulkmem on AMD EPYC 9B14, Zen 4\n\n2 processors · glibc 2.36 · libpmem 1.12.1 \\<2\\> ·"
    ));
}

#[test]
fn the_advice_follows_from_the_figures() {
    let home = Home::new();
    let mut found = choices();
    let (page, text) = opening(&home, Some(&found), None);
    let sentences = advice(&page);
    assert_eq!(sentences.len(), 3, "{sentences:?}");
    assert!(
        sentences[0].contains("clzero at ") && sentences[0].contains("1.90 × memset and 1.36 × libpmem.")
    );
    assert_eq!(
        sentences[1].split(':').next(),
        Some("It gains everywhere, least for a fresh clear of 16 MiB")
    );
    assert!(sentences[2].contains("bulkmem calibrate"), "{sentences:?}");
    assert!(text.contains("\n- It gains everywhere, least for"), "{text}");
    // The choice becomes as fast as the C library, and slower where memory is not cold.
    for row in found.rows.iter_mut().filter(|row| row.candidate.kind == Kind::Policy) {
        row.stats.median *= if row.config.cache == Some(CacheState::Cold) { 0.5 / 0.95 } else { 0.4 / 0.95 };
    }
    let (page, _) = opening(&home, Some(&found), None);
    let sentences = advice(&page);
    assert!(sentences[0].starts_with("bulkmem gains less than 5 % everywhere"), "{sentences:?}");
    let even = "In 3 of 9 cases it gains less than 5 %, and plain memset will do: every cold clear; it is slower at \
                every warm clear, every fresh clear.";
    assert_eq!(sentences[1], even);
    assert!(!page.contains(" more\""), "no gain is emphasized");
}

/// A profile in which 2 threads clear three times as fast as one, and the method for streams is 1.5 times as cheap.
fn with_threads_and_intents() -> Profile {
    let mut profile = profile();
    let base =
        profile.figures.iter().find(|it| it.length == 1 << 20 && it.method == "portable").unwrap().clone();
    let figure = |cost, threads, method: &str, length, median_ns| Figure {
        cost,
        method: method.to_owned(),
        length,
        condition: Condition { threads, ..base.condition },
        median_ns,
        ..base.clone()
    };
    profile.figures.extend([
        figure(Cost::Throughput, 1, "portable", 8 << 20, 600_000.0),
        figure(Cost::Throughput, 2, "portable", 8 << 20, 200_000.0),
        figure(Cost::Stream, 1, "portable", 1 << 20, 150_000.0),
        figure(Cost::Stream, 1, "movnti", 1 << 20, 100_000.0),
    ]);
    let stream = bulkmem::policy::Situation::Stream;
    let rule = profile.rules[0].clone();
    profile.rules.push(bulkmem_measure::calibration::Rule {
        situation: stream,
        method: "movnti".into(),
        ..rule
    });
    profile
}

#[test]
fn a_profile_says_what_to_write_to_get_more() {
    let (page, text) = opening(&Home::new(), None, Some(&with_threads_and_intents()));
    assert!(
        page.contains("<span>2.00 × memset</span>") && page.contains("Measured by the calibration."),
        "{page}"
    );
    // libpmem was not measured.
    assert!(!page.contains('◆'), "{page}");
    // Nothing was measured in warm memory.
    assert!(page.contains("gauge cold") && !page.contains("gauge warm"));
    let more = "To get more, write Options::new().threads(Threads::Auto): 2 threads clear 8 MiB 3.00 times as fast; or \
                .intent(Intent::Stream): a cold clear of 1 MiB, with the time that other programs lose in the \
                cache, is 1.50 times as fast.";
    assert_eq!(advice(&page)[2], more);
    assert!(
        text.contains("| clear | 1 MiB | cold | portable | 21.0 | 2.00 | – | 1 MiB | calibration |"),
        "{text}"
    );
    // The method for parts of 64 KiB is half as fast at 1 MiB as the method for 1 MiB.
    let mut profile = profile();
    let (page, _) = opening(&Home::new(), None, Some(&profile));
    let more = "To get more, write Options::new().total_len(n): a cold clear of 1 MiB that arrives in parts of 64 KiB is \
                2.00 times as fast.";
    assert_eq!(advice(&page)[2], more);
    // Without such figures there is nothing to recommend.
    profile.figures.retain(|it| it.method == "portable");
    let (page, _) = opening(&Home::new(), None, Some(&profile));
    assert_eq!(advice(&page)[0], "The C library was not measured, so that gains are unknown.");
    assert!(advice(&page)[2].starts_with("Nothing that calibration measured gains 5 % more"), "{page}");
}

#[test]
fn operations_that_persist_are_compared_with_libpmem() {
    let (profile, method) = persisting();
    let (page, text) = opening(&Home::new(), None, Some(&profile));
    let text = text.replace('\\', "");
    for (length, speed, times) in [("64 KiB", "52.4", "2.00"), ("1 MiB", "21.0", "0.50")] {
        let line = format!(
            "| copy_persist | {length} | cold | {method} | {speed} | – | {times} | {length} | calibration |"
        );
        assert!(text.contains(&line), "{line}\n{text}");
        assert!(page.contains(&format!("<span>{times} × libpmem</span>")), "{page}");
    }
    assert!(page.contains("or of libpmem for operations that persist."), "no mark is explained\n{page}");
    // The charts of the calibration compare with libpmem, too.
    assert!(text.contains("| libpmem, GB/s |"), "{text}");
    assert!(text.contains(&format!("| 1 MiB | 21.0 | 41.9 | 21.0 | {method} |")), "{text}");
}

#[test]
fn figures_of_two_sources_are_told_apart() {
    let mut found = choices();
    found.rows.retain(|row| row.config.cache == Some(CacheState::Warm));
    let mut profile = profile();
    (profile.provenance.cpu, profile.provenance.kernel) =
        (found.provenance.cpu.clone(), found.provenance.kernel.clone());
    let (page, text) = opening(&Home::new(), Some(&found), Some(&profile));
    assert!(page.contains("3 figures measured by bench choice, the others by the calibration"), "{page}");
    for line in [
        "| clear | 1 MiB | cold | portable | 21.0 | 2.00 | – | 1 MiB | calibration |",
        "| clear | 1 MiB | warm | clzero |",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn without_figures_it_names_the_commands_that_measure_them() {
    let mut found = planted::everything("AMD EPYC 9B14", 1.0);
    found.rows.retain(|row| row.measurement != Measurement::Choice);
    let (page, text) = opening(&Home::new(), Some(&found), None);
    assert!(!page.contains("<figure") && !page.contains("<table"), "{page}");
    let sentences = advice(&page);
    assert_eq!(sentences.len(), 1);
    for command in ["bulkmem calibrate", "bulkmem bench choice clear --cold --warm"] {
        assert!(sentences[0].contains(command) && text.contains(command), "{sentences:?}");
    }
}

#[test]
fn names_from_files_are_text() {
    let mut found = choices();
    for row in &mut found.rows {
        row.chosen = row.chosen.take().map(|_| HOSTILE.to_owned());
    }
    let (page, text) = opening(&Home::new(), Some(&found), None);
    assert!(!page.contains("<img") && page.contains("&#60;img"), "{page}");
    assert!(text.contains("\\<img") && !text.replace("\\<", "").contains("<img"), "{text}");
}
