//! The pool from outside: a daemon and tenants in processes of their own, with different users.
//!
//! Every attack first succeeds against a weakened pool, and then finds nothing in the real one.

mod attacks;
mod kills;
mod manager;
mod pool;
mod process;
mod service;

use std::process::ExitCode;

use testkit::harness::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new("pool");
    suite.serial();
    if rustix::process::geteuid().is_root() {
        service::add(&mut suite);
        kills::add(&mut suite);
        attacks::add(&mut suite);
    } else {
        suite.skip("daemon_and_tenants", "tenants have different users, which needs root");
    }
    suite.run()
}
