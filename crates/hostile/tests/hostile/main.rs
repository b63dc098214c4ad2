//! The first call under hostile conditions: signals, forks, an allocator and a preloaded C library built on bulkmem,
//! system call filters, set-user-ID programs, closed descriptors, a full standard error, special files, many threads.
//! Every scenario is a process of its own (`src/`), because there is one first call per process. It is killed if it
//! hangs. Each runs without a policy file and with one of the usual size.

mod files;
mod process;
mod settings;
#[cfg(target_arch = "x86_64")]
mod symbols;

use std::process::ExitCode;

use libtest_mimic::Failed;
use process::{Home, Run};
use testkit::harness::Suite;

const OPERATIONS: [&str; 6] = ["clear", "fill", "copy", "fill_persist", "copy_persist", "persist"];

fn main() -> ExitCode {
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    for home in [Home::Empty, Home::WithProfile] {
        scenarios(&mut suite, home);
    }
    files::add(&mut suite);
    settings::add(&mut suite);
    #[cfg(target_arch = "x86_64")]
    if cfg!(debug_assertions) {
        let why = "built with debug assertions, whose failures format and allocate; run it with --release";
        suite.skip("symbols", why);
    } else {
        symbols::add(&mut suite);
    }
    #[cfg(not(target_arch = "x86_64"))]
    suite.skip("symbols", "reading compiled code is only written for x86-64");
    suite.run()
}

/// Adds the test `NAME::HOME`, which passes if the scenario ends with status 0 and prints nothing, each of `times`
/// times.
fn scenario(suite: &mut Suite, home: Home, name: &str, arguments: &'static [&'static str], times: usize) {
    let (name, stepped) = (format!("{name}::{home}"), ["stepped", "interrupted"]);
    if !cfg!(target_arch = "x86_64") && stepped.iter().any(|word| arguments[0].starts_with(word)) {
        return suite.skip(&name, "single-stepping is only written for x86-64");
    }
    if testkit::program::emulated() && name.starts_with("seccomp::") {
        return suite.skip(&name, "the filter would apply to the emulator's system calls");
    }
    suite.test(&name, move || {
        let folder = home.make()?;
        (0..times).try_for_each(|_| Run::scenario(arguments).home(folder.path()).silent_success())
    });
}

fn scenarios(suite: &mut Suite, home: Home) {
    scenario(suite, home, "signals::calls_from_a_handler_at_every_instruction", &["stepped_first_call"], 1);
    scenario(suite, home, "signals::calls_from_handlers_at_any_time", &["storm"], 20);
    scenario(
        suite,
        home,
        "signals::first_use_in_a_handler_that_interrupted_malloc",
        &["interrupted_malloc"],
        1,
    );
    scenario(suite, home, "fork::children_of_every_stage_of_the_first_call", &["stepped_fork"], 1);
    scenario(suite, home, "threads::sixty_four_first_calls_together", &["threads"], 30);
    scenario(suite, home, "seccomp::no_system_call_after_initialization", &["strict"], 1);
    scenario(suite, home, "seccomp::first_use_where_nothing_can_be_opened", &["no_open"], 1);
    scenario(suite, home, "environment::a_variable_that_is_set_later_is_not_read", &["set_later"], 1);
    scenario(suite, home, "dead_stores::memory_that_goes_away_is_cleared", &["dead_stores"], 1);
    for (name, scenario_name) in [("errno::is_unchanged", "errno"), ("stack::less_than_4_kib", "stack")] {
        suite.test(&format!("{name}::{home}"), move || {
            let folder = home.make()?;
            OPERATIONS.iter().try_for_each(|operation| {
                Run::scenario(&[scenario_name, operation]).home(folder.path()).silent_success()
            })
        });
    }
    suite.test(&format!("allocator::the_first_call_allocates_nothing::{home}"), move || {
        let folder = home.make()?;
        OPERATIONS.iter().try_for_each(|operation| {
            Run::program("allocations", &[operation]).home(folder.path()).silent_success()
        })
    });
    suite.test(&format!("allocator::built_on_bulkmem::{home}"), move || {
        let folder = home.make()?;
        Run::program("allocator", &[]).home(folder.path()).silent_success()
    });
    for (name, program) in [
        ("our_own_program", Run::scenario as fn(&[&str]) -> Run),
        ("a_shell", |_| {
            Run::found(
                "/bin/sh",
                &["-c", "x=$(printf %05000d 7); test ${#x} = 5000 && ls / | cat >/dev/null"],
            )
        }),
        ("a_sort", |_| Run::found("/usr/bin/sort", &["/proc/self/maps", "--output=/dev/null"])),
    ] {
        if testkit::program::emulated() && name != "our_own_program" {
            suite.skip(
                &format!("preload::{name}::{home}"),
                "this machine's programs are of another architecture",
            );
            continue;
        }
        suite.test(&format!("preload::{name}::{home}"), move || {
            let folder = home.make()?;
            let run = program(&["exercise"]).home(folder.path());
            run.variable("LD_PRELOAD", process::preload()?).silent_success()
        });
    }
    suite.test(&format!("descriptors::closed_ones_stay_closed::{home}"), move || {
        let folder = home.make()?;
        let before = home.content(folder.path());
        for _ in 0..10 {
            Run::scenario(&["closed_descriptors"]).home(folder.path()).silent_success()?;
        }
        if home.content(folder.path()) != before {
            Err(Failed::from("the profile was written to"))
        } else {
            Ok(())
        }
    });
}
