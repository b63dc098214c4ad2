//! `bulkmem info`.

use clap::Args;
use std::path::PathBuf;

use bulkmem::machine::{Features, Machine};
use bulkmem::method;
use bulkmem::policy::{Basis, Choice, Origin, Policy};
use bulkmem::{Intent, Operation};
use bulkmem_measure::Provenance;
use bulkmem_measure::calibration::{Coverage, Profile};
use serde::Serialize;

use super::{Outcome, methods::feature_names};
use crate::active_policy::ActivePolicy;
use crate::failure::Exit;
use crate::output::{self, BAD, Column, GOOD, HEADING, Table, exact_size, pairs, size, styled};
use crate::plain::plain;
use crate::provenance::{self, known};

#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `bulkmem` (version), `machine`, `instructions` (each with `name`, `available`, `methods`: those that need it), `counters` \
(`available`, `reason`), `policy` (`basis`: `profile` with `path` and `provenance`, or `defaults` with `microarchitecture`, `why` \
and `source`; `forced`: pairs of operation and method; `refused`: each with `path` and `reason`), `rules` (each with \
`operation`, `intent`, `from`, `choice`, `reason`).")]
pub(crate) struct InfoArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) fn run(args: &InfoArgs) -> Outcome {
    let served = ActivePolicy::load()?;
    let info = Info::of(&served);
    if args.json {
        output::print_json(&info)?;
    } else {
        output::print(&info.text(output::width()))?;
    }
    Ok(Exit::Done)
}

/// All rules, by operation and intent, in rising order of length.
fn rules(policy: &Policy) -> Vec<InForce> {
    let ladders =
        Operation::ALL.into_iter().flat_map(|operation| Intent::ALL.map(|intent| (operation, intent)));
    ladders
        .flat_map(|(operation, intent)| {
            let rules = policy.rules(operation, intent).into_iter();
            rules.map(move |rule| InForce {
                operation,
                intent,
                from: rule.from,
                choice: rule.choice,
                reason: rule.reason,
            })
        })
        .collect()
}

/// What `--json` prints.
#[derive(Serialize)]
struct Info<'s> {
    bulkmem: &'static str,
    machine: &'static Machine,
    instructions: Vec<InstructionSet>,
    policy: &'s Origin,
    /// Where, when and how the rules were measured.
    provenance: Option<&'s Provenance>,
    coverage: Option<&'s Coverage>,
    #[serde(skip)]
    profile: Option<&'s (PathBuf, Profile)>,
    rules: Vec<InForce>,
    counters: Counters,
}

/// A rule of the policy.
#[derive(Serialize)]
struct InForce {
    operation: Operation,
    intent: Intent,
    /// Smallest length it holds for, bytes.
    from: usize,
    choice: Choice,
    reason: String,
}

#[derive(Serialize)]
struct InstructionSet {
    name: String,
    available: bool,
    /// The methods that need it.
    methods: Vec<&'static str>,
}

#[derive(Serialize)]
struct Counters {
    available: bool,
    reason: Option<String>,
}

impl Info<'_> {
    fn of(served: &ActivePolicy) -> Info<'_> {
        let instruction_set = |set: Features| InstructionSet {
            name: feature_names(set).concat(),
            available: served.machine.features.contains(set),
            methods: method::all().filter(|it| it.requires.contains(set)).map(|it| it.name).collect(),
        };
        let reason = bulkmem_measure::counters_unavailable();
        Info {
            bulkmem: env!("CARGO_PKG_VERSION"),
            machine: served.machine,
            instructions: Features::all().iter().map(instruction_set).collect(),
            policy: served.policy.origin(),
            provenance: served.profile.as_ref().map(|(_, profile)| &profile.provenance),
            coverage: served.profile.as_ref().map(|(_, profile)| &profile.coverage),
            profile: served.profile.as_ref(),
            rules: rules(&served.policy),
            counters: Counters { available: reason.is_none(), reason },
        }
    }

    fn text(&self, width: usize) -> String {
        let heading = |text: &str| format!("{}\n", styled(HEADING, text));
        let machine: Vec<_> =
            self.machine_rows().into_iter().map(|(name, value)| (name, plain(&value))).collect();
        let mut text = heading("Machine") + &pairs(&machine, width);
        text += &format!("\n{}{}", heading("Instruction sets"), self.instruction_table().render(width));
        let policy: Vec<_> =
            self.policy_rows().into_iter().map(|(name, value)| (name, plain(&value))).collect();
        text += &format!("\n{}{}", heading("Policy"), pairs(&policy, width));
        text += &format!("\n{}{}", heading("Rules"), self.rule_table().render(width));
        text + "\n`bulkmem explain` tells the figures behind a rule.\n"
    }

    fn rule_table(&self) -> Table {
        let mut table = Table::new([
            Column::left("operation"),
            Column::left("intent"),
            Column::right("from"),
            Column::left("method").prose(),
        ]);
        for rule in &self.rules {
            table.row([
                rule.operation.to_string(),
                rule.intent.to_string(),
                size(rule.from as u64),
                rule.choice.to_string(),
            ]);
        }
        table
    }

    fn machine_rows(&self) -> Vec<(&'static str, String)> {
        let machine = self.machine;
        let some = |bytes: u64| if bytes == 0 { "unknown".to_owned() } else { size(bytes) };
        let caches = machine.caches;
        let huge: Vec<String> = machine.huge_page_sizes.iter().copied().map(exact_size).collect();
        vec![
            ("processor", provenance::cpu(&machine.cpu)),
            ("microcode", known(&machine.microcode)),
            ("processors", format!("{} that this process may use", machine.processors)),
            ("nodes", if machine.nodes == 0 { "unknown".to_owned() } else { machine.nodes.to_string() }),
            ("caches", provenance::caches([caches.l1d, caches.l2, caches.l3])),
            ("memory", some(machine.memory)),
            ("hypervisor", machine.hypervisor.clone().unwrap_or("none that shows itself".to_owned())),
            ("kernel", known(&machine.kernel)),
            ("page size", exact_size(machine.page_size as u64)),
            ("huge pages", if huge.is_empty() { "none".to_owned() } else { huge.join(", ") }),
            ("transparent", machine.transparent_huge_pages.clone().unwrap_or("unknown".to_owned())),
            ("counters", self.counters.reason.clone().unwrap_or("available".to_owned())),
            ("bulkmem", self.bulkmem.to_owned()),
        ]
    }

    fn instruction_table(&self) -> Table {
        let mut table =
            Table::new([Column::left("set"), Column::left("here"), Column::left("what that means").prose()]);
        for set in &self.instructions {
            let methods = match set.methods.len() {
                1 => "1 method".to_owned(),
                count => format!("{count} methods"),
            };
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

    fn policy_rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        match &self.policy.basis {
            Basis::Profile { path } => {
                let path = path.as_ref().map_or("memory".to_owned(), |path| path.display().to_string());
                rows.push(("policy file", path));
                if let Some((path, profile)) = self.profile {
                    rows.push(("profile", path.display().to_string()));
                    rows.extend(provenance::rows(profile));
                }
            }
            Basis::Defaults { microarchitecture, why, source } => {
                rows.push(("profile", "none: `bulkmem calibrate` makes one".to_owned()));
                rows.push(("defaults for", microarchitecture.clone()));
                rows.push(("because", why.clone()));
                rows.push(("source", source.clone()));
            }
            _ => rows.push(("basis", "unknown to this command".to_owned())),
        }
        for (operation, choice) in &self.policy.forced {
            rows.push(("forced", format!("{operation}: {choice}")));
        }
        for refused in &self.policy.refused {
            rows.push(("refused", format!("{}: {}", refused.path.display(), refused.reason)));
        }
        rows
    }
}
