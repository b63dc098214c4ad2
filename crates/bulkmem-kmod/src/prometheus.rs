//! The state and the counters in Prometheus's text format.

use std::fmt::Write;

use crate::status::DeviceState;
use crate::{CopyCounters, Counters, Flushcache, HINT_PATH, MEMORY_PATH, Status};

impl Status {
    /// Returns the state and the counters in Prometheus's text format, version 0.0.4. If the module is not loaded, there
    /// are no counters.
    pub fn prometheus(&self) -> String {
        let mut text = Text::default();
        let (enabled, transition) =
            self.livepatch.map_or((false, false), |patch| (patch.enabled, patch.transition));
        text.flag("bulkmem_module_loaded", "1 if the module is loaded.", self.loaded);
        text.flag("bulkmem_livepatch_enabled", "1 if the livepatch is enabled.", enabled);
        let help = "1 while the kernel moves processes to or from the livepatch.";
        text.flag("bulkmem_livepatch_transition", help, transition);
        let help = "1 if another livepatch is in force in place of bulkmem's.";
        text.flag("bulkmem_livepatch_superseded", help, self.superseded_by.is_some());
        text.metric("bulkmem_device_present", "gauge", "1 if the device exists.");
        for (path, state) in [(HINT_PATH, self.hint_device), (MEMORY_PATH, self.memory_device)] {
            text.sample(&format!("{{device=\"{path}\"}}"), u8::from(state == DeviceState::Present));
        }
        if let Some(counters) = &self.counters {
            text.counters(counters);
        }
        if let Some(copies) = &self.copies {
            text.copies(copies);
        }
        if let Some(flushcache) = self.flushcache.as_ref().filter(|it| it.replaced) {
            text.flushcache(flushcache);
        }
        text.text
    }
}

#[derive(Default)]
struct Text {
    text: String,
    /// The metric that samples belong to.
    metric: &'static str,
}

impl Text {
    /// Begins a metric. No name, text or label here needs an escape.
    fn metric(&mut self, name: &'static str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self.metric = name;
    }

    /// Adds a sample of the last metric.
    fn sample(&mut self, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{}{labels} {value}", self.metric);
    }

    fn flag(&mut self, name: &'static str, help: &str, value: bool) {
        self.metric(name, "gauge", help);
        self.sample("", u8::from(value));
    }

    fn counters(&mut self, counters: &Counters) {
        self.metric("bulkmem_faults_total", "counter", "Huge pages cleared for page faults.");
        self.sample("", counters.faults);
        let help = "Those of bulkmem_faults_total that were below the threshold.";
        self.metric("bulkmem_faults_below_threshold_total", "counter", help);
        self.sample("", counters.skipped);
        self.metric("bulkmem_hints", "gauge", "Hints in force.");
        self.sample("", counters.hints);
        self.metric("bulkmem_hinted_processes", "gauge", "Processes hinted as a whole.");
        self.sample("", counters.hinted_processes);
        let help = "Children of such processes for which there was no room.";
        self.metric("bulkmem_unhinted_processes_total", "counter", help);
        self.sample("", counters.unhinted_processes);
        let help = "Bytes cleared by the method.";
        self.metric("bulkmem_cleared_bytes_total", "counter", help);
        self.by_method(&counters.methods, |it| (it.method.name(), it.bytes));
        let help = "Time that the method took, interruptions included.";
        self.metric("bulkmem_cleared_seconds_total", "counter", help);
        self.by_method(&counters.methods, |it| (it.method.name(), seconds(it.ns)));
        let help = "Contiguous ranges cleared by the method.";
        self.metric("bulkmem_extents_total", "counter", help);
        self.by_method(&counters.methods, |it| (it.method.name(), it.extents));
        let help = "Those of bulkmem_extents_total whose length came from a hint.";
        self.metric("bulkmem_hinted_extents_total", "counter", help);
        self.by_method(&counters.methods, |it| (it.method.name(), it.hinted));
        let help = "Most bytes that the method cleared between two points where the kernel may reschedule.";
        self.metric("bulkmem_longest_bytes", "gauge", help);
        self.by_method(&counters.methods, |it| (it.method.name(), it.longest));
    }

    fn flushcache(&mut self, flushcache: &Flushcache) {
        let help = "Calls of __memcpy_flushcache() that the method copied.";
        self.metric("bulkmem_flushcache_calls_total", "counter", help);
        self.by_method(&flushcache.methods, |it| (it.method.as_str(), it.calls));
        self.metric("bulkmem_flushcache_bytes_total", "counter", "Bytes copied by them.");
        self.by_method(&flushcache.methods, |it| (it.method.as_str(), it.bytes));
    }

    fn copies(&mut self, copies: &CopyCounters) {
        for (name, help, value) in [
            ("bulkmem_copies_total", "Huge pages copied.", copies.faults),
            (
                "bulkmem_copies_below_threshold_total",
                "Those of bulkmem_copies_total that were below the threshold of copies.",
                copies.skipped,
            ),
            (
                "bulkmem_copies_redone_total",
                "Huge pages that the kernel copied because the method met an exception.",
                copies.redone,
            ),
            (
                "bulkmem_copies_failed_total",
                "Huge pages not copied because of a hardware error.",
                copies.failed,
            ),
        ] {
            self.metric(name, "counter", help);
            self.sample("", value);
        }
        self.metric("bulkmem_copied_bytes_total", "counter", "Bytes copied by the method.");
        self.by_method(&copies.methods, |it| (it.method.name(), it.bytes));
        self.metric("bulkmem_copied_extents_total", "counter", "Contiguous ranges copied by the method.");
        self.by_method(&copies.methods, |it| (it.method.name(), it.extents));
    }

    /// Adds a sample of the last metric for each method.
    fn by_method<C, V: std::fmt::Display>(&mut self, methods: &[C], value: impl Fn(&C) -> (&str, V)) {
        for (method, value) in methods.iter().map(value) {
            self.sample(&format!("{{method=\"{method}\"}}"), value);
        }
    }
}

/// Returns nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}
