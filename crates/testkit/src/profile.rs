//! A policy file of this machine as a calibration leaves it, for tests of what reads one.

use std::path::Path;

use bulkmem::machine::Machine;
use bulkmem::policy::{POLICY_FORMAT, POLICY_VERSION, Policy};

/// Writes a policy file that is used on this machine, and next to it a profile of the usual size: `portable` clears, fills
/// and copies from 4 KiB on, which neither the defaults nor a calibration would choose. Creates a missing folder.
///
/// # Panics
/// If it cannot be written, or would not be used.
pub fn write(policy: &Path) {
    let machine = Machine::current();
    let cpu = &machine.cpu;
    let mut text = format!(
        "{POLICY_FORMAT} {POLICY_VERSION}\ncpu {} {} {} {}\n",
        cpu.family, cpu.model, cpu.stepping, cpu.vendor
    );
    for operation in ["clear", "fill", "copy"] {
        text +=
            &format!("rule {operation} throughput 0 c_library\nrule {operation} throughput 4096 portable\n");
    }
    text += "end\n";
    Policy::from_file_bytes(text.as_bytes(), machine).expect("a policy that is used on this machine");
    std::fs::create_dir_all(policy.parent().expect("a file in a folder")).expect("a folder for the policy");
    std::fs::write(policy, text).expect("a file for the policy");
    // Programs do not read it, whatever it holds.
    let profile = format!("{{{}}}", " ".repeat(700_000));
    std::fs::write(policy.with_extension("json"), profile).expect("a file for the profile");
}
