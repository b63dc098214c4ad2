//! A profile of this machine as a calibration leaves it, in size and form, for tests of what reads one: the evidence,
//! and next to it the policy file that programs load.

use std::path::Path;

use bulkmem::machine::Machine;
use bulkmem::policy::{FORMAT, Policy, Profile, VERSION};
use serde_json::{Value, json};

/// As many as a thorough calibration writes.
const FIGURES: usize = 2000;

/// Writes a profile that is used on this machine, and the policy file at `policy`: `portable` clears, fills and copies
/// from 4 KiB on, which neither the defaults nor a calibration would choose. Creates a missing folder.
///
/// # Panics
/// If it cannot be written, or would not be used.
pub fn write(policy: &Path) {
    let machine = Machine::current();
    let operations = ["clear", "fill", "copy"];
    let rule = |operation: &str, from: u64, method: &str| {
        json!({
            "operation": operation, "intent": "throughput", "from": from, "method": method, "parameters": {},
            "reason": "it measured fastest"
        })
    };
    let rules: Vec<Value> = operations
        .iter()
        .flat_map(|operation| [rule(operation, 0, "c_library"), rule(operation, 4096, "portable")])
        .collect();
    let figure = |number: usize| {
        json!({
            "operation": operations[number % operations.len()], "cost": "throughput", "method": "portable",
            "parameters": {}, "length": 64 * number, "condition": { "aligned": true, "warm": false, "threads": 1 },
            "median_ns": 100.0, "quartiles_ns": [90.0, 110.0], "samples": 21
        })
    };
    let figures: Vec<Value> = (0..FIGURES).map(figure).collect();
    let text = json!({
        "format": FORMAT, "version": VERSION,
        "provenance": {
            "cpu": machine.cpu, "microcode": machine.microcode, "caches": [0, 0, 0],
            "processors": machine.processors, "kernel": machine.kernel, "page_size": machine.page_size,
            "backing_page_size": machine.page_size, "date": "2025-11-21T05:06:07Z", "bulkmem": "0.1.0",
            "commit": "", "mode": "quick", "seconds": 7.5, "samples": 84, "complete": true
        },
        "rules": rules, "threads": [], "figures": figures
    });
    let profile = Profile::parse(text.to_string().as_bytes()).expect("a profile");
    let rules = profile.policy_text();
    Policy::from_file_bytes(rules.as_bytes(), machine).expect("a policy that is used on this machine");
    std::fs::create_dir_all(policy.parent().expect("a file in a folder")).expect("a folder for the profile");
    profile.save(&policy.with_extension("json")).expect("a file for the evidence");
    std::fs::write(policy, rules).expect("a file for the policy");
}
