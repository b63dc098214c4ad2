//! Virtual machines by KVM, with a minimal guest: a program that reads and writes its memory in 64-bit mode, with the page
//! tables for that.
//!
//! Only the program and its tables are at guest address 0. The measured memory is at 4 GiB, above everything that a PC
//! has below, so all of it is registered as the kernel cleared it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use bulkmem::machine::Machine;
use bulkmem::{Mapping, Pages};
use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_segment, kvm_sregs, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd};

use crate::engine::buffer::map;
use crate::engine::{MeasureError, Result};
use crate::measurements::checks::invalid;
use crate::measurements::vm::Phases;

/// Address of three pages that KVM needs on Intel processors without "unrestricted guest"; the same as in QEMU.
const TASK_STATE: usize = 0xfffb_d000;

fn failed(doing: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> MeasureError {
    move |error| MeasureError::System { doing, source: error.into() }
}

fn misbehaved(how: String) -> MeasureError {
    MeasureError::System { doing: "run a guest", source: io::Error::other(how) }
}

/// Creates a virtual machine with this memory and a processor, has the guest check the memory if `look`, and destroys it in
/// the current step of `phases`.
pub(super) fn create(memory: &mut Mapping, phases: &mut Phases, look: bool, stop: &AtomicBool) -> Result<()> {
    let mut firmware = firmware(memory.len() as u64)?;
    let kvm = Kvm::new().map_err(failed("open /dev/kvm"))?;
    let machine = kvm.create_vm().map_err(failed("create a virtual machine (KVM_CREATE_VM)"))?;
    machine.set_tss_address(TASK_STATE).map_err(failed("set up a virtual machine (KVM_SET_TSS_ADDR)"))?;
    for (slot, address, memory) in [(0, 0, &mut firmware), (1, MEMORY, &mut *memory)] {
        let region = kvm_userspace_memory_region {
            slot,
            flags: 0,
            guest_phys_addr: address,
            memory_size: memory.len().next_multiple_of(Machine::current().page_size) as u64,
            userspace_addr: memory.as_mut_ptr().addr() as u64,
        };
        // SAFETY: the slots' addresses lie apart. The memory is borrowed for longer than the machine lives; the firmware
        // was made before it, so that it is dropped after it on every way out; no references to either exist while the
        // guest runs.
        unsafe { machine.set_user_memory_region(region) }
            .map_err(failed("make memory a guest's (KVM_SET_USER_MEMORY_REGION)"))?;
    }
    phases.end("register_s");

    let (places, step) = places(memory.len());
    let mut processor =
        machine.create_vcpu(0).map_err(failed("create a guest's processor (KVM_CREATE_VCPU)"))?;
    // Its CPUID must allow 64-bit mode.
    kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .and_then(|features| processor.set_cpuid2(&features))
        .map_err(failed("give a guest's processor its features (KVM_SET_CPUID2)"))?;
    processor
        .get_sregs()
        .and_then(|registers| processor.set_sregs(&long_mode(registers)))
        // Bit 1 of the flags is always set.
        .and_then(|()| {
            processor.set_regs(&kvm_regs {
                rip: 0,
                rdi: MEMORY,
                rsi: step as u64,
                rdx: places as u64,
                rflags: 2,
                ..kvm_regs::default()
            })
        })
        .map_err(failed("set a guest's registers (KVM_SET_SREGS)"))?;
    phases.end("vcpu_s");

    if look {
        run(&mut processor, stop)?;
        phases.end("guest_s");
        let registers = processor.get_regs().map_err(failed("read a guest's registers"))?;
        check(&registers, memory).map_err(misbehaved)?;
    }
    phases.restart();
    Ok(())
}

fn run(processor: &mut VcpuFd, stop: &AtomicBool) -> Result<()> {
    loop {
        match processor.run() {
            Ok(VcpuExit::Hlt) => return Ok(()),
            Ok(exit) => return Err(misbehaved(format!("it left with {exit:?} instead of halting"))),
            Err(error) if error.errno() != libc::EINTR => return Err(failed("run a guest (KVM_RUN)")(error)),
            // A signal interrupted it; the handler has run.
            Err(_) if stop.load(Ordering::Relaxed) => return Err(MeasureError::Interrupted),
            Err(_) => {}
        }
    }
}

/// Guest address of the measured memory.
const MEMORY: u64 = 4 << 30;
/// Number of words of it that the program checks.
const PLACES: usize = 4096;
const PAGE: u64 = 4096;
const GIB: u64 = 1 << 30;
/// One table of the second level maps 512 GiB.
const LARGEST: u64 = 512 * GIB - MEMORY;

/// Reads a word at each of `rdx` places from `rdi`, `rsi` bytes apart, into the sum `rax`, and writes the place's
/// number there, from 1 on; then halts.
const PROGRAM: [u8; 24] = [
    0x31, 0xC0, //       xor eax, eax
    0x31, 0xC9, //       xor ecx, ecx
    0x48, 0x39, 0xD1, // 4: cmp rcx, rdx
    0x73, 0x0E, //       jae 23
    0x48, 0x0B, 0x07, // or rax, [rdi]
    0x48, 0xFF, 0xC1, // inc rcx
    0x48, 0x89, 0x0F, // mov [rdi], rcx
    0x48, 0x01, 0xF7, // add rdi, rsi
    0xEB, 0xED, //       jmp 4
    0xF4, //             23: hlt
];

/// Bits of a page table entry: present, writable; and of one that maps 2 MiB.
const TABLE: u64 = 0b11;
const LARGE: u64 = TABLE | 1 << 7;

/// Returns the program and its tables, for a guest with `size` bytes of memory.
fn firmware(size: u64) -> Result<Mapping> {
    if size > LARGEST {
        return invalid("--size", format!("a guest gets at most {LARGEST} bytes of memory here"));
    }
    let directories = size.div_ceil(GIB);
    // The program, the two upper tables, and a table for each GiB: the first, and those of the memory.
    let bytes = (3 + 1 + directories) * PAGE;
    let mut firmware = map(usize::try_from(bytes).unwrap_or(usize::MAX), Pages::Base)?;
    firmware[..PROGRAM.len()].copy_from_slice(&PROGRAM);
    let mut entry = |table: u64, index: u64, address: u64, kind: u64| {
        let at = usize::try_from(table * PAGE + index * 8).unwrap_or(usize::MAX);
        firmware[at..at + 8].copy_from_slice(&(address | kind).to_le_bytes());
    };
    let (top, upper, first) = (1, 2, 3);
    entry(top, 0, upper * PAGE, TABLE);
    entry(upper, 0, first * PAGE, TABLE);
    // The program's own 2 MiB, by their own address.
    entry(first, 0, 0, LARGE);
    for directory in 0..directories {
        let table = first + 1 + directory;
        entry(upper, MEMORY / GIB + directory, table * PAGE, TABLE);
        for index in 0..512 {
            entry(table, index, MEMORY + directory * GIB + index * (GIB / 512), LARGE);
        }
    }
    Ok(firmware)
}

/// Returns the system registers for 64-bit mode with these tables, based on those that a processor starts with.
fn long_mode(mut registers: kvm_sregs) -> kvm_sregs {
    let any = kvm_segment { limit: u32::MAX, present: 1, s: 1, g: 1, ..kvm_segment::default() };
    let data = kvm_segment { selector: 16, type_: 3, db: 1, ..any };
    registers.cs = kvm_segment { selector: 8, type_: 11, l: 1, ..any };
    (registers.ds, registers.es, registers.fs, registers.gs, registers.ss) = (data, data, data, data, data);
    registers.cr3 = PAGE;
    // Page address extension; protection, extension type and paging; long mode enabled and active.
    registers.cr4 = 1 << 5;
    registers.cr0 = 1 << 31 | 1 << 4 | 1;
    registers.efer = 1 << 10 | 1 << 8;
    registers
}

/// Returns the number of words that the program checks, and their distance in bytes.
fn places(size: usize) -> (usize, usize) {
    let step = (size / PLACES).max(PAGE as usize);
    (size / step, step)
}

/// Checks that the program, which has halted, read only zeros, and that the words it wrote are in memory.
fn check(registers: &kvm_regs, memory: &[u8]) -> Result<(), String> {
    let (places, step) = places(memory.len());
    if registers.rcx != places as u64 {
        return Err(format!("it checked {} of {places} words", registers.rcx));
    }
    if registers.rax != 0 {
        return Err("it read memory that is not zero".to_owned());
    }
    for (place, at) in (1..=places as u64).zip((0..).step_by(step)) {
        let written = memory[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        if written != place {
            return Err(format!("it wrote {place} to byte {at}, where there is {written}"));
        }
    }
    Ok(())
}
