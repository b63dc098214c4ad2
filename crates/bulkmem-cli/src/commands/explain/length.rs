//! The answer for one length: the method, what decides, and how the alternatives measured.

use bulkmem::method::{Parameters, c_library};
use bulkmem::policy::{Choice, NewHugePages, PageAliasing, Policy, Unmapped};
use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::{Condition, Cost, Figure, Profile};
use bulkmem_measure::engine::LIBPMEM;
use serde::Serialize;

use crate::active_policy::ActivePolicy;
use crate::commands::branches::Branches;
use crate::failure::Failure;
use crate::figures::{self, Series, describe_cost, describe_parameters, describe_place, describe_source};
use crate::output::{
    self, Column, GOOD, HEADING, Table, digits, exact_size, faint, plural, rate, size, styled, wrapped,
};
use crate::parsers::Threads;
use crate::plain::plain;

/// Why the intent reuse looks.
const REUSED: &str =
    "from there on, bypassing the cache pays in uncached memory although the bytes are used next";

/// Measured lengths that differ by a larger factor say nothing about a length. Calibration measures a factor of 4 apart.
const FAR: f64 = 4.5;

/// The document that `--json` prints.
#[derive(Serialize)]
pub(super) struct Answer {
    operation: Operation,
    length: u64,
    intent: Intent,
    /// By length alone.
    #[serde(flatten)]
    choice: Choice,
    from: usize,
    reason: String,
    look: Option<LookAnswer>,
    page_aliasing: Option<AliasedAnswer>,
    threads: usize,
    origin: String,
    measured: Vec<Measurements>,
}

/// How the operation finds out the cache state, and what it chooses by it.
#[derive(Serialize)]
struct LookAnswer {
    from: usize,
    cached_below: u64,
    reason: String,
    cached: Branch,
    uncached: Branch,
    unmapped: Option<UnmappedAnswer>,
}

/// The choice for memory whose pages are not mapped yet.
#[derive(Serialize)]
struct UnmappedAnswer {
    /// Ticks.
    from: u64,
    #[serde(flatten)]
    choice: Choice,
    /// The calls that do huge pages by the method for uncached memory.
    huge: Option<NewHugePages>,
}

/// The choice in place of the C library where page aliasing slows that down.
#[derive(Serialize)]
struct AliasedAnswer {
    from: usize,
    below: usize,
    #[serde(flatten)]
    choice: Choice,
    reason: String,
}

#[derive(Serialize)]
struct Branch {
    #[serde(flatten)]
    choice: Choice,
    reason: String,
}

/// The measurements of a profile for one cache state that are nearest to the question.
#[derive(Serialize)]
struct Measurements {
    cost: Cost,
    condition: Condition,
    length: u64,
    figures: Vec<Measured>,
}

#[derive(Serialize)]
struct Measured {
    method: String,
    parameters: Parameters,
    median_ns: f64,
    quartiles_ns: [f64; 2],
    samples: u32,
    /// For the cost `stream`: the part of the median that is the slow-down of other data in the cache.
    disturbance_ns: Option<f64>,
    gb_per_s: f64,
    times_c_library: Option<f64>,
    times_libpmem: Option<f64>,
    chosen: bool,
}

impl Answer {
    pub(super) fn find(
        active: &ActivePolicy,
        operation: Operation,
        length: u64,
        intent: Intent,
        threads: Threads,
    ) -> Result<Answer, Failure> {
        let policy = &active.policy;
        let bytes = usize::try_from(length)
            .map_err(|_| Failure::usage("--size: it exceeds the address space of this machine"))?;
        let threads = threads.unwrap_or_else(|| policy.threads(operation, bytes));
        let Some(branches) = Branches::find(policy, operation, bytes, intent, threads) else {
            return Err(Failure::new(format!("no method of this architecture supports {operation}")));
        };
        let rule = policy.rules(operation, intent).into_iter().rfind(|rule| rule.from <= bytes);
        let (from, reason) = rule.map(|rule| (rule.from, rule.reason)).unwrap_or_default();
        let profile = active.profile.as_ref().map(|(_, profile)| profile);
        let mut answer = Answer {
            operation,
            length,
            intent,
            choice: branches.by_length,
            from,
            reason,
            look: None,
            page_aliasing: None,
            threads,
            origin: active.describe_rules(operation, intent),
            measured: Vec::new(),
        };
        answer.look = answer.find_look(policy, &branches, profile);
        answer.page_aliasing = answer.find_aliasing(policy, profile);
        answer.measured = profile.map(|profile| answer.find_measured(&branches, profile)).unwrap_or_default();
        Ok(answer)
    }

    fn find_look(
        &self,
        policy: &Policy,
        branches: &Branches,
        profile: Option<&Profile>,
    ) -> Option<LookAnswer> {
        let look = branches.look?;
        let reason = |reason: Option<&String>| reason.map_or("measured here".to_owned(), String::clone);
        let branch = |choice, state| {
            let rules = profile.into_iter().flat_map(|profile| profile.rules_of(self.operation, state));
            let rule = rules.take_while(|rule| rule.from <= self.length).last();
            Branch { choice, reason: reason(rule.map(|rule| &rule.reason)) }
        };
        let mut rules = profile.into_iter().flat_map(|profile| &profile.looks);
        let rule = rules.find(|rule| rule.operation == self.operation);
        Some(LookAnswer {
            from: policy.looks_from(self.operation, self.intent),
            cached_below: look.cached_below,
            reason: match self.intent {
                Intent::Reuse => REUSED.to_owned(),
                _ => reason(rule.map(|rule| &rule.reason)),
            },
            cached: branch(branches.cached, policy.cached(self.operation, self.intent)),
            uncached: branch(branches.uncached, policy.uncached(self.operation, self.intent, self.threads)),
            unmapped: look.unmapped.map(|Unmapped { from, choice, huge, .. }| UnmappedAnswer {
                from,
                choice,
                huge: huge.filter(|huge| huge.are_bypassed(self.length as usize, 0, self.threads)),
            }),
        })
    }

    fn find_aliasing(&self, policy: &Policy, profile: Option<&Profile>) -> Option<AliasedAnswer> {
        let PageAliasing { from, below, choice, .. } = policy.page_aliasing()?;
        let concerned =
            self.operation == Operation::Copy && (from as u64..below as u64).contains(&self.length);
        let rule = profile.and_then(|profile| profile.aliasing.as_ref());
        let reason = rule.map_or("measured here".to_owned(), |rule| rule.reason.clone());
        // Other methods are used as they are.
        let library = self.look.is_some() || self.choice.method == c_library();
        (concerned && library).then_some(AliasedAnswer { from, below, choice, reason })
    }

    /// Returns the nearest measurements of cold and of warm memory.
    fn find_measured(&self, branches: &Branches, profile: &Profile) -> Vec<Measurements> {
        let mut all = figures::of_kind(profile, self.operation, Cost::of(self.intent));
        if all.is_empty() {
            // Throughput decided if the intent was not measured separately.
            all = figures::of_kind(profile, self.operation, Cost::Throughput);
        }
        let nearest = |warm: bool| {
            let of_state = || all.iter().filter(|series| series.condition.warm == warm);
            let any_threads = !of_state().any(|series| series.condition.threads == self.threads);
            let series = of_state().filter(|series| any_threads || series.condition.threads == self.threads);
            // The nearest length, and of several series at that distance the first, which has the plainest condition.
            let nearest = series.filter_map(|series| Some((series, series.nearest(self.length)?)));
            nearest.min_by(|a, b| a.1.1.total_cmp(&b.1.1))
        };
        let mut found: Vec<_> = [false, true].into_iter().filter_map(nearest).collect();
        let least = found.iter().map(|(_, (_, distance))| *distance).fold(f64::INFINITY, f64::min);
        // Memory larger than the cache is never warm.
        found.retain(|(_, (_, distance))| *distance <= least.max(FAR.ln()));
        let measurements = |(series, (length, _)): (&Series<'_>, _)| {
            measurements(series, length, branches.choice(series.condition.warm))
        };
        found.into_iter().map(measurements).collect()
    }

    pub(super) fn text(&self, width: usize) -> String {
        let heading = format!("{} of {}, intent {}", self.operation, exact_size(self.length), self.intent);
        let mut pairs = match &self.look {
            Some(look) => look.pairs(self.operation),
            None => {
                let parameters = describe_parameters(&self.choice.parameters);
                vec![
                    ("method", styled(GOOD, self.choice.method.name)),
                    ("parameters", if parameters.is_empty() { "none".to_owned() } else { parameters }),
                    ("used from", size(self.from as u64)),
                    ("reason", plain(&self.reason)),
                ]
            }
        };
        if self.look.is_some() {
            let from = size(self.from as u64);
            pairs.push((
                "by length",
                format!("{} (from {from}, without a look): {}", self.choice, plain(&self.reason)),
            ));
        }
        if let Some(AliasedAnswer { choice, reason, .. }) = &self.page_aliasing {
            pairs.push(("page aliasing", format!("{}: {}", styled(GOOD, choice), plain(reason))));
        }
        pairs.extend([("threads", self.threads.to_string()), ("policy", plain(&self.origin))]);
        let mut text = format!("{}\n\n{}", styled(HEADING, heading), output::pairs(&pairs, width));
        let Some(Measurements { cost, .. }) = self.measured.first() else {
            let remedy = "This was not measured on this machine; `bulkmem calibrate` measures it.";
            return text + &format!("\n{}\n", wrapped(remedy, "", width));
        };
        let look = if self.look.is_some() { ", by one method for all bytes, without a look" } else { "" };
        text += &format!(
            "\n{}",
            faint(&format!("The times are those of {}{look}.", describe_cost(*cost)), width)
        );
        for measurements in &self.measured {
            text += &measurements.text(self.operation, width);
        }
        if self.measured.iter().any(Measurements::another_is_faster) {
            let note = "→ is the choice for a range of lengths: at one of them, another method may have measured better.";
            text += &format!("\n{}", faint(note, width));
        }
        text
    }
}

impl LookAnswer {
    fn pairs(&self, operation: Operation) -> Vec<(&'static str, String)> {
        let LookAnswer { cached_below, reason, cached, uncached, unmapped, .. } = self;
        let method = |choice: &Choice| styled(GOOD, choice);
        let branch = |it: &Branch, ticks| format!("{} {ticks}: {}", method(&it.choice), plain(&it.reason));
        let mut pairs = vec![
            ("decided by", "the time of stores to a few lines".to_owned()),
            ("cached", branch(cached, format!("(fewer than {cached_below} ticks)"))),
            ("uncached", branch(uncached, format!("(from {cached_below} ticks on)"))),
        ];
        if let Some(UnmappedAnswer { from, choice, huge }) = unmapped {
            pairs.push((
                "unmapped",
                format!("{} (from {from} ticks on, which mapping pages takes)", method(choice)),
            ));
            if let Some(NewHugePages { from, .. }) = huge {
                let ticks = format!("(from {from} ticks on, which mapping such pages takes)");
                pairs.push(("huge pages", format!("as uncached: {} {ticks}", method(&uncached.choice))));
            }
        } else if !operation.persists() {
            let text =
                "not told from other memory: as cached or uncached, and the option populate has no effect";
            pairs.push(("unmapped", text.to_owned()));
        }
        pairs.extend([("looks from", size(self.from as u64)), ("reason", plain(reason))]);
        pairs
    }
}

/// Returns the figures of a series at a length.
fn measurements(series: &Series<'_>, length: u64, choice: Choice) -> Measurements {
    let Choice { method, parameters } = choice;
    let mut figures = series.ranking(length);
    // The parameters of the choice are shown even if others measured better at this one length.
    if let Some(own) = series.of(length, method.name, &parameters) {
        figures.retain(|figure| figure.method != own.method);
        figures.push(own);
        figures.sort_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
    }
    let measured = |figure: &&Figure| Measured {
        method: figure.method.clone(),
        parameters: figure.parameters,
        median_ns: figure.median_ns,
        quartiles_ns: figure.quartiles_ns,
        samples: figure.samples,
        disturbance_ns: figure.disturbance_ns,
        gb_per_s: figure.length as f64 / figure.median_ns,
        times_c_library: series.times(figure, c_library().name),
        times_libpmem: series.times(figure, LIBPMEM),
        chosen: figure.method == method.name && figure.parameters == parameters,
    };
    let figures = figures.iter().map(measured).collect();
    Measurements { cost: series.cost, condition: series.condition, length, figures }
}

impl Measurements {
    fn another_is_faster(&self) -> bool {
        let mut methods = self.figures.iter().filter(|it| it.method != LIBPMEM);
        methods.next().is_some_and(|fastest| !fastest.chosen) && methods.any(|it| it.chosen)
    }

    fn text(&self, operation: Operation, width: usize) -> String {
        let Measurements { cost, condition, length, figures } = self;
        let state = if condition.warm { "Warm memory" } else { "Cold memory" };
        let source = describe_source(condition.source);
        let threads = plural(condition.threads, "thread");
        let place = describe_place(*condition);
        let heading = format!("{state}, measured at {} ({place}{source}, {threads})", exact_size(*length));
        let mut table = Table::of(figures)
            .column(Column::left(""), |it| if it.chosen { styled(GOOD, "→") } else { String::new() })
            .column(Column::left("method"), |it| plain(&it.method))
            .column(Column::left("parameters").prose().optional(3), |it| describe_parameters(&it.parameters))
            .column(Column::right("GB/s"), |it| rate(*length, it.median_ns))
            .column(Column::right(format!("× {}", figures::library(operation).1)), |it| {
                digits(it.times_c_library.or(it.times_libpmem).unwrap_or(f64::NAN))
            });
        if *cost == Cost::Stream {
            table = table.column(Column::right("disturbance, ns").optional(4), |it| {
                // Below 0 it is noise, and counts as 0.
                it.disturbance_ns.map_or("–".to_owned(), |ns| format!("{:.0}", ns.max(0.0)))
            });
        }
        let table = table
            .column(Column::right("median, ns").optional(2), |it| format!("{:.0}", it.median_ns))
            .column(Column::right("quartiles, ns").optional(1), |it| {
                format!("{:.0}–{:.0}", it.quartiles_ns[0], it.quartiles_ns[1])
            })
            .column(Column::right("samples").optional(0), |it| it.samples.to_string());
        format!("\n{}\n{}", styled(HEADING, wrapped(&heading, "", width)), table.render(width))
    }
}
