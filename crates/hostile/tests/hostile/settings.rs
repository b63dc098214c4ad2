//! Environment variables: invalid ones with a standard error that cannot be written to, ones that are removed later,
//! and those of programs with another user's rights.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::process::Run;

const BAD: [(&str, &str); 4] = [
    ("BULKMEM_METHOD", "clear:nonsense"),
    ("BULKMEM_METHOD", "\u{fffd}[[[,:="),
    ("BULKMEM_PROFILE", "/nonexistent/profile"),
    ("BULKMEM_PROFILE", "relative/nowhere"),
];

pub(crate) fn add(suite: &mut Suite) {
    suite.test("settings::bad_ones_are_not_complained_of", || each_bad(Ok));
    suite.test("settings::bad_ones_with_a_closed_standard_error", || {
        each_bad(|run| {
            Ok(run.with(|command| {
                // SAFETY: close is async-signal-safe.
                unsafe {
                    command.pre_exec(|| {
                        (libc::close(2) == 0).then_some(()).ok_or_else(std::io::Error::last_os_error)
                    })
                };
            }))
        })
    });
    match File::options().write(true).open("/dev/full") {
        Ok(_) => suite.test("settings::bad_ones_with_a_full_standard_error", || {
            each_bad(|run| Ok(run.stderr(File::options().write(true).open("/dev/full")?)))
        }),
        Err(error) => {
            suite.skip("settings::bad_ones_with_a_full_standard_error", &format!("/dev/full: {error}"))
        }
    }
    suite.test("settings::init_reports_bad_ones_and_quotes_no_file", reported_by_init);
    suite.test("settings::a_variable_that_is_removed_later_was_read", || {
        Run::scenario(&["removed_later"]).variable("BULKMEM_METHOD", "clear:portable").silent_success()
    });
    suite.test("settings::a_first_call_before_the_constructors_does_not_hide_them", || {
        let run = Run::program("early", &[]).variable("BULKMEM_METHOD", "clear:portable");
        run.outcome()?.printed("clear:portable")
    });
    let name = "settings::of_a_set_user_id_program_are_ignored";
    if testkit::program::emulated() {
        return suite.skip(name, "set-user-ID would be the emulator's");
    }
    match set_user_id() {
        Ok(()) => suite.test(name, ignored_where_secure),
        Err(why) => suite.skip(name, &why),
    }
}

/// Runs a scenario with every invalid variable, and each way to start a process.
fn each_bad(change: impl Fn(Run) -> Result<Run, Failed>) -> Result<(), Failed> {
    BAD.iter().try_for_each(|(name, value)| {
        let outcome = change(Run::scenario(&["exercise"]).variable(name, value))?.outcome()?;
        outcome
            .printed("")
            .map_err(|failed| format!("{name}={value}: {}", failed.message().unwrap_or_default()).into())
    })
}

const SECRET: &str = "root:hash";

/// An error names the variable and quotes no content of a file, because a user could make a program with other rights
/// read one.
fn reported_by_init() -> Result<(), Failed> {
    for (name, value) in BAD {
        let outcome = Run::scenario(&["init"]).variable(name, value).outcome()?;
        if !outcome.status.success() || !outcome.stdout.contains(name) || !outcome.stderr.is_empty() {
            return Err(
                format!("{name}={value}: {}: {}{}", outcome.status, outcome.stdout, outcome.stderr).into()
            );
        }
    }
    let folder = tempfile::tempdir()?;
    let secret = folder.path().join("secret");
    for text in [
        format!("{SECRET}\n"),
        format!("{{ \"format\": \"{SECRET}\", \"version\": 1 }}"),
        format!("bulkmem-policy 1\n{SECRET}\nend\n"),
        format!("bulkmem-policy {SECRET}\n"),
        format!("bulkmem-policy 1\ncpu {SECRET}\nend\n"),
    ] {
        fs::write(&secret, &text)?;
        let outcome = Run::scenario(&["init"]).variable("BULKMEM_PROFILE", &secret).outcome()?;
        let printed = outcome.stdout + &outcome.stderr;
        if !outcome.status.success() || !printed.contains("BULKMEM_PROFILE") || printed.contains(SECRET) {
            return Err(format!("a file with {text:?}: {}: {printed}", outcome.status).into());
        }
    }
    Ok(())
}

/// User and group ID of an unprivileged user.
const OTHER: u32 = 65534;

/// Creates a program that runs with the rights of root if any user starts it, in a folder that every user can enter.
fn program() -> std::io::Result<(tempfile::TempDir, std::path::PathBuf)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("scenario");
    fs::copy(env!("CARGO_BIN_EXE_scenario"), &path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o4755))?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    Ok((folder, path))
}

fn as_other(program: &Path) -> Run {
    Run::at(program, &["policy"]).with(|command| {
        command.uid(OTHER).gid(OTHER);
    })
}

/// Checks that set-user-ID programs work here.
///
/// # Errors
/// The reason why not.
fn set_user_id() -> Result<(), String> {
    // SAFETY: neither has a precondition.
    let (user, restricted) = unsafe { (libc::geteuid(), libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)) };
    if user != 0 {
        return Err("only root can make a program set-user-ID for another user".to_owned());
    }
    if restricted == 1 {
        return Err(
            "this process was started with no_new_privs, under which set-user-ID has no effect".to_owned()
        );
    }
    let (folder, path) =
        program().map_err(|error| format!("a set-user-ID program cannot be made: {error}"))?;
    let path =
        std::ffi::CString::new(path.to_string_lossy().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a terminated string, and a valid place for the answer.
    let flags = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &raw mut about);
        about.f_flag
    };
    if flags & (libc::ST_NOSUID | libc::ST_NOEXEC) != 0 {
        return Err(format!("{} is mounted nosuid or noexec", folder.path().display()));
    }
    Ok(())
}

/// Such a program ignores forced methods, policy files and homes, and no message quotes a file that only root can
/// read.
fn ignored_where_secure() -> Result<(), Failed> {
    let (folder, program) = program()?;
    let secret = folder.path().join("secret");
    fs::write(&secret, SECRET)?;
    fs::set_permissions(&secret, Permissions::from_mode(0o600))?;
    let home = folder.path().join("home");
    testkit::profile::write(&crate::process::profile(&home));
    let expected = "secure, basis defaults, forced []";
    for run in [
        as_other(&program).variable("BULKMEM_METHOD", "clear:portable"),
        as_other(&program).variable("BULKMEM_METHOD", "clear:nonsense"),
        as_other(&program).variable("BULKMEM_PROFILE", &secret),
        as_other(&program).variable("BULKMEM_PROFILE", crate::process::profile(&home)),
        as_other(&program).home(&home),
        as_other(&program).variable("XDG_CONFIG_HOME", home.join(".config")),
    ] {
        run.outcome()?.printed(expected)?;
    }
    // The control: if a user runs a program of their own, the environment counts.
    let own = Run::at(&program, &["policy"]).variable("BULKMEM_METHOD", "clear:portable");
    own.outcome()?.printed("basis defaults, forced [\"clear:portable\"]")
}
