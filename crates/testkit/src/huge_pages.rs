//! Huge pages of 2 MiB that a test reserves, and gives back.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a page.
pub const HUGE_PAGE: u64 = 2 << 20;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const SURPLUS: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages";

/// The number is the machine's, so the tests of one program that change it take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Returns the number of huge pages that were reserved by number. Those that are in use although their reservation ended are left
/// out: the kernel takes them away once they are free, and a number that includes them, written back later, would keep them.
pub fn reserved() -> u64 {
    number(POOL).saturating_sub(number(SURPLUS))
}

fn number(file: &str) -> u64 {
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Huge pages in addition to those of the machine, until dropped.
#[derive(Debug)]
pub struct HugePages {
    added: u64,
    _turn: MutexGuard<'static, ()>,
}

impl HugePages {
    /// Reserves pages. Waits until other tests of this program have given theirs back.
    ///
    /// # Errors
    /// The reason, for a line that says what was skipped.
    pub fn reserve(pages: u64) -> Result<HugePages, String> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, surplus) = (reserved(), number(SURPLUS));
        // The kernel counts those in use first, so they are in the number, too. Dropping takes them out again.
        let added = surplus + pages;
        let write =
            |number: u64| fs::write(POOL, number.to_string()).map_err(|error| format!("{POOL}: {error}"));
        write(before + added)?;
        if reserved() < before + added {
            // Memory is fragmented.
            _ = fs::write("/proc/sys/vm/compact_memory", "1");
            write(before + added)?;
        }
        let found = HugePages { added: reserved().saturating_sub(before), _turn: turn };
        if found.added < added {
            let got = found.added.saturating_sub(surplus);
            return Err(format!("the kernel found {got} of {pages} huge pages"));
        }
        Ok(found)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        fs::write(POOL, reserved().saturating_sub(self.added).to_string()).expect("it was written before");
    }
}
