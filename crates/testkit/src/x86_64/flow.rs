//! Walks every path through the compiled code of a function, to find paths that return with a weak store that no
//! fence follows, return with the upper halves of vector registers in use, or reach a non-temporal load before an
//! MFENCE.
//!
//! The walk starts at a function pointer and follows jumps, calls and tail calls to a fixpoint. At each instruction
//! it keeps every state that a path can arrive in. It reports an error for code that it cannot follow: a computed
//! jump, a call through a register, an unknown function of another library.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::CString;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::emulate::decode_at;
use super::instruction::{
    Order, loads_nontemporally, order, text, writes_wide_register, zeroes_upper_halves,
};
use crate::image::{Image, never_returns};

/// No method is longer, so a walk that reaches this number has left its code.
const MOST_INSTRUCTIONS: usize = 50_000;

/// Functions of the C library that methods may call. They fence their own weak stores.
const LIBRARY: [&str; 4] = ["memset", "memcpy", "memmove", "bcmp"];

/// State at one point of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    /// No fence has followed a weak store.
    pending: bool,
    /// A YMM or ZMM register was written, and the upper halves were not zeroed since.
    wide: bool,
    /// An MFENCE was executed.
    loads_ordered: bool,
}

impl State {
    fn after(self, instruction: &Instruction) -> State {
        State {
            pending: match order(instruction) {
                Order::Weak => true,
                Order::Fence => false,
                Order::Plain => self.pending,
            },
            wide: (self.wide && !zeroes_upper_halves(instruction)) || writes_wide_register(instruction),
            loads_ordered: self.loads_ordered || instruction.mnemonic() == Mnemonic::Mfence,
        }
    }
}

/// The states that the paths to one point arrive in.
type States = BTreeSet<State>;

/// Result of a walk.
#[derive(Debug)]
pub struct Flow {
    /// Every reachable instruction, by address.
    pub instructions: BTreeMap<u64, Instruction>,
    /// The weak stores and write-backs among them.
    pub weak: Vec<Instruction>,
    /// The instructions among them that write a YMM or ZMM register.
    pub wide: Vec<Instruction>,
    /// The non-temporal loads that some path reaches before an MFENCE.
    pub unordered_loads: Vec<Instruction>,
    /// True if a path returns without a fence after a weak store.
    pub returns_pending: bool,
    /// True if a path writes a YMM or ZMM register and returns without zeroing the upper halves.
    pub returns_wide: bool,
    /// True if a path returns.
    pub returns: bool,
    /// Functions of other libraries that are called.
    pub imports: Vec<String>,
}

struct Walker<'i> {
    image: &'i Image,
    instructions: BTreeMap<u64, Instruction>,
    imports: Vec<String>,
    unordered_loads: BTreeMap<u64, Instruction>,
    /// The address of the variable that was last loaded into a register.
    loaded: HashMap<Register, u64>,
    /// The states in which a function returns, by its address and the state at its call; `None` during its walk.
    summaries: HashMap<(u64, State), Option<States>>,
}

/// Target of a call or jump.
enum Target {
    Code(u64),
    Import(String),
}

impl Flow {
    /// Walks all paths from a function.
    ///
    /// # Errors
    /// The first instruction that cannot be followed.
    pub fn from(function: *const ()) -> Result<Flow, String> {
        let image = Image::current()?;
        let mut walker = Walker {
            image,
            instructions: BTreeMap::new(),
            imports: Vec::new(),
            unordered_loads: BTreeMap::new(),
            loaded: HashMap::new(),
            summaries: HashMap::new(),
        };
        let start = function as u64;
        if !image.is_code(start) {
            return Err(format!("{start:#x} is not code of this executable"));
        }
        let states = walker.walk(start, State::default())?;
        let Walker { instructions, imports, unordered_loads, .. } = walker;
        Ok(Flow {
            weak: instructions.values().filter(|it| order(it) == Order::Weak).copied().collect(),
            wide: instructions.values().filter(|it| writes_wide_register(it)).copied().collect(),
            instructions,
            unordered_loads: unordered_loads.into_values().collect(),
            returns_pending: states.iter().any(|state| state.pending),
            returns_wide: states.iter().any(|state| state.wide),
            returns: !states.is_empty(),
            imports,
        })
    }
}

impl Walker<'_> {
    /// Returns the states in which the function at `start` returns if it is called in `state`.
    fn walk(&mut self, start: u64, state: State) -> Result<States, String> {
        match self.summaries.get(&(start, state)) {
            Some(Some(states)) => return Ok(states.clone()),
            Some(None) => return Err(format!("{} calls itself", self.image.function(start))),
            None => self.summaries.insert((start, state), None),
        };
        let mut out = States::default();
        let mut seen = HashSet::new();
        let mut ahead = vec![(start, state)];
        while let Some((ip, state)) = ahead.pop() {
            if !seen.insert((ip, state)) {
                continue;
            }
            let instruction = self.decode(ip)?;
            let next = instruction.next_ip();
            self.note_load(&instruction);
            if loads_nontemporally(&instruction) && !state.loads_ordered {
                self.unordered_loads.insert(ip, instruction);
            }
            match instruction.flow_control() {
                FlowControl::Next => ahead.push((next, state.after(&instruction))),
                FlowControl::UnconditionalBranch => ahead.push((instruction.near_branch_target(), state)),
                FlowControl::ConditionalBranch => {
                    ahead.extend([(next, state), (instruction.near_branch_target(), state)]);
                }
                FlowControl::Return => {
                    out.insert(state);
                }
                FlowControl::Call => {
                    let after = self.call(Target::Code(instruction.near_branch_target()), state)?;
                    ahead.extend(after.into_iter().map(|state| (next, state)));
                }
                FlowControl::IndirectCall => {
                    let after = match self.slot(&instruction) {
                        Some(target) => self.call(target, state)?,
                        None => return Err(self.lost("calls through a register", &instruction)),
                    };
                    ahead.extend(after.into_iter().map(|state| (next, state)));
                }
                // A tail call of another library's function returns to the caller of this one.
                FlowControl::IndirectBranch => match self.slot(&instruction) {
                    Some(target) => out.extend(self.call(target, state)?),
                    None => return Err(self.lost("jumps to a computed address", &instruction)),
                },
                // UD2 and INT3 end the path.
                FlowControl::Exception => {}
                FlowControl::Interrupt if instruction.code() == Code::Int3 => {}
                FlowControl::Interrupt | FlowControl::XbeginXabortXend => {
                    return Err(self.lost("leaves the process", &instruction));
                }
            }
        }
        self.summaries.insert((start, state), Some(out.clone()));
        Ok(out)
    }

    fn decode(&mut self, ip: u64) -> Result<Instruction, String> {
        if let Some(instruction) = self.instructions.get(&ip) {
            return Ok(*instruction);
        }
        if !self.image.is_code(ip) {
            return Err(format!("a path leaves this executable's code for {ip:#x}"));
        }
        if self.instructions.len() == MOST_INSTRUCTIONS {
            return Err(format!(
                "more than {MOST_INSTRUCTIONS} instructions; now in {}",
                self.image.function(ip)
            ));
        }
        // SAFETY: the address is within the mapped code of the executable.
        let instruction = unsafe { decode_at(ip) };
        if instruction.is_invalid() {
            return Err(self.lost("contains an invalid instruction", &instruction));
        }
        self.instructions.insert(ip, instruction);
        Ok(instruction)
    }

    /// Returns the states after a call; none if it never returns.
    fn call(&mut self, target: Target, state: State) -> Result<States, String> {
        match target {
            Target::Code(start) if never_returns(&self.image.function(start)) => Ok(States::default()),
            Target::Code(start) => self.walk(start, state),
            Target::Import(name) if LIBRARY.contains(&name.as_str()) => {
                self.imports.push(name);
                Ok(States::from([state]))
            }
            Target::Import(name) => {
                Err(format!("calls `{name}` of another library, which is not known to fence"))
            }
        }
    }

    /// Records the variable that a register was loaded from, directly or through the address of the variable.
    fn note_load(&mut self, instruction: &Instruction) {
        if instruction.mnemonic() != Mnemonic::Mov || instruction.op0_kind() != OpKind::Register {
            return;
        }
        let variable = match instruction.memory_base() {
            Register::RIP => Some(instruction.ip_rel_memory_address()),
            base if instruction.memory_displacement64() == 0 => {
                self.loaded.get(&base).and_then(|slot| self.image.word(*slot))
            }
            _ => None,
        };
        match variable {
            Some(variable) => self.loaded.insert(instruction.op0_register(), variable),
            None => self.loaded.remove(&instruction.op0_register()),
        };
    }

    /// Returns the target of a call or jump through a fixed slot of this executable, or through a register that was
    /// loaded from a variable. The library keeps the addresses of the C library's functions in variables.
    fn slot(&self, instruction: &Instruction) -> Option<Target> {
        let slot = match instruction.op0_kind() {
            OpKind::Memory if instruction.memory_base() == Register::RIP => {
                instruction.ip_rel_memory_address()
            }
            OpKind::Register => *self.loaded.get(&instruction.op0_register())?,
            _ => return None,
        };
        if let Some(name) = self.image.import(slot) {
            return Some(Target::Import(name.to_owned()));
        }
        let target = self.image.word(slot)?;
        if self.image.is_code(target) {
            return Some(Target::Code(target));
        }
        let name = LIBRARY.into_iter().find(|name| address_of(name) == Some(target))?;
        Some(Target::Import(name.to_owned()))
    }

    fn lost(&self, what: &str, instruction: &Instruction) -> String {
        format!("{} {what}: {}", self.image.function(instruction.ip()), text(instruction))
    }
}

/// Returns the address of another library's function.
fn address_of(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends in 0.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address as u64)
}
