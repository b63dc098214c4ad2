//! Differences from a control, as tables show them.

use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Contrast, Row, control_of};

use super::rows::name;
use crate::output::{FAINT, marked, styled};

/// Text for a difference that may be noise.
pub(super) const INDISTINCT: &str = "not distinguishable here";

/// The rows of a group, compared with the control of a name.
#[derive(Debug)]
pub(super) struct Beyond<'r> {
    rows: Vec<&'r Row>,
    control: &'static str,
}

impl<'r> Beyond<'r> {
    pub(super) fn new(rows: Vec<&'r Row>, control: &'static str) -> Beyond<'r> {
        Beyond { rows, control }
    }

    fn contrast(&self, row: &Row) -> Option<Contrast> {
        let control = control_of(&self.rows, row, self.control)?;
        Contrast::of(row, control)
    }

    /// Returns the difference of a row and its interval, as `number` formats them, with a mark if no competing row is
    /// nearer to the control, within the noise.
    pub(super) fn cell(&self, row: &Row, number: impl Fn(f64) -> String) -> String {
        if row.candidate.kind == Kind::Control && row.candidate.name == self.control {
            return styled(FAINT, "the control ");
        }
        let Some(contrast) = self.contrast(row) else { return "– ".to_owned() };
        let [low, high] = contrast.interval;
        if !contrast.enough() {
            return "too few runs to tell ".to_owned();
        }
        let text = if contrast.distinguishable() {
            format!("{} ({} to {})", number(contrast.by), number(low), number(high))
        } else {
            INDISTINCT.to_owned()
        };
        marked(&text, self.best(row, &contrast))
    }

    /// Returns true if no competing row is nearer to the control; rows that are not distinguishable from it are equal.
    fn best(&self, row: &Row, contrast: &Contrast) -> bool {
        let rivals = || self.rows.iter().filter(|row| row.candidate.kind != Kind::Control);
        let rank = |contrast: &Contrast| if contrast.distinguishable() { contrast.by.max(0.0) } else { 0.0 };
        let least =
            rivals().filter_map(|row| self.contrast(row)).map(|it| rank(&it)).fold(f64::INFINITY, f64::min);
        row.candidate.kind != Kind::Control && rank(contrast) <= least
    }
}

/// Returns the name of a row's candidate, without parameters if no other row has the same name.
pub(super) fn short_name(row: &Row, among: &[&Row]) -> String {
    let alike = among.iter().filter(|other| other.candidate.name == row.candidate.name).count();
    if alike == 1 && matches!(row.candidate.kind, Kind::Method | Kind::Peer) {
        return row.candidate.name.clone();
    }
    name(row)
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::measurements::SAME_TIME;

    use super::*;
    use crate::output::signed;

    fn row(kind: Kind, name: &str, growth: f64) -> Row {
        let samples: Vec<f64> = [-2.0, -1.0, 0.0, 1.0, 2.0].iter().map(|noise| growth + noise).collect();
        serde_json::from_value(serde_json::json!({
            "measurement": "pollution",
            "candidate": { "kind": kind, "name": name },
            "config": {},
            "metric": "growth",
            "samples": samples,
            "stats": bulkmem_measure::stats::Stats::of(&samples),
        }))
        .expect("a row")
    }

    #[test]
    fn those_who_cannot_be_told_from_the_control_are_the_best() {
        let rows = [
            row(Kind::Method, "quiet", 0.5),
            row(Kind::Method, "quieter", -0.5),
            row(Kind::Method, "loud", 300.0),
            row(Kind::Control, SAME_TIME, 0.0),
            row(Kind::Control, "other", -9.0),
        ];
        let beyond = Beyond::new(rows.iter().collect(), SAME_TIME);
        let cell = |at: usize| anstream::adapter::strip_str(&beyond.cell(&rows[at], signed)).to_string();
        assert_eq!((cell(0), cell(1)), (format!("{INDISTINCT}*"), format!("{INDISTINCT}*")));
        assert!(cell(2).starts_with("+300 (+29") && cell(2).ends_with(") "), "{}", cell(2));
        assert_eq!(cell(3), "the control ");
        assert!(cell(4).starts_with("-9.00 (") && cell(4).ends_with(") "), "{}", cell(4));
        let loud = Beyond::new(vec![&rows[2], &rows[3]], SAME_TIME);
        assert!(loud.cell(&rows[2], signed).contains(")*"), "the least of the loud");
        let helpful = row(Kind::Method, "helpful", -300.0);
        let helped = Beyond::new(vec![&rows[0], &rows[3], &helpful], SAME_TIME);
        assert!(helped.cell(&rows[0], signed).contains('*') && helped.cell(&helpful, signed).contains('*'));
        let alone = Beyond::new(vec![&rows[2]], SAME_TIME);
        assert_eq!(alone.cell(&rows[2], signed), "– ");
    }

    #[test]
    fn names_are_as_short_as_they_can_be() {
        let mut rows =
            [row(Kind::Method, "a", 1.0), row(Kind::Method, "b", 1.0), row(Kind::Control, "c", 1.0)];
        for row in &mut rows {
            row.candidate.parameters.set("write_distance", 64);
        }
        let short = |at: usize, among: &[&Row]| short_name(&rows[at], among);
        let all: Vec<&Row> = rows.iter().collect();
        assert_eq!((short(0, &all), short(2, &all)), ("a".into(), "(c)".into()));
        assert_eq!(short(0, &[&rows[0], &rows[0]]), "a[write_distance=64]");
    }
}
