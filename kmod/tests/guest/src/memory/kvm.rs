//! Tests that KVM of kernels before 7 does not map the device's memory into a virtual machine, where it would be
//! write-back.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::ptr::null_mut;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use super::{Kind, each_kind, fill, memory};
use crate::huge::{HugeMapping, MIDDLE, SMALL, Source};
use crate::module;

const CREATE_VM: u64 = 0xae01;
const RUN_SIZE: u64 = 0xae04;
const CREATE_VCPU: u64 = 0xae41;
const SET_MEMORY: u64 = 0x4020_ae46;
const RUN: u64 = 0xae80;
const SET_REGS: u64 = 0x4090_ae82;
const GET_SREGS: u64 = 0x8138_ae83;
const SET_SREGS: u64 = 0x4138_ae84;
/// The reason of an exit by HLT.
const EXIT_HLT: u32 = 5;

const DEVICE: &str = "/dev/kvm";

pub(super) fn tests(suite: &mut Suite) {
    if Path::new(DEVICE).exists() {
        each_kind(suite, "a_virtual_machine_cannot_have_it", a_virtual_machine_cannot_have_it);
    } else {
        suite.skip("memory::a_virtual_machine_cannot_have_it", "this run does not load kvm-amd");
    }
}

fn call(file: &File, request: u64, argument: usize) -> io::Result<i32> {
    // SAFETY: the callers pass numbers, or the address of a local or mapping of the size that the request reads or writes.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn create(file: &File, request: u64) -> io::Result<File> {
    let descriptor = call(file, request, 0)?;
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Runs a virtual machine that reads the first byte of the page at `address`; returns the reason of its exit.
fn read_in_a_machine(address: usize) -> io::Result<u32> {
    const CODE: u64 = 0x1000;
    // mov $0x1000, %ax; mov %ax, %ds; mov 0, %al; hlt: reads at 0x10000.
    const PROGRAM: [u8; 9] = [0xb8, 0x00, 0x10, 0x8e, 0xd8, 0xa0, 0x00, 0x00, 0xf4];
    let kvm = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    let machine = create(&kvm, CREATE_VM)?;
    let mut code = HugeMapping::new(Source::Transparent, 1)?;
    code.bytes_mut()[..PROGRAM.len()].copy_from_slice(&PROGRAM);
    for (slot, at, from) in [(0, CODE, code.address()), (1, 0x10000, address)] {
        let region: [u64; 4] = [slot, at, SMALL as u64, from as u64];
        call(&machine, SET_MEMORY, region.as_ptr().addr())?;
    }
    let processor = create(&machine, CREATE_VCPU)?;
    let mut special = [0_u8; 312];
    call(&processor, GET_SREGS, special.as_mut_ptr().addr())?;
    // The base and the selector of CS, the first register.
    special[..8].fill(0);
    special[12..14].fill(0);
    call(&processor, SET_SREGS, special.as_ptr().addr())?;
    let mut registers = [0_u64; 18];
    // RIP and RFLAGS.
    registers[16] = CODE;
    registers[17] = 2;
    call(&processor, SET_REGS, registers.as_ptr().addr())?;
    let size = call(&kvm, RUN_SIZE, 0)? as usize;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of the processor's file, which is unmapped below.
    let state = unsafe { libc::mmap(null_mut(), size, access, libc::MAP_SHARED, processor.as_raw_fd(), 0) };
    if state == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let ended = call(&processor, RUN, 0);
    // SAFETY: the reason is the third word of the state, which is mapped until the next line.
    let reason = unsafe { state.cast::<u32>().add(2).read() };
    // SAFETY: mapped above, without references to it.
    unsafe { libc::munmap(state, size) };
    ended.map(|_| reason)
}

fn a_virtual_machine_cannot_have_it(kind: Kind) -> Result<(), Failed> {
    // Ordinary memory shows that the machine works.
    let mut ordinary = HugeMapping::new(Source::Transparent, 1)?;
    fill(ordinary.bytes_mut(), 1);
    assert_eq!(read_in_a_machine(ordinary.address())?, EXIT_HLT, "a machine with ordinary memory");
    // From Linux 7 on (6.13 to 6.19 were not tested) it can, as docs/kernel/device.md says.
    let wanted = if module::kernel()? < (7, 0) { Err(Some(libc::EFAULT)) } else { Ok(EXIT_HLT) };
    // Each page: the first one of 2 MiB, which was special, and others.
    let mut mapping = memory(kind, 2 * MIDDLE)?;
    fill(mapping.bytes_mut(), 1);
    for page in [0, 7, 511, 512, 1023] {
        let ended = read_in_a_machine(mapping.address() + page * SMALL).map_err(|error| error.raw_os_error());
        assert_eq!(ended, wanted, "page {page}");
    }
    Ok(())
}
