//! The regret of the policy's choice.

use bulkmem_measure::engine::{Measurement, Row};
use bulkmem_measure::measurements::overall;

use super::super::input::Machine;
use super::super::model::{Cells, Grid, Table};
use crate::output::{digits, exact_size};

/// Returns the policy's choice compared with the best library and the best method, for rows of that measurement.
pub(super) fn table(machine: &Machine<'_>, measurement: Measurement, rows: &[&Row]) -> Option<Table> {
    let choices = if measurement == Measurement::Choice { overall(rows) } else { Vec::new() };
    let mut grid = Grid::new([
        ("operation", Cells::Words),
        ("intent", Cells::Words),
        ("size", Cells::Numbers),
        ("threads", Cells::Numbers),
        ("× best peer", Cells::Numbers),
        ("best peer", Cells::Words),
        ("regret, %", Cells::Numbers),
        ("best method", Cells::Words),
    ]);
    for it in choices {
        grid.rows.push(vec![
            it.operation.to_string(),
            it.intent.to_string(),
            exact_size(it.length),
            it.threads.to_string(),
            digits(it.times_best_peer.unwrap_or(f64::NAN)),
            it.best_peer.unwrap_or_default(),
            digits(it.regret.unwrap_or(f64::NAN) * 100.0),
            it.best_method.unwrap_or_default(),
        ]);
    }
    let caption = "Regret is how much longer the policy's choice takes than the best method, as the geometric mean of all \
                   alignments and cache states that were measured. × best peer is the speed compared with the fastest \
                   other library or plain method; above 1 is faster.";
    let title = machine.titled("Regret by size");
    (!grid.rows.is_empty()).then(|| Table { title, caption: caption.to_owned(), grid })
}
