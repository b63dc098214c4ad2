//! Memory for a virtual machine: the time until a guest can start, and the time to clear the memory for the next guest.
//!
//! The kernel clears fresh memory, as with QEMU's preallocation: mapped, then populated page by page, by one thread or by
//! several with a part each. If there is `/dev/kvm`, the same memory also becomes that of a real virtual machine, whose
//! processor runs. Reused memory belongs to this process, so methods can clear it.
//!
//! Next to that, bulkmem's prefault makes the same memory ready, and so do fallocate and QEMU itself. Independent processes
//! with a part each are the control: they show how far the kernel's clearing scales on this machine.
//!
//! Only one large mapping exists at a time: each sampler for fresh memory maps its own within its sample.

#[cfg(target_arch = "x86_64")]
mod kvm;
mod prefaults;

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bulkmem::machine::Machine;
use bulkmem::{Intent, Operation, Pages};
use bulkmem_kmod::BulkHint;

use crate::engine::buffer::{PIECE, map, prefault};
use crate::engine::run::ONE_THREAD;
use crate::engine::{
    Buffer, Candidate, Config, Content, Implementation, Kind, Measure, MeasureError, Measurement, Memory,
    Metric, PageSize, Peers, Reservation, Result, Row, Run, Sample, Sampler, go_on, memory_left, units,
    with_causes,
};
use crate::measurements::checks::{self, require};
use crate::measurements::participants::{Candidates, sampler};

/// Virtual machines on architectures without a guest program.
#[cfg(not(target_arch = "x86_64"))]
mod kvm {
    use bulkmem::Mapping;

    use super::*;

    pub(super) fn create(_: &mut Mapping, _: &mut Phases, _: bool, _: &AtomicBool) -> Result<()> {
        let why = "the program that looks at a guest's memory is written for x86-64 only";
        Err(MeasureError::System { doing: "create a virtual machine", source: io::Error::other(why) })
    }
}

pub(crate) const PREFAULT: &str = "prefault";
/// The same with a bulk hint to the kernel module.
pub(crate) const HINTED: &str = "prefault, hinted";
const GUEST: &str = "KVM virtual machine";

/// Times of the steps of preparing and releasing memory, by name, seconds; and the start of the current step.
#[derive(Clone, Debug)]
pub(super) struct Phases(pub(super) Vec<(&'static str, f64)>, Instant);

impl Phases {
    /// Ends a step: adds the time since the end of the last one.
    pub(super) fn end(&mut self, name: &'static str) {
        self.0.push((name, self.1.elapsed().as_secs_f64()));
        self.1 = Instant::now();
    }

    pub(super) fn restart(&mut self) {
        self.1 = Instant::now();
    }

    /// Returns the seconds until the memory was ready.
    pub(super) fn ready(&self) -> f64 {
        let parts = self.0.iter().filter(|(name, _)| !["guest_s", "release_s", "start_s"].contains(name));
        parts.map(|(_, seconds)| seconds).sum()
    }
}

#[derive(Clone, Copy, Debug)]
struct Job {
    size: usize,
    pages: PageSize,
    threads: usize,
    /// True to declare the memory to the kernel module.
    hint: bool,
    /// Makes it the memory of a virtual machine, which checks it if true.
    guest: Option<bool>,
}

/// Options for measuring memory for a virtual machine.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// Bytes of the guest's memory.
    pub size: u64,
    /// Its page sizes.
    pub page_sizes: Vec<PageSize>,
    /// Numbers of threads to divide the work among.
    pub threads: Vec<usize>,
    /// Methods that clear reused memory, peers and samples.
    pub candidates: Candidates,
    /// If set, also measures fresh memory that is declared to the kernel module as a whole.
    pub hint: bool,
}

impl Default for VmOptions {
    /// Half of the available memory, in whole GiB up to 4 (in whole 64 MiB if that is less than one); transparent huge
    /// pages, and 2 MiB ones if they are reserved or can be; one thread, and as many as there are processors; 5 samples.
    fn default() -> VmOptions {
        let half = memory_left().bytes / 2;
        let unit = if half >= 1 << 30 { 1 << 30 } else { 64 << 20 };
        let size = (half / unit * unit).clamp(64 << 20, 4 << 30);
        let mut page_sizes = vec![PageSize::TRANSPARENT];
        let huge = PageSize(Pages::Explicit(2 << 20));
        if huge.check().and_then(|()| Reservation::check(size, huge)).is_ok() {
            page_sizes.push(huge);
        }
        let mut threads = vec![1, Machine::current().processors.max(1)];
        threads.dedup();
        VmOptions { size, page_sizes, threads, candidates: Candidates::default(), hint: false }
    }
}

impl Measure for VmOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Vm
    }

    fn validate(&self) -> Result<()> {
        for pages in &self.page_sizes {
            pages.check()?;
            let reason = format!("{} bytes are not a whole number of {pages} pages", self.size);
            require(self.size > 0 && self.size.is_multiple_of(pages.bytes()), "--size", reason)?;
            Reservation::check(self.size, *pages)?;
        }
        checks::threads(&self.threads)?;
        self.candidates.check(Operation::Clear)
    }

    fn uncounted(&self) -> Option<&'static str> {
        (!self.threads.contains(&1)).then_some(ONE_THREAD)
    }

    fn seconds(&self) -> f64 {
        // Seconds per GB.
        let fresh = |pages: &PageSize| if pages.bytes() < 1 << 20 { 0.5 } else { 0.25 };
        let fresh: f64 = self.page_sizes.iter().map(fresh).sum::<f64>() * if self.hint { 8.0 } else { 6.0 };
        let reused = self.page_sizes.len() as f64 * 0.9;
        ((self.candidates.runs + 1) * self.threads.len()) as f64 * (self.size as f64 / 1e9) * (fresh + reused)
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        run.expect_groups(2 * self.page_sizes.len());
        let guest = match usable() {
            Ok(None) => Some(true),
            Ok(Some(why)) => {
                run.note(format!(
                    "KVM virtual machines can be created here, but their processor does not run ({why}): no guest checked its \
                     memory"
                ));
                Some(false)
            }
            Err(why) => {
                run.note(format!("memory of a KVM virtual machine: not available: {why}"));
                None
            }
        };
        let qemu =
            self.qemu().map_err(|why| run.note(format!("QEMU's preallocation: not measured: {why}"))).is_ok();
        let missing = |error| run.note(format!("fresh memory with a bulk hint: not available: {error}"));
        let hint = self.hint && BulkHint::available().map_err(missing).is_ok();
        for &pages in &self.page_sizes {
            run.say(&format!("preparing {pages} pages"), 0.0);
            let _reservation = match Reservation::of(self.size, pages) {
                // Earlier rows stay useful.
                Err(error @ MeasureError::HugePages { .. }) if run.rows().next().is_some() => {
                    run.note(format!("{pages} pages: not measured: {error}"));
                    continue;
                }
                reservation => reservation?,
            };
            self.fresh(run, pages, guest, hint, qemu)?;
            self.reused(run, pages)?;
        }
        Ok(())
    }

    fn conclude(&self, run: &mut Run<'_>) {
        self.page_sizes.iter().for_each(|pages| self.summarize(run, *pages));
    }
}

impl VmOptions {
    fn config(&self, pages: PageSize, threads: usize, memory: Memory) -> Config {
        let config = Config::of(Operation::Clear, self.size, pages);
        Config { threads: Some(threads), memory: Some(memory), ..config }
    }

    /// Returns a sample of so many seconds, with the bandwidth.
    fn sample(&self, seconds: f64, mut also: Vec<(&'static str, f64)>) -> Sample {
        also.push(("bytes_per_ns", self.size as f64 / 1e9 / seconds));
        Sample { value: seconds, also }
    }

    /// Measures memory prepared by each number of threads. With `guest`, also as the memory of a virtual machine, which
    /// checks its memory if `guest` is true. With `hint`, each also with the memory declared to the kernel module.
    fn fresh(
        &self,
        run: &mut Run<'_>,
        pages: PageSize,
        guest: Option<bool>,
        hint: bool,
        qemu: bool,
    ) -> Result<()> {
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        let stop = run.observer.stop;
        let backing = Cell::new(None);
        let mut samplers = Vec::new();
        for &threads in &self.threads {
            let config = self.config(pages, threads, Memory::Fresh);
            let candidates = [
                (PREFAULT, false, None),
                (GUEST, false, guest),
                (HINTED, true, None),
                ("KVM virtual machine, hinted", true, guest),
            ];
            let wanted = candidates.into_iter().filter(|(name, hinted, guest)| {
                (hint || !hinted) && (guest.is_some() || [PREFAULT, HINTED].contains(name))
            });
            for (name, hint, guest) in wanted {
                let job = Job { size, pages, threads, hint, guest };
                let (mut first, backing) = (None, &backing);
                samplers.push(sampler(Candidate::named(Kind::Kernel, name), &config, false, move || {
                    let (mut phases, page) = prepared(job, stop)?;
                    backing.set(page.or(backing.get()));
                    let ready = phases.ready();
                    let first = *first.get_or_insert(ready);
                    phases.0.extend(guest.is_none().then_some(("first_s", first)));
                    Ok(self.sample(ready, phases.0))
                }));
            }
        }
        for &threads in &self.threads {
            samplers.extend(self.prefaults(stop, pages, threads, qemu));
        }
        let what = format!("fresh, {pages} pages");
        run.interleave(&what, Metric::Seconds, self.candidates.runs, &mut samplers)?;
        drop(samplers);
        run.backed_by(backing.get());
        if let (Pages::Transparent, Some(page)) = (pages.0, backing.get())
            && page == Machine::current().page_size
        {
            run.note(format!(
                "the kernel used pages of {page} bytes instead of transparent huge pages: memory is fragmented (as root: echo \
                 1 > /proc/sys/vm/compact_memory)"
            ));
        }
        Ok(())
    }

    /// Checks that QEMU can be measured; says why not.
    fn qemu(&self) -> Result<(), String> {
        if self.size < prefaults::QEMU_LEAST {
            let least = units::bytes(prefaults::QEMU_LEAST);
            return Err(format!(
                "its start varies by more than the time for less than {least}; name a larger --size"
            ));
        }
        let trial =
            prefaults::start(OsStr::new(prefaults::QEMU_PROGRAM), "memory-backend-ram,id=memory,size=1M");
        trial.map(drop).map_err(|error| match error {
            MeasureError::System { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                format!(
                    "{} is not installed (Debian: apt-get install qemu-system-x86)",
                    prefaults::QEMU_PROGRAM
                )
            }
            other => with_causes(&other),
        })
    }

    /// Returns the samplers of the other ways to have memory ready with so many threads.
    fn prefaults<'c>(
        &'c self,
        stop: &'c AtomicBool,
        pages: PageSize,
        threads: usize,
        qemu: bool,
    ) -> Vec<Sampler<'c>> {
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        let config = self.config(pages, threads, Memory::Fresh);
        let sampled = move |phases: Phases| self.sample(phases.ready(), phases.0);
        let mut samplers = vec![
            sampler(Candidate::named(Kind::Method, prefaults::BULKMEM), &config, false, move || {
                prefaults::bulkmem(size, pages, threads, stop).map(sampled)
            }),
            sampler(Candidate::named(Kind::Control, prefaults::PROCESSES), &config, false, move || {
                prefaults::processes(size, pages, threads).map(sampled)
            }),
        ];
        // It divides no work.
        if threads == 1 {
            let candidate = Candidate::named(Kind::Kernel, prefaults::FALLOCATE);
            let allocate = move || prefaults::allocated(self.size, pages).map(sampled);
            samplers.push(sampler(candidate, &config, false, allocate));
        }
        if qemu {
            let program = OsStr::new(prefaults::QEMU_PROGRAM);
            let preallocate =
                move || prefaults::preallocated(program, self.size, pages, threads).map(sampled);
            samplers.push(sampler(
                Candidate::named(Kind::Peer, prefaults::QEMU),
                &config,
                false,
                preallocate,
            ));
        }
        samplers
    }

    /// Measures memory of an earlier guest, cleared for the next one by every participant.
    fn reused(&self, run: &mut Run<'_>, pages: PageSize) -> Result<()> {
        let mut memory = Buffer::of_run(run, self.size, pages, Content::Mixed)?;
        let (whole, operation) = (memory.raw_range(), Operation::Clear);
        let mut implementations =
            self.candidates.implementations(run, operation, &[Intent::Throughput], whole.length)?;
        if self.candidates.peers == Peers::All {
            implementations.push(Implementation::Read);
        }
        let stop = run.observer.stop;
        let mut samplers = Vec::new();
        for &threads in &self.threads {
            let config = self.config(pages, threads, Memory::Reused);
            // Large enough that starting threads anew for each costs nothing.
            let piece = PIECE.saturating_mul(threads);
            for &implementation in &implementations {
                samplers.push(sampler(implementation.candidate(), &config, threads == 1, move || {
                    let start = Instant::now();
                    for at in (0..whole.length).step_by(piece) {
                        go_on(stop)?;
                        let (dst, length) = (whole.start.wrapping_add(at), piece.min(whole.length - at));
                        let clear = (dst, dst.cast_const(), length);
                        // SAFETY: within the buffer, which lives as long as the samplers, and which no other code uses;
                        // clearing has no source.
                        unsafe { implementation.run(threads, operation, 0, clear) }
                    }
                    Ok(self.sample(start.elapsed().as_secs_f64(), Vec::new()))
                }));
            }
        }
        let what = format!("reused, {pages} pages");
        run.interleave(&what, Metric::Seconds, self.candidates.runs, &mut samplers)
    }

    fn summarize(&self, run: &mut Run<'_>, pages: PageSize) {
        let found: Vec<Row> = run.rows().filter(|row| row.config.page_size == Some(pages)).cloned().collect();
        let one = self.threads.iter().min().copied();
        let all = self.threads.iter().max().copied().filter(|all| one != Some(*all));
        let of = |name: &str, memory, threads: Option<usize>| {
            found.iter().find(|Row { candidate, config, .. }| {
                candidate.name == name && (config.memory, config.threads) == (Some(memory), threads)
            })
        };
        // The time of a row, after some words.
        let time = |words: &str, row: Option<&Row>| {
            row.map_or(String::new(), |Row { stats, .. }| {
                let rate = self.size as f64 / 1e9 / stats.median;
                format!("{words}{} ({rate:.1} bytes/ns)", units::nanoseconds(stats.median * 1e9))
            })
        };
        let many = all.unwrap_or_default();
        let what = format!("{} in {pages} pages", units::bytes(self.size));
        let Some(kernel) = of(PREFAULT, Memory::Fresh, one) else { return };
        run.add_finding(format!(
            "{what}: fresh memory is ready for a guest{}{}{}.",
            time(" after ", Some(kernel)),
            time(&format!(", with {many} threads after "), of(PREFAULT, Memory::Fresh, all)),
            time("; as the memory of a KVM virtual machine after ", of(GUEST, Memory::Fresh, one))
        ));
        if let Some(hinted) = of(HINTED, Memory::Fresh, one) {
            run.add_finding(format!(
                "{what}: declared to the kernel module as one extent, fresh memory is ready{}: {:+.2} % against not declared.",
                time(" after ", Some(hinted)),
                (hinted.stats.median / kernel.stats.median - 1.0) * 100.0
            ));
        }
        if let Some(prefault) = of(prefaults::BULKMEM, Memory::Fresh, one) {
            run.add_finding(prefault_finding(&what, prefault, &found, all));
        }
        if let Some(policy) = of("policy", Memory::Reused, one) {
            run.add_finding(format!(
                "{what}: the policy's choice clears the same memory for the next guest{}, {:.1} times as fast as the kernel \
                 makes new memory ready{}.",
                time(" in ", Some(policy)),
                kernel.stats.median / policy.stats.median,
                time(&format!("; with {many} threads in "), of("policy", Memory::Reused, all))
            ));
        }
        // An untimed first round that took much longer than the timed ones.
        let first = kernel.also.get("first_s").copied().unwrap_or_default();
        let times = first / kernel.stats.median;
        if times >= 1.5 {
            let why = match Machine::current().hypervisor {
                Some(_) => {
                    "this is a virtual machine itself, whose host allocates memory when it is first touched"
                }
                None => "the kernel had to reclaim or defragment memory",
            };
            run.note(format!(
                "{what}: the untimed first round took {}, {times:.1} times as long as the timed ones: {why}. The first guest \
                 after a boot takes that long, too",
                units::nanoseconds(first * 1e9)
            ));
        }
    }
}

/// Compares bulkmem's prefault with the same by more threads, and with the others.
fn prefault_finding(what: &str, one: &Row, rows: &[Row], all: Option<usize>) -> String {
    let same = |name: &str, threads| {
        rows.iter().find(|row| {
            (row.candidate.name.as_str(), row.config.memory, row.config.threads)
                == (name, Some(Memory::Fresh), threads)
        })
    };
    let times = |slow: &Row, fast: &Row| units::digits(slow.stats.median / fast.stats.median);
    let mut text = format!("{what}: bulkmem's prefault has fresh memory ready after ");
    text += &units::nanoseconds(one.stats.median * 1e9);
    let many = all.and_then(|threads| Some((threads, same(prefaults::BULKMEM, Some(threads))?)));
    if let Some((threads, many)) = many {
        text += &format!(", with {threads} threads {} times as fast", times(one, many));
        let control = |threads| same(prefaults::PROCESSES, threads);
        if let Some((one, many)) = control(one.config.threads).zip(control(Some(threads))) {
            text += &format!(" ({threads} independent processes: {})", times(one, many));
        }
    }
    let best = many.map_or(one, |(_, many)| many);
    if let Some(qemu) = same(prefaults::QEMU, best.config.threads) {
        text += &format!("; QEMU's preallocation with as many takes {} times as long", times(qemu, best));
    }
    text + "."
}

/// Tries out a small virtual machine. Returns why its processor does not run, if it does not. The error says why none can
/// be created.
fn usable() -> Result<Option<String>, String> {
    let stop = AtomicBool::new(false);
    let pages = PageSize(Pages::Base);
    let trial = |look| {
        let job = Job { size: 1 << 20, pages, threads: 1, hint: false, guest: Some(look) };
        prepared(job, &stop).map_err(|error| why(&error))
    };
    let Err(idle) = trial(true) else { return Ok(None) };
    trial(false).map(|_| Some(idle))
}

fn why(error: &MeasureError) -> String {
    match error {
        MeasureError::System { doing, source } => {
            let load = "; load the module kvm_intel or kvm_amd, or allow nested virtualization";
            let remedy = match source.kind() {
                io::ErrorKind::NotFound => load,
                io::ErrorKind::PermissionDenied => "; join the group kvm, or run this as root",
                _ => "",
            };
            format!("cannot {doing}: {source}{remedy}")
        }
        other => other.to_string(),
    }
}

/// Allocates memory, prepares it, and releases it. Also returns the size of its pages, if the kernel reports it.
fn prepared(job: Job, stop: &AtomicBool) -> Result<(Phases, Option<usize>)> {
    let Job { size, pages, threads, hint, guest } = job;
    let mut phases = Phases(Vec::new(), Instant::now());
    let mut memory = map(size, pages.0)?;
    phases.end("reserve_s");
    // The time of declaring the memory to the kernel module is included.
    let hint = hint.then(|| BulkHint::of(&memory)).transpose().map_err(MeasureError::Kernel)?;
    prefault(&mut memory, threads, stop)?;
    drop(hint);
    phases.end("prefault_s");
    // In the order of QEMU, which prepares the memory before it registers it.
    let mut page = None;
    match guest {
        Some(look) => kvm::create(&mut memory, &mut phases, look, stop)?,
        None => {
            page = memory.backing_page_size().ok();
            // One read of each piece checks that it is mapped and zero.
            if let Some(at) = (0..size).step_by(PIECE).find(|at| memory[*at] != 0) {
                let source = io::Error::other(format!("byte {at} of fresh memory is not zero"));
                return Err(MeasureError::System { doing: "trust the kernel", source });
            }
            memory[size - 1] = 1;
            phases.restart();
        }
    }
    drop(memory);
    phases.end("release_s");
    Ok((phases, page))
}

#[cfg(test)]
mod tests;
