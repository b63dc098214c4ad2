//! Sizes as people write them: `4096`, `4K`, `1.5GiB`, and ranges of them.

use parse_size::Config;

/// Why a text is no size, or no other number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadSize(String);

impl BadSize {
    pub(crate) fn new(why: impl Into<String>) -> BadSize {
        BadSize(why.into())
    }
}

impl std::fmt::Display for BadSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for BadSize {}

/// Reads one size. Units are binary, with or without `iB`: `4K`, `4KB` and `4KiB` are 4096 bytes.
pub(crate) fn size(text: &str) -> Result<u64, BadSize> {
    let bad = |why: &str| BadSize(format!("`{text}` is no size: {why}; write 4096, 4K, 256M or 1.5G"));
    // An address space holds no more than this, and every computation on lengths stays in range below it.
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
        Ok(size) if size > MOST => Err(bad("it is more than 128T")),
        Ok(size) => Ok(size),
        Err(parse_size::Error::PosOverflow) => Err(bad("it is more than 128T")),
        Err(parse_size::Error::Empty) => Err(bad("there is no number in it")),
        Err(_) => Err(bad("it is not a number with a unit of K, M, G or T")),
    }
}

/// Reads one size, or a range: `4K-1M` is 4K and its doubles up to 1M.
pub(crate) fn sizes(text: &str) -> Result<Vec<u64>, BadSize> {
    let Some((from, to)) = text.split_once('-') else {
        return Ok(vec![size(text)?]);
    };
    if from.is_empty() || to.is_empty() {
        let why = if from.is_empty() { "no size is negative" } else { "the range has no end" };
        return Err(BadSize(format!("`{text}` is no size: {why}; write 4096, 4K, 256M, 1.5G or 4K-1M")));
    }
    let (from, to) = (size(from)?, size(to)?);
    if from > to {
        return Err(BadSize(format!("`{text}` is an empty range: its first size is the larger one")));
    }
    Ok(std::iter::successors(Some(from), |at| at.checked_mul(2)).take_while(|at| *at <= to).collect())
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
            sizes("-1").unwrap_err().to_string().starts_with("`-1` is no size: no size is negative; write")
        );
        assert!(sizes("1K-").unwrap_err().to_string().contains("has no end"));
    }
}
