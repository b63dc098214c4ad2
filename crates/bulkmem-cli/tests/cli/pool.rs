//! `bulkmem pool`: the daemon and programs that use it, as a user starts them.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use predicates::str::contains;
use serde_json::Value;

use crate::home::Home;

/// A daemon, killed with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Daemon {
    /// Starts a daemon with two units of 1 MiB, and waits until they are ready.
    fn start(home: &Home) -> Daemon {
        let mut command = home.spawnable();
        let supply =
            ["pool", "serve", "--keep", "4K,unit=1M,count=2", "--keep-free", "1", "--runtime-dir", "run"];
        let daemon = Daemon(command.args(supply).spawn().unwrap());
        let ready = |_| {
            std::thread::sleep(Duration::from_millis(10));
            status(home).is_some_and(|status| status["kinds"][0]["ready"] == 2)
        };
        assert!((0..2000).any(ready), "the units do not become ready");
        daemon
    }
}

fn status(home: &Home) -> Option<Value> {
    let output =
        home.bulkmem().args(["pool", "status", "--json", "--socket", "run/socket"]).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// Runs a shell script with the path of 1 MiB of memory as its argument.
fn run(home: &Home, script: &str) -> assert_cmd::assert::Assert {
    let options = [
        "pool",
        "run",
        "--memory",
        "1M",
        "--page-size",
        "4K",
        "--socket",
        "run/socket",
        "--patience",
        "5000",
    ];
    home.bulkmem().args(options).args(["--", "sh", "-c", script, "sh", "{}"]).assert()
}

#[test]
fn a_program_gets_ready_memory_and_keeps_its_exit_status() {
    let home = Home::new();
    let _daemon = Daemon::start(&home);
    // `stat` shows the blocks of the file: all are allocated.
    run(&home, r#"stat -L -c '%s %b %a' "$1"; exit 7"#).code(7).stdout("1048576 2048 600\n").stderr("");
    run(&home, r#"od -An -v -tx1 "$1" | tr -d ' \n0' | wc -c; printf secret >"$1" || echo sealed"#)
        .stdout(contains("0\n"));
    let status = status(&home).unwrap();
    assert_eq!(status["kinds"][0]["handed_out"], 2);
    let text = home.bulkmem().args(["pool", "status", "--socket", "run/socket"]).assert().success();
    text.stdout(contains("Ready memory")).stdout(contains("1 MiB"));
    let metrics =
        home.bulkmem().args(["pool", "status", "--prometheus", "--socket", "run/socket"]).output().unwrap();
    let metrics = testkit::prometheus::parse(&String::from_utf8(metrics.stdout).unwrap()).unwrap();
    assert_eq!(
        metrics.samples["bulkmem_pool_handed_out_total{page=\"4K\",unit=\"1048576\",node=\"any\"}"],
        2.0
    );
}

#[test]
fn without_a_daemon_a_program_gets_fresh_memory_and_one_line_says_so() {
    let home = Home::new();
    let assert = run(&home, r#"stat -L -c '%s %b' "$1"; exit 3"#).code(3).stdout("1048576 0\n");
    let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(
        stderr.starts_with("warning: the memory is fresh, not from the pool: no pool listens at run/socket"),
        "{stderr}"
    );
    assert!(stderr.ends_with(": No such file or directory (os error 2)\n"), "{stderr}");
    assert_eq!((stderr.lines().count(), stderr.matches("No such file").count()), (1, 1), "{stderr}");
}

#[test]
fn a_second_daemon_is_refused_and_a_signal_ends_the_first() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    let second = ["pool", "serve", "--keep", "4K,unit=1M", "--runtime-dir", "run"];
    home.bulkmem().args(second).assert().code(1).stderr(contains("a daemon already uses run: stop it first"));
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
    let left = |name: &str| Path::read_dir(&home.path().join("run").join(name)).unwrap().count();
    assert_eq!((left("ready"), left("leases")), (0, 0));
    home.bulkmem()
        .args(["pool", "status", "--socket", "run/socket"])
        .assert()
        .code(1)
        .stderr(contains("no pool listens"));
}

#[test]
fn wrong_arguments_are_refused_with_the_remedy() {
    let home = Home::new();
    let run = ["pool", "run", "--memory", "1M", "--page-size"];
    home.bulkmem().args(run).args(["4K", "--", "true"]).assert().code(2).stderr(contains("mem-path={}"));
    home.bulkmem()
        .args(run)
        .args(["2M", "--", "true", "{}"])
        .assert()
        .code(2)
        .stderr(contains("a multiple of 2M"));
    home.bulkmem().args(["pool", "serve"]).assert().code(2).stderr(contains("--keep"));
    let supply = ["pool", "serve", "--keep", "2M,unit=3M"];
    home.bulkmem().args(supply).assert().code(2).stderr(contains("2M,unit=1G,count=4"));
    let twice = ["pool", "serve", "--keep", "4K,unit=1M", "--keep", "4K,unit=1M", "--runtime-dir", "run"];
    home.bulkmem().args(twice).assert().code(1).stderr(contains("named twice"));
    home.bulkmem()
        .args(run)
        .args(["4K", "--", "/nonexistent", "{}"])
        .assert()
        .code(127)
        .stderr(contains("cannot run /nonexistent"));
    home.bulkmem()
        .args(run)
        .args(["4K", "--", "/", "{}"])
        .assert()
        .code(126)
        .stderr(contains("cannot run /: "));
}
