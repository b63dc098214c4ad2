//! Problems with the environment go to the `log` facade, once, and nowhere else.

use std::process::Command;
use std::sync::Mutex;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Collector;

impl log::Log for Collector {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        // A logger may use the library.
        let error = bulkmem::init().is_err();
        bulkmem::policy::Policy::global();
        bulkmem::clear(&mut [1; 5000]);
        LINES.lock().unwrap().push(format!("{} {} {error}", record.level(), record.args()));
    }

    fn flush(&self) {}
}

/// Runs only in the process that the test below starts.
#[test]
fn in_a_process_with_an_invalid_variable() {
    if std::env::var("BULKMEM_METHOD").is_err() {
        return;
    }
    log::set_logger(&Collector).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    bulkmem::clear(&mut [1; 5000]);
    assert!(LINES.lock().unwrap().is_empty(), "operations do not log");
    assert!(bulkmem::init().is_err());
    assert!(bulkmem::init().is_err());
    bulkmem::policy::Policy::global();
    let lines = LINES.lock().unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("WARN BULKMEM_METHOD is `clear:nonsense`: unknown method `nonsense`"),
        "{lines:?}"
    );
}

#[test]
fn an_invalid_variable_is_logged_and_not_printed() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_process_with_an_invalid_variable", "--nocapture"])
        .env("BULKMEM_METHOD", "clear:nonsense")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("nonsense"), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
