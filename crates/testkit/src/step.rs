//! What [`crate::walk`] and [`crate::breakpoints`] need to know of an instruction.

use bulkmem::machine::Features;

/// An instruction.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its address.
    pub address: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Its name.
    pub mnemonic: String,
    /// Disassembled, without the address.
    pub text: String,
    /// Where the program goes on.
    pub next: Next,
    /// What it means for the order of memory accesses.
    pub kind: Kind,
    /// The features that it needs.
    pub needs: Features,
    /// For a write-back: the number of the register with the address of the line.
    pub line: Option<usize>,
}

/// Where a program goes on after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At the following instruction.
    Following,
    /// There, or at the following instruction.
    Branch(u64),
    /// There.
    Jump(u64),
    /// There, and at the following instruction after the return.
    Call(u64),
    /// After the call of this function.
    Return,
    /// Nowhere: the program ends.
    Trap,
    /// At an address that this module cannot tell.
    Computed,
}

/// The meaning of an instruction for the order of memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None of these.
    Other,
    /// Stores non-temporally.
    NontemporalStore,
    /// Loads non-temporally.
    NontemporalLoad,
    /// Loads and stores non-temporally.
    NontemporalCopy,
    /// Writes a line back to memory.
    WriteBack,
    /// Orders loads only.
    LoadBarrier,
    /// Orders loads and stores.
    Barrier,
    /// Orders loads and stores, and waits for write-backs.
    Completion,
}
