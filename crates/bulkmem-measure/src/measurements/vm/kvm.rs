//! Virtual machines by KVM.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bulkmem::{Mapping, Pages};
use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

use crate::MeasureError;
use crate::measurements::vm::PageSize;
use crate::measurements::vm::guest::{self, Guest as Program};
use crate::measurements::vm::prefault::{self, Job, Phases};

/// Address of three pages that KVM needs on Intel processors without "unrestricted guest"; the same as in QEMU.
const TASK_STATE: usize = 0xfffb_d000;
/// Bytes of memory of the trial guest.
const TRIAL: usize = 1 << 20;

/// Support for virtual machines.
#[derive(Debug)]
pub(super) enum Guest {
    /// Its processor runs.
    Runs,
    /// It can be created, but its processor does not run, for this reason.
    Idle(String),
}

/// Tries out a small virtual machine. The error says why none can be created.
pub(super) fn usable() -> Result<Guest, String> {
    let stop = AtomicBool::new(false);
    let job = Job { size: TRIAL, pages: PageSize(Pages::Base), threads: 1, hint: false };
    match create(job, true, &stop) {
        Ok(_) => Ok(Guest::Runs),
        Err(error) => {
            let idle = why(&error);
            create(job, false, &stop).map(|_| Guest::Idle(idle)).map_err(|error| why(&error))
        }
    }
}

/// Formats an error in one line.
fn why(error: &MeasureError) -> String {
    match error {
        MeasureError::System { doing, source } => {
            let remedy = match source.kind() {
                io::ErrorKind::NotFound => {
                    "; load the module kvm_intel or kvm_amd, or allow nested virtualization"
                }
                io::ErrorKind::PermissionDenied => "; join the group kvm, or run this as root",
                _ => "",
            };
            format!("cannot {doing}: {source}{remedy}")
        }
        other => other.to_string(),
    }
}

fn failed(doing: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> MeasureError {
    move |error| MeasureError::System { doing, source: io::Error::from_raw_os_error(error.errno()) }
}

/// Prepares memory, creates a virtual machine with that memory and a processor, has the guest check the memory if `look`,
/// and releases everything.
pub(super) fn create(job: Job, look: bool, stop: &AtomicBool) -> Result<Phases, MeasureError> {
    // In the order of QEMU, which prepares the memory before it registers it.
    let (mut memory, mut phases) = prefault::ready(job, stop)?;
    with(&mut memory, &mut phases, look, stop)?;
    let start = Instant::now();
    drop(memory);
    phases.release += start.elapsed();
    Ok(phases)
}

/// Creates a virtual machine with this memory, has the guest check the memory if `look`, and destroys it.
fn with(
    memory: &mut Mapping,
    phases: &mut Phases,
    look: bool,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    let start = Instant::now();
    let mut program = Program::new(memory.len())?;
    let kvm = Kvm::new().map_err(failed("open /dev/kvm"))?;
    let machine = kvm.create_vm().map_err(failed("create a virtual machine (KVM_CREATE_VM)"))?;
    machine.set_tss_address(TASK_STATE).map_err(failed("set up a virtual machine (KVM_SET_TSS_ADDR)"))?;
    // SAFETY: the memory is borrowed for longer than the machine lives; the program was made before it, so that it is
    // dropped after it on every way out; no references to either are formed as long as the guest may run.
    unsafe {
        hand_over(&machine, 0, 0, program.firmware())?;
        hand_over(&machine, 1, guest::MEMORY, memory)?;
    }
    phases.register = Some(start.elapsed());

    let start = Instant::now();
    let mut processor = processor(&kvm, &machine, &program)?;
    phases.processor = Some(start.elapsed());

    if look {
        let start = Instant::now();
        run(&mut processor, stop)?;
        phases.guest = Some(start.elapsed());
        let registers = processor.get_regs().map_err(failed("read a guest's registers"))?;
        // SAFETY: this is what was handed over, and the guest has halted.
        let seen = unsafe { program.check(&registers, memory.as_mut_ptr()) };
        seen.map_err(|why| MeasureError::System { doing: "run a guest", source: io::Error::other(why) })?;
    }
    let start = Instant::now();
    drop((processor, machine, kvm));
    phases.release = start.elapsed();
    Ok(())
}

/// Registers memory at a guest address.
///
/// # Safety
/// The memory outlives the machine, and while a guest runs no references to it exist.
unsafe fn hand_over(
    machine: &VmFd,
    slot: u32,
    address: u64,
    memory: &mut Mapping,
) -> Result<(), MeasureError> {
    let page = bulkmem::machine::Machine::current().page_size;
    let region = kvm_userspace_memory_region {
        slot,
        flags: 0,
        guest_phys_addr: address,
        memory_size: memory.len().next_multiple_of(page) as u64,
        userspace_addr: memory.as_mut_ptr().addr() as u64,
    };
    // SAFETY: passed on from the caller; the slots' addresses lie apart.
    unsafe { machine.set_user_memory_region(region) }
        .map_err(failed("make memory a guest's (KVM_SET_USER_MEMORY_REGION)"))
}

/// Creates a processor that is about to run the program.
fn processor(kvm: &Kvm, machine: &VmFd, program: &Program) -> Result<VcpuFd, MeasureError> {
    let processor = machine.create_vcpu(0).map_err(failed("create a guest's processor (KVM_CREATE_VCPU)"))?;
    // Its CPUID must allow 64-bit mode.
    kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .and_then(|features| processor.set_cpuid2(&features))
        .map_err(failed("give a guest's processor its features (KVM_SET_CPUID2)"))?;
    processor
        .get_sregs()
        .and_then(|registers| processor.set_sregs(&program.system_registers(registers)))
        .and_then(|()| processor.set_regs(&program.registers()))
        .map_err(failed("set a guest's registers (KVM_SET_SREGS)"))?;
    Ok(processor)
}

/// Runs the guest until it halts.
fn run(processor: &mut VcpuFd, stop: &AtomicBool) -> Result<(), MeasureError> {
    loop {
        match processor.run() {
            Ok(VcpuExit::Hlt) => return Ok(()),
            Ok(exit) => {
                let why = io::Error::other(format!("it left with {exit:?} instead of halting"));
                return Err(MeasureError::System { doing: "run a guest", source: why });
            }
            // A signal interrupted it; the handler has run.
            Err(error) if error.errno() == libc::EINTR => {
                if stop.load(Ordering::Relaxed) {
                    return Err(MeasureError::Interrupted);
                }
            }
            Err(error) => return Err(failed("run a guest (KVM_RUN)")(error)),
        }
    }
}

/// Has a guest check memory of any content.
#[cfg(test)]
pub(super) fn look_at(memory: &mut Mapping) -> Result<(), String> {
    with(memory, &mut Phases::default(), true, &AtomicBool::new(false)).map_err(|error| why(&error))
}
