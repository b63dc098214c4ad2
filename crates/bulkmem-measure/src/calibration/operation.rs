//! Calibrates one operation: a search at each length, precise figures of the best, then changes of the choice, then
//! threads.

use std::time::Duration;

use bulkmem::Operation;
use bulkmem::method::{self, Parameters};
use bulkmem::policy::Choice;

use crate::calibration::derive::{self, table::Key};
use crate::calibration::plan::{self, LONG, Setting};
use crate::calibration::search::{self, Field, Ranked};
use crate::calibration::session::{Meter, Session, interleave};
use crate::calibration::{Condition, Cost, Figure, Ledger, choice_of};
use crate::engine::interleave::StopRule;
use crate::engine::units::bytes;
use crate::engine::workload::Cell;

/// Share of an operation's time for the lengths; the rest is for changes of the choice, then threads.
const LENGTHS_SHARE: f64 = 0.76;
/// Share of the remaining time for changes of the choice; the rest is for threads.
const CHANGES_SHARE: f64 = 0.65;
/// Share of a length's time for the search, and of the rest for throughput where other costs are measured too.
const SEARCH_SHARE: f64 = 0.35;
const THROUGHPUT_SHARE: f64 = 0.65;
/// Lengths within this factor of each other are not distinguished.
const NEAR: f64 = 1.25;

/// The calibration of one operation.
pub(super) struct OperationRun<'r, 's, M: Meter<Choice>> {
    pub(super) session: &'r mut Session<'s, M>,
    pub(super) setting: &'r Setting,
    pub(super) ledger: &'r mut Ledger,
    pub(super) operation: Operation,
}

impl<M: Meter<Choice>> OperationRun<'_, '_, M> {
    /// Measures until `end`.
    pub(super) fn measure(&mut self, end: Duration) {
        let (operation, now) = (self.operation, self.session.elapsed());
        let until = |share: f64| now + end.saturating_sub(now).mul_f64(share);
        let lengths = self.setting.lengths();
        let mut ranked: Vec<Ranked> = Vec::new();
        let mut candidates = search::every_method(operation);
        for (index, &length) in lengths.iter().enumerate() {
            if self.session.over(end) {
                break;
            }
            let deadline = self.share_of(&lengths[index..], until(LENGTHS_SHARE));
            self.session.say(format!("{operation}, {}", bytes(length)));
            if length < LONG || ranked.is_empty() {
                let conditions = self.setting.search_conditions(operation, length);
                let searched = self.after(SEARCH_SHARE, deadline);
                let field = Field { operation, length, conditions };
                ranked = search::explore(self.session, &field, &candidates, searched);
            }
            self.finals(length, &ranked, deadline);
            let next = lengths.get(index + 1).copied().unwrap_or(length);
            candidates = search::seeds(&ranked, next, operation);
        }
        self.refine(until(LENGTHS_SHARE + (1.0 - LENGTHS_SHARE) * CHANGES_SHARE));
        self.threads(end);
    }

    /// The time by which the first of the remaining lengths must end.
    fn share_of(&self, remaining: &[u64], end: Duration) -> Duration {
        let rest: f64 = remaining.iter().map(|&length| plan::weight(length)).sum();
        plan::deadline(self.session.elapsed(), end, plan::weight(remaining[0]), rest)
    }

    /// The time at which a share of what is left until `end` has passed.
    fn after(&self, share: f64, end: Duration) -> Duration {
        let now = self.session.elapsed();
        now + end.saturating_sub(now).mul_f64(share)
    }

    fn cell(&self, cost: Cost, length: u64, condition: Condition) -> Cell {
        Cell { operation: self.operation, cost, length, condition }
    }

    /// Measures the best of a search precisely, by every cost.
    fn finals(&mut self, length: u64, ranked: &[Ranked], deadline: Duration) {
        let (operation, setting) = (self.operation, self.setting);
        let costs = if setting.has_aftermath(length) { plan::aftermath_costs(operation) } else { Vec::new() };
        let throughput = self.after(if costs.is_empty() { 1.0 } else { THROUGHPUT_SHARE }, deadline);
        let conditions = setting.final_conditions(operation, length);
        // As many as there is time to take three samples of in each condition.
        let sample =
            ranked.first().map_or(1.0, |best| best.score().exp()) * if length >= LONG { 4.0 } else { 1.0 };
        let room = throughput.saturating_sub(self.session.elapsed()).as_nanos() as f64;
        let room = room / (sample * 3.0 * conditions.len() as f64);
        let most = (room as usize).clamp(3, setting.finalists());
        let winner = self.ledger.winner(operation, Cost::Throughput);
        let finalists = search::finalists(ranked, winner.as_slice(), operation, most);
        for (index, &condition) in conditions.iter().enumerate() {
            let rest = (conditions.len() - index) as f64;
            let deadline = plan::deadline(self.session.elapsed(), throughput, 1.0, rest);
            self.compare(self.cell(Cost::Throughput, length, condition), &finalists, deadline);
        }
        for (index, &cost) in costs.iter().enumerate() {
            let choices = self.choices_for(cost, ranked);
            let conditions = setting.aftermath_conditions(cost, length);
            for (step, &condition) in conditions.iter().enumerate() {
                let rest = (costs.len() - index) * conditions.len() - step;
                let deadline = plan::deadline(self.session.elapsed(), deadline, 1.0, rest as f64);
                self.compare(self.cell(cost, length, condition), &choices, deadline);
            }
        }
    }

    /// Selects the choices to measure by a cost other than throughput.
    fn choices_for(&self, cost: Cost, ranked: &[Ranked]) -> Vec<Choice> {
        let winner = self.ledger.winner(self.operation, cost);
        let sparing = cost == Cost::Stream;
        let suited: Vec<Ranked> =
            ranked.iter().filter(|it| search::spares_cache(&it.choice) == sparing).cloned().collect();
        let most = self.setting.finalists();
        let mut choices = search::finalists(&suited, winner.as_slice(), self.operation, most);
        if !sparing {
            choices.extend(ranked.first().map(|best| best.choice).filter(|best| !choices.contains(best)));
        }
        choices
    }

    /// Measures choices under the same conditions and records the figures.
    fn compare(&mut self, cell: Cell, choices: &[Choice], deadline: Duration) {
        let trials: Vec<(Cell, Choice)> = choices.iter().map(|&choice| (cell, choice)).collect();
        self.record(&trials, deadline);
    }

    /// Measures trials, interleaved, and records the figures.
    fn record(&mut self, trials: &[(Cell, Choice)], deadline: Duration) {
        let long = trials.iter().any(|(cell, _)| cell.length >= LONG);
        let (least, most) = if long { (3, 15) } else { (9, 31) };
        let stop = StopRule::until_separated(least, most).until(deadline).with_first_round();
        let measured = interleave(self.session, trials, stop);
        for ((cell, choice), measured) in trials.iter().zip(measured) {
            let Some(measured) = measured else { continue };
            self.ledger.add(Figure {
                operation: cell.operation,
                cost: cell.cost,
                method: choice.method.name.to_owned(),
                parameters: choice.parameters,
                length: cell.length,
                condition: cell.condition,
                median_ns: measured.summary.median,
                quartiles_ns: measured.summary.quartiles,
                samples: measured.summary.samples,
                disturbance_ns: measured.disturbance_ns,
            });
        }
    }

    /// Halves the widest interval in which the choice changes until none is wide, then intervals in which it stays, as
    /// long as there is time.
    fn refine(&mut self, deadline: Duration) {
        let operation = self.operation;
        let costs = [vec![Cost::Throughput], plan::aftermath_costs(operation)].concat();
        let mut tried: Vec<(Cost, u64)> = Vec::new();
        while !self.session.over(deadline) {
            let intervals = costs.iter().flat_map(|&cost| intervals(self.ledger, operation, cost));
            let untried = intervals.filter(|interval| !tried.contains(&(interval.cost, interval.middle)));
            let Some(Interval { cost, middle, choices, .. }) =
                untried.max_by(|a, b| a.urgency().total_cmp(&b.urgency()))
            else {
                break;
            };
            tried.push((cost, middle));
            self.session.say(format!("{operation}, {} (between)", bytes(middle)));
            let conditions = match cost {
                Cost::Throughput => self.setting.final_conditions(operation, middle),
                cost => self.setting.aftermath_conditions(cost, middle),
            };
            for condition in conditions {
                if self.session.over(deadline) {
                    break;
                }
                self.compare(self.cell(cost, middle, condition), &choices, deadline);
            }
        }
    }

    /// Compares numbers of threads at the lengths where several may be faster, with the choice for each length.
    fn threads(&mut self, deadline: Duration) {
        let operation = self.operation;
        let counts = self.setting.thread_counts();
        if counts.len() < 2 {
            return;
        }
        let choices = derive::choices(self.ledger.figures(), operation, Cost::Throughput);
        let lengths = self.setting.threaded_lengths();
        for (index, &length) in lengths.iter().enumerate() {
            let key = choices.iter().rev().find(|(from, _)| *from <= length).map(|(_, key)| key);
            let Some(choice) = key.and_then(choice_of) else { continue };
            if self.session.over(deadline) {
                break;
            }
            self.session.say(format!("{operation}, {}, threads", bytes(length)));
            let trial = |&threads: &usize| {
                let condition = self.setting.threaded(operation, length, threads);
                (self.cell(Cost::Throughput, length, condition), choice)
            };
            let trials: Vec<(Cell, Choice)> = counts.iter().map(trial).collect();
            self.record(&trials, self.share_of(&lengths[index..], deadline));
        }
    }
}

/// An interval between two measured lengths.
#[derive(Clone, Debug)]
struct Interval {
    cost: Cost,
    middle: u64,
    /// The logarithm of the ratio of its ends.
    width: f64,
    changes: bool,
    choices: Vec<Choice>,
}

impl Interval {
    fn urgency(&self) -> f64 {
        if self.changes { 100.0 + self.width } else { self.width }
    }
}

/// Returns the intervals of an operation and cost that are wide enough to measure in.
fn intervals(ledger: &Ledger, operation: Operation, cost: Cost) -> Vec<Interval> {
    let choices = derive::choices(ledger.figures(), operation, cost);
    let plain = Key::new(method::c_library().name, &Parameters::default());
    choices
        .windows(2)
        .filter_map(|pair| {
            let [(low, old), (high, new)] = pair else { return None };
            let width = (*high as f64 / *low as f64).ln();
            let middle = round((*low as f64 * *high as f64).sqrt());
            let worth = width > 2.0 * NEAR.ln() && middle > *low && middle < *high;
            if !worth || middle >= LONG * 4 {
                return None;
            }
            let mut keys = vec![old.clone(), new.clone()];
            keys.extend(method::c_library().does(operation).then(|| plain.clone()));
            keys.sort();
            keys.dedup();
            let choices = keys.iter().filter_map(choice_of).collect();
            Some(Interval { cost, middle, width, changes: old != new, choices })
        })
        .collect()
}

/// Rounds a length down to whole cache lines, if it has at least two.
fn round(length: f64) -> u64 {
    let length = length as u64;
    if length >= 128 { length / 64 * 64 } else { length }
}
