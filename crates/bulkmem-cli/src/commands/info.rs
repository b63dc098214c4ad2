//! `bulkmem info`.

use bulkmem::machine::{Features, Machine};
use bulkmem::method;
use bulkmem::policy::{Basis, Choice, Origin};
use bulkmem::{Intent, Operation};
use bulkmem_measure::Provenance;
use bulkmem_measure::calibration::Coverage;
use clap::Args;
use serde::Serialize;

use super::methods::feature_names;
use crate::active_policy::ActivePolicy;
use crate::failure::{Exit, Outcome};
use crate::output::{self, BAD, Column, GOOD, Table, exact_size, plural, section, size, styled};
use crate::plain::plain;
use crate::provenance::{self, known};

/// Show this machine's properties, and the policy that programs use here
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `bulkmem` (version), `machine`, `instructions` (each with `name`, `available`, `methods`: those that need it), `counters` \
(`available`, `reason`), `durability`, `policy` (`basis`: `profile` with `path`, or `defaults` with `microarchitecture`, `why` and \
`source`; `forced`: pairs of operation and method; `refused`: each with `path` and `reason`), `provenance` and `coverage` (of the \
profile, or null), `rules` (each with `operation`, `intent`, `from`, `choice`, `reason`).")]
pub(crate) struct InfoArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &InfoArgs) -> Outcome {
    let active = ActivePolicy::load()?;
    let info = Info::of(&active);
    if args.json {
        output::print_json(&info)?;
    } else {
        output::print(&info.text(&active, output::width()))?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Info<'s> {
    bulkmem: &'static str,
    machine: &'static Machine,
    instructions: Vec<InstructionSet>,
    policy: &'s Origin,
    durability: &'static str,
    provenance: Option<&'s Provenance>,
    coverage: Option<&'s Coverage>,
    rules: Vec<RuleRow>,
    counters: Counters,
}

#[derive(Serialize)]
struct RuleRow {
    operation: Operation,
    intent: Intent,
    from: usize,
    choice: Choice,
    reason: String,
}

#[derive(Serialize)]
struct InstructionSet {
    name: String,
    available: bool,
    methods: Vec<&'static str>,
}

#[derive(Serialize)]
struct Counters {
    available: bool,
    reason: Option<String>,
}

impl Info<'_> {
    fn of(active: &ActivePolicy) -> Info<'_> {
        let instruction_set = |set: Features| InstructionSet {
            name: feature_names(set).concat(),
            available: active.machine.features.contains(set),
            methods: method::all().filter(|it| it.requires.contains(set)).map(|it| it.name).collect(),
        };
        let intents = |operation| Intent::ALL.map(|intent| (operation, intent));
        let rules = Operation::ALL.into_iter().flat_map(intents).flat_map(|(operation, intent)| {
            let rules = active.policy.rules(operation, intent).into_iter();
            rules.map(move |rule| RuleRow {
                operation,
                intent,
                from: rule.from,
                choice: rule.choice,
                reason: rule.reason,
            })
        });
        let profile = active.profile.as_ref().map(|(_, profile)| profile);
        let reason = bulkmem_measure::counters_unavailable();
        Info {
            bulkmem: env!("CARGO_PKG_VERSION"),
            machine: active.machine,
            instructions: Features::all().iter().map(instruction_set).collect(),
            policy: active.policy.origin(),
            durability: active.policy.durability().name(),
            provenance: profile.map(|profile| &profile.provenance),
            coverage: profile.map(|profile| &profile.coverage),
            rules: rules.collect(),
            counters: Counters { available: reason.is_none(), reason },
        }
    }

    fn text(&self, active: &ActivePolicy, width: usize) -> String {
        let pairs = |rows: Vec<(&'static str, String)>| {
            let rows: Vec<_> = rows.into_iter().map(|(name, value)| (name, plain(&value))).collect();
            output::pairs(&rows, width)
        };
        section("Machine", &pairs(self.machine_rows()), width)
            + &section("Instruction sets", &self.instruction_table().render(width), width)
            + &section("Policy", &pairs(self.policy_rows(active)), width)
            + &section("Rules", &self.rule_table().render(width), width)
            + "`bulkmem explain` shows the measurements behind a rule.\n"
    }

    fn machine_rows(&self) -> Vec<(&'static str, String)> {
        let machine = self.machine;
        let unknown = || "unknown".to_owned();
        let caches = machine.caches;
        let huge: Vec<String> = machine.huge_page_sizes.iter().copied().map(exact_size).collect();
        vec![
            ("processor", provenance::cpu(&machine.cpu)),
            ("microcode", known(&machine.microcode)),
            ("processors", format!("{} available to this process", machine.processors)),
            ("nodes", if machine.nodes == 0 { unknown() } else { machine.nodes.to_string() }),
            ("caches", provenance::caches([caches.l1d, caches.l2, caches.l3])),
            ("memory", if machine.memory == 0 { unknown() } else { size(machine.memory) }),
            ("hypervisor", machine.hypervisor.clone().unwrap_or("none detected".to_owned())),
            ("kernel", known(&machine.kernel)),
            ("page size", exact_size(machine.page_size as u64)),
            ("huge pages", if huge.is_empty() { "none".to_owned() } else { huge.join(", ") }),
            ("transparent", machine.transparent_huge_pages.clone().unwrap_or_else(unknown)),
            ("counters", self.counters.reason.clone().unwrap_or("available".to_owned())),
            ("bulkmem", self.bulkmem.to_owned()),
        ]
    }

    fn instruction_table(&self) -> Table {
        let mut table =
            Table::new([Column::left("set"), Column::left("here"), Column::left("methods").prose()]);
        for set in &self.instructions {
            let methods = plural(set.methods.len(), "method");
            table.row([
                set.name.clone(),
                if set.available { styled(GOOD, "yes") } else { styled(BAD, "no") },
                match (set.available, set.methods.is_empty()) {
                    (_, true) => "no method needs it".to_owned(),
                    (true, false) => format!("{methods} can use it"),
                    (false, false) => format!("{methods} cannot run: {}", set.methods.join(" ")),
                },
            ]);
        }
        table
    }

    fn policy_rows(&self, active: &ActivePolicy) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        match &self.policy.basis {
            Basis::Profile { path } => {
                let path = path.as_ref().map_or("memory".to_owned(), |path| path.display().to_string());
                rows.push(("policy file", path));
                if let Some((path, profile)) = &active.profile {
                    rows.push(("profile", path.display().to_string()));
                    rows.extend(provenance::rows(profile));
                }
            }
            Basis::Defaults { microarchitecture, why, source } => {
                rows.push(("policy file", "none: `bulkmem calibrate` writes one".to_owned()));
                rows.push(("defaults for", microarchitecture.clone()));
                rows.push(("because", why.clone()));
                rows.push(("source", source.clone()));
            }
            _ => rows.push(("basis", "unknown to this command".to_owned())),
        }
        rows.push(("durability", self.durability.to_owned()));
        for (operation, choice) in &self.policy.forced {
            rows.push(("forced", format!("{operation}: {choice}")));
        }
        for refused in &self.policy.refused {
            rows.push(("refused", format!("{}: {}", refused.path.display(), refused.reason)));
        }
        rows
    }

    fn rule_table(&self) -> Table {
        let mut table = Table::new([
            Column::left("operation"),
            Column::left("intent"),
            Column::right("from"),
            Column::left("method").prose(),
        ]);
        for rule in &self.rules {
            let from = size(rule.from as u64);
            table.row([rule.operation.to_string(), rule.intent.to_string(), from, rule.choice.to_string()]);
        }
        table
    }
}
