//! Sizes, times and other numbers as text for people.

use std::time::Duration;

use humansize::{BINARY, format_size};

/// Formats a size in binary units with at most one decimal: `256 MiB`, `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    format_size(bytes, BINARY.decimal_places(1).decimal_zeroes(0))
}

/// Formats a size like [`bytes()`] if that loses nothing, otherwise in bytes: `4 KiB`, `4097 B`.
pub fn exact_bytes(size: u64) -> String {
    let unit = size.checked_ilog2().map_or(1, |log| 1 << (log / 10 * 10));
    if u128::from(size) * 10 % unit == 0 { bytes(size) } else { format!("{size} B") }
}

/// Formats a time to three digits in the unit that fits: `850 ns`, `1.25 µs`, `-3.20 ms`.
pub fn nanoseconds(ns: f64) -> String {
    let units = [("s", 1e9), ("ms", 1e6), ("µs", 1e3)];
    match units.into_iter().find(|(_, size)| ns.abs() >= *size) {
        Some((unit, size)) => format!("{} {unit}", digits(ns / size)),
        None => format!("{ns:.0} ns"),
    }
}

/// Formats a time in whole seconds, or in tenths of seconds below ten of them: `1.5 s`, `1m 15s`.
pub fn duration(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        return format!("{:.1} s", time.as_secs_f64());
    }
    humantime::format_duration(Duration::from_secs(time.as_secs_f64().round() as u64)).to_string()
}

/// Formats a rate in GB/s (10⁹ bytes per second) to three digits, without the unit.
pub fn rate(bytes: u64, ns: f64) -> String {
    digits(bytes as f64 / ns)
}

/// Formats a count to three digits: `999`, `95.9k`, `3.62M`.
pub fn count(count: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(unit, _)| count >= *unit * 0.9995) {
        Some((unit, letter)) => format!("{}{letter}", digits(count / unit)),
        None => format!("{count:.0}"),
    }
}

/// Formats a number to three digits: `0.0456`, `0.25`, `12.3`, `1234`; `–` if it is not finite.
pub fn digits(number: f64) -> String {
    match number.abs() {
        size if !size.is_finite() => "–".to_owned(),
        99.95.. => format!("{number:.0}"),
        9.995.. => format!("{number:.1}"),
        0.0995.. | 0.0 => format!("{number:.2}"),
        size => format!("{number:.*}", (2.0 - size.log10().floor()).min(9.0) as usize),
    }
}

/// Formats the range of some ratios: `0.58 to 0.61`, or `0.58` if both ends look alike; `None` if there are none.
pub(crate) fn range(ratios: impl Iterator<Item = f64>) -> Option<String> {
    let (least, most) = ratios.map(|it| (it, it)).reduce(|all, it| (all.0.min(it.0), all.1.max(it.1)))?;
    Some(match (format!("{least:.2}"), format!("{most:.2}")) {
        (least, most) if least == most => least,
        (least, most) => format!("{least} to {most}"),
    })
}

/// Formats a number like [`digits`], with its sign.
pub fn signed(number: f64) -> String {
    let sign = if number >= 0.0 { "+" } else { "" };
    format!("{sign}{}", digits(number))
}

/// Formats a number of things: `1 thread`, `8 threads`.
pub fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_read_back() {
        assert_eq!((bytes(4096), bytes(3 << 29)), ("4 KiB".into(), "1.5 GiB".into()));
        for (size, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (4096, "4 KiB"),
            (4097, "4097 B"),
            (1126, "1126 B"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "18446744073709551615 B"),
        ] {
            assert_eq!(exact_bytes(size), text);
        }
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (-12.4, "-12 ns"),
            (850.0, "850 ns"),
            (1250.0, "1.25 µs"),
            (-3.2e6, "-3.20 ms"),
            (45.67e9, "45.7 s"),
            (456.7e6, "457 ms"),
        ] {
            assert_eq!(nanoseconds(ns), text);
        }
        assert_eq!(duration(Duration::from_millis(1500)), "1.5 s");
        assert_eq!(duration(Duration::from_secs(75)), "1m 15s");
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(
            (rate(1 << 30, 1e9), rate(9_999, 1e3), rate(1, 0.0)),
            ("1.07".into(), "10.0".into(), "–".into())
        );
        assert_eq!((signed(0.5), signed(-123.4)), ("+0.50".into(), "-123".into()));
        for (number, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (999_960.0, "1.00M"),
            (2.5e11, "250G"),
        ] {
            assert_eq!(count(number), text);
        }
    }
}
