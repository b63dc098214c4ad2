//! Tests huge pages of other sizes than 2 MiB: gigantic ones of the pool, and small ones of transparent memory. They run
//! only on machines that are configured for them, and fail there if the pages are missing.

use std::fs;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::clearing::{all_zero, choose};
use crate::huge::{GIGANTIC, HugeMapping, SMALL, Source};
use crate::module::{self, Counters, Fault, counted};

pub(crate) fn tests(suite: &mut Suite) {
    for method in module::possible() {
        suite.test(&format!("gigantic::refaulted::{method}"), move || {
            choose(method, "large")?;
            gigantic(method)
        });
    }
    suite.test("gigantic::threshold", gigantic_threshold);
    suite.test("smaller::transparent", smaller_transparent_pages);
    suite.test(
        "smaller::the_documented_threshold_keeps_them_cached",
        the_documented_threshold_keeps_them_cached,
    );
}

fn gigantic(method: &str) -> Result<(), Failed> {
    // One place per method, because a gigantic page takes a while.
    let offset = match method {
        "stock" => 0,
        "rep_stosb" | "rep_stosq" => GIGANTIC - 1,
        "movnti" => GIGANTIC / 2 + 17,
        _ => GIGANTIC - 3 * SMALL,
    };
    let mut mapping = HugeMapping::new(Source::Pool1G, 1)?;
    // The pool has one page, so the next mapping gets the page that is dirtied here.
    for line in mapping.bytes_mut().chunks_mut(64) {
        line[7] = 0xa5;
    }
    drop(mapping);
    let mapping = HugeMapping::new(Source::Pool1G, 1)?;
    counted(&[Fault { size: GIGANTIC, offset, hint: 0 }], || {
        mapping.touch(offset);
        Ok(())
    })?;
    all_zero(&mapping, GIGANTIC, "gigantic")
}

fn gigantic_threshold() -> Result<(), Failed> {
    for (threshold, skipped) in [(GIGANTIC as u64, 0), (GIGANTIC as u64 + 1, 1)] {
        choose("movnti", "large")?;
        module::set("cached_method", "prefetchw")?;
        module::set("threshold", threshold.to_string())?;
        let mapping = HugeMapping::new(Source::Pool1G, 1)?;
        let before = Counters::read()?;
        counted(&[Fault { size: GIGANTIC, offset: 12345, hint: 0 }], || {
            mapping.touch(12345);
            Ok(())
        })?;
        assert_eq!(Counters::read()?.since(&before).get("skipped"), skipped);
    }
    Ok(())
}

const SMALLER: usize = 64 << 10;

/// Runs `work` while transparent pages have 64 KiB.
pub(crate) fn with_smaller_pages(work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    let switch = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
    let whole = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";
    let before = (chosen(switch)?, chosen(whole)?);
    fs::write(whole, "never")?;
    fs::write(switch, "always")?;
    let result = work();
    fs::write(switch, before.0)?;
    fs::write(whole, before.1)?;
    result
}

fn smaller_transparent_pages() -> Result<(), Failed> {
    with_smaller_pages(|| {
        choose("movnti", "large")?;
        let mapping = HugeMapping::new(Source::Transparent, 1)?;
        let pages: Vec<usize> = (0..16).map(|page| page * SMALL + 9).collect();
        let faults: Vec<Fault> =
            pages.iter().map(|offset| Fault { size: SMALLER, offset: *offset, hint: 0 }).collect();
        counted(&faults, || {
            for (page, offset) in pages.iter().enumerate() {
                mapping.touch(page * SMALLER + offset);
            }
            Ok(())
        })?;
        match mapping.bytes()[..pages.len() * SMALLER].iter().position(|byte| *byte != 0) {
            None => Ok(()),
            Some(at) => Err(Failed::from(format!("byte {at:#x} is not 0"))),
        }
    })
}

/// The threshold that docs/kernel/README.md advises for programs without hints bypasses the cache for huge pages only.
fn the_documented_threshold_keeps_them_cached() -> Result<(), Failed> {
    let advice = include_str!("../../../../docs/kernel/README.md").lines().find_map(|line| {
        line.strip_prefix("# echo ")?.strip_suffix(" > /sys/module/bulkmem/parameters/threshold")
    });
    choose("movnti", "large")?;
    module::set("cached_method", "rep_stosq")?;
    module::set("threshold", advice.ok_or("docs/kernel/README.md advises no threshold")?)?;
    with_smaller_pages(|| {
        let mapping = HugeMapping::new(Source::Transparent, 1)?;
        let before = Counters::read()?;
        mapping.touch(9);
        let since = Counters::read()?.since(&before);
        assert!(since.get("rep_stosq/bytes") > 0 && since.get("movnti/bytes") == 0, "{since:?}");
        Ok(())
    })?;
    let mapping = HugeMapping::new(Source::Transparent, 1)?;
    let before = Counters::read()?;
    mapping.touch(9);
    assert!(Counters::read()?.since(&before).get("movnti/bytes") > 0);
    Ok(())
}

/// Returns the word in brackets of a setting in /sys.
pub(crate) fn chosen(switch: &str) -> Result<String, Failed> {
    let text = fs::read_to_string(switch)?;
    let word = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Ok(word.ok_or_else(|| format!("{switch} says {text:?}"))?.to_owned())
}
