//! When caching pays for who reads the result.

use bulkmem_measure::engine::{Dimension, Measurement};

use super::super::input::Machine;
use super::super::lay::Lay;
use super::super::model::Section;

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let section = Section::new(
        "reuse",
        "When caching pays",
        &[
            "Memory is cleared or copied, and a share of the result is read back: from nothing at the left to \
             everything at the right. The time is that of both together; higher is faster.",
            "Methods that leave the result in the cache start lower and fall less: where their line crosses those \
             that pass the cache by, caching starts to pay.",
        ],
    );
    let lay = Lay { along: Some(Dimension::ReadBack), ..Lay::new("reuse", "Then read back") };
    super::laid(Measurement::Reuse, machines, section, lay)
}
