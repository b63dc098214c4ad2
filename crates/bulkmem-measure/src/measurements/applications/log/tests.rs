//! Tests of recovery after a power failure and of the order of stores.

use bulkmem::machine::Machine;
use bulkmem::policy::Policy;

use super::*;
use crate::measurements::applications::tests::{
    at, durable_at_the_end, durable_before, everybody, range, traced,
};

#[test]
fn a_reader_of_the_log_finds_the_newest_records() {
    let policy = Policy::defaults(Machine::current());
    for (name, by) in everybody(&policy) {
        for record in [8, 100, 256] {
            let mut memory = vec![0u64; (HEADER + 16 * record) / 8];
            // SAFETY: the memory outlives the log, and is only read.
            let mut log = unsafe { Log::new(range(&mut memory), record).unwrap() };
            for (steps, group) in [1, 8, 3].into_iter().cycle().take(60).enumerate() {
                assert_eq!(log.step(&by, group), group);
                let memory = range(&mut memory);
                // SAFETY: the whole vector.
                let bytes = unsafe { std::slice::from_raw_parts(memory.start, memory.length) };
                let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
                let end = number(0);
                assert_eq!(end, log.appended);
                for known in end.saturating_sub(log.capacity)..end {
                    let at = HEADER + (known % log.capacity) as usize * record;
                    assert_eq!(number(at), known, "{name}, {record}: step {steps}");
                    assert_eq!(bytes[at + 8..at + record], log.record[8..], "{name}, {record}: step {steps}");
                }
            }
            assert!(log.appended > log.capacity, "the oldest were overwritten");
        }
    }
}

#[test]
fn records_are_durable_before_the_header_counts_them() {
    let policy = Policy::defaults(Machine::current());
    for (name, by) in everybody(&policy) {
        for record in [100, 256] {
            let mut memory = vec![0u64; 512];
            // SAFETY: the memory outlives the log, and nothing else uses it.
            let mut log = unsafe { Log::new(range(&mut memory), record).unwrap() };
            log.step(&by, 1);
            let trace = traced(|| assert_eq!(log.step(&by, 3), 3));
            let records = at(log.records.wrapping_add(record), 3 * record);
            durable_before(&trace, records, at(log.header, 8), &name);
            durable_at_the_end(&trace, at(log.header, 8), &name);
        }
    }
}
