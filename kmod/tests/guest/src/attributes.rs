//! The device's memory through the library, and the `bulkmem` command's measurements in it.

use std::fs;

use bulkmem::{Options, Pages};
use bulkmem_kmod::{Attribute, DeviceMemory, KernelError, MemoryOptions};
use libtest_mimic::Failed;
use serde_json::Value;
use testkit::harness::Suite;

use crate::command::{json, text};
use crate::huge::MIDDLE;
use crate::module;

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("attributes::device_memory_holds_what_is_written", device_memory_holds_what_is_written);
    suite.test("attributes::iops_by_attribute_are_one_table", iops_by_attribute_are_one_table);
    suite.test("attributes::clear_and_fill_by_attribute", clear_and_fill_by_attribute);
}

fn device_memory_holds_what_is_written() -> Result<(), Failed> {
    module::fresh()?;
    for pages in [Pages::Base, Pages::Explicit(MIDDLE as u64)] {
        for attribute in [Attribute::Wb, Attribute::Wc, Attribute::Uc] {
            let options = MemoryOptions::default().attribute(attribute).pages(pages).node(0);
            let length = 3 * 4096 + 100;
            let memory = DeviceMemory::new(length, options)?;
            let mut seen = vec![1_u8; length];
            // SAFETY: the two ranges have the same length, do not overlap, and only this test uses them.
            unsafe {
                Options::new().copy_raw(seen.as_mut_ptr(), memory.as_ptr(), length);
                assert!(seen.iter().all(|byte| *byte == 0), "{options:?}");
                Options::new().fill_raw(memory.as_ptr(), length, 0xa5);
                Options::new().copy_raw(seen.as_mut_ptr(), memory.as_ptr(), length);
            }
            assert!(seen.iter().all(|byte| *byte == 0xa5), "{options:?}");
        }
    }
    let through = MemoryOptions::default().attribute(Attribute::Wt);
    match DeviceMemory::new(4096, through) {
        Ok(_) => {}
        Err(KernelError::NoAttribute { attribute: Attribute::Wt }) => {}
        Err(other) => return Err(other.into()),
    }
    let nowhere = MemoryOptions::default().node(1000);
    let refused = DeviceMemory::new(4096, nowhere);
    assert!(matches!(refused, Err(KernelError::NoNode { node: 1000 })), "{refused:?}");
    Ok(())
}

fn iops_by_attribute_are_one_table() -> Result<(), Failed> {
    module::fresh()?;
    const METHODS: &str = "c_library,movnti,movntdqa_store_sse41";
    let short = [
        "bench",
        "iops",
        "--attr",
        "wb,wc,uc",
        "--size",
        "2M",
        "--runs",
        "2",
        "--time",
        "4ms",
        "--threads",
        "1",
        "--direction",
        "read,write",
        "--method",
        METHODS,
        "--peers",
        "none",
        "--output",
        "/tmp/iops.json",
    ];
    let shown = text(&short)?;
    assert_eq!(shown.matches("iops by cache attribute").count(), 1, "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    println!("\n{shown}");
    let found: Value = serde_json::from_slice(&fs::read("/tmp/iops.json")?)?;
    for attribute in ["wb", "wc", "uc"] {
        for direction in ["read", "write"] {
            for name in METHODS.split(',').chain(["policy"]) {
                let rows = found["rows"].as_array().into_iter().flatten();
                let rows = rows.filter(|row| {
                    row["config"]["attribute"] == attribute
                        && row["config"]["direction"] == direction
                        && row["candidate"]["name"] == name
                        && row["config"]["target"] == "/dev/bulkmem-memory"
                });
                assert_eq!(rows.count(), 1, "{attribute}, {direction}, {name}");
            }
        }
    }
    let judged = json(&["reproduce", "/tmp/iops.json", "--json"])?;
    let about = [
        "Uncached mappings are",
        "Write-combining memory is read",
        "Write-combining memory is written faster",
    ];
    for claim in about {
        let conclusions = judged["conclusions"].as_array().into_iter().flatten();
        let one = conclusions
            .into_iter()
            .find(|it| it["claim"].as_str().is_some_and(|text| text.starts_with(claim)));
        assert!(one.is_some_and(|it| it["verdict"] != "not-measured"), "{claim}: {one:?}");
    }
    // A single attribute is shown in the usual tables.
    let alone = text(&[&short[..2], &["--attr", "uc"], &short[4..]].concat())?;
    assert!(alone.contains("of /dev/bulkmem-memory (uc)"), "{alone}");
    Ok(())
}

fn clear_and_fill_by_attribute() -> Result<(), Failed> {
    module::fresh()?;
    for command in ["clear", "fill"] {
        let found = json(&[
            "bench",
            command,
            "--attr",
            "all",
            "--size",
            "64K",
            "--page-size",
            "4K",
            "--runs",
            "1",
            "--peers",
            "none",
            "--method",
            "c_library,movnti,rep_stosb",
            "--json",
        ])?;
        for attribute in ["wb", "wc", "uc"] {
            let rows = found["rows"].as_array().into_iter().flatten();
            let of = rows.filter(|row| row["config"]["attribute"] == attribute);
            assert_eq!(of.count(), 4, "{command}, {attribute}: three methods and the policy's choice");
        }
        let notes = found["notes"].to_string();
        let through = found["rows"]
            .as_array()
            .is_some_and(|rows| rows.iter().any(|row| row["config"]["attribute"] == "wt"));
        assert!(through || notes.contains("memory mapped wt: not measured"), "{notes}");
    }
    Ok(())
}
