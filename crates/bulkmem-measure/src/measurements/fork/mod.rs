//! Fork and copy-on-write: the cost of the kernel's copying and clearing of pages.

mod child;
mod pages;
mod pairs;

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bulkmem::machine::Machine;
use bulkmem::{Intent, Operation, Pages};
use bulkmem_kmod::{CopyCounters, CopyMethod, Module};

use self::child::Work;
use self::pages::Ledger;
pub(crate) use self::pairs::{
    BYPASSING_CLEARS, BYPASSING_COPIES, BYPASSING_PAGES, CACHED_PAGES, STRING_PAGES,
};
use crate::engine::buffer::map;
use crate::engine::{
    Buffer, Candidate, Config, Content, Kind, Measure, MeasureError, Measurement, MethodSet, Metric,
    PageSize, RawRange, Reservation, Result, Row, Run, Sample, fits, go_on, units,
};
use crate::measurements::checks::require;
use crate::measurements::participants::{Candidates, FIRST_TOUCH, sampler};

/// Least time of a sample of forks.
const SAMPLE: Duration = Duration::from_millis(20);
/// Least time of a sample of work within this process.
const SHORT_SAMPLE: Duration = Duration::from_millis(2);

/// The base pages of this machine.
const BASE: PageSize = PageSize(Pages::Base);

/// Name of the candidate whose child writes to the buffer.
pub const CHILD_WRITES: &str = "fork, child writes";
/// Name of the control whose child ends immediately.
const ALONE: &str = "fork alone";

/// The work after a fork, with the candidates that the results name.
const FORKS: [(Work, Kind, &str); 4] = [
    (Work::ChildWrites, Kind::Kernel, CHILD_WRITES),
    (Work::ParentWrites, Kind::Kernel, "fork, parent writes"),
    (Work::ChildReads, Kind::Control, "fork, child reads"),
    (Work::Nothing, Kind::Control, ALONE),
];

/// Options for measuring forks.
#[derive(Clone, Debug)]
pub struct ForkOptions {
    /// Sizes of the buffer, bytes: whole pages.
    pub sizes: Vec<u64>,
    /// Pages of the buffer. Explicit huge ones are copied whole.
    pub pages: PageSize,
    /// Forks per sample. Default: as many as can be timed precisely.
    pub loops: Option<u32>,
    /// Methods that copy and clear as much in this process, peers and samples.
    pub candidates: Candidates,
}

impl Default for ForkOptions {
    /// The source's sizes, 5 samples.
    fn default() -> ForkOptions {
        let sizes = [4, 20, 28, 32, 64, 128, 256].map(|kibibytes| kibibytes << 10).to_vec();
        ForkOptions { sizes, pages: BASE, loops: None, candidates: Candidates::default() }
    }
}

impl ForkOptions {
    /// Private buffers of 1, 4 and 16 huge pages, of the smallest size that the machine has.
    ///
    /// # Errors
    /// If it has none.
    pub fn huge() -> Result<ForkOptions> {
        let smallest = Machine::current().huge_page_sizes.iter().min().copied();
        let reason = "this kernel has no huge pages (/sys/kernel/mm/hugepages)";
        require(smallest.is_some(), "--huge", reason.to_owned())?;
        let page = smallest.unwrap_or(BASE.bytes());
        let sizes = [1, 4, 16].map(|pages| pages * page).to_vec();
        Ok(ForkOptions { sizes, pages: PageSize(Pages::Explicit(page)), ..ForkOptions::default() })
    }

    fn is_huge(&self) -> bool {
        matches!(self.pages.0, Pages::Explicit(_))
    }
}

impl Measure for ForkOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Fork
    }

    fn validate(&self) -> Result<()> {
        for &size in &self.sizes {
            let page = self.pages.bytes();
            let reason = format!("{size} bytes are not a whole number of pages: name a multiple of {page}");
            require(size > 0 && size.is_multiple_of(page), "--size", reason)?;
            // The buffer and the child's copies; within the process, fresh pages too.
            match self.is_huge() {
                true => Reservation::check(size.saturating_mul(3), self.pages)?,
                false => fits(size.saturating_mul(2))?,
            }
        }
        // A method may support only one of them.
        let copying = self.candidates.check(Operation::Copy);
        copying.or_else(|error| self.candidates.check(Operation::Clear).map_err(|_| error))
    }

    fn uncounted(&self) -> Option<&'static str> {
        Some("forks run in the kernel and in a child process; only this thread is counted, in user mode")
    }

    fn seconds(&self) -> f64 {
        let forks = 4.0 * SAMPLE.as_secs_f64().max(f64::from(self.loops.unwrap_or(0)) * 3e-4);
        let others = 25.0 * SHORT_SAMPLE.as_secs_f64();
        self.sizes.len() as f64 * (self.candidates.runs + 1) as f64 * (forks + others)
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        run.expect_groups(if self.is_huge() { 2 } else { 3 } * self.sizes.len());
        for &size in &self.sizes {
            let _reservation = Reservation::of(size.saturating_mul(3), self.pages)?;
            self.forks(run, size)?;
            self.within(run, size)?;
            // The source's kernel cleared and copied base pages.
            if !self.is_huge() {
                self.pairs(run, size)?;
            }
        }
        Ok(())
    }

    /// Summarizes the cost of forks and the share of copying.
    fn conclude(&self, run: &mut Run<'_>) {
        let (Some(&least), Some(&most)) = (self.sizes.iter().min(), self.sizes.iter().max()) else { return };
        let copies = run.rows().filter(|row| row.config.operation == Some(Operation::Copy));
        let rows: Vec<Row> = copies.cloned().collect();
        let of =
            |name, size| rows.iter().find(|row| row.candidate.name == name && row.config.size == Some(size));
        let time = |name, size| of(name, size).map(|row| row.stats.median);
        if let Some(row) = of(ALONE, least) {
            let mut text = format!(
                "A fork whose child ends immediately takes {} here, with a buffer of any size",
                units::nanoseconds(row.stats.median)
            );
            let counts = ["pages_copied", "pages_cleared", "page_table_pages"].map(|name| row.also.get(name));
            if let [Some(copied), Some(cleared), Some(tables)] = counts {
                text += &format!(
                    "; the kernel copies {copied} pages for it (stack, heap and data), clears {cleared}, and clears {tables} more \
                     for the child's page tables"
                );
            }
            run.add_finding(text + ".");
        }
        // More than 100 % is noise.
        let share = |size| Some(100.0 * (time(ALONE, size)? / time(CHILD_WRITES, size)?).min(1.0));
        if let (Some(share), Some(rest)) = (share(least), share(most))
            && least != most
        {
            run.add_finding(format!(
                "The fork itself is {share:.0} % of the time where the child writes {}, and {rest:.0} % where it writes {}.",
                units::bytes(least),
                units::bytes(most)
            ));
        }
        conclude_pairs(run, most);
        let Some((alone, writes)) = time(ALONE, most).zip(time(CHILD_WRITES, most)) else { return };
        let (pages, size) = ((most / self.pages.bytes()) as f64, units::bytes(most));
        let a_page = (writes - alone) / pages;
        if a_page <= 0.0 {
            return run.note(format!(
                "copying the {pages} pages of {size} takes less than forks vary: leave the machine idle, or give more --runs or \
                 a larger --size"
            ));
        }
        let mut text = format!("With {size}, a page copied on write costs {}", units::nanoseconds(a_page));
        if let Some(copy) = time("c_library", most) {
            text += &format!(
                "; the C library copies one in {}: the rest is the fault, and allocating and releasing a page",
                units::nanoseconds(copy / pages)
            );
        }
        run.add_finding(text + ".");
    }
}

impl ForkOptions {
    /// Forks with only the buffer as the measurement's memory.
    fn forks(&self, run: &mut Run<'_>, size: u64) -> Result<()> {
        let mut memory = Buffer::new(size, self.pages, Content::Mixed)?;
        let (buffer, page) = (memory.raw_range(), self.pages.bytes() as usize);
        let config = Config::of(Operation::Copy, size, self.pages);
        let mut samplers = Vec::new();
        for (work, kind, name) in FORKS {
            let also = counted(buffer, page, work).unwrap_or_else(|error| {
                run.note(format!("pages copied and cleared are not counted: not available: {error}"));
                Vec::new()
            });
            let fork = move || {
                // SAFETY: the buffer lives as long as the samplers, and no other code uses it.
                let took = unsafe { child::fork(buffer, page, work, None) };
                took.map_err(|source| MeasureError::System { doing: "fork", source })
            };
            let sample = mean_time(self.loops, SAMPLE, run.observer.stop, also, fork);
            samplers.push(sampler(Candidate::named(kind, name), &config, false, sample));
        }
        let what = format!("{}, forks", units::bytes(size));
        run.interleave(&what, Metric::Nanoseconds, self.candidates.runs, &mut samplers)
    }

    /// Copies and clears as much within this process, and touches as many fresh pages.
    fn within(&self, run: &mut Run<'_>, size: u64) -> Result<()> {
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let mut memory = Buffer::new(size.saturating_mul(2), self.pages, Content::Mixed)?;
        let dst = memory.raw_range().start;
        let stop = run.observer.stop;
        let pages = self.pages;
        let (_, cleared) = first_touch(length, pages, true)?;
        let also = cleared.map(|pages| ("pages_cleared", pages as f64)).into_iter().collect();
        let touch = move || first_touch(length, pages, false).map(|(took, _)| took);
        let mut samplers = vec![sampler(
            Candidate::named(Kind::Kernel, FIRST_TOUCH),
            &Config::of(Operation::Clear, size, self.pages),
            false,
            mean_time(None, SHORT_SAMPLE, stop, also, touch),
        )];
        for operation in [Operation::Copy, Operation::Clear] {
            let mut candidates = self.candidates.clone();
            if candidates.check(operation).is_err() {
                run.note(format!("none of the named methods can {operation}: only the others are measured"));
                candidates.methods = MethodSet::Named(Vec::new());
            }
            let config = Config::of(operation, size, self.pages);
            for implementation in candidates.implementations(run, operation, &[Intent::Throughput], length)? {
                // The buffer holds the destination and, after it, the source.
                let ranges = (dst, dst.wrapping_add(length).cast_const(), length);
                let once = move || {
                    let start = Instant::now();
                    // SAFETY: the buffer lives as long as the samplers, and no other code uses it.
                    unsafe { implementation.run(1, operation, 0, ranges) }
                    Ok(start.elapsed())
                };
                let sample = mean_time(None, SHORT_SAMPLE, stop, Vec::new(), once);
                samplers.push(sampler(implementation.candidate(), &config, false, sample));
            }
        }
        let what = format!("{}, within the process", units::bytes(size));
        run.interleave(&what, Metric::Nanoseconds, self.candidates.runs, &mut samplers)
    }
}

/// Summarizes the pairs of methods at a size.
fn conclude_pairs(run: &mut Run<'_>, size: u64) {
    let time = |name: &str| {
        let row = run.rows().find(|row| row.candidate.name == name && row.config.size == Some(size))?;
        Some(units::nanoseconds(row.stats.median))
    };
    let all = [CACHED_PAGES, BYPASSING_PAGES, BYPASSING_COPIES, BYPASSING_CLEARS, STRING_PAGES].map(time);
    if let [Some(cached), Some(bypassing), Some(copies), Some(clears), Some(string)] = all {
        run.add_finding(format!(
            "The pages of a fork with {}, cleared, copied and used within the process: {cached} through the cache, {bypassing} \
             past it, {copies} if only copies bypass it, {clears} if only clears do, {string} by string instructions.",
            units::bytes(size)
        ));
    }
}

/// Returns a function that samples a mean time, nanoseconds: it repeats something a number of times, by default as often
/// as the first sample needs to take `long`, and at least once.
fn mean_time(
    mut times: Option<u32>,
    long: Duration,
    stop: &AtomicBool,
    also: Vec<(&'static str, f64)>,
    mut once: impl FnMut() -> Result<Duration>,
) -> impl FnMut() -> Result<Sample> {
    move || {
        let (mut total, mut done) = (Duration::ZERO, 0);
        while times.map_or(total < long, |times| done < times) {
            go_on(stop)?;
            total += once()?;
            done += 1;
        }
        times = Some(done);
        Ok(Sample { value: total.as_secs_f64() * 1e9 / f64::from(done.max(1)), also: also.clone() })
    }
}

/// Counts what the kernel copies and clears for one fork, and what our module in it copies.
fn counted(buffer: RawRange, page: usize, work: Work) -> io::Result<Vec<(&'static str, f64)>> {
    let ledger = Ledger::new()?;
    let module = Module::running();
    let mut before = None;
    // The first fork also copies pages of the program that no later one copies again.
    for _ in 0..2 {
        before = module.copies().ok().flatten();
        // SAFETY: the caller's buffer, and no other code uses it.
        unsafe { child::fork(buffer, page, work, Some(&ledger)) }?;
    }
    let mut counts = ledger.count(buffer, page);
    if let (Some(before), Some(after)) = (before, module.copies().ok().flatten()) {
        let bytes = |it: &CopyCounters| CopyMethod::ALL.map(|method| it.bytes(method));
        let numbers = |it: &CopyCounters| [it.faults].into_iter().chain(bytes(it));
        let names = ["module_pages", "module_stock_bytes", "module_rep_movsb_bytes", "module_movnti_bytes"];
        let changes = numbers(&after).zip(numbers(&before)).map(|(after, before)| after - before);
        counts.extend(names.into_iter().zip(changes.map(|change| change as f64)));
    }
    Ok(counts)
}

/// Maps fresh pages, writes to each, and unmaps them. Returns the time and, with `count`, the number of pages if it can be
/// counted.
fn first_touch(length: usize, pages: PageSize, count: bool) -> Result<(Duration, Option<usize>)> {
    let start = Instant::now();
    let mut region = map(length, pages.0)?;
    region.iter_mut().step_by(pages.bytes() as usize).for_each(|byte| *byte = 1);
    std::hint::black_box(&mut region);
    let shown = count.then(|| pages::own_pages(&region).ok()).flatten();
    let touched = shown.map(|shown| shown / (pages.bytes() / BASE.bytes()) as usize);
    drop(region);
    Ok((start.elapsed(), touched))
}

#[cfg(test)]
mod tests;
