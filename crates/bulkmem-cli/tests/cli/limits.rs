//! Limits on the memory of the process: shorter lengths with a note, or an error; never an abort.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::home::Home;
use crate::planted;

const MIB: u64 = 1 << 20;
const CALIBRATE: [&str; 7] = ["calibrate", "--quick", "--op", "clear", "--budget", "2s", "--force"];

/// Keeps a command from using more memory of a kind.
pub(crate) fn limit(command: &mut Command, resource: libc::__rlimit_resource_t, bytes: u64) {
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: `limit` is a valid rlimit; the call is async-signal-safe, as is needed between fork and exec.
        if unsafe { libc::setrlimit(resource, &limit) } == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: the closure only makes an async-signal-safe call and allocates nothing.
    unsafe { command.pre_exec(limit) };
}

fn run(home: &Home, arguments: &[&str], resource: libc::__rlimit_resource_t, bytes: u64) -> Output {
    let mut command = home.spawnable();
    limit(&mut command, resource, bytes);
    command.args(arguments).output().unwrap()
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn calibration_measures_shorter_lengths_and_names_the_limit() {
    for (resource, name) in [
        (libc::RLIMIT_AS, "left by the address space limit (ulimit -v)"),
        (libc::RLIMIT_DATA, "left by the data size limit (ulimit -d)"),
    ] {
        let home = Home::new();
        let output = run(&home, &CALIBRATE, resource, 400 * MIB);
        let text = words(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(text.contains("Note: the longest length is") && text.contains(name), "{text}");
        let json = run(&home, &[&CALIBRATE[..], &["--json"]].concat(), resource, 400 * MIB);
        let found: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert!(found["notes"][0].as_str().unwrap().contains(name), "{}", found["notes"]);
        let figures = found["profile"]["figures"].as_array().unwrap();
        let longest = figures.iter().filter_map(|figure| figure["length"].as_u64()).max().unwrap();
        assert!((MIB..200 * MIB).contains(&longest), "{longest}");
    }
}

#[test]
fn the_stack_may_be_small() {
    let home = Home::with_profile();
    let mut command = home.spawnable();
    limit(&mut command, libc::RLIMIT_AS, 400 * MIB);
    limit(&mut command, libc::RLIMIT_STACK, MIB - 4096);
    let output = command.args(["explain", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn too_little_to_measure_in_is_an_error_that_names_the_limit() {
    for arguments in
        [&CALIBRATE[..], &["bench", "clear", "--size", "1G"], &["bench", "copy", "--size", "64M"]]
    {
        let output = run(&Home::new(), arguments, libc::RLIMIT_AS, 48 * MIB);
        let complaint = words(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains("left by the address space limit (ulimit -v)"), "{complaint}");
        assert!(complaint.contains("raise that limit"), "{complaint}");
    }
}

#[test]
fn a_measurement_leaves_out_default_sizes_that_do_not_fit() {
    let home = Home::new();
    let arguments = ["bench", "clear", "--method", "portable", "--runs", "2", "--json"];
    let output = run(&home, &arguments, libc::RLIMIT_AS, 400 * MIB);
    assert_eq!(output.status.code(), Some(0), "{}", words(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = found["rows"].as_array().unwrap();
    let mut sizes: Vec<u64> = rows.iter().filter_map(|row| row["config"]["size"].as_u64()).collect();
    sizes.dedup();
    assert_eq!(sizes, [16 * MIB]);
    let notes = found["notes"].to_string();
    assert!(
        notes.contains("sizes that were not named are chosen to fit") && notes.contains("ulimit -v"),
        "{notes}"
    );
}

/// Threads that the system refuses, and a file that does not fit the address space.
#[test]
fn what_cannot_start_or_be_mapped_is_an_error() {
    let iops = ["bench", "iops", "--size", "4M", "--runs", "2", "--time", "2ms", "--threads", "500"];
    let persist = ["bench", "persist", "--target", "made", "--size", "256M", "--runs", "2"];
    for (arguments, cause, remedy) in [
        (&iops[..], "cannot start a thread: ", "error: "),
        (&persist, "made: cannot be mapped: ", "raise the limit of the address space (ulimit -v)"),
    ] {
        let output = run(&Home::new(), arguments, libc::RLIMIT_AS, 120 * MIB);
        let complaint = words(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains(cause) && complaint.contains(remedy), "{complaint}");
    }
}

/// Whatever the limit, from where the command can start at all: an answer or a message.
#[test]
fn what_reads_files_fails_with_a_message_and_is_never_aborted() {
    let home = Home::with_profile();
    let mut results = planted::everything("A", 1.0);
    for row in &mut results.rows {
        row.samples = row.samples.iter().copied().cycle().take(400).collect();
    }
    fs::write(home.path().join("big.json"), serde_json::to_string_pretty(&results).unwrap()).unwrap();
    let start = (8..64).map(|mib| mib * MIB).find(|bytes| {
        // Below this, the dynamic linker gives up, or Rust's own start.
        run(&home, &["--version"], libc::RLIMIT_AS, *bytes).status.success()
    });
    let start = start.expect("the command starts with 64 MiB");
    let commands: [&[&str]; 5] = [
        &["report", "big.json", "--output", "report.html"],
        &["report", "big.json", "--format", "markdown", "--output", "-"],
        &["compare", "big.json", "big.json"],
        &["reproduce", "big.json"],
        &["explain", "--op", "clear", "--size", "1G"],
    ];
    let mut failures = 0;
    for step in 0..24 {
        let bytes = start + step * MIB;
        for arguments in commands {
            let output = run(&home, arguments, libc::RLIMIT_AS, bytes);
            let complaint = words(&output.stderr);
            let case = format!("{arguments:?} with {bytes} bytes: {:?}: {complaint}", output.status);
            assert_eq!(output.status.signal(), None, "{case}");
            match output.status.code() {
                Some(0) => {}
                Some(1) => assert!(complaint.contains("error: ") && complaint.contains("help: "), "{case}"),
                _ => panic!("{case}"),
            }
            failures += usize::from(!output.status.success());
        }
    }
    assert!(failures > 0, "no limit was small enough to matter");
}

/// A control group of this process's own, which is removed afterwards.
struct Group(PathBuf);

impl Group {
    /// Creates a group with a limit, or returns why this system does not allow it.
    fn new(bytes: u64) -> Result<Group, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let path = |controller: &str| {
            groups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let found = fields.next()?.split(',').any(|name| name == controller);
                fields.next().filter(|_| found).map(|path| path.trim_start_matches('/').to_owned())
            })
        };
        let name = format!("bulkmem-test-{}", std::process::id());
        let (folder, file) = match (path("memory"), path("")) {
            (Some(inner), _) => (Path::new("/sys/fs/cgroup/memory").join(inner), "memory.limit_in_bytes"),
            (None, Some(inner)) => (Path::new("/sys/fs/cgroup").join(inner), "memory.max"),
            (None, None) => return Err("this process is in no control group".to_owned()),
        };
        let folder = folder.join(name);
        let refused = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir(&folder).map_err(refused)?;
        let group = Group(folder.clone());
        fs::write(group.0.join(file), bytes.to_string()).map_err(refused)?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn calibration_fits_a_real_control_group() {
    let group = match Group::new(200 * MIB) {
        Ok(group) => group,
        Err(why) => return println!("skipped: calibration in a control group: {why}"),
    };
    let home = Home::new();
    let mut command = home.spawnable();
    let binary = command.get_program().to_owned();
    command = {
        let mut shell = Command::new("sh");
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.current_dir(home.path());
        shell
    };
    let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    let output = command.args(["-c", script]).arg(&group.0).arg(binary).args(CALIBRATE).output().unwrap();
    let text = words(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let name = group.0.display().to_string();
    assert!(text.contains("left by the control group's limit (") && text.contains(&name), "{text}");
}
