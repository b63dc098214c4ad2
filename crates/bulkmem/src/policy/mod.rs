//! (operation, length, intent) → method and its parameters, read from the profile.
//!
//! Without a profile the built-in defaults answer: from the machine's instructions and caches, and from what is
//! published of its microarchitecture. A profile measured on this machine overrules them, and a method
//! that the user forces overrules both.

mod choice;
mod defaults;
mod environment;
mod error;
mod file;
mod known;
mod ladder;
mod profile;

use std::path::PathBuf;
use std::sync::OnceLock;

use serde::Serialize;

use crate::machine::{Features, Machine};
use crate::operation::{Intent, Operation};
use ladder::{Ladder, Rung};

pub use crate::machine::CpuIdentity;
pub use choice::Choice;
pub use error::{PolicyError, ProfileError};
pub use profile::{
    BusyProcess, Condition, Cost, FORMAT, Figure, Load, Mode, OperationProvenance, Profile, Provenance, Rule,
    Saturation, VERSION,
};

/// Which method carries out which operation, at which length, for which intent.
#[derive(Clone, Debug)]
pub struct Policy {
    /// By operation and intent.
    ladders: [[Ladder; Intent::ALL.len()]; Operation::ALL.len()],
    /// By operation: from this length on, so many threads; rising.
    threads: [Box<[(usize, usize)]>; Operation::ALL.len()],
    /// What the machine it was made for can run.
    features: Features,
    origin: Origin,
}

/// Where a policy comes from.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// What the answers rest on, where no method is forced.
    pub basis: Basis,
    /// The operations for which a method is forced, and the method.
    pub forced: Vec<(Operation, Choice)>,
    /// Profiles that were found and not used.
    pub refused: Vec<Refused>,
}

/// What the answers of a policy rest on.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Basis {
    /// Measurements on this machine.
    Profile {
        /// The file; `None` where the profile did not come from one.
        path: Option<PathBuf>,
        /// Where, when and how it was measured.
        provenance: Box<Provenance>,
    },
    /// What is known of such machines.
    Defaults {
        /// The microarchitecture, or that it is an unknown one.
        microarchitecture: String,
        /// What is known of it.
        why: String,
        /// Who says so.
        source: String,
    },
}

/// A profile that was found and not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The file.
    pub path: PathBuf,
    /// Why, and the remedy.
    pub reason: String,
}

impl Policy {
    /// The policy of this process, made at the first call: from the environment and the profile files, else the
    /// defaults. Where `BULKMEM_METHOD` or `BULKMEM_PROFILE` cannot be followed, one line on standard error says so,
    /// and the rest serves.
    #[inline]
    pub fn global() -> &'static Policy {
        static GLOBAL: OnceLock<Policy> = OnceLock::new();
        GLOBAL.get_or_init(environment::policy_or_complain)
    }

    /// The same as [`Policy::global`], made anew.
    ///
    /// # Errors
    /// Where `BULKMEM_METHOD` or `BULKMEM_PROFILE` cannot be followed. A profile found elsewhere that cannot be used
    /// is no error: [`Origin::refused`] tells of it.
    pub fn from_environment() -> Result<Policy, PolicyError> {
        environment::policy()
    }

    /// What is known without measuring. `machine` may be any, also one that is only described:
    /// see [`Policy::runs_here`].
    pub fn defaults(machine: &Machine) -> Policy {
        defaults::policy(machine)
    }

    /// What a profile says; where it says nothing of an operation and intent, the defaults.
    ///
    /// # Errors
    /// As [`Profile::check`].
    pub fn from_profile(profile: &Profile, machine: &Machine) -> Result<Policy, ProfileError> {
        profile.check(machine)?;
        let mut policy = Policy::defaults(machine);
        for operation in Operation::ALL {
            for intent in Intent::ALL {
                let rules =
                    profile.rules.iter().filter(|rule| (rule.operation, rule.intent) == (operation, intent));
                let mut rungs = rules.filter_map(|rule| {
                    let method = choice::find(&rule.method, operation, machine.features).ok()?;
                    Some(Rung {
                        from: usize::try_from(rule.from).ok()?,
                        choice: Choice { method, parameters: rule.parameters },
                        reason: rule.reason.clone(),
                    })
                });
                if let Some(first) = rungs.next() {
                    policy.ladders[operation as usize][intent as usize] = Ladder::new(first, rungs);
                }
            }
            let saturations = profile.threads.iter().filter(|one| one.operation == operation);
            policy.threads[operation as usize] = saturations
                .filter_map(|one| {
                    Some((usize::try_from(one.from).ok()?, one.threads.min(machine.processors).max(1)))
                })
                .collect();
        }
        policy.origin.basis = Basis::Profile { path: None, provenance: Box::new(profile.provenance.clone()) };
        Ok(policy)
    }

    /// Forces methods, for every length and intent: `clear:movnti,copy:rep_movsb`, with parameters
    /// `clear:write_prefetch_avx512[write_distance=4096]`. An operation that is not named keeps its rules.
    ///
    /// # Errors
    /// Where the text is not of that form, or names an operation, method or knob that is unknown or cannot be used on
    /// this policy's machine. Then nothing has changed.
    pub fn force(&mut self, spec: &str) -> Result<(), PolicyError> {
        let forced = environment::parse(spec, self.features)?;
        for &(operation, choice) in &forced {
            let reason = format!("forced: {operation}:{choice}");
            let ladder = Ladder::new(Rung { from: 0, choice, reason }, []);
            self.ladders[operation as usize] = Intent::ALL.map(|_| ladder.clone());
            self.origin.forced.retain(|(other, _)| *other != operation);
        }
        self.origin.forced.extend(forced);
        Ok(())
    }

    /// The method and parameters for an extent of `length` bytes.
    ///
    /// They are available on the machine that the policy was made for and fit the method's knobs. For persist and
    /// flush on an architecture without any method that does them, the C library's row is the answer, which
    /// [`does`](crate::method::Method::does) not do them.
    #[inline]
    pub fn choose(&self, operation: Operation, length: usize, intent: Intent) -> Choice {
        *self.ladders[operation as usize][intent as usize].choose(length)
    }

    /// The method and parameters for one call of `length` bytes that is part of an extent of `extent` bytes.
    ///
    /// That is the extent's answer, but for methods whose speed hangs on the length of one call: the C library and
    /// the REP instructions see no extent beyond their own count, so they are chosen only where the call itself is
    /// as long as their rule says, and the rule below them answers otherwise.
    #[inline]
    pub fn choose_part(&self, operation: Operation, length: usize, extent: usize, intent: Intent) -> Choice {
        *self.chosen(operation, length, extent, intent)
    }

    /// As [`Policy::choose_part`], where it stands: an operation reads of it what it needs.
    #[inline(always)]
    pub(crate) fn chosen(
        &self,
        operation: Operation,
        length: usize,
        extent: usize,
        intent: Intent,
    ) -> &Choice {
        let ladder = &self.ladders[operation as usize][intent as usize];
        if extent <= length { ladder.choose(length) } else { ladder.choose_part(length, extent) }
    }

    /// The fewest threads that saturate memory with an operation of that length; 1 where that is unknown.
    pub fn threads(&self, operation: Operation, length: usize) -> usize {
        let mut falling = self.threads[operation as usize].iter().rev();
        falling.find(|(from, _)| *from <= length).map_or(1, |&(_, threads)| threads)
    }

    /// The rules of an operation and intent, rising: from which length on, the choice, and why.
    pub fn rules(&self, operation: Operation, intent: Intent) -> Vec<(usize, Choice, String)> {
        let rungs = self.ladders[operation as usize][intent as usize].rungs();
        rungs.iter().map(|rung| (rung.from, rung.choice, rung.reason.clone())).collect()
    }

    /// Where it comes from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether this machine can run every method that the policy may answer. False only for a policy made for
    /// another, described machine: its answers may be looked at, but not carried out.
    pub fn runs_here(&self) -> bool {
        let needed =
            self.ladders.iter().flatten().fold(Features::empty(), |all, ladder| all | ladder.requires());
        crate::machine::features().contains(needed)
    }
}
