//! What survives a power failure.

use std::env;
use std::ffi::OsStr;
use std::sync::OnceLock;

const VARIABLE: &str = "BULKMEM_EADR";

/// What survives a power failure, and so what persist and flush must do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Memory survives, caches do not: every line is written back, and a fence waits for it.
    #[default]
    FlushToMemory,
    /// Caches survive as well (eADR and the like): persist is a copy and a fence, flush is a fence. On a machine where
    /// that is not so, a power failure loses data.
    CachesIncluded,
}

impl Durability {
    /// What this process was told: [`Durability::CachesIncluded`] where `BULKMEM_EADR` is `1`, else
    /// [`Durability::FlushToMemory`]. Read once; a value that is neither `1` nor `0` is complained of on standard error
    /// and taken for `0`.
    #[inline]
    pub fn current() -> Durability {
        static CURRENT: OnceLock<Durability> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let given = env::var_os(VARIABLE).unwrap_or_default();
            parse(&given).unwrap_or_else(|| {
                eprintln!("bulkmem: {VARIABLE} is {given:?}; write 1 or 0; going on with 0");
                Durability::FlushToMemory
            })
        })
    }
}

fn parse(given: &OsStr) -> Option<Durability> {
    match given.to_str()? {
        "" | "0" => Some(Durability::FlushToMemory),
        "1" => Some(Durability::CachesIncluded),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_1_spares_the_flush() {
        assert_eq!(parse(OsStr::new("1")), Some(Durability::CachesIncluded));
        for off in ["", "0"] {
            assert_eq!(parse(OsStr::new(off)), Some(Durability::FlushToMemory));
        }
        for nonsense in ["yes", "01", " 1", "true", "-1"] {
            assert_eq!(parse(OsStr::new(nonsense)), None, "{nonsense}");
        }
    }
}
