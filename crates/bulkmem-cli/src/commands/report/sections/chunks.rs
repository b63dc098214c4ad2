//! An extent cleared in chunks.

use bulkmem_measure::engine::{Dimension, Measurement};

use super::super::input::Machine;
use super::super::lay::Lay;
use super::super::model::Section;

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let title = "Clearing in chunks";
    let section = Section::new(
        "chunks",
        title,
        &[
            "A large extent cleared piece by piece, as a kernel or an allocator does it, by the size of the piece. A \
             flat line is a method that does not care; a line that rises needs to be told of large pieces to be fast.",
            "Who clears 4 KiB at a time never tells the processor that gigabytes are coming. bulkmem's choice is told \
             the whole extent, and should be flat and high.",
        ],
    );
    let lay = Lay { along: Some(Dimension::Chunk), caches: true, ..Lay::new("chunks", title) };
    super::laid(Measurement::Chunks, machines, section, lay)
}
