//! A minimal guest: a program that reads and writes its memory in 64-bit mode, with the page tables for that.
//!
//! Only the program and its tables are at guest address 0. The measured memory is at 4 GiB, above everything that a PC
//! has below, so all of it is registered as the kernel cleared it.

use bulkmem::{Mapping, Pages};
use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};

use crate::{MeasureError, OptionName};

/// Guest address of the measured memory.
pub(super) const MEMORY: u64 = 4 << 30;
/// Number of words of it that the program checks.
const PLACES: u64 = 4096;
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

/// The program and its tables, in separate memory.
#[derive(Debug)]
pub(super) struct Guest {
    firmware: Mapping,
    size: u64,
}

impl Guest {
    /// A guest with `size` bytes of memory.
    pub(super) fn new(size: usize) -> Result<Guest, MeasureError> {
        let size = size as u64;
        if size > LARGEST {
            let reason = format!("a guest gets at most {LARGEST} bytes of memory here");
            return Err(MeasureError::Option { option: OptionName::Sizes, reason });
        }
        let directories = size.div_ceil(GIB);
        // The program, the two upper tables, and a table for each GiB: the first, and those of the memory.
        let bytes = (3 + 1 + directories) * PAGE;
        let mut firmware = Mapping::new(usize::try_from(bytes).unwrap_or(usize::MAX), Pages::Base)
            .map_err(|source| MeasureError::Mapping { bytes, source })?;
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
        Ok(Guest { firmware, size })
    }

    /// Returns the memory at guest address 0.
    pub(super) fn firmware(&mut self) -> &mut Mapping {
        &mut self.firmware
    }

    /// Returns the number of words that the program checks, and their distance in bytes.
    fn places(&self) -> (u64, u64) {
        let step = (self.size / PLACES).max(PAGE);
        (self.size / step, step)
    }

    /// Returns the general registers that the program starts with.
    pub(super) fn registers(&self) -> kvm_regs {
        let (places, step) = self.places();
        // Bit 1 of the flags is always set.
        kvm_regs { rip: 0, rdi: MEMORY, rsi: step, rdx: places, rflags: 2, ..kvm_regs::default() }
    }

    /// Returns the system registers for 64-bit mode with these tables, based on those that a processor starts with.
    pub(super) fn system_registers(&self, mut registers: kvm_sregs) -> kvm_sregs {
        let data = kvm_segment {
            base: 0,
            limit: u32::MAX,
            selector: 16,
            type_: 3,
            present: 1,
            db: 1,
            s: 1,
            g: 1,
            ..kvm_segment::default()
        };
        registers.cs = kvm_segment { selector: 8, type_: 11, db: 0, l: 1, ..data };
        for segment in
            [&mut registers.ds, &mut registers.es, &mut registers.fs, &mut registers.gs, &mut registers.ss]
        {
            *segment = data;
        }
        registers.cr3 = PAGE;
        // Page address extension; protection, extension type and paging; long mode enabled and active.
        registers.cr4 = 1 << 5;
        registers.cr0 = 1 << 31 | 1 << 4 | 1;
        registers.efer = 1 << 10 | 1 << 8;
        registers
    }

    /// Checks that the program read only zeros, and that the words it wrote are in memory.
    ///
    /// # Safety
    /// `memory` is the guest's whole memory, readable, and the guest does not run.
    pub(super) unsafe fn check(&self, registers: &kvm_regs, memory: *const u8) -> Result<(), String> {
        let (places, step) = self.places();
        if registers.rcx != places {
            return Err(format!("it checked {} of {places} words", registers.rcx));
        }
        if registers.rax != 0 {
            return Err("it read memory that is not zero".to_owned());
        }
        for place in 0..places {
            let at = usize::try_from(place * step).unwrap_or(usize::MAX);
            // SAFETY: the caller's promise; the place lies within the guest's memory, on a page's boundary.
            let written = unsafe { memory.add(at).cast::<u64>().read_volatile() };
            if written != place + 1 {
                return Err(format!("it wrote {} to byte {at}, where there is {written}", place + 1));
            }
        }
        Ok(())
    }
}
