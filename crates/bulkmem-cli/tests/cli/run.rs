//! `bulkmem run`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use predicates::prelude::*;
use predicates::str::contains;

use crate::home::{Home, succeeds};

/// A folder with files of the libraries' names. No program of these tests loads `libpmem.so.1`; of the other, which is not a
/// library, the dynamic linker says that it ignores it, on the standard error.
fn library(home: &Home) -> PathBuf {
    let folder = home.path().canonicalize().unwrap().join("lib/bulkmem");
    fs::create_dir_all(&folder).unwrap();
    for library in ["libpmem.so.1", "libbulkmem_preload.so"] {
        fs::write(folder.join(library), "").unwrap();
    }
    folder
}

#[test]
fn the_library_is_preloaded_before_others() {
    let home = Home::new();
    let library = library(&home).join("libbulkmem_preload.so");
    for (others, after) in [(None, ""), (Some(""), ""), (Some("/a.so /b.so"), ":/a.so /b.so")] {
        // A relative folder; the program gets an absolute one.
        let mut command = home.bulkmem();
        command.env("BULKMEM_LIBDIR", "lib/bulkmem").env_remove("LD_PRELOAD").env("LD_LIBRARY_PATH", "/c");
        command.args(["run", "--from", "64K", "--populate", "--", "sh", "-c"]);
        let print = "echo \"$LD_PRELOAD $LD_LIBRARY_PATH $1 $BULKMEM_FROM $BULKMEM_POPULATE\"";
        command.args([print, "sh", "--help"]);
        if let Some(others) = others {
            command.env("LD_PRELOAD", others);
        }
        command.assert().success().stdout(format!("{}{after} /c --help 65536 on\n", library.display()));
    }
}

#[test]
fn a_warning_says_if_the_c_library_does_some_of_the_given_lengths() {
    let home = Home::with_profile();
    let folder = library(&home);
    let run = |from| {
        let mut command = home.bulkmem();
        command.env("BULKMEM_LIBDIR", &folder).args(["run", "--from", from, "--", "true"]).assert().success()
    };
    let warning = "the C library executes calls of 4 KiB to 16 KiB";
    run("4K").stderr(contains(warning));
    run("16K").stderr(contains("the C library").not());
}

/// The library cannot say it.
#[test]
fn a_warning_says_if_there_is_no_policy_file_and_the_program_runs() {
    const WARNING: &str = "without a policy file of this machine, the C library executes every call";
    let run = |home: &Home, arguments: &[&str], variable: (&str, &str)| {
        library(home);
        let mut command = home.bulkmem();
        command.env("BULKMEM_LIBDIR", "lib/bulkmem").env(variable.0, variable.1);
        command.arg("run").args(arguments).args(["--", "sh", "-c", "exit 3"]).assert().code(3)
    };
    let none = ("UNUSED", "");
    run(&Home::new(), &[], none).stderr(contains(WARNING));
    run(&Home::new(), &["--from", "64K", "--populate"], none).stderr(contains(WARNING));
    run(&Home::with_profile(), &[], none).stderr(contains(WARNING).not());
    run(&Home::new(), &[], ("BULKMEM_METHOD", "clear:portable")).stderr(contains(WARNING).not());
    // It has defaults.
    run(&Home::new(), &["--libpmem"], none).stderr(contains(WARNING).not());
}

#[test]
fn a_value_for_new_memory_that_is_neither_on_nor_off_is_refused() {
    let home = Home::with_profile();
    library(&home);
    for (value, code) in [("yes", 2), ("1", 2), ("off", 0), ("on", 0), ("", 0)] {
        let mut command = home.bulkmem();
        command.env("BULKMEM_LIBDIR", "lib/bulkmem").env("BULKMEM_POPULATE", value);
        let assert = command.args(["run", "--", "true"]).assert().code(code);
        if code != 0 {
            assert.stderr(contains("neither on nor off").and(contains("--populate")));
        }
    }
}

/// Programs may change their folder.
#[test]
fn the_program_gets_an_absolute_path_of_the_policy_file() {
    let home = Home::new();
    library(&home);
    let here = home.path().canonicalize().unwrap();
    let relative = here.join("own.policy").display().to_string();
    for (given, expected) in [("own.policy", &*relative), ("/a/b", "/a/b"), ("", "")] {
        let mut command = home.bulkmem();
        command.env("BULKMEM_LIBDIR", "lib/bulkmem").env("BULKMEM_PROFILE", given);
        command.args(["run", "--", "sh", "-c", "echo \"$BULKMEM_PROFILE\""]);
        command.assert().success().stdout(format!("{expected}\n"));
    }
}

#[test]
fn a_length_that_is_not_a_number_is_refused_where_the_library_would_read_it() {
    let home = Home::new();
    library(&home);
    let with = |from: &OsStr, options: &[&str]| {
        let mut command = home.bulkmem();
        command.env("BULKMEM_LIBDIR", "lib/bulkmem").env("BULKMEM_FROM", from);
        command.arg("run").args(options).args(["--", "true"]).assert()
    };
    for wrong in [OsStr::new("64K"), OsStr::from_bytes(b"\xff"), OsStr::new("-1")] {
        let remedy =
            contains("BULKMEM_FROM is `").and(contains("not a number of bytes")).and(contains("\nhelp: "));
        with(wrong, &[]).code(2).stderr(remedy);
        with(wrong, &["--from", "64K"]).success();
        with(wrong, &["--libpmem"]).success();
    }
    with(OsStr::new(""), &[]).success();
    with(OsStr::new("65536"), &[]).success();
}

#[test]
fn the_folder_of_the_library_comes_first() {
    let home = Home::new();
    let folder = library(&home);
    for (others, after) in [(None, ""), (Some(""), ""), (Some("/a:/b"), ":/a:/b")] {
        // A relative folder; the program gets an absolute one.
        let mut command = home.bulkmem();
        command.env("BULKMEM_LIBDIR", "lib/bulkmem").env_remove("LD_LIBRARY_PATH");
        if let Some(others) = others {
            command.env("LD_LIBRARY_PATH", others);
        }
        command.args([
            "run",
            "--libpmem",
            "--",
            "sh",
            "-c",
            "echo \"$LD_LIBRARY_PATH $1\"",
            "sh",
            "--version",
        ]);
        command.assert().success().stdout(format!("{}{after} --version\n", folder.display())).stderr("");
    }
}

/// A client of the library, on a file that it takes for persistent memory.
#[test]
fn fio_gets_the_library_and_verifies_what_it_wrote() {
    let engines = Command::new("fio").arg("--enghelp").output();
    if !engines.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("libpmem")) {
        println!(
            "skipped: fio with `bulkmem run --libpmem`: fio with ioengine=libpmem is not installed; remedy: apt-get install fio"
        );
        return;
    }
    let libraries = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run_libpmem");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/link-c.sh");
    succeeds(
        Command::new(script).arg("libpmem").arg(testkit::archive::archive("bulkmem_libpmem")).arg(&libraries),
    )
    .unwrap();
    let home = Home::new();
    let run = |program: &[&str]| {
        let mut command = home.bulkmem();
        command.env("BULKMEM_LIBDIR", &libraries).env("PMEM_IS_PMEM_FORCE", "1");
        let output = command.args(["run", "--libpmem", "--"]).args(program).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        printed
    };
    let loaded = run(&["sh", "-c", "LD_TRACE_LOADED_OBJECTS=1 exec fio"]);
    let ours = format!("libpmem.so.1 => {}", libraries.join("libpmem.so.1").display());
    assert!(loaded.contains(&ours), "{loaded}");
    let file = format!("--filename={}", home.path().join("file").display());
    let job = [
        "fio",
        "--name=job",
        "--ioengine=libpmem",
        &file,
        "--size=8m",
        "--bsrange=512-64k",
        "--rw=randwrite",
    ];
    let verify = ["--thread", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--group_reporting"];
    let printed = run(&[&job[..], &verify].concat());
    assert!(printed.contains("err= 0") && !printed.contains("verify failed"), "{printed}");
}

/// Tests of the module in virtual machines run programs with the hint; here, the error must come before the program runs.
#[test]
fn a_hint_without_the_module_is_an_error_with_a_remedy() {
    if std::path::Path::new("/sys/module/bulkmem").exists() {
        println!("skipped: the module is loaded");
        return;
    }
    let home = Home::new();
    library(&home);
    for options in [
        &["run", "--bulk-hint"][..],
        &["run", "--bulk-hint", "--histogram"],
        &["run", "--bulk-hint", "--libpmem"],
    ] {
        let mut command = home.bulkmem();
        command.env("BULKMEM_LIBDIR", "lib/bulkmem").args(options).args(["--", "echo", "it ran"]);
        let remedy = contains("modprobe bulkmem").and(contains("\nhelp: "));
        command
            .assert()
            .code(1)
            .stdout("")
            .stderr(contains("error: the kernel module `bulkmem` is not loaded").and(remedy));
    }
}

#[test]
fn status_and_signals_are_those_of_the_program() {
    let home = Home::new();
    library(&home);
    for options in [&["run", "--libpmem"][..], &["run"]] {
        let run = |script: &str| {
            let mut command = home.spawnable();
            command.env("BULKMEM_LIBDIR", "lib/bulkmem").args(options).args(["--", "sh", "-c", script]);
            command.status().unwrap()
        };
        assert_eq!(run("exit 77").code(), Some(77));
        assert_eq!(run("kill -TERM $$").signal(), Some(libc::SIGTERM));
        assert_eq!(run("kill -PIPE $$").signal(), Some(libc::SIGPIPE));
    }
}

#[test]
fn a_library_that_is_not_there_is_an_error_with_a_remedy() {
    for (options, library, variable) in [
        (&["run", "--libpmem"][..], "libpmem.so.1", "LD_LIBRARY_PATH"),
        (&["run"], "libbulkmem_preload.so", "LD_PRELOAD"),
    ] {
        let home = Home::new();
        let command = || {
            let mut command = home.bulkmem();
            command.args(options).args(["--", "true"]);
            command
        };
        let missing = contains(format!("error: {library} is not in "));
        let remedy = contains("\nhelp: run `make install-c PREFIX=");
        command().env_remove("BULKMEM_LIBDIR").assert().code(1).stderr(missing.clone().and(remedy));
        let remedy = contains("/nowhere\nhelp: correct BULKMEM_LIBDIR");
        command().env("BULKMEM_LIBDIR", "/nowhere").assert().code(1).stderr(missing.and(remedy));

        fs::create_dir_all(home.path().join("a:b")).unwrap();
        fs::write(home.path().join("a:b").join(library), "").unwrap();
        let special = contains(format!("cannot be in {variable}: it has one of `:` "));
        let special = special.and(contains("\nhelp: "));
        command().env("BULKMEM_LIBDIR", "a:b").assert().code(1).stderr(special);
    }
}

#[test]
fn a_program_that_is_not_there_is_an_error_with_a_remedy() {
    let home = Home::new();
    library(&home);
    let mut command = home.bulkmem();
    command.env("BULKMEM_LIBDIR", "lib/bulkmem").args(["run", "--libpmem", "--", "no-such-program"]);
    command
        .assert()
        .code(127)
        .stderr(contains("error: cannot run no-such-program: ").and(contains("\nhelp: ")));
    let mut command = home.bulkmem();
    command.env("BULKMEM_LIBDIR", "lib/bulkmem").args(["run", "--libpmem", "--", "/"]);
    command.assert().code(126).stderr(contains("error: cannot run /: ").and(contains("\nhelp: ")));
    let script = home.path().join("script");
    fs::write(&script, "#!/no/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = home.bulkmem();
    command.env("BULKMEM_LIBDIR", "lib/bulkmem").args(["run", "--libpmem", "--", "./script"]);
    command
        .assert()
        .code(127)
        .stderr(contains("error: cannot run ./script: ").and(contains("not the interpreter")));
}

/// The library that is loaded would say nothing.
#[test]
fn invalid_variables_are_refused_and_files_that_are_not_used_are_named() {
    let home = Home::new();
    library(&home);
    let with = |variable: &str, value: &str, options: &[&str]| {
        let mut command = home.bulkmem();
        command.env("BULKMEM_LIBDIR", "lib/bulkmem").env(variable, value);
        command.arg("run").args(options).args(["--", "echo", "ran"]).assert()
    };
    for options in [&[][..], &["--libpmem"]] {
        let refused = with("BULKMEM_METHOD", "nonsense", options).code(2).stdout("");
        refused.stderr(contains("BULKMEM_METHOD").and(contains("\nhelp: ")));
        let warned = with("BULKMEM_PROFILE", "/no/file", options).success().stdout("ran\n");
        warned.stderr(contains("/no/file is not used: there is no such file"));
    }
}

#[test]
fn the_libraries_that_are_installed_next_to_the_command_are_loaded() {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run_installed");
    _ = fs::remove_dir_all(&prefix);
    let mut install = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-c.sh"));
    install.args(["bulkmem_c", "bulkmem_libpmem", "bulkmem_preload"].map(testkit::archive::archive));
    succeeds(install.env("PREFIX", &prefix).env_remove("DESTDIR").env_remove("LIBDIR")).unwrap();
    let command = prefix.join("bin/bulkmem");
    fs::create_dir_all(command.parent().unwrap()).unwrap();
    let built = env!("CARGO_BIN_EXE_bulkmem");
    fs::hard_link(built, &command).or_else(|_| fs::copy(built, &command).map(|_| ())).unwrap();
    let home = Home::new();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&command);
        // As a user's who has no policy file.
        command.env("HOME", home.path()).env_remove("BULKMEM_LIBDIR").env_remove("BULKMEM_PROFILE");
        let output = command.arg("run").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let folder = prefix.join("lib/bulkmem");
    let mapped = run(&["--", "sh", "-c", "exec cat /proc/self/maps"]);
    assert!(mapped.contains(&format!("{}\n", folder.join("libbulkmem_preload.so").display())), "{mapped}");
    let path = run(&["--libpmem", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"]);
    assert!(path.starts_with(&folder.display().to_string()), "{path}");
    assert!(folder.join("libpmem.so.1").is_file());
}
