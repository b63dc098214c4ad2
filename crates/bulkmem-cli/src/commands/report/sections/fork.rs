//! Fork and copy-on-write.

use bulkmem_measure::engine::{Dimension, Measurement};

use super::super::input::Machine;
use super::super::lay::Lay;
use super::super::model::Section;

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let title = "Fork and copy-on-write";
    let section = Section::new(
        "fork",
        title,
        &[
            "What a fork costs a process that has a buffer, and then writes to it: the kernel copies each page that \
             is written. By the size of the buffer; shorter is better.",
            "The table of all figures has the pages that the kernel cleared and copied, as it counts them.",
        ],
    );
    let lay = Lay { along: Some(Dimension::Size), caches: true, ..Lay::new("fork", title) };
    super::laid(Measurement::Fork, machines, section, lay)
}
