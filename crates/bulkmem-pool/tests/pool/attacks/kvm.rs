//! A virtual machine of Alice's, whose guest reads the unit.

use std::os::fd::{FromRawFd, OwnedFd};

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

use super::holds::Hold;
use crate::pool::Mapping;

/// Guest address of the unit.
const UNIT_AT: u16 = 0x1000;
/// Guest address of the program.
const CODE_AT: u64 = 0x4_0000;
/// Bytes that the guest reads.
const READS: usize = 4096;

/// Returns why KVM cannot be used here.
pub(super) fn missing() -> Option<String> {
    let machine = Kvm::new().and_then(|kvm| kvm.create_vm()).and_then(|vm| vm.create_vcpu(0).map(|_| ()));
    machine.err().map(|error| format!("no KVM: /dev/kvm: {error}"))
}

/// The guest: writes 4096 bytes from segment 0x1000 to port 0x10, and halts.
const CODE: [u8; 15] = [
    0xb8, 0x00, 0x10, // mov ax, 0x1000
    0x8e, 0xd8, // mov ds, ax
    0x31, 0xf6, // xor si, si
    0xb9, 0x00, 0x10, // mov cx, 4096
    0xba, 0x10, 0x00, // mov dx, 0x10
    0xf3, 0x6e, // rep outsb
];

/// Keeps a unit as memory of a virtual machine: closes the descriptor, and then that of the virtual machine, of which a second
/// one is left.
pub(super) fn memslot(file: OwnedFd) -> Hold {
    let kvm = Kvm::new().expect("checked before");
    let machine = kvm.create_vm().expect("checked before");
    let mapping = Mapping::of(&file).expect("the unit is hers");
    drop(file);
    let code = rustix::fs::memfd_create("code", rustix::fs::MemfdFlags::CLOEXEC).expect("a memory file");
    rustix::fs::ftruncate(&code, mapping.len as u64).expect("a memory file");
    let code = Mapping::of(&code).expect("a memory file");
    let halt = [0xf4];
    code.write(&[&CODE[..], &halt].concat());
    set_memory(&machine, 0, u64::from(UNIT_AT) << 4, &mapping);
    set_memory(&machine, 1, CODE_AT, &code);
    // SAFETY: duplicates an open descriptor, and the result is ours.
    let second = unsafe {
        use std::os::fd::AsRawFd;
        OwnedFd::from_raw_fd(libc::dup(machine.as_raw_fd()))
    };
    let processor = machine.create_vcpu(0).expect("a processor");
    drop(machine);
    start(&processor);
    let mut processor = processor;
    let read = move || {
        let _kept = &second;
        read_all(&mut processor)
    };
    Hold::new(read, |_| ())
}

fn set_memory(machine: &VmFd, slot: u32, guest: u64, memory: &Mapping) {
    let region = kvm_userspace_memory_region {
        slot,
        flags: 0,
        guest_phys_addr: guest,
        memory_size: memory.len as u64,
        userspace_addr: memory.start as u64,
    };
    // SAFETY: the mapping stays until the process ends.
    unsafe { machine.set_user_memory_region(region) }.expect("a free slot");
}

fn start(processor: &VcpuFd) {
    let mut special = processor.get_sregs().expect("a processor");
    special.cs.base = CODE_AT;
    special.cs.selector = u16::try_from(CODE_AT >> 4).expect("below 1 MiB");
    processor.set_sregs(&special).expect("valid registers");
    let mut registers = processor.get_regs().expect("a processor");
    (registers.rip, registers.rflags) = (0, 2);
    processor.set_regs(&registers).expect("valid registers");
}

fn read_all(processor: &mut VcpuFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        match processor.run().expect("the guest runs") {
            VcpuExit::IoOut(_, data) => bytes.extend_from_slice(data),
            VcpuExit::Hlt => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bytes.len(), READS);
    bytes
}
