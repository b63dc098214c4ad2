//! Runs one scenario in a process with an empty environment, captures its output, and kills it if it hangs.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

/// Time limit of a scenario; the slowest takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Content of a scenario's home.
#[derive(Clone, Copy)]
pub(crate) enum Home {
    Empty,
    WithProfile,
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Home::Empty => "without_a_profile",
            Home::WithProfile => "with_a_profile",
        })
    }
}

impl Home {
    /// Creates a folder with the content.
    pub(crate) fn make(self) -> Result<tempfile::TempDir, Failed> {
        let folder = tempfile::tempdir()?;
        if matches!(self, Home::WithProfile) {
            testkit::profile::write(&profile(folder.path()));
        }
        Ok(folder)
    }

    /// Returns the bytes of the policy file.
    pub(crate) fn content(self, home: &Path) -> Option<Vec<u8>> {
        std::fs::read(profile(home)).ok()
    }
}

/// Returns the path of the policy file in a home.
pub(crate) fn profile(home: &Path) -> PathBuf {
    home.join(".config/bulkmem/profile.policy")
}

/// Returns the path of the library that cargo built for this test, in the same folder.
pub(crate) fn preload() -> Result<PathBuf, Failed> {
    let path = std::env::current_exe()?.with_file_name("libhostile_preload.so");
    if path.is_file() { Ok(path) } else { Err(format!("cargo did not build {}", path.display()).into()) }
}

/// A process to run.
pub(crate) struct Run {
    command: Command,
    stderr: Option<Stdio>,
}

/// Result of a process.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Runs a scenario.
    pub(crate) fn scenario(arguments: &[&str]) -> Run {
        Run::of(testkit::program::command(env!("CARGO_BIN_EXE_scenario")), arguments)
    }

    /// Runs another program of this crate.
    pub(crate) fn program(name: &str, arguments: &[&str]) -> Run {
        let path = Path::new(env!("CARGO_BIN_EXE_scenario")).with_file_name(name);
        Run::of(testkit::program::command(path), arguments)
    }

    /// Runs a program of the system.
    pub(crate) fn found(path: &str, arguments: &[&str]) -> Run {
        Run::at(Path::new(path), arguments)
    }

    pub(crate) fn at(path: &Path, arguments: &[&str]) -> Run {
        Run::of(Command::new(path), arguments)
    }

    fn of(mut command: Command, arguments: &[&str]) -> Run {
        command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        // A process group, to kill it together with its children.
        command.process_group(0);
        Run { command, stderr: None }
    }

    pub(crate) fn home(mut self, home: &Path) -> Run {
        self.command.env("HOME", home);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// Replaces the standard error that is captured.
    pub(crate) fn stderr(mut self, stderr: impl Into<Stdio>) -> Run {
        self.stderr = Some(stderr.into());
        self
    }

    /// Changes how the process is started.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Command)) -> Run {
        change(&mut self.command);
        self
    }

    /// Runs the process to its end.
    ///
    /// # Errors
    /// If it cannot be started, or hangs.
    pub(crate) fn outcome(mut self) -> Result<Outcome, Failed> {
        let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        self.command.stdout(stdout.try_clone()?);
        self.command.stderr(self.stderr.take().unwrap_or(stderr.try_clone()?.into()));
        let mut child = self.command.spawn()?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > PATIENCE {
                // SAFETY: the group of our own child, which has not been waited for.
                unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
                child.wait()?;
                return Err(format!("it hung: killed after {PATIENCE:?}").into());
            }
            sleep(Duration::from_millis(2));
        };
        Ok(Outcome { status, stdout: text(&mut stdout)?, stderr: text(&mut stderr)? })
    }

    /// Runs the process, which must succeed and print nothing.
    pub(crate) fn silent_success(self) -> Result<(), Failed> {
        self.outcome()?.printed("")
    }
}

impl Outcome {
    /// Checks that the process succeeded, printed this line (nothing if it is empty), and nothing to standard error.
    pub(crate) fn printed(self, line: &str) -> Result<(), Failed> {
        let Outcome { status, stdout, stderr } = self;
        if status.success() && stdout.trim_end() == line && stderr.is_empty() {
            return Ok(());
        }
        Err(format!("{status}; expected: {line:?}; standard output: {stdout}; standard error: {stderr}")
            .into())
    }
}

fn text(file: &mut File) -> Result<String, Failed> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
