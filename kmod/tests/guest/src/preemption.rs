//! Tests that others run between two chunks, in every preemption model of the kernel, and reports the most bytes between two
//! reschedule points. Needs one processor and a gigantic page. Emulated time means nothing, so it is compared only with
//! itself.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::clearing::choose;
use crate::huge::{GIGANTIC, HugeMapping, MIDDLE, SMALL, Source};
use crate::module;
use crate::observing::{expected, stretches};

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("preemption::the_longest_stretch_is_the_chunk", the_longest_stretch_is_the_chunk);
    suite.test("preemption::others_run_between_chunks", others_run_between_chunks);
}

/// The file that shows and sets the model of kernels with a choice.
const SWITCH: &str = "/sys/kernel/debug/sched/preempt";

/// Runs `work` in each preemption model of this kernel. Its argument is the name of the model, as in `preempt=`.
fn in_each_model(work: impl Fn(&str) -> Result<(), Failed>) -> Result<(), Failed> {
    let required: &[&str] = match fs::read_to_string("/proc/version")?.contains("PREEMPT_RT") {
        true if !Path::new(SWITCH).exists() => return work("full"),
        true => &["full"],
        // Debian's 5.10 has one model. 5.12 is the first version with a choice, 7.0 the first without two of them on x86.
        false if module::kernel()? < (5, 12) => return work("voluntary"),
        false if module::kernel()? >= (7, 0) => &["full", "lazy"],
        false => &["none", "voluntary", "full"],
    };
    let text = fs::read_to_string(SWITCH)?;
    let before = text.split_whitespace().find_map(|model| model.strip_prefix('(')?.strip_suffix(')'));
    let models = text.split_whitespace().map(|model| model.trim_matches(|it| "()".contains(it)));
    let models: Vec<&str> = models.collect();
    assert!(required.iter().all(|model| models.contains(model)), "{text}");
    for model in models {
        fs::write(SWITCH, model)?;
        work(model)?;
    }
    Ok(fs::write(SWITCH, before.ok_or(text.as_str())?)?)
}

fn the_longest_stretch_is_the_chunk() -> Result<(), Failed> {
    in_each_model(|model| {
        for method in module::possible() {
            for chunk in [SMALL, 64 << 10, MIDDLE] {
                let found = stretches(method, chunk, 0)?;
                println!("preempt={model} method={method} chunk={chunk}: longest {} bytes", found.0);
                assert_eq!(found, expected(method, chunk, 0)?, "{model}, {method}, chunk {chunk}");
            }
        }
        Ok(())
    })
}

/// The interval at which the other thread wants to run.
const INTERVAL: Duration = Duration::from_millis(1);

/// Faults a gigantic page in while a thread of higher priority wakes up at every [`INTERVAL`]. Returns the time of the fault
/// and the longest time during which that thread did not run.
fn longest_wait(chunk: usize) -> Result<(Duration, Duration), Failed> {
    choose("movnti", "large")?;
    module::set("chunk", chunk.to_string())?;
    let mapping = HugeMapping::new(Source::Pool1G, 1)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| -> io::Result<Duration> {
            let priority = libc::sched_param { sched_priority: 50 };
            // SAFETY: the calling thread, and a valid structure.
            if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                thread::sleep(INTERVAL);
                let now = Instant::now();
                longest = longest.max(now - last);
                last = now;
            }
            Ok(longest)
        });
        // Until it runs with its priority.
        thread::sleep(20 * INTERVAL);
        let start = Instant::now();
        mapping.touch(0);
        let elapsed = start.elapsed();
        done.store(true, Ordering::Relaxed);
        let longest = other.join().map_err(|_| "the other thread panicked")??;
        Ok((elapsed, longest))
    })
}

/// Returns the share of a fault during which the other thread did not run: the smallest of some attempts, because the emulator
/// can also stop in between if its own machine is busy.
fn smallest_wait(chunk: usize) -> Result<f64, Failed> {
    let mut smallest = f64::INFINITY;
    for _ in 0..5 {
        let (whole, waited) = longest_wait(chunk)?;
        smallest = smallest.min(waited.div_duration_f64(whole));
        if smallest < LITTLE {
            break;
        }
    }
    Ok(smallest)
}

/// The share of a fault below which the other thread runs during the fault.
const LITTLE: f64 = 0.25;

fn others_run_between_chunks() -> Result<(), Failed> {
    in_each_model(|model| {
        let share = smallest_wait(GIGANTIC)?;
        println!("preempt={model} chunk=1G: others waited for {share:.3} of the fault");
        // The kernel preempts only at reschedule points in these models, and for such a thread at any instruction in others.
        match ["none", "voluntary"].contains(&model) {
            true => assert!(share > 0.5, "{model}: {share}"),
            false => assert!(share < LITTLE, "{model}: {share}"),
        }
        let share = smallest_wait(MIDDLE)?;
        println!("preempt={model} chunk=2M: others waited for {share:.3} of the fault");
        assert!(share < LITTLE, "{model}: {share}");
        Ok(())
    })
}
