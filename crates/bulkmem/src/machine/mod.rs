//! This machine: instructions, caches, processors, page sizes.

#[cfg(all(target_arch = "aarch64", with_methods))]
mod aarch64;
mod caches;
#[cfg(target_arch = "x86_64")]
mod cpu;
mod detect;
mod emulator;
mod features;
mod identity;
mod kernel;
#[cfg(all(target_arch = "riscv64", with_methods))]
mod riscv64;

use std::path::Path;

#[cfg(all(target_arch = "aarch64", with_methods))]
use aarch64 as architecture;
#[cfg(all(target_arch = "aarch64", with_methods))]
pub(crate) use aarch64::counter_frequency;
#[cfg(all(not(target_arch = "x86_64"), with_methods))]
pub(crate) use architecture::zero_block;
pub use caches::Caches;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
pub(crate) use cpu::has_constant_clock;
pub use detect::features;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use detect::features_known_so_far;
pub use features::Features;
pub use identity::CpuIdentity;
pub(crate) use identity::CpuKey;
#[cfg(all(target_arch = "riscv64", with_methods))]
use riscv64 as architecture;

use crate::once::Once;

/// Bytes in a cache line, on every architecture with methods that bypass the cache.
pub const CACHE_LINE: usize = 64;

/// A description of a machine. Unknown values are 0, empty or `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub struct Machine {
    /// The processor.
    pub cpu: CpuIdentity,
    /// Microcode revision as the kernel prints it; empty if unknown.
    pub microcode: String,
    /// The instructions that the processor has and the operating system enables.
    pub features: Features,
    /// Data and unified caches, bytes.
    pub caches: Caches,
    /// How many processors this process may run on.
    pub processors: usize,
    /// NUMA nodes.
    pub nodes: usize,
    /// Memory, bytes.
    pub memory: u64,
    /// Kernel release.
    pub kernel: String,
    /// Size of a base page, bytes.
    pub page_size: usize,
    /// Sizes of the kernel's explicit huge pages in bytes, in rising order.
    pub huge_page_sizes: Vec<u64>,
    /// The kernel's setting for transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// The hypervisor that this machine runs under; `None` if there is none, or if it hides.
    pub hypervisor: Option<String>,
    /// The program that emulates the processor, `qemu-aarch64`, or `QEMU` if it emulates the whole machine; `None` if the
    /// processor is real, or if it hides. Times measured under an emulator say nothing about a processor.
    pub emulator: Option<String>,
}

impl Machine {
    /// Returns this machine. The first call detects it.
    pub fn current() -> &'static Machine {
        static CURRENT: Once<Machine> = Once::new();
        CURRENT.get_or_init(|| Machine::read(Path::new("/")))
    }

    /// This machine, with the files of `/proc` and `/sys` taken from below `root`.
    fn read(root: &Path) -> Machine {
        Machine {
            cpu: detect::identify(),
            microcode: kernel::microcode(root),
            features: features(),
            caches: caches(),
            processors: processors(),
            nodes: kernel::nodes(root),
            memory: kernel::memory(root),
            kernel: kernel::release(root),
            page_size: rustix::param::page_size(),
            huge_page_sizes: kernel::huge_page_sizes(root),
            transparent_huge_pages: kernel::transparent_huge_pages(root),
            hypervisor: detect::hypervisor().or_else(|| kernel::hypervisor(root)),
            emulator: emulator::of_process(root).or_else(detect::emulator),
        }
    }
}

/// The properties of a machine that a policy depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'m> {
    pub(crate) cpu: CpuKey<'m>,
    pub(crate) features: Features,
    /// How many processors the process may run on.
    pub(crate) processors: usize,
}

impl Machine {
    pub(crate) fn target(&self) -> Target<'_> {
        Target { cpu: self.cpu.as_key(), features: self.features, processors: self.processors }
    }
}

/// Calls `f` with the properties of this machine that a policy depends on, and with a function that finds the sizes of its second and
/// third cache level. Does not allocate. The number of processors is left open: [`processors`] counts them when threads
/// are about to be started.
pub(crate) fn with_this<R>(f: impl FnOnce(Target, &dyn Fn() -> Caches) -> R) -> R {
    let processors = usize::MAX;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let cpu = cpu::Cpu::read();
        detect::remember(cpu.features);
        let target = Target { cpu: cpu.key(), features: cpu.features, processors };
        f(target, &|| cpu.caches(2).completed(2))
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    {
        #[cfg(with_methods)]
        let cpu = architecture::key();
        #[cfg(not(with_methods))]
        let cpu = CpuKey { vendor: std::env::consts::ARCH, family: 0, model: 0, stepping: 0 };
        let target = Target { cpu, features: features(), processors };
        f(target, &|| Caches::default().completed(2))
    }
}

/// How many processors this process may run on now.
pub(crate) fn processors() -> usize {
    kernel::processors()
}

/// All cache sizes.
fn caches() -> Caches {
    #[cfg(target_arch = "x86_64")]
    let told = cpu::Cpu::read().caches(1);
    #[cfg(not(target_arch = "x86_64"))]
    let told = Caches::default();
    told.completed(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_machine_is_described() {
        let machine = Machine::current();
        assert!(!machine.cpu.vendor.is_empty());
        assert!(machine.processors >= 1);
        assert!(machine.page_size.is_power_of_two());
        assert!(!machine.kernel.is_empty());
        assert_eq!(machine.features, features());
        assert!(machine.memory > 0);
    }

    #[test]
    fn the_first_call_sees_the_same_machine() {
        let machine = Machine::current();
        with_this(|target, caches| {
            assert_eq!((target.cpu, target.features), (machine.cpu.as_key(), machine.features));
            assert_eq!((caches().l2, caches().l3), (machine.caches.l2, machine.caches.l3));
        });
    }

    #[test]
    fn an_empty_tree_is_a_machine_that_tells_little() {
        let nowhere = tempfile::tempdir().unwrap();
        let machine = Machine::read(nowhere.path());
        assert_eq!((machine.microcode.as_str(), machine.kernel.as_str()), ("", ""));
        assert_eq!(machine.kernel, "");
        assert_eq!((machine.nodes, machine.memory), (0, 0));
        assert!(machine.huge_page_sizes.is_empty());
        assert_eq!(machine.transparent_huge_pages, None);
        assert!(machine.processors >= 1);
    }

    #[test]
    #[cfg(feature = "serde")]
    fn it_serializes_with_features_by_name() {
        let json = serde_json::to_value(Machine::current()).unwrap();
        let named = json["features"].as_array().unwrap().len();
        assert_eq!(named, features().iter_names().count());
    }
}
