//! Tests CLZERO on the only machine that supports it: it is the default, the self-test runs it, and it clears page faults.
//! The tests for all methods are in `clearing.rs`, for faster machines.

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::huge::{HugeMapping, MIDDLE, SMALL, Source};
use crate::module::{self, Fault, counted};

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("ryzen::the_self_test_runs_clzero", the_self_test_runs_clzero);
    suite.test("ryzen::clzero_is_the_default", clzero_is_the_default);
    for source in [Source::Pool2M, Source::Transparent] {
        let name = format!("ryzen::clzero_clears_what_is_faulted_in::{source:?}");
        suite.test(&name, move || clzero_clears_what_is_faulted_in(source));
    }
}

/// A fault planted into CLZERO makes the self-test fail, which shows that the self-test runs it.
fn the_self_test_runs_clzero() -> Result<(), Failed> {
    assert!(module::possible().contains(&"clzero"), "/proc/cpuinfo has no clzero");
    module::gone()?;
    match module::load("selftest_fault=clzero") {
        Err(error) if error.raw_os_error() == Some(libc::EIO) => {}
        result => return Err(format!("with a fault in what CLZERO cleared, loading gave {result:?}").into()),
    }
    assert!(!module::is_loaded());
    Ok(())
}

fn clzero_is_the_default() -> Result<(), Failed> {
    module::gone()?;
    module::load("")?;
    assert!(module::available()?.iter().any(|method| method == "clzero"));
    assert_eq!(module::get("method")?, "clzero");
    Ok(())
}

fn clzero_clears_what_is_faulted_in(source: Source) -> Result<(), Failed> {
    module::set("method", "clzero")?;
    module::set("threshold", "0")?;
    let offsets = [0, 2 * SMALL + 1, MIDDLE / 2, MIDDLE - 3 * SMALL, MIDDLE - 1];
    let faults = offsets.map(|offset| Fault { size: MIDDLE, offset, hint: 0 });
    let mut dirtied = Vec::new();
    for round in 0..2 {
        let mut mapping = HugeMapping::new(source, offsets.len())?;
        // The counter is exact.
        counted(&faults, || {
            for (page, offset) in offsets.iter().enumerate() {
                mapping.touch(page * MIDDLE + offset);
            }
            Ok(())
        })?;
        if let Some(at) = mapping.first_dirt() {
            return Err(
                format!("round {round}: byte {:#x} of page {} is not 0", at % MIDDLE, at / MIDDLE).into()
            );
        }
        let frames = mapping.frames()?;
        if round == 1 && !frames.iter().any(|frame| dirtied.contains(frame)) {
            return Err("no page came again, so that this showed nothing".into());
        }
        dirtied = frames;
        mapping.dirty();
    }
    Ok(())
}
