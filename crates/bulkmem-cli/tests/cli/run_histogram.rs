//! `bulkmem run --histogram`, with the library that scripts/link-c.sh makes and a C program that makes known calls.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use bulkmem::method::Parameters;
use bulkmem::policy::Situation;
use bulkmem_measure::calibration::{AliasingRule, Cost, Figure, LookRule, Rule};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::home::{Home, assert_fits, profile, succeeds};
use crate::schema;

const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");
const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// The folder with the library and the program `calls`.
fn built() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(SCRATCH).join("histogram");
        let script = Path::new(SOURCE).join("../../scripts/link-c.sh");
        succeeds(
            Command::new(script)
                .arg("preload")
                .arg(testkit::archive::archive("bulkmem_preload"))
                .arg(&folder),
        )
        .unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-pthread", "-o"]);
        succeeds(compiler.arg(folder.join("calls")).arg(Path::new(SOURCE).join("tests/histogram.c")))
            .unwrap();
        folder
    })
}

fn spawnable(home: &Home, options: &[&str], program: &[&str]) -> Command {
    from_a_quarter_of_the_cache(home, &[&["--from", "16K"], options].concat(), program)
}

fn from_a_quarter_of_the_cache(home: &Home, options: &[&str], program: &[&str]) -> Command {
    let mut command = home.spawnable();
    command.env("BULKMEM_LIBDIR", built()).args(["run", "--histogram"]);
    command.args(options).arg("--").args(program);
    command
}

fn calls() -> String {
    built().join("calls").display().to_string()
}

/// Runs `calls` and returns the histogram, which the schema accepts.
fn histogram(home: &Home, what: &str) -> Value {
    read(home, what, spawnable)
}

fn read(home: &Home, what: &str, command: impl Fn(&Home, &[&str], &[&str]) -> Command) -> Value {
    let output = command(home, &["--json", "--output", "found.json"], &[&calls(), what]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty() && output.stdout.is_empty(), "{what}: {output:?}");
    let found = serde_json::from_slice(&fs::read(home.path().join("found.json")).unwrap()).unwrap();
    let (_, validator) = schema::schema(home, "histogram");
    schema::assert_valid(&validator, &found, what);
    assert_eq!(found["program_recorded"], true);
    found
}

/// Returns the calls of a process: operation, smallest length, function, calls, bytes.
fn counted(process: &Value) -> Vec<(String, u64, String, u64, u64)> {
    let lengths = process["lengths"].as_array().unwrap().iter();
    let rows = lengths.flat_map(|length| {
        let of_function = |(function, count): (&String, &Value)| {
            let [calls, bytes] = ["calls", "bytes"].map(|field| count[field].as_u64().unwrap());
            let operation = length["operation"].as_str().unwrap().to_owned();
            (operation, length["from"].as_u64().unwrap(), function.clone(), calls, bytes)
        };
        length["functions"].as_object().unwrap().iter().map(of_function).collect::<Vec<_>>()
    });
    rows.collect()
}

/// Returns the predicted saving without cached memory, whole nanoseconds.
fn saved(found: &Value) -> i64 {
    found["total"]["uncached"]["ns"].as_f64().unwrap().round() as i64
}

fn row(
    operation: &str,
    from: u64,
    function: &str,
    calls: u64,
    bytes: u64,
) -> (String, u64, String, u64, u64) {
    (operation.into(), from, function.into(), calls, bytes)
}

#[test]
fn every_call_is_counted_by_function_and_length() {
    let found = histogram(&Home::with_profile(), "each");
    let process = &found["processes"][0];
    assert_eq!((found["processes"].as_array().unwrap().len(), &process["name"]), (1, &"calls".into()));
    let expected = [
        row("clear", 64, "bzero", 6, 384),
        row("clear", 1 << 20, "explicit_bzero", 1, 1 << 20),
        row("clear", 1 << 20, "memset", 4, 4 << 20),
        row("fill", 4096, "memset", 1, 5000),
        row("copy", 0, "memcpy", 1, 0),
        row("copy", 1, "mempcpy", 5, 5),
        row("copy", 64, "memcpy", 4, 427),
        row("copy", 512, "memmove", 1, 1000),
    ];
    assert_eq!(counted(process), expected);
    assert_eq!(found["total"], process["total"]);
    // The profile clears 1 MiB in 50 µs, and the C library in 100 µs; neither was measured in the cache.
    let total = &found["total"];
    assert_eq!((&total["calls"], &total["cached"]), (&json!(23), &Value::Null));
    assert_eq!(total["above_threshold"], json!({ "calls": 5, "bytes": 5 << 20 }));
    assert_eq!((total["uncached"]["bytes"].as_u64(), saved(&found)), (Some(5 << 20), 250_000));
    // The profile has rules for clears alone.
    assert_eq!(found["thresholds"], json!({ "clear": 1 << 20, "copy": null, "fill": null }));
    let methods = found["lengths"].as_array().unwrap().iter().map(|length| &length["methods"]);
    let methods: Vec<_> = methods.filter(|methods| !methods.is_null()).collect();
    assert_eq!(methods, [&json!({ "cached": "portable", "uncached": "portable" })]);
}

#[test]
fn a_method_that_is_slower_than_the_c_library_is_a_loss() {
    let home = Home::new();
    let mut slow = profile();
    slow.figures[3].median_ns = 150_000.0;
    home.write_profile(&slow);
    assert_eq!(saved(&histogram(&home, "each")), -250_000);
    let output = spawnable(&home, &[], &[&calls(), "each"]).output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).replace('\n', " ").contains("a loss of 250 µs (none cached)"),
        "{output:?}"
    );
}

/// Shorter calls than a quarter of the last-level cache are replaced from where that pays although their bytes are read next, and
/// predicted by the times with reading.
#[test]
fn without_from_shorter_calls_are_predicted_with_the_time_of_reading() {
    let home = Home::new();
    let mut reused = profile();
    // It takes longer after stores that bypassed the cache, in place of those of `portable`.
    let with_reading = |it: &Figure| {
        let (method, reading) = match &*it.method {
            "portable" => ("nontemporal_sse2", 60_000.0),
            other => (other, 30_000.0),
        };
        Figure { cost: Cost::Reuse, method: method.into(), median_ns: it.median_ns + reading, ..it.clone() }
    };
    let figures: Vec<Figure> = reused.figures.iter().map(with_reading).collect();
    reused.figures.extend(figures);
    let rule = reused.rules[0].clone();
    for (situation, from, method) in [
        (Situation::Reuse, 0, "c_library"),
        (Situation::Cached, 0, "c_library"),
        (Situation::Uncached, 0, "portable"),
        (Situation::UncachedReuse, 0, "c_library"),
        (Situation::UncachedReuse, 1 << 19, "nontemporal_sse2"),
    ] {
        reused.rules.push(Rule { situation, from, method: method.into(), ..rule.clone() });
    }
    let reason = "for this test".to_owned();
    reused.looks.push(LookRule {
        operation: rule.operation,
        from: 1 << 16,
        cached_below: 300,
        unmapped: None,
        reason,
    });
    home.write_profile(&reused);
    let found = read(&home, "each", from_a_quarter_of_the_cache);
    assert_eq!(found["thresholds"]["clear"], json!(1 << 19), "{found}");
    let total = &found["total"];
    assert_eq!(total["above_threshold"], json!({ "calls": 5, "bytes": 5 << 20 }));
    // 110 µs instead of 130, five times.
    assert_eq!((total["uncached"]["bytes"].as_u64(), saved(&found)), (Some(5 << 20), 100_000), "{total}");
}

#[test]
fn without_a_policy_file_the_text_says_that_the_c_library_executed_all_calls() {
    let output = spawnable(&Home::new(), &[], &[&calls(), "each"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("The C library executed all of them: no policy chooses another method."),
        "{said}"
    );
    assert!(
        words.contains("run `bulkmem calibrate` first") && !words.contains("above the threshold, from"),
        "{said}"
    );
}

#[test]
fn the_report_does_not_replace_the_program_or_its_script() {
    let home = Home::with_profile();
    let script = home.path().join("script");
    fs::write(&script, "echo hello\n").unwrap();
    let name = script.to_str().unwrap();
    let output = spawnable(&home, &["--output", name], &["sh", name]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is also an input"), "{output:?}");
    assert_eq!(fs::read(&script).unwrap(), b"echo hello\n");
}

#[test]
fn a_report_that_cannot_be_written_is_shown() {
    let home = Home::new();
    let folder = home.path().join("gone");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("report.txt");
    let program = ["rmdir", folder.to_str().unwrap()];
    let output = spawnable(&home, &["--output", file.to_str().unwrap()], &program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("copied, cleared and filled") && said.contains("error: cannot write"), "{said}");
}

#[test]
fn copies_that_page_aliasing_slows_down_are_counted() {
    let home = Home::new();
    let mut with = profile();
    with.aliasing = Some(AliasingRule {
        from: 2112,
        below: 1 << 20,
        method: "store_sse2".to_owned(),
        parameters: Parameters::default(),
        reason: "20 × as fast".to_owned(),
    });
    home.write_profile(&with);
    let found = histogram(&home, "aliased");
    assert_eq!(found["aliased"], json!({ "calls": 3, "bytes": 96 << 10 }));
    assert_eq!(found["processes"][0]["aliased"], found["aliased"]);
    assert_eq!(found["total"]["above_threshold"]["calls"], 0);
    let output = spawnable(&home, &[], &[&calls(), "aliased"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
    assert!(said.contains("The policy executed 3 copies of 96 KiB below it, which page aliasing"), "{said}");
    // Without such a line in the policy file, the C library executes them.
    assert_eq!(histogram(&Home::with_profile(), "aliased")["aliased"], json!({ "calls": 0, "bytes": 0 }));
}

#[test]
fn threads_lose_no_call() {
    let found = histogram(&Home::new(), "threads");
    assert_eq!(counted(&found["processes"][0]), [row("copy", 8, "memcpy", 40_000, 320_000)]);
}

#[test]
fn children_have_counts_of_their_own() {
    for what in ["fork", "forbidden"] {
        let found = histogram(&Home::new(), what);
        let [parent, child] = [&found["processes"][0], &found["processes"][1]];
        assert_eq!(counted(parent), [row("copy", 8, "memcpy", 1, 8)], "{what}");
        assert_eq!(counted(child), [row("copy", 8, "memcpy", 11, 88)], "{what}");
        assert_eq!((&child["forked_from"], &child["name"]), (&parent["pid"], &"calls".into()), "{what}");
        assert_eq!(found["processes"].as_array().unwrap().len(), 2, "{what}");
        assert!(parent["forked_from"].is_null() && child["pid"] != parent["pid"], "{what}");
    }
}

#[test]
fn children_without_a_record_are_counted_with_their_parent() {
    let found = histogram(&Home::new(), "many");
    let processes = found["processes"].as_array().unwrap();
    assert_eq!((processes.len(), &found["without_record"]), (4096, &json!(4201 - 4096)));
    assert_eq!(
        (&processes[0]["with_children"], &processes[1]["with_children"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(processes[0]["total"]["calls"], 4200 + 11 * 105);
    assert_eq!(found["total"]["calls"], 4200 * 12);
}

/// The terminal sends the signal to both.
#[test]
fn a_program_gets_one_signal_for_one_ctrl_c() {
    let home = Home::new();
    // A signal just before `read` waits interrupts nothing, so each waits for a tenth of a second only.
    let script =
        "trap 'echo interrupted' INT; echo ready; until read -t 0.1 line; do :; done; echo $line; exit 5";
    let mut command = spawnable(&home, &["--output", "report"], &["bash", "-c", script]);
    let (mut ours, theirs) = terminal();
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let own_session = || {
        // SAFETY: both calls are async-signal-safe; the standard input is the terminal.
        let done = unsafe { libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure only makes async-signal-safe calls and allocates nothing.
    let mut child = unsafe { command.pre_exec(own_session) }.spawn().unwrap();
    drop(command);
    let mut said = String::new();
    let mut buffer = [0; 1000];
    for (answer, after) in [(&b"\x03"[..], "ready"), (b"done\n", "interrupted")] {
        while !said.contains(after) {
            let read = ours.read(&mut buffer).unwrap();
            said += &String::from_utf8_lossy(&buffer[..read]);
        }
        ours.write_all(answer).unwrap();
    }
    // The end of a terminal is an error.
    while let Ok(read @ 1..) = ours.read(&mut buffer) {
        said += &String::from_utf8_lossy(&buffer[..read]);
    }
    assert_eq!((child.wait().unwrap().code(), said.matches("interrupted").count()), (Some(5), 1), "{said}");
}

/// Returns both ends of a new terminal.
fn terminal() -> (fs::File, fs::File) {
    let (mut ours, mut theirs) = (0, 0);
    let (null, name, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: the pointers to the descriptors are valid, and the others may be null.
    assert_eq!(unsafe { libc::openpty(&raw mut ours, &raw mut theirs, null, name, size) }, 0);
    // SAFETY: the descriptors are new, and belong to this function.
    let ends = unsafe { [ours, theirs].map(|end| fs::File::from_raw_fd(end)) };
    // The programs of other tests would keep the terminal open.
    for end in &ends {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC).unwrap();
    }
    ends.into()
}

#[test]
fn programs_that_children_execute_have_counts_of_their_own() {
    let found = histogram(&Home::new(), "exec");
    let processes = found["processes"].as_array().unwrap();
    let sums: Vec<_> = processes.iter().map(|process| process["total"]["calls"].as_u64().unwrap()).collect();
    assert_eq!(sums, [0, 0, 1, 11]);
    // The child that executed the program, before and after.
    assert_eq!(processes[1]["pid"], processes[2]["pid"]);
    assert!(processes[2]["forked_from"].is_null());
    assert_eq!(processes[3]["forked_from"], processes[2]["pid"]);
}

#[test]
fn the_text_names_processes_methods_and_the_saving() {
    let home = Home::with_profile();
    let script = format!("echo output; {0} each; {0} fork; exit 7", calls());
    for columns in ["60", "120"] {
        let output = spawnable(&home, &[], &["sh", "-c", &script]).env("COLUMNS", columns).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"output\n"[..]), "{text}");
        assert_fits(&text, columns.parse().unwrap());
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.contains("chooses the method (clear from 1 MiB, copy never, fill never)."), "{text}");
        for word in ["Processes", "sh", "calls", "clear calls by length", "1 MiB", "portable", "250 µs"] {
            assert!(text.contains(word), "{word}:\n{text}");
        }
        let methods: Vec<&str> = text.lines().filter(|line| line.starts_with("    ")).collect();
        assert_eq!(methods, ["    portable"], "below the only row above the threshold: {text}");
    }
    // Without a profile, the C library executes every call.
    let output = spawnable(&Home::new(), &[], &[&calls(), "each"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
    assert!(text.contains("run `bulkmem calibrate` first"), "{text}");
}

#[test]
fn signals_reach_the_program_and_its_status_is_that_of_the_command() {
    let home = Home::new();
    let status = |script: &str| spawnable(&home, &[], &["sh", "-c", script]).output().unwrap().status.code();
    assert_eq!([status("exit 77"), status("kill -KILL $$")], [Some(77), Some(137)]);

    let script = "trap 'exit 5' TERM; echo ready; while :; do :; done";
    let mut command = spawnable(&home, &["--output", "report"], &["sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    // SAFETY: kill has no preconditions; the child was not waited for, so its number is still its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) }, 0);
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert!(fs::read_to_string(home.path().join("report")).unwrap().contains("1 process copied"));
}

/// As the shell does, and `bulkmem run` without a histogram.
#[test]
fn a_script_that_names_no_interpreter_is_run_by_a_shell() {
    let home = Home::new();
    let script = home.path().join("script");
    fs::write(&script, "echo $1; exit 9\n").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let counted = spawnable(&home, &[], &[script, "here"]);
    let mut replaced = home.spawnable();
    replaced.env("BULKMEM_LIBDIR", built()).args(["run", "--", script, "here"]);
    for mut command in [counted, replaced] {
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(9), &b"here\n"[..]), "{output:?}");
    }
}

#[test]
fn programs_that_cannot_count_run_and_the_report_says_so() {
    let home = Home::new();
    for variable in ["BULKMEM_HISTOGRAM=/nowhere", "BULKMEM_HISTOGRAM=/dev/zero", "LD_PRELOAD="] {
        // `env` replaces itself by the program, in the same process, but leaves a record of its own.
        let mut command =
            spawnable(&home, &["--json", "--output", "-"], &["env", variable, &calls(), "fork"]);
        let output = command.output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let names: Vec<_> = found["processes"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert_eq!((output.status.code(), names), (Some(0), vec![&json!("env")]), "{variable}");
    }
}

#[test]
fn a_program_without_a_record_is_named() {
    let home = Home::new();
    let program = home.path().join("static");
    let source = Path::new(SOURCE).join("tests/histogram.c");
    if let Err(why) =
        succeeds(Command::new("cc").args(["-static", "-pthread", "-o"]).arg(&program).arg(source))
    {
        println!("skipped: a static program: {why}; remedy: apt-get install libc6-dev");
        return;
    }
    let output = spawnable(&home, &[], &[program.to_str().unwrap(), "fork"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
    assert!(
        text.starts_with("0 processes copied") && text.contains("itself left no record: it is statically"),
        "{text}"
    );
}

#[test]
fn what_cannot_work_is_an_error_before_the_program_starts() {
    let home = Home::new();
    let error = |mut command: Command, code: i32, text: &str| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && output.stdout.is_empty(), "{output:?}");
        assert!(contains("error: ").and(contains(text)).and(contains("\nhelp: ")).eval(&said), "{said}");
    };
    error(spawnable(&home, &[], &["no-such-program"]), 127, "cannot run no-such-program: ");
    error(spawnable(&home, &["--output", "no/such/folder"], &["echo"]), 1, "cannot write no/such/folder: ");
    let mut command = spawnable(&home, &[], &["echo"]);
    command.env("BULKMEM_POPULATE", "on");
    error(command, 2, "--histogram does not predict what BULKMEM_POPULATE=on does");
    let mut command = spawnable(&home, &[], &["echo"]);
    command.env("BULKMEM_LIBDIR", "/nowhere");
    error(command, 1, "libbulkmem_preload.so is not in /nowhere");
}
