//! What became of a range of memory by the end of a trace: which bytes were stored, how, which were written back,
//! and whether a fence came after.
//!
//! Byte comparison cannot see a line that was not flushed: the bytes are right until the power fails. This can.

use std::ops::Range;

use bulkmem::machine::Features;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, Register, UsedMemory};

use super::emulate::{CacheEffect, Registers};
use super::instruction::{Order, order, writes};
use super::trace::Trace;

const LINE: u64 = 64;

/// How far a byte has got on its way to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing was stored to it.
    Untouched,
    /// In the cache, by an ordinary store.
    Cached,
    /// Stored past the cache or written back, and no fence since.
    Pending,
    /// Stored past the cache or written back, and a fence since.
    Durable,
}

/// A range of memory, watched through a trace.
#[derive(Debug)]
pub struct Watched {
    range: Range<u64>,
    states: Vec<State>,
    /// Stores and write-backs of any kind, to this range or elsewhere, that wait for a fence.
    pub weak_pending: usize,
    /// How many fences there were.
    pub fences: usize,
    /// How many weak stores and write-backs there were.
    pub weak: usize,
    /// Stores of any kind to this range that no fence has followed.
    pub stores_pending: usize,
}

impl Watched {
    /// Follows what a trace did to `range`, whose bytes were all in `before` when it began.
    ///
    /// # Errors
    /// A store whose address or size cannot be told.
    pub fn follow(trace: &Trace, range: Range<usize>, before: State) -> Result<Watched, String> {
        let range = range.start as u64..range.end as u64;
        let states = vec![before; (range.end - range.start) as usize];
        let mut watched = Watched { range, states, weak_pending: 0, fences: 0, weak: 0, stores_pending: 0 };
        let mut factory = InstructionInfoFactory::new();
        for (instruction, registers) in trace.steps() {
            watched.step(&instruction, registers, &mut factory)?;
        }
        Ok(watched)
    }

    /// Traces `call`, at most `limit` instructions, and follows what it did to `range`, as [`Watched::follow`] does.
    ///
    /// # Errors
    /// Where `call` executes more than `limit` instructions, and as [`Watched::follow`].
    pub fn during(
        limit: usize,
        range: Range<usize>,
        before: State,
        call: impl FnOnce(),
    ) -> Result<Watched, String> {
        let trace = Trace::record(limit, Features::empty(), call)?;
        Watched::follow(&trace, range, before)
    }

    /// The least advanced byte of the range, and where in it that is; `None` for an empty range.
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
        match CacheEffect::of(instruction, registers) {
            Ok(CacheEffect::Clear { line }) => self.store(line..line + LINE, State::Pending),
            Ok(CacheEffect::Move { to, .. }) => self.store(to..to + LINE, State::Pending),
            Ok(CacheEffect::WriteBack { address, .. }) => self.write_back(address, State::Pending),
            // Never emulated, as every processor has it.
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

    /// The states of those watched bytes that lie in `stretch`.
    fn within(&mut self, stretch: Range<u64>) -> &mut [State] {
        let clamp =
            |address: u64| (address.clamp(self.range.start, self.range.end) - self.range.start) as usize;
        let (start, end) = (clamp(stretch.start), clamp(stretch.end));
        &mut self.states[start..end]
    }

    fn store(&mut self, stretch: Range<u64>, state: State) {
        let stored = self.within(stretch);
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
    format!("cannot tell what {} stores to", super::instruction::text(instruction))
}

/// Which bytes an instruction stores to.
fn stores(
    instruction: &Instruction,
    registers: &Registers,
    factory: &mut InstructionInfoFactory,
) -> Result<Vec<Range<u64>>, String> {
    // With a REP prefix each repetition is a step of its own, or none where the count is 0.
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
    // FS and GS reach thread-local storage, which no test watches and whose base is unknown here.
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
