//! `bulkmem info`.

use std::collections::BTreeMap;

use bulkmem::machine::{Features, Machine};
use bulkmem::method;
use bulkmem::policy::{Basis, Choice, Look, Origin, PageAliasing, Rule};
use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::Coverage;
use bulkmem_measure::{Provenance, c_library};
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::methods::feature_names;
use crate::active_policy::{ActivePolicy, name_of};
use crate::failure::{Outcome, show};
use crate::figures::describe_parameters;
use crate::output::{self, BAD, Column, GOOD, Table, exact_size, plural, section, size, styled};
use crate::plain::plain;
use crate::provenance::{self, known};
use crate::thresholds::CThreshold;

/// Show this machine's properties, and the policy that programs use here
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `bulkmem` (version), `machine`, `instructions` (each with `name`, `available`, `methods`: those that need it), `counters` \
(`available`, `reason`), `durability`, `policy` (`basis`: `profile` with `path`, or `defaults` with `microarchitecture`, `why` and \
`source`; `forced`: pairs of operation and method; `refused`: each with `path` and `reason`), `provenance` and `coverage` (of the \
profile, or null), `rules` (each with `operation`, `intent`, `from`, `choice`, `reason`), `looks` (of operations that look at the cache \
state, by their name: `from`, `cached_below`, `unmapped`: null, or `from`, `choice`), `page_aliasing` (null, or `from`, `below`, `choice`), `thresholds` (of memcpy and memset: `operation`, `tunable` and `value`, null without a \
tunable, and `located`, null without a profile that has it: `cached`, `uncached`; see docs/bench/threshold.md).")]
pub(crate) struct InfoArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &InfoArgs) -> Outcome {
    let active = ActivePolicy::load()?;
    let info = Info::of(&active);
    show(args.json, &info, |width| info.text(&active, width))
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
    looks: BTreeMap<&'static str, Look>,
    page_aliasing: Option<PageAliasing>,
    counters: serde_json::Value,
    thresholds: [CThreshold; 2],
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

impl Info<'_> {
    fn of(active: &ActivePolicy) -> Info<'_> {
        let instruction_set = |set: Features| InstructionSet {
            name: feature_names(set).concat(),
            available: bulkmem::machine::features().contains(set),
            methods: method::all().filter(|it| it.requires.contains(set)).map(|it| it.name).collect(),
        };
        let all =
            Operation::ALL.into_iter().flat_map(|operation| Intent::ALL.map(|intent| (operation, intent)));
        let rules = all.flat_map(|(operation, intent)| {
            let row =
                move |Rule { from, choice, reason, .. }| RuleRow { operation, intent, from, choice, reason };
            active.policy.rules(operation, intent).into_iter().map(row)
        });
        let profile = active.profile.as_ref().map(|(_, profile)| profile);
        let reason = bulkmem_measure::counters_unavailable();
        Info {
            bulkmem: env!("CARGO_PKG_VERSION"),
            machine: Machine::current(),
            instructions: Features::all().iter().map(instruction_set).collect(),
            policy: active.policy.origin(),
            durability: active.policy.durability().name(),
            provenance: profile.map(|profile| &profile.provenance),
            coverage: profile.map(|profile| &profile.coverage),
            rules: rules.collect(),
            looks: Operation::all()
                .filter_map(|operation| Some((operation.name(), active.policy.look(operation)?)))
                .collect(),
            page_aliasing: active.policy.page_aliasing(),
            counters: json!({ "available": reason.is_none(), "reason": reason }),
            thresholds: CThreshold::all(profile.map(|profile| &profile.provenance)),
        }
    }

    fn text(&self, active: &ActivePolicy, width: usize) -> String {
        let pairs = |rows: Vec<(&'static str, String)>| {
            let rows: Vec<_> = rows.into_iter().map(|(name, value)| (name, plain(&value))).collect();
            output::pairs(&rows, width)
        };
        let here = |available| if available { styled(GOOD, "yes") } else { styled(BAD, "no") };
        let methods = |set: &&InstructionSet| match plural(set.methods.len(), "method") {
            _ if set.methods.is_empty() => "no method needs it".to_owned(),
            count if set.available => format!("{count} can use it"),
            count => format!("{count} cannot run: {}", set.methods.join(" ")),
        };
        let sets = Table::of(&self.instructions)
            .column(Column::left("set"), |set| set.name.clone())
            .column(Column::left("here"), |set| here(set.available))
            .column(Column::left("methods").prose(), methods);
        let rules = Table::of(&self.rules)
            .column(Column::left("operation"), |rule| rule.operation.to_string())
            .column(Column::left("intent"), |rule| rule.intent.to_string())
            .column(Column::right("from"), |rule| size(rule.from as u64))
            .column(Column::left("method").prose(), |rule| {
                // Words, which can be wrapped.
                let Choice { method, parameters } = rule.choice;
                if !method.does(rule.operation) {
                    return "none: no method of this processor does it".to_owned();
                }
                format!("{} {}", method.name, describe_parameters(&parameters)).trim_end().to_owned()
            });
        section("Machine", &pairs(self.machine_rows()), width)
            + &section("Instruction sets", &sets.render(width), width)
            + &section("C library", &pairs(self.c_library_rows()), width)
            + &section("Policy", &pairs(self.policy_rows(active)), width)
            + &section("Rules", &rules.render(width), width)
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
            (
                "emulator",
                machine.emulator.as_deref().map_or("none detected".to_owned(), provenance::emulated),
            ),
            ("kernel", known(&machine.kernel)),
            ("page size", exact_size(machine.page_size as u64)),
            ("huge pages", if huge.is_empty() { "none".to_owned() } else { huge.join(", ") }),
            ("transparent", machine.transparent_huge_pages.clone().unwrap_or_else(unknown)),
            ("counters", self.counters["reason"].as_str().unwrap_or("available").to_owned()),
            ("bulkmem", self.bulkmem.to_owned()),
        ]
    }

    fn c_library_rows(&self) -> Vec<(&'static str, String)> {
        let version = c_library().unwrap_or_else(|| "not glibc".to_owned());
        let [memcpy, memset] = self.thresholds.each_ref().map(CThreshold::text);
        vec![("version", version), ("thresholds", memcpy), ("", memset)]
    }

    fn policy_rows(&self, active: &ActivePolicy) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        match &self.policy.basis {
            Basis::Profile { path } => {
                rows.push(("policy file", name_of(path.as_deref())));
                if let Some((path, profile)) = &active.profile {
                    rows.push(("profile", path.display().to_string()));
                    rows.extend(provenance::machine(&profile.provenance));
                    rows.extend(provenance::run(&profile.provenance));
                    rows.extend(provenance::coverage(&profile.coverage));
                }
            }
            Basis::Defaults { microarchitecture, why, source } => {
                rows.extend([
                    ("policy file", "none: `bulkmem calibrate` writes one".to_owned()),
                    ("defaults for", microarchitecture.clone()),
                    ("because", why.clone()),
                    ("source", source.clone()),
                ]);
            }
            _ => rows.push(("basis", "unknown to this command".to_owned())),
        }
        let looks: Vec<String> =
            self.looks.iter().map(|(name, look)| format!("{name} from {}", size(look.from as u64))).collect();
        let none = "none: methods are chosen by length alone".to_owned();
        rows.push(("looks at the cache", if looks.is_empty() { none } else { looks.join(", ") }));
        if let Some(PageAliasing { from, below, choice, .. }) = &self.page_aliasing {
            let lengths = format!("copies of {} to {}", size(*from as u64), size(*below as u64));
            rows.push((
                "page aliasing",
                format!("{lengths} by {choice}, if it would slow down the C library"),
            ));
        }
        rows.push(("durability", self.durability.to_owned()));
        let forced = self.policy.forced.iter();
        rows.extend(forced.map(|(operation, choice)| ("forced", format!("{operation}: {choice}"))));
        let refused = self.policy.refused.iter();
        rows.extend(refused.map(|it| ("refused", format!("{}: {}", it.path.display(), it.reason))));
        rows
    }
}
