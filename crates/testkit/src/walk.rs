//! Follows every path through a compiled function of an architecture whose instructions need no trace: which of them
//! return with weak stores or write-backs that no barrier follows.
//!
//! Calls are followed into their functions. Jumps to computed addresses are an error.

use std::collections::{BTreeMap, HashSet};

#[cfg(target_arch = "aarch64")]
use crate::aarch64::decode_at;
use crate::image::{Image, never_returns};
#[cfg(target_arch = "riscv64")]
use crate::riscv64::decode_at;
use crate::step::{Kind, Next, Step};

/// What is open at a point of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Pending {
    stores: bool,
    write_backs: bool,
    /// A barrier that orders loads was executed.
    loads_ordered: bool,
}

/// What the paths through a function do.
#[derive(Debug, Default)]
pub struct Walk {
    /// Every instruction that can be reached, by address.
    pub steps: BTreeMap<u64, Step>,
    /// A path returns.
    pub returns: bool,
    /// A path returns after a non-temporal store that no barrier followed.
    pub returns_pending_stores: bool,
    /// A path returns after a write-back whose completion was not waited for.
    pub returns_pending_write_backs: bool,
    /// Non-temporal loads that a path reaches before a barrier for loads.
    pub unordered_loads: Vec<String>,
}

impl Walk {
    /// Follows every path from the start of a function.
    ///
    /// # Errors
    /// If an instruction is unknown, or a path goes on at a computed address.
    pub fn from(function: *const ()) -> Result<Walk, String> {
        let image = Image::current()?;
        let mut walk = Walk::default();
        let mut seen = HashSet::new();
        let mut ahead = vec![(function as u64, Vec::new(), Pending::default())];
        while let Some((address, callers, before)) = ahead.pop() {
            if !seen.insert((address, callers.clone(), before)) {
                continue;
            }
            if !image.is_code(address) {
                return Err(format!("a path leaves the code of this executable at {address:#x}"));
            }
            // SAFETY: the address is within the mapped code of the executable.
            let step = unsafe { decode_at(address) }?;
            let after = walk.step(&step, before);
            let following = address + step.length;
            match step.next {
                Next::Following => ahead.push((following, callers, after)),
                Next::Branch(to) => {
                    ahead.push((to, callers.clone(), after));
                    ahead.push((following, callers, after));
                }
                // The jump to another function may be the last thing that this one does.
                Next::Jump(to) if never_returns(&image.function(to)) => {}
                Next::Jump(to) => ahead.push((to, callers, after)),
                Next::Call(to) if never_returns(&image.function(to)) => {}
                Next::Call(to) => {
                    if callers.len() >= 8 {
                        return Err(format!("{} calls too deeply", image.function(address)));
                    }
                    let mut callers = callers;
                    callers.push(following);
                    ahead.push((to, callers, after));
                }
                Next::Return => {
                    let mut callers = callers;
                    match callers.pop() {
                        Some(back) => ahead.push((back, callers, after)),
                        None => {
                            walk.returns = true;
                            walk.returns_pending_stores |= after.stores;
                            walk.returns_pending_write_backs |= after.write_backs;
                        }
                    }
                }
                Next::Trap => {}
                Next::Computed => {
                    return Err(format!(
                        "`{}` in {} goes to a computed address",
                        step.text,
                        image.function(address)
                    ));
                }
            }
            walk.steps.insert(address, step);
        }
        Ok(walk)
    }

    /// Returns what is open after an instruction.
    fn step(&mut self, step: &Step, mut pending: Pending) -> Pending {
        if matches!(step.kind, Kind::NontemporalLoad | Kind::NontemporalCopy) && !pending.loads_ordered {
            self.unordered_loads.push(format!("{:#x} {}", step.address, step.text));
        }
        match step.kind {
            Kind::NontemporalStore | Kind::NontemporalCopy => pending.stores = true,
            Kind::WriteBack => pending.write_backs = true,
            Kind::LoadBarrier => pending.loads_ordered = true,
            Kind::Barrier => pending = Pending { stores: false, loads_ordered: true, ..pending },
            Kind::Completion => {
                pending = Pending { stores: false, write_backs: false, loads_ordered: true };
            }
            Kind::NontemporalLoad | Kind::Other => {}
        }
        pending
    }

    /// Returns the instructions of a kind.
    pub fn of_kind(&self, kinds: &[Kind]) -> impl Iterator<Item = &Step> {
        self.steps.values().filter(move |step| kinds.contains(&step.kind))
    }
}
