//! The tests that run inside the virtual machines of `make test-kmod`, as root, with the module at `/bulkmem.ko`.
//!
//! One file a subject; each adds its tests to the suite, named `SUBJECT::TEST`. Tests run one after the other, since
//! they change what the whole machine shares. `kmod/tests/runs.sh` says which subjects which machine runs.

use std::process::ExitCode;

use testkit::harness::Suite;

mod attributes;
mod clearing;
mod coexistence;
mod command;
mod device;
mod frame;
mod hints;
mod huge;
mod loading;
mod memory;
mod module;
mod params;
mod pmem;
mod pressure;
mod process;
mod ryzen;
mod sizes;
mod stress;

fn main() -> ExitCode {
    let machine = std::fs::read_to_string("/name").unwrap_or_else(|_| "guest".to_owned());
    let mut suite = Suite::new(machine.trim().to_owned().leak());
    suite.in_turn();
    frame::tests(&mut suite);
    attributes::tests(&mut suite);
    clearing::tests(&mut suite);
    coexistence::tests(&mut suite);
    command::tests(&mut suite);
    hints::tests(&mut suite);
    sizes::tests(&mut suite);
    loading::tests(&mut suite);
    memory::tests(&mut suite);
    params::tests(&mut suite);
    ryzen::tests(&mut suite);
    stress::tests(&mut suite);
    pressure::tests(&mut suite);
    pmem::tests(&mut suite);
    suite.run()
}
