//! A home directory of its own for each test, so that nothing of the user's is read or touched.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use assert_cmd::Command;
use bulkmem::Operation;
use bulkmem::machine::Machine;
use bulkmem::method::Parameters;
use bulkmem::policy::{Choice, Situation};
use bulkmem_measure::Provenance;
use bulkmem_measure::calibration::{
    Condition, Cost, Coverage, FORMAT, Figure, Mode, OperationProvenance, Profile, Rule, Saturation, VERSION,
};
use bulkmem_measure::engine::LIBPMEM;
use serde_json::Value;

/// Held by tests that change how many huge pages the machine reserves.
pub(crate) static HUGE_PAGES: Mutex<()> = Mutex::new(());

/// An empty home directory.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Home {
        Home(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of the user's profile.
    pub(crate) fn profile(&self) -> PathBuf {
        self.path().join("config/bulkmem/profile.json")
    }

    /// Returns the path of the user's policy file.
    pub(crate) fn policy(&self) -> PathBuf {
        self.profile().with_extension("policy")
    }

    /// Writes a text as the user's policy file.
    pub(crate) fn write_policy(&self, text: &str) {
        std::fs::create_dir_all(self.policy().parent().expect("it has a folder")).unwrap();
        std::fs::write(self.policy(), text).unwrap();
    }

    /// Writes a profile, and the policy file that belongs to it.
    pub(crate) fn write_profile(&self, profile: &Profile) {
        self.write_policy(&profile.policy_text());
        std::fs::write(self.profile(), serde_json::to_string(profile).unwrap()).unwrap();
    }

    /// A home with a profile of this machine.
    pub(crate) fn with_profile() -> Home {
        let home = Home::new();
        home.write_profile(&profile());
        home
    }

    /// The command, in this home and with nothing of the user's environment.
    pub(crate) fn bulkmem(&self) -> Command {
        self.prepared(Command::cargo_bin("bulkmem").expect("the command is built"))
    }

    /// A variable with the command for another architecture: the emulator, its arguments, and the path of the command,
    /// separated by spaces.
    pub(crate) const BUILT: &str = "BULKMEM_TEST_COMMAND";

    /// The command that the variable [`Home::BUILT`] names, else that of this machine, as [`Home::bulkmem`] does.
    pub(crate) fn built(&self) -> Command {
        let Ok(named) = std::env::var(Home::BUILT) else { return self.bulkmem() };
        let mut words = named.split_whitespace();
        let mut command = Command::new(words.next().expect("the command is not empty"));
        command.args(words);
        self.prepared(command)
    }

    fn prepared(&self, mut command: Command) -> Command {
        for (name, value) in self.environment() {
            command.env(name, value);
        }
        for name in UNSET {
            command.env_remove(name);
        }
        command.current_dir(self.path());
        command
    }

    /// The same, for tests that talk to the running command.
    pub(crate) fn spawnable(&self) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bulkmem"));
        command.envs(self.environment()).current_dir(self.path());
        for name in UNSET {
            command.env_remove(name);
        }
        // Under nohup and in the background of a script, the tests, and so the command, would ignore them.
        let reset = || {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                // SAFETY: async-signal-safe, and no handler of ours is replaced.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // SAFETY: the closure only makes async-signal-safe calls and allocates nothing.
        unsafe { command.pre_exec(reset) };
        command
    }

    fn environment(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("HOME", self.path().into()),
            ("XDG_CONFIG_HOME", self.path().join("config")),
            ("COLUMNS", "80".into()),
        ]
    }

    /// Runs the command and reads what it prints as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.bulkmem().args(arguments).assert().success().get_output().stdout.clone();
        serde_json::from_slice(&output).expect("JSON")
    }

    /// Runs the command and gives what it prints.
    pub(crate) fn text(&self, arguments: &[&str], columns: u32) -> String {
        let mut command = self.bulkmem();
        command.args(arguments).env("COLUMNS", columns.to_string());
        String::from_utf8(command.assert().success().get_output().stdout.clone()).expect("UTF-8")
    }
}

const UNSET: [&str; 7] = [
    "BULKMEM_FROM",
    "BULKMEM_LOOK",
    "BULKMEM_METHOD",
    "BULKMEM_POPULATE",
    "BULKMEM_PROFILE",
    "NO_COLOR",
    "CLICOLOR_FORCE",
];

/// Runs a command that must succeed.
///
/// # Errors
/// Its exit status and error output in one line, if it fails.
pub(crate) fn succeeds(command: &mut std::process::Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", output.status, said.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Keeps a command from writing larger files.
pub(crate) fn limit_file_size(command: &mut std::process::Command, bytes: u64) {
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: `limit` is a valid rlimit; both calls are async-signal-safe, as is needed between fork and exec.
        let done = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure only makes async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(limit) };
}

/// The keys of an object, sorted.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// No line is wider than the terminal.
pub(crate) fn assert_fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= columns, "wider than {columns}: {line}\n{text}");
    }
}

/// A profile of this machine: `portable` clears from 1 MiB on, twice as fast as the C library.
pub(crate) fn profile() -> Profile {
    let machine = Machine::current();
    let rule = |from, method: &str, reason: &str| Rule {
        operation: Operation::Clear,
        situation: Situation::Throughput,
        from,
        method: method.into(),
        parameters: Parameters::default(),
        reason: reason.into(),
    };
    let figure = |length: u64, method: &str, median_ns: f64| Figure {
        operation: Operation::Clear,
        cost: Cost::Throughput,
        method: method.into(),
        parameters: Parameters::default(),
        length,
        condition: Condition::new(true, false, 1),
        median_ns,
        quartiles_ns: [median_ns * 0.9, median_ns * 1.1],
        samples: 21,
        disturbance_ns: None,
    };
    let clear = OperationProvenance {
        operation: Operation::Clear,
        date: "2025-11-21T05:06:07Z".into(),
        mode: Mode::Quick,
        bulkmem: "0.1.0".into(),
        commit: "0123456789abcdef".into(),
        microcode: machine.microcode.clone(),
        kernel: machine.kernel.clone(),
        backing_page_size: machine.page_size,
        load: None,
    };
    Profile {
        format: FORMAT.into(),
        version: VERSION,
        provenance: Provenance {
            cpu: machine.cpu.clone(),
            microcode: machine.microcode.clone(),
            caches: [machine.caches.l1d, machine.caches.l2, machine.caches.l3],
            processors: machine.processors,
            kernel: machine.kernel.clone(),
            page_size: machine.page_size,
            backing_page_size: machine.page_size,
            date: "2025-11-21T05:06:07Z".into(),
            bulkmem: "0.1.0".into(),
            commit: "0123456789abcdef".into(),
            seconds: 7.5,
            samples: 84,
            ..Provenance::default()
        },
        coverage: Coverage { mode: Mode::Quick, complete: true, operations: vec![clear] },
        durability: None,
        looks: Vec::new(),
        aliasing: None,
        rules: vec![
            rule(0, "c_library", "it is short"),
            rule(1 << 20, "portable", "it measured <twice> as fast"),
        ],
        threads: vec![Saturation { operation: Operation::Clear, from: 4 << 20, threads: 2 }],
        figures: vec![
            figure(4096, "c_library", 100.0),
            figure(4096, "portable", 200.0),
            figure(1 << 20, "c_library", 100_000.0),
            figure(1 << 20, "portable", 50_000.0),
        ],
        module: Vec::new(),
    }
}

/// The same profile with copy_persist by a method, which it returns, twice as fast as libpmem at 64 KiB and half as fast
/// at 1 MiB.
pub(crate) fn persisting() -> (Profile, &'static str) {
    let mut profile = profile();
    let operation = Operation::CopyPersist;
    let method = bulkmem::method::all().find(|it| it.does(operation) && it.available()).expect("a method");
    let parameters = Choice::of(method, operation).parameters;
    let reason = "it is durable".to_owned();
    let rule = &profile.rules[0];
    profile.rules.push(Rule { operation, method: method.name.into(), parameters, reason, ..rule.clone() });
    for (length, ns, libpmem_ns) in [(64 << 10, 1250.0, 2500.0), (1 << 20, 50_000.0, 25_000.0)] {
        for (name, parameters, median_ns) in
            [(method.name, parameters, ns), (LIBPMEM, Parameters::default(), libpmem_ns)]
        {
            profile.figures.push(Figure {
                operation,
                method: name.into(),
                parameters,
                length,
                median_ns,
                quartiles_ns: [median_ns; 2],
                ..profile.figures[0].clone()
            });
        }
    }
    (profile, method.name)
}
