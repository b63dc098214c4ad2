//! Collects all functions that given functions may call, including those of other libraries.
//!
//! [`super::flow`] follows single paths and rejects code that it cannot follow. This module works with whole
//! functions: every function that is called, jumped to, or whose address is taken, directly or in a table of
//! functions, counts as called. So it may find too many functions. It misses only those whose addresses were stored
//! by code that it does not reach.

use std::collections::{BTreeMap, VecDeque};

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::emulate::decode_at;
use crate::image::{Image, never_returns};

/// Functions that may be called.
#[derive(Debug)]
pub struct Calls {
    /// Every function, by address, with the function that it was first found in; `None` for the given functions.
    functions: BTreeMap<u64, Option<u64>>,
    /// Functions of other libraries, each with the function that it was first found in.
    imports: BTreeMap<String, u64>,
}

impl Calls {
    /// Collects the functions that those at these addresses may call, except those that panic and those for whose
    /// name
    /// `leaves_out` returns true.
    ///
    /// # Errors
    /// If this executable cannot be read, or an address is not in its code.
    pub fn from(
        functions: impl IntoIterator<Item = *const ()>,
        leaves_out: impl Fn(&str) -> bool,
    ) -> Result<Calls, String> {
        let image = Image::current()?;
        let mut calls = Calls { functions: BTreeMap::new(), imports: BTreeMap::new() };
        let mut ahead = VecDeque::new();
        for function in functions {
            let bounds = image.bounds(function as u64);
            let start = bounds.ok_or_else(|| format!("{function:p} is not code of this executable"))?.start;
            calls.functions.insert(start, None);
            ahead.push_back(start);
        }
        while let Some(function) = ahead.pop_front() {
            let Some(bounds) = image.bounds(function) else { continue };
            let mut at = bounds.start;
            while at < bounds.end {
                // SAFETY: the address is within the mapped code of the executable.
                let instruction = unsafe { decode_at(at) };
                at = if instruction.is_invalid() { at + 1 } else { instruction.next_ip() };
                for target in calls.targets(image, &instruction, function) {
                    let Some(start) = image.bounds(target).map(|bounds| bounds.start) else { continue };
                    let name = image.function(start);
                    if calls.functions.contains_key(&start) || never_returns(&name) || leaves_out(&name) {
                        continue;
                    }
                    calls.functions.insert(start, Some(function));
                    ahead.push_back(start);
                }
            }
        }
        Ok(calls)
    }

    /// Returns the code of this executable that the instruction jumps to or names. Records functions of other
    /// libraries.
    fn targets(&mut self, image: &Image, instruction: &Instruction, function: u64) -> Vec<u64> {
        let branches = [FlowControl::Call, FlowControl::UnconditionalBranch, FlowControl::ConditionalBranch];
        if branches.contains(&instruction.flow_control()) {
            let target = instruction.near_branch_target();
            if !image.is_code(target) {
                return Vec::new();
            }
            // A stub that jumps to another library's function.
            // SAFETY: the address is within the mapped code of the executable.
            let stub = unsafe { decode_at(target) };
            let slot = (stub.flow_control() == FlowControl::IndirectBranch).then(|| named(&stub)).flatten();
            return match slot.and_then(|slot| image.import(slot)) {
                Some(import) => self.import(import, function),
                None => vec![target],
            };
        }
        let Some(address) = named(instruction) else { return Vec::new() };
        if let Some(import) = image.import(address) {
            return self.import(import, function);
        }
        if image.is_code(address) {
            return vec![address];
        }
        let word = |index: u64| image.word(address + 8 * index);
        let function =
            |index: u64| word(index).filter(|word| image.bounds(*word).is_some_and(|it| it.start == *word));
        // The slot that holds the address of a function, or the first function of a table.
        let first = function(0);
        // The table of a trait object, which code refers to by address: the function that drops it or 0, the size,
        // the alignment, and the methods. Another table may follow.
        let is_table = |at: u64| word(at + 2).is_some_and(u64::is_power_of_two) && function(at + 3).is_some();
        if instruction.mnemonic() != Mnemonic::Lea || !is_table(0) {
            return first.into_iter().collect();
        }
        let is_next = |at: u64| function(at + 1).is_none() && is_table(at);
        let methods = (3..).take_while(|at| !is_next(*at)).map_while(function);
        first.into_iter().chain(methods).collect()
    }

    fn import(&mut self, name: &str, function: u64) -> Vec<u64> {
        self.imports.entry(name.to_owned()).or_insert(function);
        Vec::new()
    }

    /// Returns the functions of other libraries, each with the chain of callers.
    pub fn imports(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.imports.iter().map(|(name, caller)| (name.as_str(), self.path(*caller)))
    }

    /// Returns the functions of this executable, each as the last of its chain of callers.
    pub fn functions(&self) -> impl Iterator<Item = Vec<String>> {
        self.functions.keys().map(|function| self.path(*function))
    }

    /// Returns the names of the callers from one of the given functions to this one.
    fn path(&self, function: u64) -> Vec<String> {
        let Ok(image) = Image::current() else { return Vec::new() };
        let callers = std::iter::successors(Some(function), |function| *self.functions.get(function)?);
        let mut names: Vec<String> = callers.map(|function| image.function(function)).collect();
        names.reverse();
        names
    }
}

/// Returns the fixed address that is an operand of an instruction.
fn named(instruction: &Instruction) -> Option<u64> {
    let memory = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    (memory && instruction.memory_base() == Register::RIP).then(|| instruction.ip_rel_memory_address())
}
