//! `bulkmem explain`.

use crate::parsers::{self, Threads};
use clap::Args;
use std::fmt::Write as _;

use bulkmem::method::Parameters;
use bulkmem::policy::Choice;
use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::{Condition, Cost};
use bulkmem_measure::cost_of;
use serde::Serialize;

use crate::active_policy::ActivePolicy;
use crate::failure::{Exit, Failure, Outcome};
use crate::figures::{self, describe_condition, describe_cost, describe_parameters};
use crate::output::{
    self, Column, FAINT, GOOD, HEADING, Table, exact_size, rate, ratio, size, styled, wrapped,
};
use crate::plain::plain;

#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `operation`, `length`, `intent`, `method`, `parameters`, `from`, `reason`, `threads`, `origin`, `evidence` (null \
without a profile that measured this; else `cost`, `condition`, `length` and `figures`: each with `method`, `parameters`, \
`median_ns`, `quartiles_ns`, `samples`, `disturbance_ns`, `gb_per_s`, `times_c_library`, `chosen`).")]
pub(crate) struct ExplainArgs {
    /// The operation
    #[arg(long, value_name = "OPERATION", value_parser = parsers::operation())]
    pub(crate) op: Operation,
    /// The length of the whole extent
    #[arg(long, value_name = "SIZE", value_parser = parsers::size)]
    pub(crate) size: u64,
    /// What happens to the bytes next
    #[arg(long, value_name = "INTENT", value_parser = parsers::intent(), default_value = "throughput")]
    pub(crate) intent: Intent,
    /// Threads that share the work: a number, or `auto`: as many as saturate memory
    #[arg(long, value_name = "N", default_value = "1", value_parser = parsers::threads)]
    pub(crate) threads: Threads,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
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

/// The answer, as `--json` prints it.
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
    /// Of the cost `stream`: the part of the median that is the neighbour's slow-down.
    disturbance_ns: Option<f64>,
    gb_per_s: f64,
    times_c_library: Option<f64>,
    chosen: bool,
}

impl Answer {
    fn find(args: &ExplainArgs, served: &ActivePolicy) -> Result<Answer, Failure> {
        let (operation, intent) = (args.op, args.intent);
        let length = usize::try_from(args.size)
            .map_err(|_| Failure::usage("--size: no address space of this machine holds that much"))?;
        let choice = served
            .policy
            .choose(operation, length, intent)
            .ok_or_else(|| Failure::new(format!("no method of this architecture supports {operation}")))?;
        let rules = served.policy.rules(operation, intent);
        let rule = rules.into_iter().rev().find(|rule| rule.from <= length);
        let (from, reason) = rule.map_or((0, String::new()), |rule| (rule.from, rule.reason));
        Ok(Answer {
            operation,
            length: args.size,
            intent,
            method: choice.method.name,
            parameters: choice.parameters,
            from,
            reason,
            threads: match args.threads {
                Threads::Auto => served.policy.threads(operation, length),
                Threads::Exactly(threads) => threads.get(),
            },
            origin: served.describe_rules(operation, intent),
            evidence: evidence(args, served, choice),
        })
    }

    fn text(&self, width: usize) -> String {
        let Answer { operation, intent, length, threads, .. } = self;
        let mut text = format!(
            "{}\n\n",
            styled(HEADING, format!("{operation} of {}, intent {intent}", exact_size(*length)))
        );
        let parameters = match describe_parameters(&self.parameters).as_str() {
            "" => "none".to_owned(),
            parameters => parameters.to_owned(),
        };
        text += &output::pairs(
            &[
                ("method", styled(GOOD, self.method)),
                ("parameters", parameters),
                ("holds from", size(self.from as u64)),
                ("threads", threads.to_string()),
                ("because", plain(&self.reason)),
                ("policy", plain(&self.origin)),
            ],
            width,
        );
        let Some(evidence) = &self.evidence else {
            let remedy = "Nothing of this was measured on this machine: `bulkmem calibrate` does.";
            return text + &format!("\n{}\n", wrapped(remedy, "", width));
        };
        _ = write!(
            text,
            "\nMeasured at {} ({}):\n{}\n\n",
            exact_size(evidence.length),
            describe_condition(evidence.condition),
            styled(
                FAINT,
                wrapped(&format!("The time is that of {}.", describe_cost(evidence.cost)), "", width)
            ),
        );
        text + &evidence.table().render(width)
    }
}

impl Evidence {
    fn table(&self) -> Table {
        let disturbance = (self.cost == Cost::Stream).then(|| Column::right("disturbance, ns").optional(4));
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
        let mut table = Table::new(before.into_iter().chain(disturbance).chain(after));
        for it in &self.figures {
            let disturbance = (self.cost == Cost::Stream)
                .then(|| it.disturbance_ns.map_or("–".to_owned(), |time| format!("{time:.0}")));
            let before = [
                if it.chosen { styled(GOOD, "→") } else { String::new() },
                plain(&it.method),
                describe_parameters(&it.parameters),
                rate(self.length, it.median_ns),
                ratio(it.times_c_library.unwrap_or(f64::NAN)),
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

/// What the profile measured nearest to what is asked.
fn evidence(args: &ExplainArgs, served: &ActivePolicy, choice: Choice) -> Option<Evidence> {
    let (_, profile) = served.profile.as_ref()?;
    let threads = match args.threads {
        Threads::Exactly(threads) => threads.get(),
        Threads::Auto => served.policy.threads(args.op, usize::try_from(args.size).unwrap_or(usize::MAX)),
    };
    let of = |cost| figures::of_kind(profile, args.op, cost);
    // Where what the intent asks for was not measured by itself, throughput decided.
    let all =
        Some(of(cost_of(args.intent))).filter(|all| !all.is_empty()).unwrap_or_else(|| of(Cost::Throughput));
    let as_asked = all.iter().any(|series| series.condition.threads == threads);
    let candidates = all.iter().filter(|series| !as_asked || series.condition.threads == threads);
    // The nearest length, and there the plainest condition, which comes first.
    let nearest = candidates.filter_map(|series| series.nearest(args.size).map(|nearest| (series, nearest)));
    let (series, (length, _)) = nearest.min_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
    let mut figures = series.ranking(length);
    // The choice's own parameters count, even where others did better at this one length.
    if let Some(own) = series.of(length, choice.method.name, &choice.parameters) {
        figures.retain(|figure| figure.method != own.method);
        figures.push(own);
        figures.sort_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
    }
    let measured = |figure: &&bulkmem_measure::calibration::Figure| Measured {
        method: figure.method.clone(),
        parameters: figure.parameters,
        median_ns: figure.median_ns,
        quartiles_ns: figure.quartiles_ns,
        samples: figure.samples,
        disturbance_ns: figure.disturbance_ns,
        gb_per_s: figure.length as f64 / figure.median_ns,
        times_c_library: Some(series.times_c_library(figure)).filter(|times| times.is_finite()),
        chosen: figure.method == choice.method.name && figure.parameters == choice.parameters,
    };
    Some(Evidence {
        cost: series.cost,
        condition: series.condition,
        length,
        figures: figures.iter().map(measured).collect(),
    })
}
