//! Message passing between two threads: a thread that sees the flag sees all bytes that were written before it.
//!
//! One thread writes the source of a copy and a request, and the other waits for the request, writes the destination by a
//! method, and replies; then the first compares every byte. Flags are stored with Release and loaded with Acquire, which is
//! all that Rust demands of a program.
//!
//! A missing barrier shows only on processors that reorder, and there not always: x86-64 reorders non-temporal stores but not
//! ordinary ones, and QEMU on x86-64 reorders nothing. So for aarch64 and riscv64 the last tests, as those of `fences` and
//! `traces`, read the barriers from the instructions.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use bulkmem::machine::features;
use bulkmem::method::{self, Method};
use bulkmem::policy::Choice;
use bulkmem::{Durability, Error, Operation, Options};
use libtest_mimic::Failed;
use testkit::harness::Suite;
use testkit::table;

/// Some lines and a part, so that a method has its loop and its ends.
const LENGTH: usize = 10 * 64 + 13;
/// On x86-64 enough to notice a missing SFENCE, if two processors are idle.
const ROUNDS: u32 = if cfg!(target_arch = "x86_64") { 5000 } else { 100 };
/// How often a flag is read before the thread lets another run. The kernel is not entered between a store and its
/// observation then, which would hide that a fence is missing.
const SPINS: usize = 1000;
/// A request to end, or the reply that the writer ended because of an error.
const STOP: u32 = u32::MAX;

fn main() -> ExitCode {
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    for row in table::entries() {
        // `Options` rejects methods that would have to be emulated.
        let missing = row.0.requires.difference(features());
        suite.entry_needing(missing, "plain", row, |method, operation| published(method, operation, plain));
        suite.entry_needing(missing, "unfenced", row, |method, operation| {
            published(method, operation, unfenced)
        });
    }
    suite.test("checker::a_byte_that_is_not_written_is_noticed", a_byte_that_is_not_written_is_noticed);
    #[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
    barriers::add(&mut suite);
    // Two threads of one test need both processors of a small machine.
    suite.serial();
    suite.run()
}

/// A call of an operation: the destination, the source, and the byte of fills.
type Call = fn(&Options, Operation, *mut u8, *const u8, u8) -> Result<(), Error>;

/// Writes the destination by the operations that return plain bytes.
fn plain(
    options: &Options,
    operation: Operation,
    to: *mut u8,
    from: *const u8,
    byte: u8,
) -> Result<(), Error> {
    // SAFETY: `exchange` passes two ranges of LENGTH bytes that only this thread accesses until it replies.
    let (to, from) =
        unsafe { (std::slice::from_raw_parts_mut(to, LENGTH), std::slice::from_raw_parts(from, LENGTH)) };
    match operation {
        Operation::Clear => options.clear(to),
        Operation::Fill => options.fill(to, byte),
        Operation::Copy => options.copy(to, from)?,
        Operation::FillPersist => options.fill_persist(to, byte)?,
        Operation::CopyPersist => options.copy_persist(to, from)?,
        Operation::Persist => {
            to.copy_from_slice(from);
            options.persist(to)?;
        }
    }
    Ok(())
}

/// Writes the destination by the unfenced operations, and fences.
fn unfenced(
    options: &Options,
    operation: Operation,
    to: *mut u8,
    from: *const u8,
    byte: u8,
) -> Result<(), Error> {
    // SAFETY: as for `plain`; the fence follows.
    unsafe {
        match operation {
            Operation::Clear => options.clear_unfenced(to, LENGTH),
            Operation::Fill => options.fill_unfenced(to, LENGTH, byte),
            Operation::Copy => options.copy_unfenced(to, from, LENGTH),
            Operation::FillPersist => options.fill_persist_unfenced(to, LENGTH, byte)?,
            Operation::CopyPersist => options.copy_persist_unfenced(to, from, LENGTH)?,
            Operation::Persist => {
                to.copy_from_nonoverlapping(from, LENGTH);
                options.persist_unfenced(to, LENGTH)?;
            }
        }
    }
    method::fence();
    Ok(())
}

fn published(method: &'static Method, operation: Operation, call: Call) -> Result<(), Failed> {
    let options = Options::new()
        .durability(Durability::FlushToMemory)
        .method(operation, Choice::of(method, operation))?;
    let expected = if operation == Operation::Clear { |_| 0 } else { |round: u32| round as u8 };
    exchange(expected, |to, from, byte| call(&options, operation, to, from, byte))
}

/// Two ranges of memory that the threads access in turn.
#[derive(Clone, Copy)]
struct Ranges {
    to: *mut u8,
    from: *mut u8,
}

// SAFETY: the flags of `exchange` give the ranges to one thread at a time.
unsafe impl Send for Ranges {}

/// Exchanges messages. `write` receives the destination, the source and the byte of the round.
fn exchange(
    expected: fn(u32) -> u8,
    write: impl Fn(*mut u8, *const u8, u8) -> Result<(), Error> + Send,
) -> Result<(), Failed> {
    let (mut to, mut from) = (vec![0xff_u8; LENGTH], vec![0_u8; LENGTH]);
    let ranges = Ranges { to: to.as_mut_ptr(), from: from.as_mut_ptr() };
    let (request, reply) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let (requested, replied) = (&request, &reply);
        let writer = scope.spawn(move || {
            let Ranges { to, from } = { ranges };
            let _ends = StopOnPanic(replied);
            let mut last = 0;
            loop {
                let round = wait(requested, last);
                if round == STOP {
                    return Ok(());
                }
                let result = write(to, from, round as u8);
                replied.store(if result.is_ok() { round } else { STOP }, Ordering::Release);
                last = round;
                result?;
            }
        });
        let compared = (1..=ROUNDS).try_for_each(|round| {
            // SAFETY: the other thread accesses the ranges only between the request and the reply.
            unsafe {
                ranges.to.write_bytes(0xff, LENGTH);
                ranges.from.write_bytes(round as u8, LENGTH);
            }
            request.store(round, Ordering::Release);
            if wait(&reply, round - 1) == STOP {
                return Ok(());
            }
            // SAFETY: as above.
            let found = unsafe { std::slice::from_raw_parts(ranges.to, LENGTH) };
            // Each byte is read once: it may arrive at any moment.
            match found.iter().copied().enumerate().find(|(_, byte)| *byte != expected(round)) {
                None => Ok(()),
                Some((at, byte)) => Err(Failed::from(format!(
                    "in round {round}, byte {at} is {byte:#04x} and not {:#04x}",
                    expected(round)
                ))),
            }
        });
        request.store(STOP, Ordering::Release);
        let written: Result<(), Error> = writer.join().expect("the writer does not panic");
        written?;
        compared
    })
}

/// Ends the exchange if the writer panics.
struct StopOnPanic<'f>(&'f AtomicU32);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(STOP, Ordering::Release);
        }
    }
}

/// Waits until a flag has another value, and returns that.
fn wait(flag: &AtomicU32, last: u32) -> u32 {
    loop {
        for _ in 0..SPINS {
            let value = flag.load(Ordering::Acquire);
            if value != last {
                return value;
            }
            std::hint::spin_loop();
        }
        thread::yield_now();
    }
}

fn a_byte_that_is_not_written_is_noticed() -> Result<(), Failed> {
    let result = exchange(
        |round| round as u8,
        |to, from, _| {
            // SAFETY: the range is that of `exchange`, and the other thread waits.
            unsafe { to.copy_from_nonoverlapping(from, LENGTH - 1) };
            Ok(())
        },
    );
    match result {
        Err(error) if error.message().is_some_and(|text| text.contains("byte 652 is 0xff")) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Barriers, read from the instructions.
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
mod barriers {
    use testkit::step::{Kind, Step};
    use testkit::walk::Walk;

    use super::*;

    pub(super) fn add(suite: &mut Suite) {
        suite.test("barriers::the_fence_is_complete_before_the_flag", the_fence_is_complete_before_the_flag);
        suite.test(
            "barriers::a_release_store_orders_what_is_before_it",
            a_release_store_orders_what_is_before_it,
        );
    }

    #[inline(never)]
    extern "C" fn fence_and_publish(flag: &AtomicU32) {
        method::fence();
        flag.store(1, Ordering::Release);
    }

    #[inline(never)]
    extern "C" fn publish(flag: &AtomicU32) {
        flag.store(1, Ordering::Release);
    }

    /// Returns the instructions of a function without branches, in order.
    fn steps(function: extern "C" fn(&AtomicU32)) -> Result<Vec<Step>, Failed> {
        let walk = Walk::from(function as *const ())?;
        Ok(walk.steps.into_values().collect())
    }

    fn position(steps: &[Step], what: &str, is: impl Fn(&Step) -> bool) -> Result<usize, Failed> {
        let found = steps.iter().position(is);
        found.ok_or_else(|| {
            let texts: Vec<&str> = steps.iter().map(|step| step.text.as_str()).collect();
            format!("no {what} among:\n{}", texts.join("\n")).into()
        })
    }

    /// The release store: one instruction on aarch64, a barrier and a store on RISC-V.
    fn releases(step: &Step) -> bool {
        if cfg!(target_arch = "aarch64") {
            step.mnemonic == "stlr"
        } else {
            step.mnemonic == "fence" && step.text.replace(' ', "").contains("rw,w")
        }
    }

    fn the_fence_is_complete_before_the_flag() -> Result<(), Failed> {
        let steps = steps(fence_and_publish)?;
        let fence = position(&steps, "barrier that waits", |step| step.kind == Kind::Completion)?;
        let flag = position(&steps, "release store", releases)?;
        if fence < flag { Ok(()) } else { Err("the flag is stored before the fence".into()) }
    }

    /// The methods with ordinary stores have no barrier of their own.
    fn a_release_store_orders_what_is_before_it() -> Result<(), Failed> {
        position(&steps(publish)?, "release store", releases).map(|_| ())
    }
}
