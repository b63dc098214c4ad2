//! The ways to use bulkmem, and what they gain on each machine.

use super::super::answers::choice;
use super::super::input::Machine;
use super::super::model::{Grid, Section};
use crate::commands::{lengths, ways};

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let mut section = Section {
        id: "ways",
        title: "Ways to use it",
        intro: &[
            "Programs that remain unchanged use the policy only from some length on, and below a quarter of the last-level cache its methods for bytes that are read next. Gains are times the speed of the C \
                  library and of libpmem, geometric means of 64 KiB, 1 MiB, 16 MiB and 1 GiB as calibration measured them, without the time \
                  of looks; for programs that remain unchanged, of the lengths from which they use the policy, the shorter ones with the time of reading the bytes.",
        ],
        ..Section::default()
    };
    for machine in machines {
        let Some(profile) = machine.profile else { continue };
        let rows =
            lengths::rows(profile, |operation, length, state| choice(profile, operation, length, state));
        let gains = ways::gains(profile, &rows);
        let of = gains.iter().map(|it| {
            let libpmem = it.over_libpmem().unwrap_or_else(|| "–".to_owned());
            vec![it.operation.to_string(), it.over_c_library(), libpmem]
        });
        let titles = "operation|times the C library|times libpmem";
        section.tables.push(Grid { title: machine.titled("Gains"), ..Grid::new(titles, of) });
        let ways = ways::ways(&gains, &ways::drop_in(profile)).into_iter();
        let ways = ways.map(|(way, write, about)| vec![way.to_owned(), format!("{write}{about}")]);
        section
            .tables
            .push(Grid { title: machine.titled("Ways"), ..Grid::new("program|what to write¶", ways) });
    }
    (!section.tables.is_empty()).then_some(section)
}
