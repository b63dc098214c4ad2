//! Clear, fill and copy by size and method.

use bulkmem_measure::engine::{Dimension, Measurement};

use super::super::input::Machine;
use super::super::lay::Lay;
use super::super::model::Section;

pub(super) fn section(measurement: Measurement, machines: &[Machine<'_>]) -> Option<Section> {
    let (title, what) = match measurement {
        Measurement::Fill => ("Filling", "Filling memory with a byte"),
        Measurement::Copy => ("Copying", "Copying memory"),
        _ => ("Clearing", "Setting memory to zero"),
    };
    let shows = format!(
        "{what}, by how much of it and by which method. Each line is one way to do it; higher is faster. The dashed \
         verticals are the caches: left of one, the memory fits into it; right of the last, everything goes to \
         memory, and ways that keep out of the cache start to pay."
    );
    let choice = "The thick line is what bulkmem does when it is left to decide: it should lie on or near the top \
                  everywhere. Hover, or tap, to see which method that is at each size. “Reading” is how fast the \
                  same memory can be read: a physical reference, not a competitor.";
    let section = Section::new(measurement.name(), title, &[&shows, choice]);
    let lay = Lay { along: Some(Dimension::Size), caches: true, ..Lay::new(measurement.name(), title) };
    super::laid(measurement, machines, section, lay)
}
