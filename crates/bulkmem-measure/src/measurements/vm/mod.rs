//! Memory for a virtual machine: the time until a guest can start, and the time to clear the memory for the next guest.
//!
//! The kernel clears fresh memory, as with QEMU's preallocation: mapped, then populated page by page, by one thread or by
//! several with a part each. If there is `/dev/kvm`, the same memory also becomes that of a real virtual machine, whose
//! processor runs. Reused memory belongs to this process, so methods can clear it.
//!
//! Only one large mapping exists at a time: each sampler for fresh memory maps its own within its sample.

mod fresh;
#[cfg(target_arch = "x86_64")]
mod guest;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_kvm.rs")]
mod kvm;
mod prefault;
mod reused;

use bulkmem::machine::Machine;
use bulkmem_kmod::BulkHint;

use crate::engine::implementation::{self, MethodSet};
use crate::engine::reservation::Reservation;
use crate::engine::run::{Measure, Run, Sample, Sampler};
use crate::engine::{Candidate, Config, Measurement, Memory, Metric, PageSize, Peers, Row, units};
use crate::measurements::checks::{self, invalid};
use crate::measurements::participants::sampler;
use crate::{Kind, MeasureError, OptionName, memory_left};

/// Bytes per thread between two checks of the stop flag.
const PIECE: usize = 256 << 20;
/// Name of the kernel's own preparation.
const PREFAULT: &str = "prefault";
/// Name of the same with a bulk hint to the kernel module.
const HINTED: &str = "prefault, hinted";
/// Name of the virtual machine.
const GUEST: &str = "KVM virtual machine";
/// Name of the same with a bulk hint.
const HINTED_GUEST: &str = "KVM virtual machine, hinted";

/// Options for measuring memory for a virtual machine.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// Bytes of the guest's memory.
    pub size: u64,
    /// Its page sizes.
    pub page_sizes: Vec<PageSize>,
    /// Numbers of threads to divide the work among.
    pub threads: Vec<usize>,
    /// The methods that clear reused memory.
    pub methods: MethodSet,
    /// The other participants.
    pub peers: Peers,
    /// If set, also measures fresh memory that is declared to the kernel module as a whole.
    pub hint: bool,
    /// Samples of each.
    pub runs: usize,
}

impl Default for VmOptions {
    /// Half of the available memory, in whole GiB up to 4 (in whole 64 MiB if that is less than one); transparent huge
    /// pages, and 2 MiB ones if they are reserved or can be; one thread, and as many as there are processors; 5 samples.
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
                let reason = format!("{} bytes are not a whole number of {pages} pages", self.size);
                return invalid(OptionName::Sizes, reason);
            }
            Reservation::check(self.size, *pages)?;
        }
        checks::threads(&self.threads)?;
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
        let hint = self.hint && self.hint_available(run);
        for &pages in &self.page_sizes {
            if run.stopped() {
                break;
            }
            run.say(&format!("preparing {pages} pages"), 0.0);
            let _reservation = match Reservation::of(self.size, pages) {
                // Earlier rows stay useful.
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

    /// True if the kernel module accepts hints; otherwise notes the reason.
    fn hint_available(&self, run: &mut Run<'_>) -> bool {
        match BulkHint::available() {
            Ok(()) => true,
            Err(error) => {
                run.note(format!("fresh memory with a bulk hint: not available: {error}"));
                false
            }
        }
    }

    /// Returns a sample of so many seconds, with the bandwidth.
    fn sample(&self, seconds: f64, also: &[(&'static str, f64)]) -> Sample {
        let mut sample = Sample::from(seconds);
        sample.also.push(("bytes_per_ns", self.size as f64 / 1e9 / seconds));
        sample.also.extend(also);
        sample
    }

    /// Summarizes the rows of a page size.
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

/// Notes an untimed first round that took much longer than the timed ones.
fn first_round(run: &mut Run<'_>, what: &str, row: &Row) {
    let Some(first) = row.also.get("first_s").copied() else { return };
    let times = first / row.stats.median;
    if times < 1.5 {
        return;
    }
    let why = if under_hypervisor() {
        "this is a virtual machine itself, whose host allocates memory when it is first touched"
    } else {
        "the kernel had to reclaim or defragment memory"
    };
    run.note(format!(
        "{what}: the untimed first round took {}, {times:.1} times as long as the timed ones: {why}. The first guest after \
         a boot takes that long, too",
        units::nanoseconds(first * 1e9)
    ));
}

/// True if this machine is a virtual machine.
fn under_hypervisor() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// Returns the sampler of a candidate in which the kernel does the work.
fn kernel<'c>(
    name: &str,
    config: &Config,
    sample: impl FnMut() -> Result<Sample, MeasureError> + 'c,
) -> Sampler<'c> {
    sampler(Candidate::named(Kind::Kernel, name), config, false, sample)
}

#[cfg(test)]
mod tests;
