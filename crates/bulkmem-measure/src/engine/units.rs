//! Figures in sentences.

use humansize::{BINARY, format_size};

/// A size in binary units, to one decimal: `256 MiB`, `1.5 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    format_size(bytes, BINARY.decimal_places(1).decimal_zeroes(0))
}

/// A time to three digits, with the unit that suits it: `850 ns`, `1.25 µs`, `-3.20 ms`.
pub(crate) fn nanoseconds(ns: f64) -> String {
    let units = [("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)];
    let (unit, size) = units.into_iter().find(|(_, size)| ns.abs() >= *size).unwrap_or(("ns", 1.0));
    let number = ns / size;
    match number.abs() {
        _ if unit == "ns" => format!("{number:.0} ns"),
        100.0.. => format!("{number:.0} {unit}"),
        10.0.. => format!("{number:.1} {unit}"),
        _ => format!("{number:.2} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_unit_that_suits_them() {
        assert_eq!((bytes(4096), bytes(3 << 29)), ("4 KiB".into(), "1.5 GiB".into()));
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
    }
}
