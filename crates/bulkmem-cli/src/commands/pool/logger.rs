//! Messages of the daemon on stderr, with the level that systemd reads.

use log::{Level, Log, Metadata, Record};

use crate::output;
use crate::plain::plain;

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Info
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = match record.level() {
                Level::Error => 3,
                Level::Warn => 4,
                _ => 6,
            };
            // A daemon whose messages cannot be written goes on.
            _ = output::note(&format!("<{level}>{}", plain(&record.args().to_string())));
        }
    }

    fn flush(&self) {}
}

/// Prints the messages of the library from now on.
pub(super) fn install() {
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}
