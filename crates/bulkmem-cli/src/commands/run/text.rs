//! A histogram as text: the sum, the processes, and a table for each operation.

use std::cmp::Reverse;

use bulkmem_measure::engine::units::nanoseconds;

use super::histogram::{Histogram, Length, Methods, Process, Saving, Tally};
use crate::output::{Column, Table, TableOf, count, faint, section, size, wrapped};
use crate::plain::plain;

/// The most processes that the text lists.
const MOST: usize = 20;

impl Histogram {
    pub(super) fn text(&self, width: usize) -> String {
        let mut text = format!("{}\n\n", wrapped(&self.summary(), "", width));
        if self.processes.len() > 1 {
            text += &section("Processes", &self.table_of_processes(width), width);
        }
        for lengths in self.lengths.chunk_by(|a, b| a.operation == b.operation) {
            text +=
                &section(&format!("{} calls by length", lengths[0].operation), &table(lengths, width), width);
        }
        for note in self.notes() {
            text += &faint(&note, width);
        }
        text
    }

    /// Returns the sum in sentences.
    fn summary(&self) -> String {
        let Tally { all, above_threshold, cached, uncached } = self.total;
        let mut text = format!(
            "{} copied, cleared and filled {} in {} call{}.",
            number(self.processes.len()),
            size(all.bytes),
            count(all.calls as f64),
            if all.calls == 1 { "" } else { "s" },
        );
        if all.calls == 0 {
            return text;
        }
        text += &if self.aliased.calls == 0 && self.thresholds.values().all(Option::is_none) {
            " The C library executed all of them: no policy chooses another method.".to_owned()
        } else {
            format!(
                " {} of the bytes, in {} call{}, are above the threshold, from which on the policy chooses the method ({}).",
                percent(above_threshold.bytes, all.bytes),
                count(above_threshold.calls as f64),
                if above_threshold.calls == 1 { "" } else { "s" },
                self.thresholds(),
            )
        };
        if self.aliased.calls > 0 {
            text += &format!(
                " The policy executed {} cop{} of {} below it, which page aliasing makes many times slower in the C library.",
                count(self.aliased.calls as f64),
                if self.aliased.calls == 1 { "y" } else { "ies" },
                size(self.aliased.bytes),
            );
        }
        if cached.is_some() || uncached.is_some() {
            text += &format!(
                " Predicted saving compared with the C library: between {} (all memory cached) and {} (none cached).",
                self.prediction(cached),
                self.prediction(uncached),
            );
        } else if self.profile.is_none() {
            text += " To predict a saving, run `bulkmem calibrate` first.";
        } else if above_threshold.calls > 0 {
            text += " No saving can be predicted: the profile has no measurements near these lengths.";
        }
        text
    }

    /// Returns the threshold of each operation.
    fn thresholds(&self) -> String {
        let of = |(operation, from): (&&str, &Option<u64>)| {
            from.map(|from| format!("{operation} from {}", size(from)))
                .unwrap_or(format!("{operation} never"))
        };
        self.thresholds.iter().map(of).collect::<Vec<_>>().join(", ")
    }

    /// Returns a predicted saving or loss, with the share of the bytes that it is predicted for.
    fn prediction(&self, saving: Option<Saving>) -> String {
        let Some(Saving { ns, bytes }) = saving else { return "an unknown time".to_owned() };
        let loss = if ns < 0.0 { "a loss of " } else { "" };
        let of = self.total.above_threshold.bytes;
        let share =
            if bytes < of { format!(" for {} of these bytes", percent(bytes, of)) } else { String::new() };
        format!("{loss}{}{share}", nanoseconds(ns.abs()))
    }

    fn table_of_processes(&self, width: usize) -> String {
        let mut processes: Vec<&Process> = self.processes.iter().collect();
        processes.sort_by_key(|process| Reverse(process.total.all.bytes));
        let others = processes.len().saturating_sub(MOST);
        processes.truncate(MOST);
        let table = Table::of(processes)
            .column(Column::right("pid"), |it| it.pid.to_string())
            .column(Column::left("program"), |it| {
                format!("{}{}", plain(&it.name), if it.with_children { " with children" } else { "" })
            });
        let table = tallies(table, |it| &it.total).render(width);
        let others =
            (others > 0).then(|| faint(&format!("and {} with fewer bytes (--json)", number(others)), width));
        table + &others.unwrap_or_default()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "above: share of the bytes above the threshold. saves: predicted for one thread on aligned memory, without the time \
             of looks and without what the preloaded library adds to each call; negative: a loss. Below a line, the policy's \
             method for the mean length above the threshold. –: not measured."
                .to_owned(),
        ];
        if !self.program_recorded {
            notes.push(
                "The program itself left no record: it is statically linked, uses another C library than glibc, has more \
                 rights than its caller (set-user-ID), or cannot open the command's file under /proc."
                    .to_owned(),
            );
        }
        if self.without_record > 0 {
            notes.push(format!(
                "There was no record for {} started last. Forked ones are counted with their parents, others are not counted.",
                number(self.without_record as usize),
            ));
        }
        notes
    }
}

/// Returns the table of one operation.
fn table(lengths: &[Length], width: usize) -> String {
    let table = Table::of(lengths).column(Column::right("from"), |it| size(it.from));
    tallies(table, |it| &it.tally).remarks(|it| method(it)).render(width)
}

/// Adds the columns that all tables have.
fn tallies<T>(table: TableOf<T>, tally: impl Fn(&T) -> &Tally + Copy) -> TableOf<T> {
    table
        .column(Column::right("calls"), |it| count(tally(it).all.calls as f64))
        .column(Column::right("bytes"), |it| size(tally(it).all.bytes))
        .column(Column::right("above"), |it| percent(tally(it).above_threshold.bytes, tally(it).all.bytes))
        .column(Column::right("saves cached").optional(1), |it| time(tally(it).cached))
        .column(Column::right("uncached").optional(0), |it| time(tally(it).uncached))
}

/// Returns the policy's method above the threshold, one for each cache state if they differ.
fn method(length: &Length) -> String {
    match &length.methods {
        None => String::new(),
        Some(Methods { cached, uncached }) if cached == uncached => cached.clone(),
        Some(Methods { cached, uncached }) => format!("{cached} cached, {uncached} uncached"),
    }
}

fn number(count: usize) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_owned() } else { format!("{:.0} %", part as f64 / whole as f64 * 100.0) }
}

/// Returns a saving; a loss is negative.
fn time(saving: Option<Saving>) -> String {
    saving.map_or("–".to_owned(), |saving| nanoseconds(saving.ns))
}
