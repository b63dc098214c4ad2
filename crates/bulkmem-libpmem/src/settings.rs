//! The `PMEM_*` variables, each read once, with PMDK's rules for invalid values. In a program with more rights than its
//! caller (setuid) they are ignored.

use std::sync::OnceLock;

/// The variables that have an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// PMEM_NO_FLUSH: whether flushing is off, whatever sysfs says.
    pub(crate) no_flush: Option<bool>,
    /// PMEM_NO_CLWB.
    pub(crate) no_clwb: bool,
    /// PMEM_NO_CLFLUSHOPT.
    pub(crate) no_clflushopt: bool,
    /// PMEM_NO_MOVNT: no non-temporal stores.
    pub(crate) no_movnt: bool,
    /// PMEM_MOVNT_THRESHOLD: the length from which stores are non-temporal.
    pub(crate) movnt_threshold: Option<usize>,
    /// PMEM_MMAP_HINT: the lowest address for mappings.
    pub(crate) mmap_hint: Option<usize>,
}

/// The settings of this process.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings::read(variable))
}

/// PMEM_IS_PMEM_FORCE: what `pmem_is_pmem` returns. As in PMDK, read at its first call, because programs set it before that.
pub(crate) fn is_pmem_forced() -> Option<bool> {
    static FORCED: OnceLock<Option<bool>> = OnceLock::new();
    *FORCED.get_or_init(|| forced(&variable("PMEM_IS_PMEM_FORCE")?))
}

fn forced(value: &str) -> Option<bool> {
    switch(leading_number(value))
}

/// The value of an environment variable; none in a program with more rights than its caller.
fn variable(name: &str) -> Option<String> {
    // SAFETY: getauxval has no precondition.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    std::env::var_os(name).filter(|_| !secure).map(|value| value.to_string_lossy().into_owned())
}

impl Settings {
    /// Reads them by a function that returns the value of a variable.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Settings {
        let is_one = |name| variable(name).is_some_and(|value| value == "1");
        Settings {
            no_flush: variable("PMEM_NO_FLUSH").and_then(|value| switch(value.parse().ok()?)),
            no_clwb: is_one("PMEM_NO_CLWB"),
            no_clflushopt: is_one("PMEM_NO_CLFLUSHOPT"),
            no_movnt: is_one("PMEM_NO_MOVNT"),
            movnt_threshold: variable("PMEM_MOVNT_THRESHOLD")
                .and_then(|value| usize::try_from(leading_number(&value)).ok()),
            mmap_hint: variable("PMEM_MMAP_HINT").and_then(|value| leading_hexadecimal(&value)),
        }
    }
}

/// 0 and 1; everything else counts as not set.
fn switch(value: i64) -> Option<bool> {
    match value {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// The number at the start, as `atoll` reads it: 0 if there is none.
fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.bytes().take_while(u8::is_ascii_digit).count();
    let number = digits[..end].parse().unwrap_or(if end == 0 { 0 } else { i64::MAX });
    if negative { -number } else { number }
}

/// The hexadecimal number at the start, with or without 0x.
fn leading_hexadecimal(text: &str) -> Option<usize> {
    let text = text.trim_start();
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let end = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
    usize::from_str_radix(&digits[..end], 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Settings {
        Settings::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn values_are_read_as_pmdk_reads_them() {
        let none = Settings::default();
        for (value, is_pmem) in
            [("0", Some(false)), ("1", Some(true)), ("2", None), ("no", Some(false)), (" 1x", Some(true))]
        {
            assert_eq!(forced(value), is_pmem, "{value}");
        }
        for (value, no_flush) in
            [("0", Some(false)), ("1", Some(true)), ("2", None), ("yes", None), ("", None)]
        {
            assert_eq!(with("PMEM_NO_FLUSH", value), Settings { no_flush, ..none }, "{value}");
        }
        for (value, movnt_threshold) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("-1", None),
            ("x", Some(0)),
            ("99999999999999999999", Some(i64::MAX as usize)),
        ] {
            assert_eq!(with("PMEM_MOVNT_THRESHOLD", value), Settings { movnt_threshold, ..none }, "{value}");
        }
        for (value, mmap_hint) in
            [("0x7f00000000", Some(0x7f_0000_0000)), ("10000", Some(0x10000)), ("zero", None), ("", None)]
        {
            assert_eq!(with("PMEM_MMAP_HINT", value), Settings { mmap_hint, ..none }, "{value}");
        }
        for (value, set) in [("1", true), ("0", false), ("yes", false)] {
            assert_eq!(with("PMEM_NO_CLWB", value).no_clwb, set);
            assert_eq!(with("PMEM_NO_CLFLUSHOPT", value).no_clflushopt, set);
            assert_eq!(with("PMEM_NO_MOVNT", value).no_movnt, set);
        }
        assert_eq!(with("PMEM_UNKNOWN", "1"), none);
    }
}
