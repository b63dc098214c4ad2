//! The memory that a prefault itself needs, in a process of its own.

use std::cell::Cell;
use std::fs;
use std::ops::ControlFlow;

use bulkmem_prefault::{Options, Progress, prefault_file};

use crate::child::is_child;
use crate::{WAYS, memfd};

/// Private memory and page tables of this process, bytes. Not the memory of files.
fn private() -> u64 {
    let kib = |path: &str, name: &str| -> u64 {
        let text = fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    (kib("/proc/self/smaps_rollup", "Anonymous:") + kib("/proc/self/status", "VmPTE:")) << 10
}

#[test]
fn a_prefault_needs_less_than_a_mebibyte_for_itself() {
    if !is_child("bookkeeping::a_prefault_needs_less_than_a_mebibyte_for_itself", &|_| ()) {
        return;
    }
    for touch in WAYS {
        for threads in [1, 8] {
            let file = memfd(512 << 20, 0).unwrap();
            let (most, looks) = (Cell::new(0), Cell::new(0));
            let observer = |_: &Progress| {
                most.set(private().max(most.get()));
                looks.set(looks.get() + 1);
                ControlFlow::Continue(())
            };
            let options = Options::new().threads(threads).without_populate(touch).progress(&observer);
            let before = private();
            // Afterwards, the pages exist, and steps are as long as they can be.
            for _ in 0..2 {
                assert_eq!(prefault_file(&file, 0..512 << 20, &options).unwrap().bytes, 512 << 20);
            }
            let grown = most.get().saturating_sub(before);
            println!("{threads} threads, touch {touch}: {} KiB, {} looks", grown >> 10, looks.get());
            assert!(looks.get() > 4 && grown < 1 << 20, "{grown} bytes, {threads} threads, touch {touch}");
        }
    }
}
