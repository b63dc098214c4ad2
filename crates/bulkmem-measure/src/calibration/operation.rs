//! Calibrates one operation: a search at each length, precise figures of the best, a comparison with libpmem, then changes
//! of the choice, then threads.

use std::collections::BTreeSet;
use std::iter;
use std::time::Duration;

use bulkmem::policy::{Choice, Situation};
use bulkmem::{Operation, method, probe};

use crate::calibration::derive;
use crate::calibration::derive::look::{self, Looked};
use crate::calibration::derive::table::{self, Key};
use crate::calibration::plan::{self, HUGE, LONG, Setting};
use crate::calibration::prefetch::{self, Prefetches};
use crate::calibration::search::{self, Ranked};
use crate::calibration::session::{Meter, Session, Trial};
use crate::calibration::{Condition, Cost, Figure, Ledger, Mode, SUMMARY, distance};
use crate::engine::LIBPMEM;
use crate::engine::cell::{Cell, Timing};
use crate::engine::distinct;
use crate::engine::interleave::StopRule;
use crate::engine::memory_state::MemoryState;
use crate::engine::stats::{self, Summary};
use crate::engine::units::bytes;

/// Share of an operation's time for the lengths; the rest is for changes of the choice, then threads.
const LENGTHS_SHARE: f64 = 0.76;
/// Share of the remaining time for libpmem, if it is measured: with operations that persist, and with others.
const LIBPMEM_SHARES: [f64; 2] = [0.5, 0.1];
/// Time for libpmem at each length even if the operation's is over: several samples of all but the longest.
const LIBPMEM_LEAST: Duration = Duration::from_millis(20);
/// Share of the time after that for lengths whose samples varied widely.
const REPEAT_SHARE: f64 = 0.4;
/// Samples vary widely if the third quartile is so many times the first.
const NOISY: f64 = 1.5;
/// Share of the remaining time for changes of the choice; the rest is for threads.
const CHANGES_SHARE: f64 = 0.65;
/// Share of the time after that for looks; the rest is for threads.
const LOOKS_SHARE: f64 = 0.3;
/// Share of the time after that for memory whose pages are not mapped yet, and of the rest for new huge pages.
const UNMAPPED_SHARE: f64 = 0.2;
/// Fewer samples do not show how much they vary.
pub(super) const LEAST_SAMPLES: usize = 5;
/// Rounds at lengths where there is time for few.
const FEWEST_SAMPLES: usize = derive::FEWEST_SAMPLES as usize;
/// Share of the time for a long length that its samples should take by the estimate.
const SLACK: f64 = 0.75;
/// Most of an operation's remaining time for a length that is only shown.
const SHOWN_SHARE: f64 = 0.2;
/// Share of a length's time for the search, and of the rest for throughput where other costs are measured too.
const SEARCH_SHARE: f64 = 0.35;
const THROUGHPUT_SHARE: f64 = 0.65;

/// The result of the search at one length.
#[derive(Default)]
struct Searched {
    ranked: Vec<Ranked>,
    length: u64,
    prefetches: Prefetches,
}

pub(super) struct OperationRun<'r, 's, M> {
    pub(super) session: &'r mut Session<'s, M>,
    pub(super) setting: &'r Setting,
    pub(super) ledger: &'r mut Ledger,
    pub(super) operation: Operation,
}

impl<M: Meter> OperationRun<'_, '_, M> {
    pub(super) fn measure(&mut self, end: Duration) {
        let operation = self.operation;
        let lengths_end = self.session.after_share(LENGTHS_SHARE, end);
        let changes_end =
            self.session.after_share(LENGTHS_SHARE + (1.0 - LENGTHS_SHARE) * CHANGES_SHARE, end);
        let lengths = self.setting.lengths();
        let mut searched = Searched::default();
        let mut candidates = search::every_method(operation);
        let first_from = |from: u64| lengths.iter().copied().find(|length| *length >= from);
        for (index, &length) in lengths.iter().enumerate() {
            if self.session.over(end) {
                self.report_lack_of_time(&lengths[..index]);
                break;
            }
            let deadline = self.end_of_first(&lengths[index..], lengths_end);
            self.session.report(format!("{operation}, {}", bytes(length)), None);
            if first_from(plan::PREFETCH_LENGTH) == Some(length) {
                searched.prefetches = self.prefetches(&candidates, deadline);
                candidates = prefetch::with_prefetches(candidates, &searched.prefetches.by_all);
            }
            if first_from(self.setting.never_warm()) == Some(length) {
                // Nor is the source cached.
                candidates = prefetch::with_prefetches(candidates, &searched.prefetches.by_first);
            }
            if length < LONG || searched.ranked.is_empty() {
                let mut cells = self.setting.cells(operation, Cost::Throughput, length);
                cells.retain(|cell| cell.condition.aligned && cell.condition.threads == 1);
                let end = self.session.after_share(SEARCH_SHARE, deadline);
                searched.ranked = search::explore(self.session, &cells, &candidates, end);
                searched.length = length;
            }
            self.finals(length, &searched, deadline, end);
            candidates = search::seeds(&searched.ranked, operation);
        }
        let [persisting, others] = LIBPMEM_SHARES;
        let share = if operation.persists() { persisting } else { others };
        self.libpmem(self.session.after_share(share, end), end);
        self.repeat_noisy(self.session.after_share(REPEAT_SHARE, changes_end));
        self.refine(changes_end);
        self.looks(self.session.after_share(LOOKS_SHARE, end));
        self.unmapped(self.session.after_share(UNMAPPED_SHARE, end));
        self.new_huge_pages(self.session.after_share(UNMAPPED_SHARE, end));
        self.threads(end);
    }

    /// Reports that there was only time for these lengths.
    fn report_lack_of_time(&mut self, measured: &[u64]) {
        let operation = self.operation;
        let note = match measured.last() {
            _ if self.session.stopped() => return,
            None => format!("there was no time for {operation}: calibrate it alone (--op {operation})"),
            Some(&longest) => {
                format!("{operation} was measured only up to {}: there was no time for more", bytes(longest))
            }
        };
        self.session.report("", Some(note));
    }

    /// Returns the best prefetch of each method that bypasses the cache: uncached memory from uncached and from cached sources.
    fn prefetches(&mut self, candidates: &[Choice], end: Duration) -> Prefetches {
        if self.setting.mode == Mode::Quick {
            // There is no time for one sample of each.
            return Prefetches::default();
        }
        let mut cells = self.setting.cells(self.operation, Cost::Throughput, plan::PREFETCH_LENGTH);
        cells.retain(|cell| cell.condition.aligned && !cell.condition.warm && cell.condition.threads == 1);
        cells.sort_by_key(|cell| cell.condition.source.is_some());
        let end = self.session.after_share(SEARCH_SHARE, end);
        prefetch::search(self.session, &cells, candidates, end)
    }

    /// Returns the time by which the first of the remaining lengths must end.
    fn end_of_first(&self, remaining: &[u64], end: Duration) -> Duration {
        let rest: f64 = remaining.iter().map(|&length| plan::weight(length)).sum();
        self.session.after_share(plan::weight(remaining[0]) / rest, end)
    }

    /// Returns the trials of some choices by a cost at a length, grouped by condition.
    fn groups(&self, cost: Cost, length: u64, choices: &[Choice]) -> Vec<Vec<Trial>> {
        let cells = self.setting.cells(self.operation, cost, length).into_iter();
        cells.map(|cell| choices.iter().map(|&choice| (cell, Some(choice))).collect()).collect()
    }

    /// Measures the best of a search precisely, by every cost.
    fn finals(&mut self, length: u64, searched: &Searched, end: Duration, operation_end: Duration) {
        let (operation, setting) = (self.operation, self.setting);
        let aftermath = setting.has_aftermath(operation, length);
        let throughput_end = if aftermath { self.session.after_share(THROUGHPUT_SHARE, end) } else { end };
        // As many as there is time to take three samples of in each condition.
        let longer = length as f64 / searched.length as f64;
        let sample = searched.ranked.first().map_or(1.0, |best| best.score().exp()) * longer;
        let room = throughput_end.saturating_sub(self.session.elapsed()).as_nanos() as f64;
        let cells = setting.cells(operation, Cost::Throughput, length);
        // At shorter lengths there are three or more in any case, and the time ends their samples.
        let effort = if length < LONG {
            cells.len() as f64
        } else {
            cells.iter().map(|cell| setting.effort(cell)).sum()
        };
        let most = (room / (sample * effort) / FEWEST_SAMPLES as f64) as usize;
        let mut throughput = vec![Situation::Uncached, Situation::Throughput, Situation::SeveralThreads];
        if length < setting.never_warm() {
            throughput.push(Situation::Cached);
        }
        let winners = throughput.into_iter().filter_map(|it| self.ledger.winner(operation, it));
        let (ranked, mut winners) = (keeping_source(&searched.ranked), distinct(winners));
        if length < LONG {
            let most = most.clamp(3, setting.finalists());
            let finalists = search::finalists(&ranked, &winners, operation, most);
            self.record_each(&self.groups(Cost::Throughput, length, &finalists), throughput_end, 1);
        } else {
            winners.extend(searched.prefetches.by_first.iter().find(|it| !it.method.spares_source()));
            // The others are slower, and the first sample is taken again.
            let most = ((most as f64 * SLACK) as usize).min(setting.finalists());
            let finalists = search::long_finalists(&ranked, &winners, operation, most);
            let mut groups = self.groups(Cost::Throughput, length, &finalists);
            let left = operation_end.saturating_sub(self.session.elapsed()).as_nanos() as f64;
            if most >= 2 {
                self.record_each(&groups, throughput_end, FEWEST_SAMPLES);
            } else if sample * setting.effort(&cells[0]) * (finalists.len() + 1) as f64 <= SHOWN_SHARE * left
            {
                // Fewer samples would decide by chance: these only show what the policy does.
                groups.truncate(1);
                self.record_each(&groups, throughput_end, 1);
            }
        }
        if aftermath {
            let groups = [Cost::Reuse, Cost::Stream]
                .map(|cost| self.groups(cost, length, &self.choices_for(cost, length, &searched.ranked)));
            self.record_each(&groups.concat(), end, 1);
        }
    }

    /// Selects the choices to measure at a length by a cost other than throughput.
    fn choices_for(&self, cost: Cost, length: u64, ranked: &[Ranked]) -> Vec<Choice> {
        let sparing = cost == Cost::Stream;
        let situations: &[Situation] = if sparing {
            &[Situation::Stream]
        } else if length < self.setting.never_warm() {
            // Bypassing the cache may pay in uncached memory even if the bytes are read back.
            &[Situation::Reuse, Situation::UncachedReuse, Situation::Uncached, Situation::CachedReuse]
        } else {
            &[Situation::Reuse, Situation::UncachedReuse, Situation::Uncached]
        };
        let winners = situations.iter().filter_map(|it| self.ledger.winner(self.operation, *it));
        let winners = distinct(winners);
        let ranked = if sparing { ranked.to_vec() } else { keeping_source(ranked) };
        let suited: Vec<Ranked> =
            ranked.iter().filter(|it| search::spares_cache(&it.choice) == sparing).cloned().collect();
        let mut choices = search::finalists(&suited, &winners, self.operation, self.setting.finalists());
        if sparing {
            // They are slower alone, and pay only if the neighbour counts.
            let ranked = suited.iter().map(|it| it.choice).filter(|it| it.method.spares_source());
            choices.extend(search::first_of_each_method(ranked));
            choices = distinct(choices);
        } else {
            choices.extend(ranked.first().map(|best| best.choice).filter(|best| !choices.contains(best)));
        }
        choices
    }

    /// Measures groups of trials, each in one configuration, and records the figures.
    fn record_each(&mut self, groups: &[Vec<Trial>], end: Duration, rounds: usize) {
        for figures in self.measure_each(groups, end, rounds) {
            self.ledger.add(&figures);
        }
    }

    /// Measures groups of trials one after the other, each in an equal share of the time, but so many rounds also if it is over.
    fn measure_each(&mut self, groups: &[Vec<Trial>], end: Duration, rounds: usize) -> Vec<Vec<Figure>> {
        let mut figures = Vec::new();
        for (index, trials) in groups.iter().enumerate() {
            let deadline = self.session.after_share(1.0 / (groups.len() - index) as f64, end);
            figures.push(self.figures_of(trials, deadline, rounds));
        }
        figures
    }

    /// Measures trials, interleaved.
    fn figures_of(&mut self, trials: &[Trial], deadline: Duration, rounds: usize) -> Vec<Figure> {
        let long = trials.iter().any(|(cell, _)| cell.length >= LONG);
        let (least, most) = if long { (FEWEST_SAMPLES, 15) } else { (9, 31) };
        // Of libpmem and the choice, figures are wanted, not only which is faster.
        let until_separated = trials.iter().all(|(_, choice)| choice.is_some()).then_some(least);
        let deadline = Some(deadline);
        let stop = StopRule { warm_up: false, most, until_separated, deadline, least: rounds };
        let taken = self.session.interleave(trials, stop);
        let mut times: Vec<Vec<f64>> = taken.iter().map(|it| it.iter().map(|it| it.ns).collect()).collect();
        // What slows down several threads need not slow down one; and a disturbance is compared with the time that it is part of.
        if trials.iter().all(|(cell, _)| *cell == trials[0].0 && cell.cost != Cost::Stream) {
            times = stats::without_rounds(&times);
        }
        let figure = |((&(cell, choice), taken), times): ((&Trial, Vec<Timing>), Vec<f64>)| {
            let disturbances: Vec<f64> = taken.iter().filter_map(|it| it.disturbance_ns).collect();
            let summary = Summary::of_one_or_two_speeds(&times)?;
            Some(Figure {
                operation: cell.operation,
                cost: cell.cost,
                method: choice.map_or(LIBPMEM, |choice| choice.method.name).to_owned(),
                parameters: choice.map(|choice| choice.parameters).unwrap_or_default(),
                length: cell.length,
                condition: cell.condition,
                median_ns: summary.median,
                quartiles_ns: summary.quartiles,
                samples: summary.samples,
                disturbance_ns: Summary::of(&disturbances).map(|summary| summary.median),
            })
        };
        trials.iter().zip(taken).zip(times).filter_map(figure).collect()
    }

    /// Compares the choice for each length and cache state with libpmem, if it is installed; for operations that the C library has, too,
    /// only at the lengths of the summary. Where the choice was not measured, the fastest method stands in for it.
    fn libpmem(&mut self, deadline: Duration, end: Duration) {
        let operation = self.operation;
        let figures = self.ledger.figures.clone();
        let own = figures.iter().filter(|it| (it.operation, it.cost) == (operation, Cost::Throughput));
        // Also lengths at which one method was measured, which decide nothing.
        let mut lengths: Vec<u64> =
            own.clone().map(|it| it.length).collect::<BTreeSet<_>>().into_iter().collect();
        if !operation.persists() {
            lengths = nearest_of_summary(&lengths);
        }
        let [cold, warm] = [Situation::Uncached, Situation::Cached]
            .map(|situation| derive::choices(&figures, operation, situation));
        for (index, &length) in lengths.iter().enumerate() {
            if self.session.stopped() || length >= LONG && self.session.over(end) {
                break;
            }
            self.session.report(format!("{operation}, {}, libpmem", bytes(length)), None);
            let mut cells = self.setting.cells(operation, Cost::Throughput, length);
            let plain = |it: &Condition| it.aligned && it.threads == 1;
            cells.retain(|cell| {
                plain(&cell.condition) && (operation.persists() || cell.condition.source.is_none())
            });
            let reference = |cell: &Cell| {
                let of_cell = own.clone().filter(|it| (it.length, it.condition) == (length, cell.condition));
                let choices = if cell.condition.warm { &warm } else { &cold };
                let choice = chosen(choices, length).and_then(Key::choice);
                let fastest = of_cell.clone().min_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
                let measured = |choice: &Choice| of_cell.clone().any(|it| choice_of(it) == Some(*choice));
                choice.filter(measured).or_else(|| choice_of(fastest?))
            };
            // Without libpmem, the first sample ends it.
            let group = |cell: Cell| Some(vec![(cell, None), (cell, Some(reference(&cell)?))]);
            let groups: Vec<Vec<Trial>> = cells.into_iter().filter_map(group).collect();
            // One sample, also if the time is over.
            let least = (self.session.elapsed() + LIBPMEM_LEAST).min(end);
            let end = self.end_of_first(&lengths[index..], deadline).max(least);
            self.add_in_relation(&groups, end, |it| it.method == LIBPMEM);
        }
    }

    /// Measures groups of trials, each in one configuration, and records the figures of some methods, in relation to those that the other
    /// methods of the group have from before, which stay.
    fn add_in_relation(&mut self, groups: &[Vec<Trial>], end: Duration, is_new: impl Fn(&Figure) -> bool) {
        for figures in self.measure_each(groups, end, 1) {
            let (new, others): (Vec<Figure>, Vec<Figure>) = figures.into_iter().partition(&is_new);
            self.ledger.add_in_relation(&new, &others);
        }
    }

    /// Measures lengths again whose samples vary widely: other load on the host can last as long as all samples of a length. Not
    /// conditions that vary so at most lengths: they always will.
    fn repeat_noisy(&mut self, deadline: Duration) {
        let operation = self.operation;
        let own =
            self.ledger.figures.iter().filter(|it| (it.operation, it.cost) == (operation, Cost::Throughput));
        // Of fewer samples, or by libpmem, nothing is decided.
        let decides = |it: &&Figure| it.samples >= derive::FEWEST_SAMPLES && it.method != LIBPMEM;
        let figures: Vec<Figure> = own.filter(decides).cloned().collect();
        let spreads = table::spreads(figures.iter());
        let tells = |condition: &Condition| {
            spreads.get(condition).is_none_or(|spread| *spread <= table::LITTLE_SPREAD)
        };
        let figures: Vec<Figure> = figures.iter().filter(|it| tells(&it.condition)).cloned().collect();
        let noisy = figures.iter().filter(|it| it.quartiles_ns[1] > NOISY * it.quartiles_ns[0]);
        for length in noisy.map(|it| it.length).collect::<BTreeSet<_>>() {
            if self.session.over(deadline) {
                break;
            }
            self.session.report(format!("{operation}, {} (again)", bytes(length)), None);
            let choices = distinct(figures.iter().filter(|it| it.length == length).filter_map(choice_of));
            let mut groups = self.groups(Cost::Throughput, length, &choices);
            groups.retain(|trials| trials.iter().all(|(cell, _)| tells(&cell.condition)));
            self.record_each(&groups, deadline, 1);
        }
    }

    /// Measures at both ends of each change of the choice what was not measured there, halves the widest interval in which the
    /// choice changes until none is wide, then intervals in which it stays, as long as there is time.
    fn refine(&mut self, deadline: Duration) {
        let operation = self.operation;
        let mut tried: Vec<(Cost, u64, Option<Choice>)> = Vec::new();
        while !self.session.over(deadline) {
            let steps = Situation::ALL.into_iter().flat_map(|it| steps(self.ledger, operation, it));
            let untried = steps.filter(|step| !tried.contains(&(step.cost, step.length, step.missing)));
            let Some(Step { cost, length, choices, missing, .. }) =
                untried.max_by(|a, b| a.urgency.total_cmp(&b.urgency))
            else {
                break;
            };
            tried.push((cost, length, missing));
            self.session.report(format!("{operation}, {} (between)", bytes(length)), None);
            // All conditions, however little time is left: a length that lacks one would be judged by the others.
            let groups = self.groups(cost, length, &choices);
            if missing.is_some() {
                self.add_in_relation(&groups, deadline, |it| choice_of(it) == missing);
            } else {
                self.record_each(&groups, deadline, 1);
            }
        }
    }

    /// Takes the times of looks, interleaved, at memory in each state.
    fn looks(&mut self, deadline: Duration) {
        const MOST_SAMPLES: usize = 51;
        let operation = self.operation;
        let all = self.setting.lengths();
        let lengths = all.iter().copied();
        let lengths = lengths.filter(|it| (look::LEAST_LENGTH..=self.setting.last_level / 2).contains(it));
        let lengths: Vec<u64> = lengths.collect();
        let Some(&first) = lengths.first().filter(|_| operation != Operation::Persist) else { return };
        self.session.report(format!("{operation}, looks"), None);
        let cached = lengths.iter().map(|&length| (length, MemoryState::Cached));
        // A look at a long range is another one. The shortest, so that there is room for each look at other lines.
        let long = all.iter().copied().find(|length| *length > probe::LONG as u64);
        let uncached = iter::once(first).chain(long).map(|length| (length, MemoryState::Uncached));
        // Operations that persist do not tell unmapped memory from other.
        let unmapped = [(first, MemoryState::Unmapped), (HUGE, MemoryState::UnmappedHuge)];
        let unmapped = unmapped.into_iter().filter(|_| !operation.persists());
        let states = cached.chain(uncached).chain(unmapped);
        let mut looked: Vec<Looked> =
            states.map(|(length, state)| Looked { operation, length, state, times: Vec::new() }).collect();
        for taken in 0..MOST_SAMPLES {
            // A few also if the time is over: without them, nothing looks.
            if self.session.stopped() || taken >= LEAST_SAMPLES && self.session.over(deadline) {
                break;
            }
            for Looked { length, state, times, .. } in &mut looked {
                let condition = Condition::new(true, *state == MemoryState::Cached, 1);
                let cell = Cell::new(operation, Cost::Throughput, *length, condition);
                let Some(time) = self.session.meter.look(&cell, *state) else { return };
                times.push(time);
            }
        }
        if looked.iter().any(|it| it.times.len() < LEAST_SAMPLES) {
            return;
        }
        self.ledger.looks.looks.extend(looked);
        self.ledger.looks.ns_per_tick = self.session.meter.ns_per_tick();
        self.ledger.looks.second_level = self.setting.second_level;
    }

    /// Compares numbers of threads at the lengths where several may be faster, with the choice for each length.
    fn threads(&mut self, deadline: Duration) {
        let operation = self.operation;
        if self.setting.threads < 2 {
            return;
        }
        // Several threads are compared in uncached memory.
        let looks = self.ledger.looks.looks.iter().any(|it| it.operation == operation);
        let situation = if looks { Situation::Uncached } else { Situation::Throughput };
        let choices = derive::choices(&self.ledger.figures, operation, situation);
        let lengths = self.setting.threaded_lengths();
        for (index, &length) in lengths.iter().enumerate() {
            let Some(choice) = chosen(&choices, length).and_then(Key::choice) else { continue };
            if self.session.over(deadline) {
                break;
            }
            self.session.report(format!("{operation}, {}, threads", bytes(length)), None);
            let cells = self.setting.threaded_cells(operation, length);
            let mut trials: Vec<Trial> = cells.iter().map(|&cell| (cell, Some(choice))).collect();
            // If the choice was not measured with one thread at that length, another candidate tells how fast the machine is now.
            let of_one_thread = |it: &&Figure| {
                (it.operation, it.cost) == (operation, Cost::Throughput)
                    && (it.length, it.condition) == (length, cells[0].condition)
            };
            let known = self.ledger.figures.iter().filter(of_one_thread).filter_map(choice_of);
            let known: Vec<Choice> = known.collect();
            if !known.contains(&choice) {
                trials.extend(known.first().map(|&other| (cells[0], Some(other))));
            }
            let figures = self.figures_of(&trials, self.end_of_first(&lengths[index..], deadline), 1);
            self.ledger.add_by_threads(&figures);
        }
    }
}

/// Returns the candidates without those that keep the source out of the cache on purpose: the program, or another processor, may use
/// it again, and no sample shows what that costs others.
fn keeping_source(ranked: &[Ranked]) -> Vec<Ranked> {
    ranked.iter().filter(|it| !it.choice.method.spares_source()).cloned().collect()
}

/// Returns what a figure is of; `None` for libpmem.
fn choice_of(figure: &Figure) -> Option<Choice> {
    Some(Choice { method: method::by_name(&figure.method)?, parameters: figure.parameters })
}

/// Returns the measured lengths nearest to those of the [`SUMMARY`], if they are near.
fn nearest_of_summary(lengths: &[u64]) -> Vec<u64> {
    let nearest = SUMMARY.into_iter().filter_map(|wanted| {
        let near = lengths.iter().filter_map(|&length| Some((distance(length, wanted)?, length)));
        near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, length)| length)
    });
    distinct(nearest)
}

/// Returns the choice for a length among those at rising lengths.
pub(super) fn chosen(choices: &[(u64, Key)], length: u64) -> Option<&Key> {
    choices.iter().rfind(|(from, _)| *from <= length).map(|(_, key)| key)
}

/// What is to be measured around a change of the choice, or in a wide interval.
struct Step {
    cost: Cost,
    length: u64,
    /// The logarithm of the ratio of the interval's ends; more if the choice changes.
    urgency: f64,
    choices: Vec<Choice>,
    /// That which is not measured at a length where others are.
    missing: Option<Choice>,
}

/// Returns the intervals of a table that are wide enough to measure in, and the ends of changes that lack a choice.
fn steps(ledger: &Ledger, operation: Operation, situation: Situation) -> Vec<Step> {
    let choices = derive::choices(&ledger.figures, operation, situation);
    let cost = Cost::of(situation);
    let rows = table::rows(&ledger.figures, operation, cost);
    let among = |keys: [&Key; 2]| -> Vec<Choice> {
        let c_library = method::c_library().does(operation).then(Key::c_library);
        let keys: BTreeSet<Key> = keys.into_iter().cloned().chain(c_library).collect();
        keys.iter().filter_map(Key::choice).collect()
    };
    let lacking = |pair: &[(u64, Key)]| -> Vec<Step> {
        let [(low, old), (high, new)] = pair else { return Vec::new() };
        let ends = [(*low, new), (*high, old)].into_iter();
        // At longer lengths, there is time for what may be the fastest there.
        let lacks = |length: u64, key: &Key| {
            old != new && length < LONG && rows.get(&length).is_some_and(|row| !row.contains_key(key))
        };
        let ends = ends.filter(|(length, key)| lacks(*length, key));
        let step = |(length, key): (u64, &Key)| {
            let missing = Some(key.choice()?);
            Some(Step { cost, length, urgency: 200.0, choices: among([old, new]), missing })
        };
        ends.filter_map(step).collect()
    };
    let interval = |pair: &[(u64, Key)]| {
        let [(low, old), (high, new)] = pair else { return None };
        let width = (*high as f64 / *low as f64).ln();
        let middle = (*low as f64 * *high as f64).sqrt() as u64;
        // Whole cache lines, if it has at least two.
        let length = if middle >= 128 { middle / 64 * 64 } else { middle };
        // Lengths within a factor of 1.25 of each other are not distinguished.
        if width <= 2.0 * 1.25_f64.ln() || length <= *low || length >= (*high).min(LONG * 4) {
            return None;
        }
        let urgency = if old != new { 100.0 + width } else { width };
        Some(Step { cost, length, urgency, choices: among([old, new]), missing: None })
    };
    choices.windows(2).flat_map(|pair| lacking(pair).into_iter().chain(interval(pair))).collect()
}

#[cfg(test)]
mod tests;
