//! Memory for a virtual machine.

use bulkmem_measure::engine::{Dimension, Measurement};

use super::super::input::Machine;
use super::super::lay::Lay;
use super::super::model::Section;

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let title = "Memory for a virtual machine";
    let section = Section::new(
        "vm",
        title,
        &[
            "How long it takes until a virtual machine has its memory. Fresh memory is cleared by the kernel when it \
             is first touched, here before the machine starts; reused memory is cleared again by a method. Shorter is \
             better.",
            "Larger pages save the kernel work for each page; more threads share the clearing; on memory that is \
             reused, the method decides.",
        ],
    );
    let within = &[Dimension::Threads, Dimension::Memory, Dimension::PageSize, Dimension::Target];
    super::laid(Measurement::Vm, machines, section, Lay { within, ..Lay::new("vm", title) })
}
