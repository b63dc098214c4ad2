//! `bulkmem explain`.

use std::fmt::Write as _;

use bulkmem::method::Parameters;
use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::{Condition, Cost, Figure};
use clap::Args;
use serde::Serialize;

use crate::active_policy::ActivePolicy;
use crate::failure::{Exit, Failure, Outcome};
use crate::figures::{self, describe_condition, describe_cost, describe_parameters};
use crate::output::{
    self, Column, GOOD, HEADING, Table, digits, exact_size, faint, rate, size, styled, wrapped,
};
use crate::parsers::{self, Threads};
use crate::plain::plain;

/// Show which method is used for a length, why, and how the alternatives measured
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `operation`, `length`, `intent`, `method`, `parameters`, `from`, `reason`, `threads`, `origin`, `evidence` (null \
without a profile that measured this; else `cost`, `condition`, `length` and `figures`: each with `method`, `parameters`, \
`median_ns`, `quartiles_ns`, `samples`, `disturbance_ns`, `gb_per_s`, `times_c_library`, `chosen`).")]
pub(crate) struct ExplainArgs {
    /// The operation
    #[arg(long, value_name = "OPERATION", value_parser = parsers::operation())]
    op: Operation,
    /// The total length
    #[arg(long, value_name = "SIZE", value_parser = parsers::size)]
    size: u64,
    /// What the program does next with the bytes
    #[arg(long, value_name = "INTENT", value_parser = parsers::intent(), default_value = "throughput")]
    intent: Intent,
    /// Threads that share the work: a number, or `auto`, as many as saturate memory
    #[arg(long, value_name = "N", default_value = "1", value_parser = parsers::threads_or_auto)]
    threads: Threads,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ExplainArgs) -> Outcome {
    let answer = Answer::find(args, &ActivePolicy::load()?)?;
    if args.json {
        output::print_json(&answer)?;
    } else {
        output::print(&answer.text(output::width()))?;
    }
    Ok(Exit::Done)
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Answer {
    operation: Operation,
    length: u64,
    intent: Intent,
    method: &'static str,
    parameters: Parameters,
    from: usize,
    reason: String,
    threads: usize,
    origin: String,
    evidence: Option<Evidence>,
}

/// The measurements of a profile that are nearest to the question.
#[derive(Serialize)]
struct Evidence {
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
    chosen: bool,
}

impl Answer {
    fn find(args: &ExplainArgs, active: &ActivePolicy) -> Result<Answer, Failure> {
        let (operation, intent, policy) = (args.op, args.intent, &active.policy);
        let length = usize::try_from(args.size)
            .map_err(|_| Failure::usage("--size: it exceeds the address space of this machine"))?;
        let choice = policy
            .choose(operation, length, intent)
            .ok_or_else(|| Failure::new(format!("no method of this architecture supports {operation}")))?;
        let rule = policy.rules(operation, intent).into_iter().rev().find(|rule| rule.from <= length);
        let (from, reason) = rule.map_or((0, String::new()), |rule| (rule.from, rule.reason));
        let threads = match args.threads {
            Threads::Auto => policy.threads(operation, length),
            Threads::Exactly(threads) => threads,
        };
        let mut answer = Answer {
            operation,
            length: args.size,
            intent,
            method: choice.method.name,
            parameters: choice.parameters,
            from,
            reason,
            threads,
            origin: active.describe_rules(operation, intent),
            evidence: None,
        };
        answer.evidence = answer.find_evidence(active);
        Ok(answer)
    }

    fn find_evidence(&self, active: &ActivePolicy) -> Option<Evidence> {
        let (_, profile) = active.profile.as_ref()?;
        let of = |cost| figures::of_kind(profile, self.operation, cost);
        // Throughput decided if the intent was not measured separately.
        let all = Some(of(Cost::of(self.intent))).filter(|all| !all.is_empty());
        let all = all.unwrap_or_else(|| of(Cost::Throughput));
        let any_threads = !all.iter().any(|series| series.condition.threads == self.threads);
        let series = all.iter().filter(|series| any_threads || series.condition.threads == self.threads);
        // The nearest length, and of several series at that distance the first, which has the plainest condition.
        let nearest = series.filter_map(|series| Some((series, series.nearest(self.length)?)));
        let (series, (length, _)) = nearest.min_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
        let mut figures = series.ranking(length);
        // The parameters of the choice are shown even if others measured better at this one length.
        if let Some(own) = series.of(length, self.method, &self.parameters) {
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
            times_c_library: Some(series.times_c_library(figure)).filter(|times| times.is_finite()),
            chosen: figure.method == self.method && figure.parameters == self.parameters,
        };
        let figures = figures.iter().map(measured).collect();
        Some(Evidence { cost: series.cost, condition: series.condition, length, figures })
    }

    fn text(&self, width: usize) -> String {
        let heading = format!("{} of {}, intent {}", self.operation, exact_size(self.length), self.intent);
        let parameters = describe_parameters(&self.parameters);
        let pairs = [
            ("method", styled(GOOD, self.method)),
            ("parameters", if parameters.is_empty() { "none".to_owned() } else { parameters }),
            ("used from", size(self.from as u64)),
            ("threads", self.threads.to_string()),
            ("reason", plain(&self.reason)),
            ("policy", plain(&self.origin)),
        ];
        let mut text = format!("{}\n\n{}", styled(HEADING, heading), output::pairs(&pairs, width));
        let Some(evidence) = &self.evidence else {
            let remedy = "This was not measured on this machine; `bulkmem calibrate` measures it.";
            return text + &format!("\n{}\n", wrapped(remedy, "", width));
        };
        let cost = format!("The time is that of {}.", describe_cost(evidence.cost));
        _ = writeln!(
            text,
            "\nMeasured at {} ({}):\n{}",
            exact_size(evidence.length),
            describe_condition(evidence.condition),
            faint(&cost, width)
        );
        text + &evidence.table().render(width)
    }
}

impl Evidence {
    fn table(&self) -> Table {
        let stream = self.cost == Cost::Stream;
        let before = [
            Column::left(""),
            Column::left("method"),
            Column::left("parameters").prose().optional(3),
            Column::right("GB/s"),
            Column::right("× C library"),
        ];
        let after = [
            Column::right("median, ns").optional(2),
            Column::right("quartiles, ns").optional(1),
            Column::right("samples").optional(0),
        ];
        let disturbance = stream.then(|| Column::right("disturbance, ns").optional(4));
        let mut table = Table::new(before.into_iter().chain(disturbance).chain(after));
        for it in &self.figures {
            let disturbance =
                stream.then(|| it.disturbance_ns.map_or("–".to_owned(), |time| format!("{time:.0}")));
            let before = [
                if it.chosen { styled(GOOD, "→") } else { String::new() },
                plain(&it.method),
                describe_parameters(&it.parameters),
                rate(self.length, it.median_ns),
                digits(it.times_c_library.unwrap_or(f64::NAN)),
            ];
            let after = [
                format!("{:.0}", it.median_ns),
                format!("{:.0}–{:.0}", it.quartiles_ns[0], it.quartiles_ns[1]),
                it.samples.to_string(),
            ];
            table.row(before.into_iter().chain(disturbance).chain(after));
        }
        table
    }
}
