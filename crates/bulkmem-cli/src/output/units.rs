//! Numbers as people read them.

use std::time::Duration;

use humansize::{BINARY, format_size};

/// A size in binary units, to one decimal: `256 MiB`, `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    format_size(bytes, BINARY.decimal_places(1).decimal_zeroes(0))
}

/// A size in binary units where that says it exactly, else in bytes.
pub(crate) fn exact_size(bytes: u64) -> String {
    let text = size(bytes);
    if crate::sizes::size(&text) == Ok(bytes) || bytes == 0 { text } else { format!("{bytes} B") }
}

/// A rate in GB/s (10⁹ bytes a second), to three digits; `–` where there is none.
pub(crate) fn rate(bytes: u64, nanoseconds: f64) -> String {
    // Bytes a nanosecond are GB a second.
    let rate = bytes as f64 / nanoseconds;
    match rate {
        rate if !rate.is_finite() || rate < 0.0 => "–".to_owned(),
        rate if rate >= 99.95 => format!("{rate:.0}"),
        rate if rate >= 9.995 => format!("{rate:.1}"),
        rate => format!("{rate:.2}"),
    }
}

/// How many times as fast: `1.62`; `–` where there is nothing to compare with.
pub(crate) fn ratio(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "–".to_owned() }
}

/// A time to whole seconds, or to milliseconds below ten of them.
pub(crate) fn duration(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        return format!("{:.1} s", time.as_secs_f64());
    }
    humantime::format_duration(Duration::from_secs(time.as_secs_f64().round() as u64)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back() {
        assert_eq!(size(256 << 20), "256 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(exact_size(4097), "4097 B");
        assert_eq!(exact_size(4096), "4 KiB");
        assert_eq!(exact_size(0), "0 B");
    }

    #[test]
    fn rates_keep_three_digits() {
        assert_eq!(rate(1 << 30, 1e9), "1.07");
        assert_eq!(rate(100, 10.0), "10.0");
        assert_eq!(rate(1000, 1.0), "1000");
        assert_eq!(rate(9_999, 1_000.0), "10.0");
        assert_eq!(rate(1, 0.0), "–");
    }

    #[test]
    fn times_read_well() {
        assert_eq!(duration(Duration::from_millis(1500)), "1.5 s");
        assert_eq!(duration(Duration::from_secs(75)), "1m 15s");
    }
}
