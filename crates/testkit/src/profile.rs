//! A policy file as a calibration of this machine writes it, for tests of reading one.

use std::path::Path;

use bulkmem::machine::Machine;
use bulkmem::policy::{POLICY_FORMAT, POLICY_VERSION, Policy};

/// Writes a policy file that is valid on this machine, and next to it a profile of the usual size. The policy uses
/// `portable` to clear, fill and copy from 4 KiB on, which neither the defaults nor a calibration would choose.
/// Creates missing folders.
///
/// # Panics
/// If the file cannot be written, or is not valid.
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
    Policy::from_file_bytes(text.as_bytes(), machine).expect("a policy that is valid on this machine");
    std::fs::create_dir_all(policy.parent().expect("a file in a folder")).expect("a folder for the policy");
    std::fs::write(policy, text).expect("a file for the policy");
    // Programs do not read the profile, so its content does not matter.
    let profile = format!("{{{}}}", " ".repeat(700_000));
    std::fs::write(policy.with_extension("json"), profile).expect("a file for the profile");
}
