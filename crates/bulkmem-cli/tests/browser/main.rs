//! The report in a real browser: its charts, and its reaction to clicks, windows and media.
//!
//! `BULKMEM_SCREENSHOTS=FOLDER` saves screenshots there for visual checks.

mod chromium;
#[allow(dead_code, reason = "the other tests use the rest of it")]
#[path = "../cli/home.rs"]
mod home;
#[allow(dead_code, reason = "the other tests use the rest of it")]
#[path = "../cli/planted.rs"]
mod planted;

use std::path::PathBuf;

use chromium::{Chromium, Page};
use home::Home;
use serde_json::Value;

const PHONE: [u32; 2] = [360, 740];
const DESKTOP: [u32; 2] = [1600, 1000];

/// A report of everything on two machines and of a profile, in a home.
fn report(home: &Home, machines: &[(&str, f64)]) -> PathBuf {
    let mut arguments = vec!["report".to_owned(), "--output".to_owned(), "report.html".to_owned()];
    for (at, (machine, speed)) in machines.iter().enumerate() {
        let name = format!("machine-{at}.json");
        let found = planted::everything(machine, *speed);
        std::fs::write(home.path().join(&name), serde_json::to_string_pretty(&found).unwrap()).unwrap();
        arguments.push(name);
    }
    let provenance = planted::nothing(machines[0].0).provenance;
    let mut profile = home::profile();
    (profile.provenance.cpu, profile.provenance.kernel) = (provenance.cpu, provenance.kernel);
    std::fs::write(home.path().join("profile.json"), serde_json::to_string(&profile).unwrap()).unwrap();
    arguments.push("profile.json".to_owned());
    home.bulkmem().args(&arguments).assert().success();
    home.path().join("report.html")
}

const ONE: [(&str, f64); 1] = [("AMD EPYC 9B14", 1.0)];
const TWO: [(&str, f64); 2] =
    [("AMD EPYC 9B14", 1.0), ("Intel(R) Xeon(R) Platinum 8270CL CPU @ 2.70GHz", 0.6)];

/// Unfolds everything, and waits until all charts are drawn.
fn unfold(page: &Page<'_>) {
    page.evaluate("document.querySelectorAll('details').forEach((it) => (it.open = true))");
    page.wait_for(
        "[...document.querySelectorAll('figure[data-chart]')].every((it) => it.querySelectorAll('svg path').length > 3)",
    );
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn every_chart_is_drawn_and_nothing_complains() {
    let Some(browser) = Chromium::start() else { return };
    for (machines, name) in [(&ONE[..], "one"), (&TWO[..], "two")] {
        let home = Home::new();
        let page = browser.open(&report(&home, machines), DESKTOP, "light");
        unfold(&page);
        let charts = page.evaluate("document.querySelectorAll('figure[data-chart]').length");
        assert!(number(&charts) >= 15.0 * machines.len() as f64, "{charts} charts");
        // Every plot contains the colour of each series that is shown.
        let missing = page.evaluate(
            "(() => { const data = JSON.parse(document.getElementById('charts').textContent); \
             return [...document.querySelectorAll('figure[data-chart]')].flatMap((figure) => { \
               const drawn = figure.querySelector('.plot svg').outerHTML.toLowerCase(); \
               const spec = data[Number(figure.dataset.chart)]; \
               return spec.series.filter((it) => it.shown && it.points.length > 1) \
                 .filter((it) => !drawn.includes(it.style.light.toLowerCase())) \
                 .map((it) => `${spec.name}: ${it.name}`); }); })()",
        );
        assert_eq!(missing, Value::Array(vec![]));
        assert_eq!(page.complaints(), Vec::<String>::new());
        page.screenshot(&format!("everything-{name}"));
    }
}

#[test]
fn a_click_on_the_legend_hides_and_shows() {
    let Some(browser) = Chromium::start() else { return };
    let home = Home::new();
    let page = browser.open(&report(&home, &ONE), DESKTOP, "light");
    let figure = "document.querySelector('#chart-chunks')";
    let key = format!("[...{figure}.querySelectorAll('.key')].find((it) => it.textContent === 'movnti')");
    let colour = page.evaluate(&format!(
        "JSON.parse(document.getElementById('charts').textContent)[{figure}.dataset.chart].series \
         .find((it) => it.name === 'movnti').style.light.toLowerCase()"
    ));
    let drawn = format!("{figure}.querySelector('.plot svg').outerHTML.toLowerCase().includes({colour})");
    assert_eq!(page.evaluate(&drawn), true);
    page.click(&key);
    page.wait_for(&format!("!{drawn}"));
    assert_eq!(page.evaluate(&format!("{key}.getAttribute('aria-pressed')")), "false");
    page.click(&key);
    page.wait_for(&drawn);
    assert_eq!(page.evaluate(&format!("{key}.getAttribute('aria-pressed')")), "true");
    // One click shows the series that were hidden at first.
    let clear = "document.querySelector('figure[id^=chart-clear]')";
    let hidden = format!("{clear}.querySelectorAll('.key[aria-pressed=false]').length");
    assert!(number(&page.evaluate(&hidden)) > 0.0);
    page.click(&format!("{clear}.querySelector('.keys button:not(.key)')"));
    page.wait_for(&format!("{hidden} === 0"));
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn pointing_at_a_chart_shows_the_values() {
    let Some(browser) = Chromium::start() else { return };
    let home = Home::new();
    for window in [DESKTOP, PHONE] {
        let page = browser.open(&report(&home, &ONE), window, "light");
        for (chart, wanted) in [
            ("chart-chunks", ["the policy's choice", "23.0", "clzero", "23.1", "GB/s"]),
            (
                "chart-clear-transparent-huge-pages",
                ["the policy's choice", "GB/s", "clzero", "c_library", "KiB"],
            ),
            ("chart-corun", ["rep_stosb", "22.8", "time, s", "–", "methods"]),
        ] {
            let plot = format!("document.querySelector('#{chart} .plot')");
            let [x, y] = page.middle(&plot);
            page.hover(x - 2.0, y);
            page.hover(x, y + 2.0);
            let tip = format!("{plot}.querySelector('.tip')?.textContent ?? ''");
            page.wait_for(&format!("({tip}).length > 20"));
            let text = page.evaluate(&tip);
            let text = text.as_str().unwrap();
            if chart == "chart-corun" {
                assert!(text.contains("time, s") && text.contains('–'), "{text}");
                continue;
            }
            for word in wanted.iter().filter(|word| chart == "chart-chunks" || **word != "KiB") {
                assert!(text.contains(word), "{chart}: {word}: {text}");
            }
        }
        // Each bar has its figure next to it.
        let figures = page.evaluate(
            "[...document.querySelectorAll('#chart-corun .plot svg text')].map((it) => it.textContent)",
        );
        for figure in ["20.3", "22.8", "20.6", "20.1"] {
            assert!(figures.as_array().unwrap().contains(&figure.into()), "{figure}: {figures}");
        }
        assert_eq!(page.complaints(), Vec::<String>::new());
        page.screenshot(&format!("tooltip-{}", window[0]));
    }
}

#[test]
fn nothing_is_wider_than_the_window() {
    let Some(browser) = Chromium::start() else { return };
    for (machines, count) in [(&ONE[..], 1), (&TWO[..], 2)] {
        let home = Home::new();
        let file = report(&home, machines);
        for window in [PHONE, [800, 1000], DESKTOP] {
            let page = browser.open(&file, window, "light");
            page.screenshot(&format!("folded-{count}-{}", window[0]));
            unfold(&page);
            let wide = page.evaluate(
                "[document.documentElement.scrollWidth, innerWidth, \
                 [...document.querySelectorAll('body *')].filter((it) => !it.closest('.scroll, .plot') \
                   && it.getBoundingClientRect().right > innerWidth + 1).map((it) => it.outerHTML.slice(0, 120))]",
            );
            assert!(number(&wide[0]) <= number(&wide[1]), "{window:?}: {wide}");
            assert_eq!(wide[2], Value::Array(vec![]), "{window:?}");
            // Nor does a chart draw beyond its plot.
            let cut = page.evaluate(
                "[...document.querySelectorAll('.plot')].flatMap((plot) => { const box = plot.getBoundingClientRect(); \
                 return [...plot.querySelectorAll('svg text')].filter((it) => { const text = it.getBoundingClientRect(); \
                   return text.right > box.right + 1 || text.left < box.left - 1; }) \
                 .map((it) => `${plot.ariaLabel}: ${it.textContent}`); })",
            );
            assert_eq!(cut, Value::Array(vec![]), "{window:?}");
            // And no text lies over another.
            let over = page.evaluate(
                "[...document.querySelectorAll('.plot')].flatMap((plot) => { \
                 const texts = [...plot.querySelectorAll('svg text')].map((it) => [it, it.getBoundingClientRect()]); \
                 return texts.flatMap(([a, one], at) => texts.slice(at + 1).filter(([, other]) => \
                   Math.min(one.right, other.right) - Math.max(one.left, other.left) > 3 && \
                   Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 5) \
                   .map(([b]) => `${plot.ariaLabel}: ${a.textContent} / ${b.textContent}`)); })",
            );
            assert_eq!(over, Value::Array(vec![]), "{window:?}");
            page.screenshot(&format!("open-{count}-{}", window[0]));
        }
    }
}

#[test]
fn the_system_and_the_button_switch_to_dark() {
    let Some(browser) = Chromium::start() else { return };
    let home = Home::new();
    let file = report(&home, &ONE);
    let colours = "JSON.stringify([getComputedStyle(document.body).backgroundColor, \
                   document.querySelector('#chart-chunks .plot svg').outerHTML.match(/#[0-9a-f]{6}/gi).sort().join()])";
    let light = browser.open(&file, DESKTOP, "light");
    let wanted_dark = browser.open(&file, DESKTOP, "dark");
    assert_ne!(light.evaluate(colours), wanted_dark.evaluate(colours));
    assert_eq!(wanted_dark.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(20, 23, 27)");
    wanted_dark.screenshot("dark");
    browser.open(&file, PHONE, "dark").screenshot("dark-phone");
    // The button overrides the setting of the system.
    light.click("document.getElementById('theme')");
    light.wait_for("getComputedStyle(document.body).backgroundColor === 'rgb(20, 23, 27)'");
    assert_eq!(light.evaluate(colours), wanted_dark.evaluate(colours));
    assert_eq!(light.complaints(), Vec::<String>::new());
}

#[test]
fn on_paper_everything_is_unfolded_and_light() {
    let Some(browser) = Chromium::start() else { return };
    let home = Home::new();
    let page = browser.open(&report(&home, &ONE), [780, 1000], "dark");
    page.media("print", "dark");
    page.wait_for("[...document.querySelectorAll('details')].every((it) => it.open)");
    page.wait_for(
        "[...document.querySelectorAll('figure[data-chart]')].every((it) => it.querySelector('svg'))",
    );
    assert_eq!(page.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
    let hidden = page.evaluate(
        "[...document.querySelectorAll('table')].filter((it) => it.getBoundingClientRect().height < 20).length",
    );
    assert_eq!(hidden, 0);
    assert_eq!(page.evaluate("getComputedStyle(document.querySelector('nav')).display"), "none");
    page.screenshot("print");
    // And folded again afterwards.
    page.media("screen", "dark");
    page.wait_for(
        "document.querySelectorAll('details[open]').length < document.querySelectorAll('details').length / 2",
    );
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// The saved file equals the given one, and the figures of a chart are comma-separated values.
#[test]
fn data_can_be_saved_from_the_page() {
    let Some(browser) = Chromium::start() else { return };
    let home = Home::new();
    let page = browser.open(&report(&home, &ONE), DESKTOP, "light");
    // Intercepts downloads.
    page.evaluate(
        "window.saved = []; const make = URL.createObjectURL; \
         URL.createObjectURL = (blob) => { window.blob = blob; return make(blob); }; \
         HTMLAnchorElement.prototype.click = function () { const name = this.download; \
           window.blob.text().then((text) => window.saved.push([name, text])); }; 0",
    );
    page.click("document.querySelector('button[data-file=file-0]')");
    page.wait_for("saved.length === 1");
    let given = std::fs::read_to_string(home.path().join("machine-0.json")).unwrap();
    let saved = page.evaluate("saved[0]");
    assert_eq!((saved[0].as_str(), saved[1].as_str()), (Some("machine-0.json"), Some(given.as_str())));
    serde_json::from_str::<Value>(saved[1].as_str().unwrap()).expect("JSON");
    page.click("document.querySelector('#chart-chunks [data-save=csv]')");
    page.wait_for("saved.length === 2");
    let csv = page.evaluate("saved[1][1]");
    let lines: Vec<&str> = csv.as_str().unwrap().lines().collect();
    assert_eq!(lines[0], "chunk,series,\"speed, GB/s\",interval_low,interval_high,remark");
    assert_eq!(lines.len(), 1 + 4 * 7);
    assert!(lines.iter().any(|line| line.starts_with("4096,movnti,11.9,")), "{lines:?}");
    page.click("document.querySelector('#chart-chunks [data-save=svg]')");
    page.wait_for("saved.length === 3");
    assert!(page.evaluate("saved[2][1]").as_str().unwrap().starts_with("<svg"));
    assert_eq!(page.complaints(), Vec::<String>::new());
}
