//! Memory for a virtual machine: what it costs until a guest can start, and to clear it for the next guest.
//!
//! Fresh memory is cleared by the kernel, as QEMU's preallocation has it: mapped, then populated page by page, by one
//! thread or by several that get a part each. Where there is `/dev/kvm`, the same memory also becomes that of a real
//! virtual machine, in which a processor really runs. Reused memory belongs to nobody but us, so that methods can clear
//! it.
//!
//! Only one large region exists at a time: each sampler for fresh memory maps its own within its sample.

mod fresh;
#[cfg(target_arch = "x86_64")]
mod guest;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_kvm.rs")]
mod kvm;
mod reused;

use bulkmem::machine::Machine;
use bulkmem_kmod::BulkHint;

use crate::engine::implementation::{self, MethodSet};
use crate::engine::reservation::Reservation;
use crate::engine::run::{Measure, Run, Sample, Sampler};
use crate::engine::{Candidate, Config, Measurement, Memory, Metric, PageSize, Peers, Row, units};
use crate::{Kind, MeasureError, OptionName, memory_left};

/// A sample looks for a wish to stop at least this often, bytes a thread.
const PIECE: usize = 256 << 20;
/// What the kernel's own preparation is called.
const PREFAULT: &str = "prefault";
/// The same with a bulk hint to the kernel module.
const HINTED: &str = "prefault, hinted";
/// What the virtual machine is called.
const GUEST: &str = "KVM virtual machine";
/// The same with a bulk hint.
const HINTED_GUEST: &str = "KVM virtual machine, hinted";

/// How to measure memory for a virtual machine.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// Bytes of the guest's memory.
    pub size: u64,
    /// The pages behind it.
    pub page_sizes: Vec<PageSize>,
    /// Threads that share the work.
    pub threads: Vec<usize>,
    /// Which methods clear reused memory.
    pub methods: MethodSet,
    /// Who else does.
    pub peers: Peers,
    /// Whether fresh memory is also measured with the whole of it declared to the kernel module.
    pub hint: bool,
    /// Samples of each.
    pub runs: usize,
}

impl Default for VmOptions {
    /// Half of the available memory, in whole GiB up to 4 (in whole 64 MiB where that is less than one); transparent
    /// huge pages, and 2 MiB ones where they are reserved or can be; one thread, and as many as there are processors;
    /// 5 samples.
    fn default() -> VmOptions {
        let half = memory_left().bytes / 2;
        let unit = if half >= 1 << 30 { 1 << 30 } else { 64 << 20 };
        let size = (half / unit * unit).clamp(64 << 20, 4 << 30);
        let mut page_sizes = vec![PageSize::TRANSPARENT];
        let huge = PageSize(bulkmem::Pages::Explicit(2 << 20));
        if huge.check().and_then(|()| Reservation::check(size, huge)).is_ok() {
            page_sizes.push(huge);
        }
        let mut threads = vec![1, Machine::current().processors.max(1)];
        threads.dedup();
        VmOptions {
            size,
            page_sizes,
            threads,
            methods: MethodSet::Representative,
            peers: Peers::All,
            hint: false,
            runs: 5,
        }
    }
}

impl Measure for VmOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Vm
    }

    fn validate(&self) -> Result<(), MeasureError> {
        let base = Machine::current().page_size as u64;
        for pages in &self.page_sizes {
            pages.check()?;
            let page = pages.bytes().max(base);
            if self.size == 0 || !self.size.is_multiple_of(page) {
                let reason = format!("{} bytes are no whole number of {pages} pages", self.size);
                return Err(MeasureError::Option { option: OptionName::Sizes, reason });
            }
            Reservation::check(self.size, *pages)?;
        }
        if let Some(bad) = self.threads.iter().find(|threads| !(1..=1024).contains(*threads)) {
            let reason = format!("{bad} threads cannot share the work: name 1 to 1024");
            return Err(MeasureError::Option { option: OptionName::Threads, reason });
        }
        implementation::methods(&self.methods, bulkmem::Operation::Clear).map(drop)
    }

    fn seconds(&self) -> f64 {
        let fresh: f64 =
            self.page_sizes.iter().map(|pages| if pages.bytes() < 1 << 20 { 2.0 } else { 1.0 }).sum();
        let reused = self.page_sizes.len() as f64;
        let gigabytes = self.size as f64 / 1e9;
        (self.runs + 1) as f64
            * self.threads.len() as f64
            * gigabytes
            * (fresh * if self.hint { 4.0 } else { 2.0 } * 0.25 + reused * 9.0 * 0.1)
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        run.expect_groups(2 * self.page_sizes.len());
        let guest = match kvm::usable() {
            Ok(kvm::Guest::Runs) => Some(true),
            Ok(kvm::Guest::Idle(why)) => {
                run.note(format!(
                    "KVM virtual machines are created here, but their processor does not run ({why}): no guest looked at \
                     its memory"
                ));
                Some(false)
            }
            Err(why) => {
                run.note(format!("memory of a KVM virtual machine: not available: {why}"));
                None
            }
        };
        let hint = self.hint && self.hint_available(run);
        for &pages in &self.page_sizes {
            if run.stopped() {
                break;
            }
            run.say(&format!("getting {pages} pages"), 0.0);
            let _reservation = match Reservation::of(self.size, pages) {
                // What was measured before does not become worthless.
                Err(error @ MeasureError::HugePages { .. }) if run.rows().next().is_some() => {
                    run.note(format!("{pages} pages: not measured: {error}"));
                    continue;
                }
                reservation => reservation?,
            };
            self.fresh(run, pages, guest, hint)?;
            if !run.stopped() {
                self.reused(run, pages)?;
            }
            self.conclude(run, pages);
        }
        Ok(())
    }
}

impl VmOptions {
    fn config(&self, pages: PageSize, threads: usize, memory: Memory) -> Config {
        Config {
            operation: Some(bulkmem::Operation::Clear),
            size: Some(self.size),
            page_size: Some(pages),
            threads: Some(threads),
            memory: Some(memory),
            ..Config::default()
        }
    }

    /// Whether hints can be given; why not, is said.
    fn hint_available(&self, run: &mut Run<'_>) -> bool {
        match BulkHint::available() {
            Ok(()) => true,
            Err(error) => {
                run.note(format!("fresh memory with a bulk hint: not available: {error}"));
                false
            }
        }
    }

    /// Seconds, and what follows from them.
    fn sample(&self, seconds: f64, also: &[(&'static str, f64)]) -> Sample {
        let mut sample = Sample::from(seconds);
        sample.also.push(("bytes_per_ns", self.size as f64 / 1e9 / seconds));
        sample.also.extend(also);
        sample
    }

    /// What the rows of a page size say.
    fn conclude(&self, run: &mut Run<'_>, pages: PageSize) {
        let found: Vec<Row> = run.rows().filter(|row| row.config.page_size == Some(pages)).cloned().collect();
        let (one, all) = (self.threads.iter().min().copied(), self.threads.iter().max().copied());
        let of = |name: &str, memory, threads| {
            found.iter().find(|row| {
                row.candidate.name == name
                    && row.config.memory == Some(memory)
                    && row.config.threads == threads
            })
        };
        let says = |row: &Row| {
            let rate = self.size as f64 / 1e9 / row.stats.median;
            format!("{} ({rate:.1} bytes/ns)", units::nanoseconds(row.stats.median * 1e9))
        };
        let what = format!("{} in {pages} pages", units::bytes(self.size));
        let Some(kernel) = of(PREFAULT, Memory::Fresh, one) else { return };
        let mut text = format!("{what}: fresh memory is ready for a guest after {}", says(kernel));
        if let Some(row) = of(PREFAULT, Memory::Fresh, all).filter(|_| one != all) {
            text += &format!(", with {} threads after {}", all.unwrap_or_default(), says(row));
        }
        if let Some(row) = of(GUEST, Memory::Fresh, one) {
            text += &format!("; as the memory of a KVM virtual machine after {}", says(row));
        }
        run.add_finding(text + ".");
        if let Some(hinted) = of(HINTED, Memory::Fresh, one) {
            run.add_finding(format!(
                "{what}: declared to the kernel module as one extent, fresh memory is ready after {}: {:+.2} % against not \
                 declared.",
                says(hinted),
                (hinted.stats.median / kernel.stats.median - 1.0) * 100.0
            ));
        }
        if let Some(policy) = of("policy", Memory::Reused, one) {
            let mut text = format!(
                "{what}: the policy's choice clears the same memory for the next guest in {}, {:.1} times as fast as the \
                 kernel makes new memory ready",
                says(policy),
                kernel.stats.median / policy.stats.median
            );
            if let Some(row) = of("policy", Memory::Reused, all).filter(|_| one != all) {
                text += &format!("; with {} threads in {}", all.unwrap_or_default(), says(row));
            }
            run.add_finding(text + ".");
        }
        first_round(run, &what, kernel);
    }
}

/// Says so where the untimed first round took much longer than those that count.
fn first_round(run: &mut Run<'_>, what: &str, row: &Row) {
    let Some(first) = row.also.get("first_s").copied() else { return };
    let times = first / row.stats.median;
    if times < 1.5 {
        return;
    }
    let why = if under_hypervisor() {
        "this is a virtual machine itself, and its host finds memory only when it is touched for the first time"
    } else {
        "the kernel had to find memory that others had, or that lay in fragments"
    };
    run.note(format!(
        "{what}: the untimed first round took {}, {times:.1} times as long as the timed ones: {why}. The first guest after \
         a boot pays that, too",
        units::nanoseconds(first * 1e9)
    ));
}

/// Whether the processor is one of a virtual machine.
fn under_hypervisor() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// A sampler of the kernel's.
fn kernel<'c>(
    name: &str,
    config: Config,
    sample: impl FnMut() -> Result<Sample, MeasureError> + 'c,
) -> Sampler<'c> {
    Sampler {
        candidate: Candidate::named(Kind::Kernel, name),
        config,
        sample: Box::new(sample),
        counted: false,
    }
}

#[cfg(test)]
mod tests;
