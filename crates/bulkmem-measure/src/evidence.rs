//! What goes with every result: the machine, the memory, the commit, the date.

use std::time::SystemTime;

use bulkmem::machine::Machine;
use bulkmem::policy::{Mode, Provenance};

use crate::report::Evidence;

impl Evidence {
    /// The evidence of a run on this machine that ends now.
    pub(crate) fn collect(backing_page_size: usize, seconds: f64, samples: u64) -> Evidence {
        let machine = Machine::current();
        Evidence {
            cpu: machine.cpu.clone(),
            microcode: machine.microcode.clone(),
            caches: [machine.caches.l1d, machine.caches.l2, machine.caches.l3],
            processors: machine.processors,
            kernel: machine.kernel.clone(),
            page_size: machine.page_size,
            backing_page_size,
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            bulkmem: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("BULKMEM_COMMIT").unwrap_or("unknown").to_owned(),
            seconds,
            samples,
        }
    }

    /// The same, as a profile has it.
    pub(crate) fn provenance(self, mode: Mode, complete: bool) -> Provenance {
        Provenance {
            cpu: self.cpu,
            microcode: self.microcode,
            caches: self.caches,
            processors: self.processors,
            kernel: self.kernel,
            page_size: self.page_size,
            backing_page_size: self.backing_page_size,
            date: self.date,
            bulkmem: self.bulkmem,
            commit: self.commit,
            mode,
            seconds: self.seconds,
            samples: self.samples,
            complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_machine_the_moment_and_the_commit() {
        let evidence = Evidence::collect(4096, 1.5, 10);
        assert!(!evidence.cpu.vendor.is_empty() && !evidence.kernel.is_empty());
        assert!(humantime::parse_rfc3339(&evidence.date).is_ok(), "{}", evidence.date);
        assert!(!evidence.commit.is_empty());
        let provenance = evidence.provenance(Mode::Quick, false);
        assert_eq!((provenance.samples, provenance.complete, provenance.mode), (10, false, Mode::Quick));
    }
}
