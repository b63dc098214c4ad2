//! The tests that run inside the virtual machines of `make test-kmod`, as root, with the module at `/bulkmem.ko`.
//!
//! There is one file per subject, which adds tests named `SUBJECT::TEST` to the suite. Tests run one after the other,
//! because they change the state of the whole machine. `kmod/tests/runs.sh` lists the subjects of each machine.

use std::process::ExitCode;

use testkit::harness::Suite;

mod attributes;
mod automatic;
mod callers;
mod cgroups;
mod clearing;
mod coexistence;
mod command;
mod copies;
mod device;
mod flushcache;
mod frame;
mod hints;
mod huge;
mod libpmem;
mod loading;
mod memory;
mod module;
mod observing;
mod params;
mod pmem;
mod preemption;
mod pressure;
mod process;
mod ryzen;
mod sizes;
mod stress;
mod vfio;

fn main() -> ExitCode {
    if let Some(ended) = callers::as_program() {
        return ended;
    }
    let machine = std::fs::read_to_string("/name").unwrap_or_else(|_| "guest".to_owned());
    let mut suite = Suite::new(machine.trim().to_owned().leak());
    suite.serial();
    frame::tests(&mut suite);
    attributes::tests(&mut suite);
    automatic::tests(&mut suite);
    callers::tests(&mut suite);
    cgroups::tests(&mut suite);
    clearing::tests(&mut suite);
    coexistence::tests(&mut suite);
    command::tests(&mut suite);
    copies::tests(&mut suite);
    flushcache::tests(&mut suite);
    hints::tests(&mut suite);
    sizes::tests(&mut suite);
    libpmem::tests(&mut suite);
    loading::tests(&mut suite);
    memory::tests(&mut suite);
    observing::tests(&mut suite);
    params::tests(&mut suite);
    preemption::tests(&mut suite);
    ryzen::tests(&mut suite);
    stress::tests(&mut suite);
    pressure::tests(&mut suite);
    pmem::tests(&mut suite);
    vfio::tests(&mut suite);
    // The words of several subjects, to run them in one process, which loads the module once.
    if let Ok(words) = std::env::var("BULKMEM_TESTS") {
        suite.only(&words.split_whitespace().collect::<Vec<_>>());
    }
    suite.run()
}
