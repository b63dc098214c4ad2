//! Errors of operations.

use std::ops::Range;

use crate::machine::Features;
use crate::method::Parameters;
use crate::operation::Operation;

/// An error of an operation. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The two ranges of a copy differ in length.
    #[error(
        "the destination has {destination} bytes and the source {given}: slice both to the same length first",
        given = .source_length
    )]
    LengthMismatch {
        /// Length of the destination, bytes.
        destination: usize,
        /// Length of the source, bytes.
        source_length: usize,
    },
    /// The two ranges of a persisting copy overlap.
    #[error(
        "destination {destination:#x} and source {source_address:#x} overlap within {length} bytes, and a copy that \
         overlaps cannot be made durable in one pass: copy_raw and then persist_raw do it in two"
    )]
    Overlap {
        /// Address of the destination.
        destination: usize,
        /// Address of the source.
        source_address: usize,
        /// Length of both, bytes.
        length: usize,
    },
    /// This architecture has no method that writes cache lines back to memory.
    #[error(
        "nothing on this machine can write cache lines back, so {operation} cannot make bytes durable: where power \
         failure spares the caches (eADR), say so with Options::durability(Durability::CachesIncluded); elsewhere map \
         the file and use msync"
    )]
    NotDurable {
        /// The operation that persists.
        operation: Operation,
    },
    /// A policy's methods cannot all run here.
    #[error(
        "the policy was made for a machine with instructions that this one does not have: use a policy of Machine::current(), \
         or of a policy file that was measured here"
    )]
    ForeignPolicy,
    /// A forced method cannot do the operation.
    #[error("the method `{method}` cannot {operation}: `bulkmem methods` lists those that can")]
    WrongOperation {
        /// The method.
        method: &'static str,
        /// The operation it was forced for.
        operation: Operation,
    },
    /// A forced method needs instructions that are not enabled.
    #[error(
        "the method `{method}` needs {missing:?}, which this processor does not have or this operating system does \
         not enable: choose one that `bulkmem methods` shows as available"
    )]
    Unavailable {
        /// The method.
        method: &'static str,
        /// The missing instructions.
        missing: Features,
    },
    /// A forced method does not take these parameters.
    #[error(
        "the method `{method}` does not take {parameters:?} for {operation}: keep to the ranges and steps of its \
         tunables, or start from Method::default_parameters"
    )]
    InvalidParameters {
        /// The method.
        method: &'static str,
        /// The operation.
        operation: Operation,
        /// The parameters.
        parameters: Parameters,
    },
    /// The hot part is not within the bytes to clear.
    #[error("the hot part {hot:?} is not a range within the {length} bytes to clear: clip it first")]
    HotOutOfBounds {
        /// The hot part, as given.
        hot: Range<usize>,
        /// Length of the whole, bytes.
        length: usize,
    },
}
