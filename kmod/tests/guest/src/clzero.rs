//! CLZERO, on the one machine that has it: that it is there, so that no test of it is skipped.

use std::fs;

use libtest_mimic::Failed;
use testkit::harness::Suite;

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("clzero::the_processor_has_it", the_processor_has_it);
}

fn the_processor_has_it() -> Result<(), Failed> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let flags = text.lines().find(|line| line.starts_with("flags")).ok_or("/proc/cpuinfo has no flags")?;
    if !flags.split_whitespace().any(|flag| flag == "clzero") {
        return Err("/proc/cpuinfo has no clzero".into());
    }
    Ok(())
}
