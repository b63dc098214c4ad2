//! Compares methods in memory whose pages are not mapped yet.

use std::time::Duration;

use bulkmem::policy::{Choice, Situation};
use bulkmem::{Operation, Pages};

use crate::calibration::derive;
use crate::calibration::derive::look::{self, NewHugeTimes, UnmappedTimes};
use crate::calibration::derive::table::Key;
use crate::calibration::operation::{LEAST_SAMPLES, OperationRun, chosen};
use crate::calibration::plan::{HUGE, LONG};
use crate::calibration::search;
use crate::calibration::session::Meter;
use crate::calibration::{Condition, Cost, Mode};
use crate::engine::cell::Cell;
use crate::engine::distinct;
use crate::engine::stats::median;

impl<M: Meter> OperationRun<'_, '_, M> {
    /// Takes the times of calls in memory whose pages are not mapped yet, interleaved, by the methods that store through the
    /// cache and by those that the rules by length use. Not for operations that persist: what is measured is new memory that the kernel
    /// clears, and pages of persistent memory hold data and are not cached, mapped or not.
    ///
    /// After every five rounds the slower half of the methods is dropped, so that most samples are of those that are hard to tell
    /// apart. What was dropped is not compared: its samples are of another time, when the machine may have been faster.
    pub(super) fn unmapped(&mut self, deadline: Duration) {
        const MOST_SAMPLES: usize = 51;
        const FINALISTS: usize = 4;
        let operation = self.operation;
        if operation.persists() || !self.ledger.looks.looks.iter().any(|it| it.operation == operation) {
            return;
        }
        let cells = unmapped_cells(operation);
        let times = |key| UnmappedTimes { operation, key, ticks: vec![Vec::new(); cells.len()] };
        let by_length = derive::choices(&self.ledger.figures, operation, Situation::Throughput).into_iter();
        let by_length = by_length.map(|(_, key)| key).chain([Key::c_library()]);
        let mut compared: Vec<UnmappedTimes> = distinct(by_length).into_iter().map(times).collect();
        let through_cache = search::every_method(operation).into_iter();
        let through_cache = through_cache.filter(|it| search::stores_through_cache(operation, it));
        let through_cache =
            through_cache.map(|it| Key { method: it.method.name.to_owned(), parameters: it.parameters });
        let known = |key: &Key| compared.iter().any(|it| it.key == *key);
        let mut open: Vec<UnmappedTimes> = through_cache.filter(|key| !known(key)).map(times).collect();
        for taken in 0..MOST_SAMPLES {
            if self.session.stopped() || taken >= 3 * LEAST_SAMPLES && self.session.over(deadline) {
                break;
            }
            if taken > 0 && taken % LEAST_SAMPLES == 0 {
                open.sort_by(|a, b| a.mean().total_cmp(&b.mean()));
                open.truncate((open.len() / 2).max(FINALISTS));
            }
            for (at, cell) in cells.iter().enumerate() {
                for times in compared.iter_mut().chain(&mut open) {
                    let Some(choice) = times.key.choice() else { return };
                    let Some(time) = self.session.meter.unmapped(cell, choice) else { return };
                    times.ticks[at].push(time);
                }
            }
        }
        compared.append(&mut open);
        if compared.iter().flat_map(|it| &it.ticks).any(|ticks| ticks.len() < LEAST_SAMPLES) {
            return;
        }
        self.ledger.looks.unmapped.extend(compared);
    }

    /// Compares, at lengths up to several times the last-level cache in new huge pages, the method for unmapped memory with that for
    /// memory that is not cached. What the kernel clears of a huge page is still in the cache when the call writes it, and so is what
    /// the call wrote of the pages before, unless its stores bypass the cache.
    pub(super) fn new_huge_pages(&mut self, deadline: Duration) {
        /// Even, so that each method comes first as often as the other.
        const FEWEST_SAMPLES: usize = 6;
        const MOST_SAMPLES: usize = 16;
        const LEAST_TIME: Duration = Duration::from_millis(300);
        let operation = self.operation;
        let through_cache = look::for_unmapped(operation, &self.ledger.looks).cloned();
        let told_apart = look::tells_huge_pages(operation, &self.ledger.looks);
        let Some(through_cache) = through_cache.filter(|_| told_apart) else { return };
        // As the policy will have it, which also counts what wrong verdicts cost.
        let rules = derive::derive(&self.ledger.figures, &self.ledger.looks).rules.into_iter();
        let uncached: Vec<(u64, Key)> = rules
            .filter(|rule| (rule.operation, rule.situation) == (operation, Situation::Uncached))
            .map(|rule| (rule.from, Key { method: rule.method, parameters: rule.parameters }))
            .collect();
        let longest = self.setting.last_level.saturating_mul(8).min(2 * LONG);
        let lengths = self.setting.lengths().into_iter().filter(|length| (HUGE..=longest).contains(length));
        // As many as there is time for.
        let least = if self.setting.mode == Mode::Quick { LEAST_TIME / 6 } else { LEAST_TIME };
        let room = deadline.saturating_sub(self.session.elapsed()).max(least).as_nanos() as f64;
        let ns_per_byte = self.ns_per_byte_in_huge_pages(&through_cache);
        let mut bytes = 0;
        let lengths = lengths.take_while(|length| {
            bytes += length * 2 * FEWEST_SAMPLES as u64;
            bytes as f64 * ns_per_byte <= room
        });
        let mut compared: Vec<(NewHugeTimes, [Choice; 2])> = Vec::new();
        for length in lengths {
            let bypassing = chosen(&uncached, length).filter(|key| **key != through_cache);
            let Some(keys) = bypassing.map(|bypassing| [&through_cache, bypassing]) else { continue };
            let [Some(first), Some(second)] = keys.map(Key::choice) else { return };
            let times =
                NewHugeTimes { operation, length, ticks: [vec![], vec![]], bypassing: keys[1].clone() };
            compared.push((times, [first, second]));
        }
        for taken in 0..MOST_SAMPLES {
            let enough = taken >= FEWEST_SAMPLES && taken % 2 == 0;
            if self.session.stopped() || enough && self.session.over(deadline) {
                break;
            }
            // The longest first: it needs most memory.
            for (times, choices) in compared.iter_mut().rev() {
                let cell = unmapped_cell(operation, times.length, true, Pages::Transparent);
                for which in if taken % 2 == 0 { [0, 1] } else { [1, 0] } {
                    let Some(time) = self.session.meter.unmapped(&cell, choices[which]) else { return };
                    times.ticks[which].push(time);
                }
            }
        }
        if !self.session.stopped() {
            self.ledger.looks.new_huge.extend(compared.into_iter().map(|(times, _)| times));
        }
    }

    /// Returns how long a method took for a byte of new huge pages.
    fn ns_per_byte_in_huge_pages(&self, key: &Key) -> f64 {
        let looks = &self.ledger.looks;
        let own = looks.unmapped.iter().filter(|it| it.operation == self.operation && it.key == *key);
        // They are the last configuration.
        let ticks = own.filter_map(|it| it.ticks.last()).flatten().map(|ticks| *ticks as f64);
        median(&ticks.collect::<Vec<_>>()) * looks.ns_per_tick / HUGE as f64
    }
}

/// Returns the configurations in which methods are compared in memory whose pages are not mapped yet: base pages, of few at even and
/// odd addresses, as many as are usual, and huge pages, where there are some.
fn unmapped_cells(operation: Operation) -> [Cell; 4] {
    const USUAL: u64 = 1 << 20;
    let kinds = [
        (look::LEAST_LENGTH, true, Pages::Base),
        (look::LEAST_LENGTH, false, Pages::Base),
        (USUAL, true, Pages::Base),
        (HUGE, true, Pages::Transparent),
    ];
    kinds.map(|(length, aligned, pages)| unmapped_cell(operation, length, aligned, pages))
}

fn unmapped_cell(operation: Operation, length: u64, aligned: bool, pages: Pages) -> Cell {
    let cell = Cell::new(operation, Cost::Throughput, length, Condition::new(aligned, false, 1));
    Cell { fresh: Some(pages), ..cell }
}
