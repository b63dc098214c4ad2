//! Parsers of option values.

use std::time::Duration;

use bulkmem::{Intent, Operation};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use parse_size::Config;

/// Parses one size. Units are binary, with or without `iB`: `4K`, `4KB` and `4KiB` are 4096 bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let bad = |why: &str| format!("`{text}` is not a size: {why}; write 4096, 4K, 256M or 1.5G");
    // No address space holds more, and every computation on lengths stays in range below it.
    const MOST: u64 = 1 << 47;
    if text.starts_with('-') {
        return Err(bad("it is negative"));
    }
    // Without a unit it counts bytes.
    let bytes = text.trim().trim_end_matches(['b', 'B']).trim_end().parse::<f64>();
    if bytes.is_ok_and(|bytes| bytes.fract() != 0.0) {
        return Err(bad("it is not a whole number of bytes"));
    }
    match Config::new().with_binary().parse_size(text) {
        Ok(0) => Err(bad("it must be at least 1 byte")),
        Ok(size) if size <= MOST => Ok(size),
        Ok(_) | Err(parse_size::Error::PosOverflow) => Err(bad("it is more than 128T")),
        Err(parse_size::Error::Empty) => Err(bad("it contains no number")),
        Err(_) => Err(bad("it is not a number with a unit of K, M, G or T")),
    }
}

/// Parses a length of time.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| format!("`{text}` is not a time; write 500ms, 10s or 2m"))
}

/// Parses one size, or a range: `4K-1M` is 4K and its doubles up to 1M.
pub(crate) fn sizes(text: &str) -> Result<Vec<u64>, String> {
    let Some((from, to)) = text.split_once('-') else {
        return Ok(vec![size(text)?]);
    };
    if from.is_empty() || to.is_empty() {
        let why = if from.is_empty() { "a size is never negative" } else { "the range has no end" };
        return Err(format!("`{text}` is not a size: {why}; write 4096, 4K, 256M, 1.5G or 4K-1M"));
    }
    let (from, to) = (size(from)?, size(to)?);
    if from > to {
        return Err(format!("`{text}` is an empty range: its first size is the larger one"));
    }
    Ok(std::iter::successors(Some(from), |at| at.checked_mul(2)).take_while(|at| *at <= to).collect())
}

/// Parses the name of an operation; `copy-persist` means `copy_persist`.
pub(crate) fn operation() -> impl TypedValueParser<Value = Operation> {
    let names = Operation::ALL.map(|it| PossibleValue::new(it.name()).alias(it.name().replace('_', "-")));
    PossibleValuesParser::new(names).try_map(|name| name.replace('-', "_").parse::<Operation>())
}

pub(crate) fn intent() -> impl TypedValueParser<Value = Intent> {
    PossibleValuesParser::new(Intent::ALL.map(Intent::name)).try_map(|name| name.parse::<Intent>())
}

/// A number of threads that share the work; `None` for as many as saturate memory.
pub(crate) type Threads = Option<usize>;

pub(crate) fn threads_or_auto(text: &str) -> Result<Threads, &'static str> {
    match text {
        "auto" => Ok(None),
        _ => threads(text).map(Some).map_err(|_| "write a number of at least 1, or `auto`"),
    }
}

pub(crate) fn threads(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|threads| *threads > 0).ok_or("write a number of at least 1")
}

/// Parses one of several names, each given with its help and value.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    values: &'static [(&str, &str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = values.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).map(|given| {
        let value = values.iter().find(|(name, ..)| *name == given);
        value.expect("it is one of the possible values").2
    })
}

/// Parses a list of names with parameters in brackets: `movnti,write_prefetch_avx512[write_distance=4096,streams=2]`.
pub(crate) fn names(text: &str) -> Result<Vec<String>, String> {
    let brackets: Vec<&str> = text.matches(['[', ']']).collect();
    let wrong = brackets.iter().enumerate().find_map(|(at, bracket)| match (at % 2, *bracket) {
        (0, "]") => Some("a bracket is closed that was not opened"),
        (1, "[") => Some("there is a bracket within brackets"),
        _ => None,
    });
    let mut inside = false;
    let ends = |letter: char| {
        inside = if inside { letter != ']' } else { letter == '[' };
        letter == ',' && !inside
    };
    let list: Vec<String> = text.split(ends).map(|name| name.trim().to_owned()).collect();
    let unclosed = (brackets.len() % 2 == 1).then_some("a bracket is not closed");
    let missing = list.iter().any(|name| name.is_empty() || name.starts_with('['));
    match wrong.or(unclosed).or(missing.then_some("a name is missing")) {
        None => Ok(list),
        Some(why) => Err(format!(
            "`{text}` is not a list of names: {why}; write name,name[tunable=value,tunable=value]"
        )),
    }
}

/// Returns the values given for an option, or `default` if there are none.
pub(crate) fn given_or<T>(given: Vec<T>, default: Vec<T>) -> Vec<T> {
    if given.is_empty() { default } else { given }
}

/// Parses a byte: decimal, or hexadecimal after `0x`.
pub(crate) fn byte(text: &str) -> Result<u8, String> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((text, 10), |digits| (digits, 16));
    // `from_str_radix` accepts a sign.
    let value = if digits.starts_with('+') { None } else { u8::from_str_radix(digits, radix).ok() };
    value.ok_or_else(|| format!("`{text}` is not a byte: write 0 to 255, or 0x00 to 0xff"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary() {
        for text in ["4096", "4K", "4KB", "4KiB", "4 k", "0.00390625M"] {
            assert_eq!(size(text), Ok(4096), "{text}");
        }
        assert_eq!(
            (size("1.5G"), size("1.5K"), size("2.0"), size("1.5e3")),
            (Ok(3 << 29), Ok(1536), Ok(2), Ok(1500))
        );
        assert_eq!(size("128T"), Ok(1 << 47));
    }

    #[test]
    fn nonsense_is_refused_with_the_text_and_an_example() {
        for text in [
            "",
            "K",
            "0",
            "0K",
            "4X",
            "-4",
            "1.5",
            "1.5B",
            "0.5 b",
            "1.5e0",
            "4KK",
            "129T",
            "99999999999999999999",
            "1e40",
            "∞",
        ] {
            let error = size(text).expect_err(text).to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("256M"), "{error}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("1m 30s"), Ok(Duration::from_secs(90)));
        for text in ["", "x", "10", "-1s", "1y2", "99999999999999999999y"] {
            let error = time(text).expect_err(text);
            assert_eq!(error, format!("`{text}` is not a time; write 500ms, 10s or 2m"));
        }
    }

    #[test]
    fn a_range_doubles() {
        assert_eq!(sizes("4K"), Ok(vec![4096]));
        assert_eq!(sizes("4K-16K"), Ok(vec![4096, 8192, 16384]));
        assert_eq!(sizes("3-13"), Ok(vec![3, 6, 12]));
        assert_eq!(sizes("1M-1M"), Ok(vec![1 << 20]));
        assert!(sizes("1M-4K").unwrap_err().to_string().contains("empty range"));
        for text in ["4K-", "-4K", "-", "--4K", "1K-2K-3K"] {
            let error = sizes(text).expect_err(text).to_string();
            assert!(!error.contains("``"), "{error}");
        }
        assert!(
            sizes("-1")
                .unwrap_err()
                .to_string()
                .starts_with("`-1` is not a size: a size is never negative; write")
        );
        assert!(sizes("1K-").unwrap_err().to_string().contains("has no end"));
    }

    #[test]
    fn bytes_are_decimal_or_hexadecimal() {
        for (text, value) in [("0", 0), ("255", 255), ("0x0", 0), ("0xff", 255), ("0XA5", 0xa5), ("007", 7)] {
            assert_eq!(byte(text), Ok(value), "{text}");
        }
        for text in ["", "256", "-1", "+1", "0x", "0x100", "ff", "0x+1", "1.0", "0xg"] {
            assert!(byte(text).expect_err(text).to_string().contains("0 to 255, or 0x00 to 0xff"), "{text}");
        }
    }

    #[test]
    fn commas_in_brackets_do_not_split() {
        for (text, list) in [
            ("movnti", &["movnti"][..]),
            ("movnti,clzero", &["movnti", "clzero"]),
            (" movnti , clzero ", &["movnti", "clzero"]),
            ("a[x=1,y=2],b,c[z=3]", &["a[x=1,y=2]", "b", "c[z=3]"]),
            ("a[]", &["a[]"]),
        ] {
            assert_eq!(names(text).unwrap(), list, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "a name is missing"),
            ("a,,b", "a name is missing"),
            ("a,", "a name is missing"),
            ("[x=1]", "a name is missing"),
            ("a[x=1", "not closed"),
            ("ax=1]", "not opened"),
            ("a[x[y]]", "within brackets"),
        ] {
            let error = names(text).expect_err(text);
            assert!(error.contains(why) && error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
