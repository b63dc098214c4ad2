use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;

const OWN: u32 = 100;

/// Two moments a second apart: what the system, this process and others used meanwhile, seconds.
fn second(busy: f64, own: f64, others: &[(u32, &str, u32, f64)]) -> Option<Disturbance> {
    let at = Instant::now();
    let system = System { processors: 2, busy: 50.0, ..System::default() };
    let process =
        |name: &str, parent, seconds| Process { name: name.to_owned(), parent, seconds, started: 9 };
    let before = Snapshot {
        at,
        system: system.clone(),
        pid: OWN,
        seconds: 3.0,
        put_off: 5,
        processes: others.iter().map(|(pid, name, parent, _)| (*pid, process(name, *parent, 7.0))).collect(),
    };
    let after = Snapshot {
        at: at + Duration::from_secs(1),
        system: System { busy: 50.0 + busy, ..system },
        pid: OWN,
        seconds: 3.0 + own,
        put_off: 25,
        processes: others
            .iter()
            .map(|(pid, name, parent, used)| (*pid, process(name, *parent, 7.0 + used)))
            .collect(),
    };
    between(&before, &after)
}

#[test]
fn others_are_what_this_process_did_not_use_and_the_busiest_is_named() {
    let found =
        second(1.93, 1.0, &[(1234, "yes", 1, 0.9), (77, "sshd", 1, 0.03), (5, "idle", 1, 0.0)]).unwrap();
    assert!((found.load.others - 0.93).abs() < 1e-9, "{found:?}");
    assert_eq!(found.flags().next().map(|(doubt, _)| doubt), Some(QualityFlag::Busy));
    let text = found.others_in_words();
    assert!(text.starts_with("0.93 of 2 processors (most: `yes`, pid 1234"), "{text}");
    assert!(text.contains("give way 20 times"), "{text}");
    assert_eq!(found.load.busiest.len(), 2);
}

/// Time used before counts only if it is the same process, whatever its name is now.
#[test]
fn a_process_that_changes_its_name_stays_the_same() {
    let moment = |at, name: &str, started, seconds, busy| Snapshot {
        at,
        system: System { processors: 2, busy, ..System::default() },
        pid: OWN,
        seconds: 0.0,
        put_off: 0,
        processes: [(7, Process { name: name.to_owned(), parent: 2, seconds, started })].into(),
    };
    let used = |started_later| {
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let before = moment(now, "kworker/0:1-mm", 9, 30.0, 50.0);
        let after = moment(later, "kworker/0:1-events", started_later, 30.5, 50.5);
        between(&before, &after).unwrap().load.busiest[0].processors
    };
    assert!((used(9) - 0.5).abs() < 0.01, "the same process");
    assert!((used(10) - 30.5).abs() < 0.01, "another process with its number");
}

#[test]
fn a_profile_names_the_busiest() {
    let others = [(1234, "yes", 1, 0.5), (77, "sshd", 1, 0.03), (78, "a", 1, 0.02), (79, "b", 1, 0.01)];
    let load = second(1.93, 1.0, &others).unwrap().into_load();
    assert!((load.others - 0.93).abs() < 1e-9 && load.processors == 2, "{load:?}");
    let names: Vec<&str> = load.busiest.iter().map(|busy| busy.name.as_str()).collect();
    assert_eq!(names, ["yes", "sshd", "a"]);
}

#[test]
fn names_have_no_control_characters() {
    let stat = b"12 (y\x1b[31m\n) s) R 1 12 12 0 -1 4194304 0 0 0 0 50 7 0 0 20 0 1 0 100 0 0";
    assert_eq!(process(stat).unwrap().name, "y?[31m?) s");
}

#[test]
fn a_load_is_heavier_only_beyond_what_two_runs_differ_by() {
    let load =
        |others, stolen, throttled| Load { others, processors: 2, stolen, throttled, busiest: Vec::new() };
    let quiet = load(0.02, 0.0, 0.0);
    assert!(!is_heavier(Some(&load(0.2, 0.03, 0.03)), Some(&quiet)));
    for heavy in [load(0.31, 0.0, 0.0), load(0.0, 0.06, 0.0), load(0.0, 0.0, 0.06)] {
        assert!(is_heavier(Some(&heavy), Some(&quiet)), "{heavy:?}");
        assert!(is_heavier(Some(&heavy), None), "unknown counts as quiet");
        assert!(!is_heavier(Some(&heavy), Some(&heavy)) && !is_heavier(Some(&quiet), Some(&heavy)));
        assert!(!is_heavier(None, Some(&quiet)));
    }
    let many = |others| Load { processors: 256, ..load(others, 0.0, 0.0) };
    assert!(
        !is_heavier(Some(&many(4.0)), Some(&many(0.0))) && is_heavier(Some(&many(4.3)), Some(&many(0.0)))
    );
}

#[test]
fn children_are_no_others() {
    let children = [(101, "sh", OWN, 0.1), (102, "make", 101, 0.8), (103, "cc", 102, 0.05)];
    let found = second(1.95, 1.0, &children).unwrap();
    assert!(
        found.load.others < 1e-9 && found.load.busiest.is_empty() && found.flags().next().is_none(),
        "{found:?}"
    );
    // A circle, as processes come and go while they are listed, does not hang.
    let circle = [(101, "a", 102, 0.5), (102, "b", 101, 0.4)];
    assert_eq!(second(1.9, 1.0, &circle).unwrap().load.busiest.len(), 2);
}

#[test]
fn daemons_are_no_disturbance_and_what_cannot_be_seen_is_said_so() {
    assert!(second(1.06, 1.0, &[(9, "cron", 1, 0.06)]).unwrap().flags().next().is_none());
    let hidden = second(1.9, 1.0, &[]).unwrap();
    assert!(hidden.others_in_words().contains("none that can be seen"), "{hidden:?}");
    let many: Vec<(u32, String)> = (1..=9).map(|pid| (pid, format!("worker{pid}"))).collect();
    let many: Vec<(u32, &str, u32, f64)> =
        many.iter().map(|(pid, name)| (*pid, name.as_str(), 1, 0.1)).collect();
    assert!(second(1.9, 1.0, &many).unwrap().others_in_words().contains("many of them"));
    // More than the whole, by rounding of ticks, is nothing.
    assert_eq!(second(0.98, 1.0, &[]).unwrap().load.others, 0.0);
}

#[test]
fn steal_and_limits_are_said() {
    let at = Instant::now();
    let before = Snapshot {
        at,
        system: System { processors: 2, throttled: Some(1.0), waited: Some(0.0), ..System::default() },
        pid: 0,
        seconds: 0.0,
        put_off: 0,
        processes: BTreeMap::new(),
    };
    let mut after = before.clone();
    after.at = at + Duration::from_secs(10);
    assert_eq!(between(&before, &after).unwrap().flags().next(), None);
    after.system = System { stolen: 0.6, throttled: Some(1.5), waited: Some(4.0), ..after.system };
    let found = between(&before, &after).unwrap();
    let flags: Vec<_> = found.flags().collect();
    assert_eq!(
        flags.iter().map(|(doubt, _)| *doubt).collect::<Vec<_>>(),
        [QualityFlag::Stolen, QualityFlag::Throttled]
    );
    assert!((flags[0].1 - 0.03).abs() < 1e-9 && (flags[1].1 - 0.05).abs() < 1e-9, "{flags:?}");
    assert_eq!(found.waited, Some(0.4));
    after.at = at + Duration::from_millis(100);
    assert_eq!(between(&before, &after), None, "too short for ticks");
}

#[test]
fn the_kernels_files_are_read() {
    let stat = "cpu  1000 200 300 9000 50 10 20 40 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\ncpu1 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
    let system = System::of_stat(stat);
    assert_eq!(system.processors, 2);
    assert!((system.busy - 1530.0 * tick()).abs() < 1e-9 && (system.stolen - 40.0 * tick()).abs() < 1e-9);
    let pressure = "some avg10=99.27 avg60=98.70 avg300=67.75 total=6049404403\nfull avg10=0.00 total=0\n";
    assert_eq!(waited(pressure), Some(6049.404403));
    assert_eq!(throttled("usage_usec 7\nnr_throttled 2\nthrottled_usec 1500000\n"), Some(1.5));
    let line = b"4242 (a) b (c) S 17 4242 4242 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 99 0 0\n";
    let read = process(line).unwrap();
    assert_eq!((read.name.as_str(), read.parent, read.started), ("a) b (c", 17, 99));
    assert!((read.seconds - 200.0 * tick()).abs() < 1e-9);
}

#[test]
fn damaged_files_tell_nothing() {
    for text in ["", "cpu", "cpu  x y z", "cpu0", "cpufreq 1 2", "\0\u{1}"] {
        let system = System::of_stat(text);
        assert_eq!((system.busy, system.stolen, system.processors), (0.0, 0.0, 0), "{text}");
    }
    for text in ["", "some", "some total=", "some total=x", "full total=5"] {
        assert_eq!(waited(text), None);
    }
    for stat in
        [&b""[..], b"1 (x", b"1 x) S 1", b"1 (x) S", b"1 (x) S -1 0 0 0 0 0 0 0 0 0 a b", b"\xff(\xff) S 1"]
    {
        assert_eq!(process(stat), None, "{stat:?}");
    }
    let nowhere = Path::new("/no/such/folder");
    assert_eq!(System::read(nowhere), System::default());
    assert!(processes(nowhere).is_empty());
}

/// Ends a process that is not our child, whatever happens.
struct Stray(u32);

impl Drop for Stray {
    fn drop(&mut self) {
        // SAFETY: kill has no preconditions; the id is that of a process which only we know of and nobody else ends.
        unsafe { libc::kill(self.0 as libc::pid_t, libc::SIGKILL) };
    }
}

/// A real process of somebody else's that is busy is found, by name and number.
#[test]
fn a_busy_neighbour_is_named() {
    let Some(before) = Snapshot::here().filter(|it| !it.processes.is_empty()) else {
        println!("skipped: a busy neighbour is named: /proc/stat cannot be read or /proc lists no processes");
        return;
    };
    // Through a shell that ends: a child of ours would be no neighbour.
    let shell =
        Command::new("sh").args(["-c", "yes >/dev/null 2>&1 & echo $!"]).stderr(Stdio::null()).output();
    let pid = String::from_utf8(shell.expect("a shell").stdout).unwrap().trim().parse().expect("its number");
    let stray = Stray(pid);
    // It is waited for until the kernel has given it enough time to see, however busy the machine is.
    let found = loop {
        std::thread::sleep(Duration::from_millis(50));
        let after = Snapshot::here().expect("it could be read before");
        let found = between(&before, &after);
        if let Some(found) =
            found.filter(|it| it.load.busiest.iter().any(|it| it.pid == pid && it.name == "yes"))
        {
            break found;
        }
    };
    assert!(found.load.busiest.iter().all(|it| it.pid != std::process::id()), "{found:?}");
    drop(stray);
}

/// What this process itself does, in all its threads and children, is not the work of others.
#[test]
fn own_work_is_not_blamed_on_others() {
    let Some(before) = Snapshot::here() else {
        println!("skipped: own work is not blamed on others: /proc/stat cannot be read here");
        return;
    };
    let mut child = Command::new("yes").stdout(Stdio::null()).spawn().expect("yes");
    let pid = child.id();
    let after = loop {
        std::thread::sleep(Duration::from_millis(50));
        let after = Snapshot::here().expect("it could be read before");
        if between(&before, &after).is_some() && after.processes.get(&pid).is_some_and(|it| it.seconds > 0.0)
        {
            break after;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let found = between(&before, &after).unwrap();
    assert!(found.load.busiest.iter().all(|it| it.pid != pid), "{found:?}");
    // Once it has ended, its time is in our own account.
    let own = Snapshot::here().unwrap().seconds;
    assert!(own > before.seconds, "{own}");
}
