//! A program in C gets memory from a daemon.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bulkmem_pool::{Client, Config, Daemon, Kind, PageSize, Supply};

use crate::toolchain::{Linkage, SOURCE, command, compile, run_silently};

/// The folder of the daemon; set in its process only.
const VARIABLE: &str = "BULKMEM_C_POOL";
/// The length of the unit that `pool.c` expects.
const UNIT: u64 = 1 << 20;

/// A process that is killed with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn a_program_gets_a_unit_or_fresh_memory() {
    if let Some(folder) = std::env::var_os(VARIABLE) {
        return serve(folder.as_ref());
    }
    for linkage in Linkage::ALL {
        let program = compile(&["cc", "-std=gnu17"], &Path::new(SOURCE).join("tests/c/pool.c"), linkage);
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Command::new(std::env::current_exe().unwrap());
        daemon.args(["--exact", "pool::a_program_gets_a_unit_or_fresh_memory", "--test-threads=1"]);
        let _daemon = Process(daemon.env(VARIABLE, folder.path()).stdout(Stdio::null()).spawn().unwrap());
        let socket = folder.path().join("socket");
        let client = Client::new(&socket);
        let ready = |_| {
            std::thread::sleep(Duration::from_millis(10));
            client.status(Duration::from_secs(1)).is_ok_and(|status| status.kinds[0].ready == 1)
        };
        assert!((0..2000).any(ready), "the unit does not become ready");
        run_silently(command(program).arg(&socket));
        assert_eq!(client.status(Duration::from_secs(10)).unwrap().kinds[0].handed_out, 1);
    }
}

/// Runs a daemon with one unit until the process is killed.
fn serve(folder: &Path) {
    let kind = Kind::new(PageSize::Base, UNIT, None).unwrap();
    let mut config = Config::new(vec![Supply { kind, count: 1 }]);
    config.runtime_dir = folder.to_owned();
    config.keep_free = 1;
    let (stop, _open) = UnixStream::pair().unwrap();
    Daemon::start(config).unwrap().run(stop.as_fd()).unwrap();
}
