//! The ways to use bulkmem, and what they gain on each machine.

use super::super::answers::choice;
use super::super::input::Machine;
use super::super::model::{Grid, Section};
use crate::commands::{lengths, ways};

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let mut section = Section {
        id: "ways",
        title: "Three ways to use it",
        intro: &[
            "Every way uses the same methods, so long calls gain the same. Gains are times the C library's speed, geometric \
                  means of 64 KiB, 1 MiB, 16 MiB and 1 GiB as calibration measured them, without the time of looks.",
        ],
        ..Section::default()
    };
    for machine in machines {
        let Some(profile) = machine.profile else { continue };
        let rows =
            lengths::rows(profile, |operation, length, state| choice(profile, operation, length, state));
        let gains = ways::gains(profile, &rows);
        let of = gains.iter().map(|it| vec![it.operation.to_string(), it.times()]);
        section
            .tables
            .push(Grid { title: machine.titled("Gains"), ..Grid::new("operation|times the C library", of) });
        let ways = ways::ways(&gains).into_iter();
        let ways = ways.map(|(way, write, about)| vec![way.to_owned(), format!("{write}{about}")]);
        section
            .tables
            .push(Grid { title: machine.titled("Ways"), ..Grid::new("program|what to write¶", ways) });
    }
    (!section.tables.is_empty()).then_some(section)
}
