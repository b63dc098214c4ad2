//! Fork and copy-on-write: the cost of the kernel's copying and clearing of pages.

mod child;
mod pages;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::machine::Machine;
use bulkmem::{Intent, Mapping, Operation, Pages as RegionPages};

use self::child::{Parent, Work};
use self::pages::{Ledger, Pages};
use crate::engine::arena::RawRange;
use crate::engine::buffer::{self, Buffer, Content};
use crate::engine::implementation::{self, MethodSet};
use crate::engine::run::{Measure, Run, Sample};
use crate::engine::{Candidate, Config, Measurement, Metric, PageSize, Peers, Row, units};
use crate::measurements::checks::invalid;
use crate::measurements::participants::{participants, sampler};
use crate::{Kind, MeasureError, OptionName};

/// Least time of a sample of forks.
const SAMPLE: Duration = Duration::from_millis(20);
/// Least time of a sample of work within this process.
const SHORT_SAMPLE: Duration = Duration::from_millis(2);

/// The base pages of this machine.
const BASE: PageSize = PageSize(RegionPages::Base);

impl Work {
    /// Returns the candidate that the results name.
    fn candidate(self) -> Candidate {
        let (kind, name) = match self {
            Work::ChildWrites => (Kind::Kernel, CHILD_WRITES),
            Work::ParentWrites => (Kind::Kernel, "fork, parent writes"),
            Work::ChildReads => (Kind::Control, "fork, child reads"),
            Work::Nothing => (Kind::Control, ALONE),
        };
        Candidate::named(kind, name)
    }
}

/// Name of the candidate whose child writes to the buffer.
pub const CHILD_WRITES: &str = "fork, child writes";
/// Name of the control whose child ends immediately.
const ALONE: &str = "fork alone";
/// Name of the first touch of fresh pages.
const FIRST_TOUCH: &str = "first touch";

/// Options for measuring forks.
#[derive(Clone, Debug)]
pub struct ForkOptions {
    /// Sizes of the buffer, bytes: whole pages.
    pub sizes: Vec<u64>,
    /// Forks per sample. Default: as many as can be timed precisely.
    pub loops: Option<u32>,
    /// The methods that copy and clear as much in this process.
    pub methods: MethodSet,
    /// The other participants.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl Default for ForkOptions {
    /// The source's sizes, 5 samples.
    fn default() -> ForkOptions {
        let sizes = [4, 20, 28, 32, 64, 128, 256].map(|kibibytes| kibibytes << 10).to_vec();
        ForkOptions { sizes, loops: None, methods: MethodSet::Representative, peers: Peers::All, runs: 5 }
    }
}

impl Measure for ForkOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Fork
    }

    fn validate(&self) -> Result<(), MeasureError> {
        for &size in &self.sizes {
            let page = BASE.bytes();
            if size == 0 || !size.is_multiple_of(page) {
                let reason =
                    format!("{size} bytes are not a whole number of pages: name a multiple of {page}");
                return invalid(OptionName::Sizes, reason);
            }
            // The buffer and the child's copies.
            buffer::fits(size.saturating_mul(2))?;
        }
        [Operation::Copy, Operation::Clear]
            .into_iter()
            .filter(|operation| !self.left_out(*operation))
            .try_for_each(|operation| implementation::methods(&self.methods, operation).map(drop))
    }

    fn seconds(&self) -> f64 {
        let forks = 4.0 * SAMPLE.as_secs_f64().max(f64::from(self.loops.unwrap_or(0)) * 3e-4);
        let others = 20.0 * SHORT_SAMPLE.as_secs_f64();
        self.sizes.len() as f64 * (self.runs + 1) as f64 * (forks + others)
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        run.expect_groups(2 * self.sizes.len());
        for &size in &self.sizes {
            if run.stopped() {
                break;
            }
            self.forks(run, size)?;
            if !run.stopped() {
                self.within(run, size)?;
            }
        }
        self.conclude(run);
        Ok(())
    }
}

impl ForkOptions {
    /// True if none of the named methods supports this operation, but one supports the other.
    fn left_out(&self, operation: Operation) -> bool {
        let MethodSet::Named(_) = &self.methods else { return false };
        let other = if operation == Operation::Copy { Operation::Clear } else { Operation::Copy };
        implementation::methods(&self.methods, operation).is_err()
            && implementation::methods(&self.methods, other).is_ok()
    }

    fn config(operation: Operation, size: u64) -> Config {
        Config { operation: Some(operation), size: Some(size), page_size: Some(BASE), ..Config::default() }
    }

    /// Forks with only the buffer as the measurement's memory.
    fn forks(&self, run: &mut Run<'_>, size: u64) -> Result<(), MeasureError> {
        let mut memory = Buffer::new(size, BASE, Content::Mixed)?;
        let whole = memory.raw_range();
        let page = Machine::current().page_size;
        let parent = Parent::new(whole, page).map_err(failed("make a pipe"))?;
        let stop = run.stop_flag();
        let mut samplers = Vec::new();
        for work in [Work::ChildWrites, Work::ParentWrites, Work::ChildReads, Work::Nothing] {
            let counted = match count(&parent, work, whole, page) {
                Ok(counted) => counted,
                Err(error) => {
                    run.note(format!("pages copied and cleared are not counted: not available: {error}"));
                    Vec::new()
                }
            };
            let (parent, mut loops) = (&parent, self.loops);
            let config = ForkOptions::config(Operation::Copy, size);
            samplers.push(sampler(work.candidate(), &config, false, move || {
                // SAFETY: the buffer lives as long as the samplers, and no other code uses it.
                let fork = || unsafe { parent.fork(work, None) }.map_err(failed("fork"));
                let (ns, forks) = mean_time(loops, SAMPLE, stop, fork)?;
                loops = Some(forks);
                Ok(Sample { value: ns, also: counted.clone() })
            }));
        }
        let what = format!("{}, forks", units::bytes(size));
        run.interleave(&what, Metric::Nanoseconds, self.runs, &mut samplers)
    }

    /// Copies and clears as much within this process, and touches as many fresh pages.
    fn within(&self, run: &mut Run<'_>, size: u64) -> Result<(), MeasureError> {
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let mut memory = Buffer::new(size.saturating_mul(2), BASE, Content::Mixed)?;
        let whole = memory.raw_range();
        let stop = run.stop_flag();
        let (mut loops, mut cleared) = (None, None);
        let first_touch = move || {
            let cleared = match cleared {
                Some(cleared) => cleared,
                None => *cleared.insert(first_touch(length, true)?.1),
            };
            let touch = || first_touch(length, false).map(|(took, _)| took);
            let (ns, times) = mean_time(loops, SHORT_SAMPLE, stop, touch)?;
            loops = Some(times);
            let also = cleared.map(|pages| ("pages_cleared", pages as f64));
            Ok(Sample { value: ns, also: also.into_iter().collect() })
        };
        let kernel = Candidate::named(Kind::Kernel, FIRST_TOUCH);
        let mut samplers =
            vec![sampler(kernel, &ForkOptions::config(Operation::Clear, size), true, first_touch)];
        for operation in [Operation::Copy, Operation::Clear] {
            let methods = if self.left_out(operation) {
                run.note(format!("none of the named methods can {operation}: only the others are measured"));
                &MethodSet::Named(Vec::new())
            } else {
                &self.methods
            };
            let config = ForkOptions::config(operation, size);
            for implementation in
                participants(run, operation, &[Intent::Throughput], length, methods, self.peers)?
            {
                let mut loops = None;
                samplers.push(sampler(implementation.candidate(), &config, true, move || {
                    let (dst, src) = (whole.start, whole.start.wrapping_add(length));
                    let once = || {
                        let start = Instant::now();
                        // SAFETY: the buffer holds the destination and, after it, the source. It lives as long as the
                        // samplers, and no other code uses it.
                        unsafe { implementation.run(operation, dst, src, length, 0) }
                        Ok(start.elapsed())
                    };
                    let (ns, times) = mean_time(loops, SHORT_SAMPLE, stop, once)?;
                    loops = Some(times);
                    Ok(ns.into())
                }));
            }
        }
        let what = format!("{}, within the process", units::bytes(size));
        run.interleave(&what, Metric::Nanoseconds, self.runs, &mut samplers)
    }

    /// Summarizes the cost of forks and the share of copying.
    fn conclude(&self, run: &mut Run<'_>) {
        let rows: Vec<Row> = run.rows().cloned().collect();
        let of = |name: &str, operation, size| {
            rows.iter().find(|row| {
                row.candidate.name == name
                    && row.config.operation == Some(operation)
                    && row.config.size == Some(size)
            })
        };
        let (Some(least), Some(most)) = (self.sizes.iter().min(), self.sizes.iter().max()) else { return };
        if let Some(row) = of(ALONE, Operation::Copy, *least) {
            let mut text = format!(
                "A fork whose child ends immediately takes {} here, with a buffer of any size",
                units::nanoseconds(row.stats.median)
            );
            if let Some([copied, cleared, tables]) =
                figures(row, ["pages_copied", "pages_cleared", "page_table_pages"])
            {
                text += &format!(
                    "; the kernel copies {copied} pages for it (stack, heap and data), clears {cleared}, and clears {tables} more \
                     for the child's page tables"
                );
            }
            run.add_finding(text + ".");
        }
        let shares: Vec<(u64, f64)> = [*least, *most]
            .into_iter()
            .filter_map(|size| {
                let (alone, writes) =
                    (of(ALONE, Operation::Copy, size)?, of(CHILD_WRITES, Operation::Copy, size)?);
                let share = alone.stats.median / writes.stats.median;
                // More than 100 % is noise.
                Some((size, 100.0 * share.min(1.0)))
            })
            .collect();
        if let [(small, share), (large, rest)] = shares[..]
            && small != large
        {
            run.add_finding(format!(
                "The fork itself is {share:.0} % of the time where the child writes {}, and {rest:.0} % where it writes {}.",
                units::bytes(small),
                units::bytes(large)
            ));
        }
        let (Some(alone), Some(writes)) =
            (of(ALONE, Operation::Copy, *most), of(CHILD_WRITES, Operation::Copy, *most))
        else {
            return;
        };
        let pages = (*most / BASE.bytes()) as f64;
        let a_page = (writes.stats.median - alone.stats.median) / pages;
        if a_page <= 0.0 {
            run.note(format!(
                "copying the {pages} pages of {} takes less than forks vary: leave the machine idle, or give more --runs or \
                 a larger --size",
                units::bytes(*most)
            ));
            return;
        }
        let mut text = format!(
            "With {}, a page copied on write costs {}",
            units::bytes(*most),
            units::nanoseconds(a_page)
        );
        if let Some(copy) = of("c_library", Operation::Copy, *most) {
            text += &format!(
                "; the C library copies one in {}: the rest is the fault, and allocating and releasing a page",
                units::nanoseconds(copy.stats.median / pages)
            );
        }
        run.add_finding(text + ".");
    }
}

/// Returns figures of a row, if it has all of them.
fn figures<const N: usize>(row: &Row, names: [&str; N]) -> Option<[f64; N]> {
    let mut found = [0.0; N];
    for (figure, name) in found.iter_mut().zip(names) {
        *figure = *row.also.get(name)?;
    }
    Some(found)
}

/// Repeats something a number of times, or until it took `long`; at least once. Returns the mean time in nanoseconds and
/// the number of times.
fn mean_time(
    times: Option<u32>,
    long: Duration,
    stop: &AtomicBool,
    mut once: impl FnMut() -> Result<Duration, MeasureError>,
) -> Result<(f64, u32), MeasureError> {
    let (mut total, mut done) = (Duration::ZERO, 0);
    while times.map_or(total < long, |times| done < times) {
        if stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        total += once()?;
        done += 1;
    }
    Ok((total.as_secs_f64() * 1e9 / f64::from(done.max(1)), done))
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> MeasureError {
    move |source| MeasureError::System { doing, source }
}

/// Counts what the kernel copies and clears for one fork, by name.
fn count(parent: &Parent, work: Work, buffer: RawRange, page: usize) -> io::Result<Vec<(&'static str, f64)>> {
    let Pages { buffer_copied, copied, cleared, tables, faults } = counted(parent, work, buffer, page)?;
    Ok([
        ("buffer_pages_copied", buffer_copied),
        ("pages_copied", copied),
        ("pages_cleared", cleared),
        ("page_table_pages", tables),
        ("minor_faults", faults),
    ]
    .map(|(name, count)| (name, count as f64))
    .to_vec())
}

fn counted(parent: &Parent, work: Work, buffer: RawRange, page: usize) -> io::Result<Pages> {
    let ledger = Ledger::new(buffer, page)?;
    // The first fork also copies pages of the program that no later one copies again.
    for _ in 0..2 {
        // SAFETY: the buffer belongs to the parent, and no other code uses it.
        unsafe { parent.fork(work, Some(&ledger)) }?;
    }
    Ok(ledger.count())
}

/// Maps fresh pages, writes to each, and unmaps them. Returns the time and, with `count`, the number of pages if it can be
/// counted.
fn first_touch(length: usize, count: bool) -> Result<(Duration, Option<u64>), MeasureError> {
    let page = Machine::current().page_size;
    let start = Instant::now();
    let mut region = Mapping::new(length, RegionPages::Base)
        .map_err(|source| MeasureError::Mapping { bytes: length as u64, source })?;
    for at in (0..length).step_by(page) {
        region[at] = 1;
    }
    std::hint::black_box(&mut region);
    let pages = if count {
        let range = RawRange { start: region.as_mut_ptr(), length };
        pages::own_pages(range, page).ok()
    } else {
        None
    };
    drop(region);
    Ok((start.elapsed(), pages))
}

#[cfg(test)]
mod tests;
