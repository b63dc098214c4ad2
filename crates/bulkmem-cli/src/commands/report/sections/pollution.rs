//! What is left of a neighbour's cache.

use bulkmem_measure::engine::Measurement;

use super::super::input::Machine;
use super::super::lay::Lay;
use super::super::model::Section;

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let section = Section::new(
        "pollution",
        "What it does to others in the cache",
        &[
            "Somebody else's list lies in the cache, and walking it is quick. Then memory is cleared or copied, and \
             the walk is timed again: the longer it takes, the more of the list was pushed out. Shorter is kinder.",
            "A cache empties by itself while time passes. The controls let the same time pass without touching \
             memory: what is no worse than they are did no harm that can be told here.",
        ],
    );
    super::laid(
        Measurement::Pollution,
        machines,
        section,
        Lay::new("pollution", "A walk through the cache afterwards"),
    )
}
