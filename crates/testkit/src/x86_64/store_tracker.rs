//! Follows the bytes of a range through a trace: which were stored, how, which were written back, and whether a fence
//! came afterwards.
//!
//! A comparison of bytes does not find a line that was not written back, because the bytes are right until the power
//! fails.

use std::ops::Range;

use bulkmem::machine::Features;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, Register, UsedMemory};

use super::emulate::{MemoryAction, Registers};
use super::instruction::{Order, order, writes};
use super::trace::Trace;
pub use crate::state::State;

const LINE: u64 = crate::guard::LINE as u64;

/// State of a range of memory after a trace.
#[derive(Debug)]
pub struct StoreTracker {
    range: Range<u64>,
    states: Vec<State>,
    /// Number of weakly ordered stores and write-backs, to this range or elsewhere, that no fence has followed.
    pub weak_pending: usize,
    /// Number of fences.
    pub fences: usize,
    /// Number of weakly ordered stores and write-backs.
    pub weak: usize,
    /// Number of stores of any kind to this range that no fence has followed.
    pub stores_pending: usize,
}

impl StoreTracker {
    /// Returns the state of `range` after a trace, if all its bytes were in the state `before` at the start.
    ///
    /// # Errors
    /// If the trace has a store whose address or size cannot be determined.
    pub fn of_trace(trace: &Trace, range: Range<usize>, before: State) -> Result<StoreTracker, String> {
        let mut tracked = StoreTracker::new(range, before);
        let mut factory = InstructionInfoFactory::new();
        for (instruction, registers) in trace.steps() {
            tracked.step(&instruction, registers, &mut factory)?;
        }
        Ok(tracked)
    }

    /// Returns the state of `range` just before the first store to `marker`: what a power failure leaves if the store is
    /// the last that reaches memory.
    ///
    /// # Errors
    /// If nothing stores to `marker`, and those of [`StoreTracker::of_trace`].
    pub fn before_store(
        trace: &Trace,
        range: Range<usize>,
        before: State,
        marker: Range<usize>,
    ) -> Result<StoreTracker, String> {
        let mut tracked = StoreTracker::new(range, before);
        let mut marker = StoreTracker::new(marker, State::Untouched);
        let mut factory = InstructionInfoFactory::new();
        for (instruction, registers) in trace.steps() {
            marker.step(&instruction, registers, &mut factory)?;
            if marker.states.iter().any(|it| *it != State::Untouched) {
                return Ok(tracked);
            }
            tracked.step(&instruction, registers, &mut factory)?;
        }
        Err("nothing stores to the marker".to_owned())
    }

    fn new(range: Range<usize>, before: State) -> StoreTracker {
        let range = range.start as u64..range.end as u64;
        let states = vec![before; (range.end - range.start) as usize];
        StoreTracker { range, states, weak_pending: 0, fences: 0, weak: 0, stores_pending: 0 }
    }

    /// Traces `call`, at most `limit` instructions, and returns the state of `range` afterwards.
    ///
    /// # Errors
    /// If `call` executes more than `limit` instructions, and those of [`StoreTracker::of_trace`].
    pub fn during(
        limit: usize,
        range: Range<usize>,
        before: State,
        call: impl FnOnce(),
    ) -> Result<StoreTracker, String> {
        let trace = Trace::record(limit, Features::empty(), call)?;
        StoreTracker::of_trace(&trace, range, before)
    }

    /// Returns the index and state of the least advanced byte of the range; `None` if the range is empty.
    pub fn worst(&self) -> Option<(usize, State)> {
        self.states.iter().copied().enumerate().min_by_key(|(_, state)| *state)
    }

    fn step(
        &mut self,
        instruction: &Instruction,
        registers: &Registers,
        factory: &mut InstructionInfoFactory,
    ) -> Result<(), String> {
        let order = order(instruction);
        match order {
            Order::Fence => {
                self.fences += 1;
                self.weak_pending = 0;
                self.stores_pending = 0;
                self.states
                    .iter_mut()
                    .filter(|it| **it == State::Pending)
                    .for_each(|it| *it = State::Durable);
            }
            Order::Weak => {
                self.weak += 1;
                self.weak_pending += 1;
            }
            Order::Plain => {}
        }
        match MemoryAction::of(instruction, registers) {
            Ok(MemoryAction::Clear { line }) => self.store(line..line + LINE, State::Pending),
            Ok(MemoryAction::Move { to, .. }) => self.store(to..to + LINE, State::Pending),
            Ok(MemoryAction::WriteBack { address, .. }) => self.write_back(address, State::Pending),
            // Every processor supports CLFLUSH, so the emulator does not know it.
            Err(_) if instruction.mnemonic() == Mnemonic::Clflush => {
                let address = registers.address(instruction, 0).ok_or_else(|| unknown(instruction))?;
                self.write_back(address, State::Pending);
            }
            Err(_) => {
                let state = if order == Order::Weak { State::Pending } else { State::Cached };
                for stored in stores(instruction, registers, factory)? {
                    self.store(stored, state);
                }
            }
        }
        Ok(())
    }

    /// Returns the states of the bytes of the range that are among `addresses`.
    fn within(&mut self, addresses: Range<u64>) -> &mut [State] {
        let clamp =
            |address: u64| (address.clamp(self.range.start, self.range.end) - self.range.start) as usize;
        let (start, end) = (clamp(addresses.start), clamp(addresses.end));
        &mut self.states[start..end]
    }

    fn store(&mut self, addresses: Range<u64>, state: State) {
        let stored = self.within(addresses);
        stored.fill(state);
        let touched = !stored.is_empty();
        self.stores_pending += usize::from(touched);
    }

    fn write_back(&mut self, address: u64, to: State) {
        let line = address / LINE * LINE;
        for state in self.within(line..line + LINE) {
            if *state == State::Cached {
                *state = to;
            }
        }
    }
}

fn unknown(instruction: &Instruction) -> String {
    format!("the address that {} stores to is unknown", super::instruction::text(instruction))
}

/// Returns the addresses that an instruction stores to.
fn stores(
    instruction: &Instruction,
    registers: &Registers,
    factory: &mut InstructionInfoFactory,
) -> Result<Vec<Range<u64>>, String> {
    // With a REP prefix, each repetition is a separate step, and a count of 0 stores nothing.
    if instruction.is_string_instruction() {
        let stores = matches!(
            instruction.mnemonic(),
            Mnemonic::Movsb
                | Mnemonic::Movsw
                | Mnemonic::Movsd
                | Mnemonic::Movsq
                | Mnemonic::Stosb
                | Mnemonic::Stosw
                | Mnemonic::Stosd
                | Mnemonic::Stosq
        );
        let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let none_left = repeats && registers.get(Register::RCX) == Some(0);
        if !stores || none_left {
            return Ok(Vec::new());
        }
        let start = registers.get(Register::RDI).ok_or_else(|| unknown(instruction))?;
        let size = instruction.memory_size().size() as u64;
        return Ok(std::iter::once(start..start + size).collect());
    }
    let used = factory.info(instruction).used_memory().iter();
    // FS and GS address thread-local storage, which no test examines and whose base is unknown here.
    used.filter(|used| writes(used.access()) && !matches!(used.segment(), Register::FS | Register::GS))
        .map(|used| {
            let start = address(used, registers).ok_or_else(|| unknown(instruction))?;
            match used.memory_size().size() as u64 {
                0 => Err(unknown(instruction)),
                size => Ok(start..start + size),
            }
        })
        .collect()
}

fn address(used: &UsedMemory, registers: &Registers) -> Option<u64> {
    used.virtual_address(
        0,
        |register, _, _| {
            if register.is_segment_register() { Some(0) } else { registers.get(register) }
        },
    )
}
