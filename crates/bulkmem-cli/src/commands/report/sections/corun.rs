//! How much a command slows beside background clearing.

use bulkmem_measure::engine::{Dimension, Measurement};

use super::super::input::Machine;
use super::super::lay::Lay;
use super::super::model::Section;

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let title = "A program beside background clearing";
    let section = Section::new(
        "corun",
        title,
        &[
            "How long a program takes while memory is cleared in the background at a bounded rate, by the method that \
             clears. Shorter is better.",
            "The control uses as much processor time and touches no memory: what a method takes beyond it is the \
             memory's and the cache's share.",
        ],
    );
    super::laid(
        Measurement::Corun,
        machines,
        section,
        Lay { within: &[Dimension::Rate], ..Lay::new("corun", title) },
    )
}
