//! Bars of block characters.

const PARTS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Returns a bar for a share of 1, which is `columns` long; at least an eighth of a column unless the share is 0.
pub(super) fn bar(share: f64, columns: usize) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * columns as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let rest = (eighths % 8).checked_sub(1).map(|part| PARTS[part]);
    "█".repeat(eighths / 8).chars().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_the_length_of_their_share() {
        assert_eq!(bar(1.0, 10), "██████████");
        assert_eq!(bar(0.5, 10), "█████");
        assert_eq!(bar(0.55, 10), "█████▌");
        assert_eq!(bar(1e-9, 10), "▏");
        for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(bar(nothing, 10), "", "{nothing}");
        }
        assert_eq!(bar(7.0, 4), "████");
    }
}
