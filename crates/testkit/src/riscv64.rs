//! Instructions of riscv64: where the program goes on, what they need, and what they mean for the order of memory accesses.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bulkmem::machine::Features;
use rvdasm::disassembler::{Disassembler, Xlen};

use crate::case::install;
use crate::step::{Kind, Next, Step};

const FENCE_RW_RW: u32 = 0x0330_000f;
const FENCE_IORW_IORW: u32 = 0x0ff0_000f;

/// The instructions that the methods exist for. Tests show that each of them is in the compiled code and executed.
pub const NAMED: &[&str] = &[
    "cbo.zero",
    "cbo.clean",
    "cbo.flush",
    "ntl.all",
    "ntl.p1",
    "prefetch.r",
    "prefetch.w",
    "sd",
    "vsetvli",
    "vle8.v",
    "vse8.v",
    "fence rw, rw",
    "fence iorw, iorw",
];

/// The register that holds the return address.
const RA: u32 = 1;

/// Decodes the instruction at an address. A pair of AUIPC and JALR counts as one instruction.
///
/// # Errors
/// If the decoder does not know the instruction.
///
/// # Safety
/// The address is that of mapped code.
pub unsafe fn decode_at(address: u64) -> Result<Step, String> {
    // SAFETY: passed on from the caller; an instruction whose lowest two bits are set has four bytes, and is aligned to two.
    let word = |at: u64| unsafe {
        let low = (at as *const u16).read();
        let high = if low & 3 == 3 { (at as *const u16).add(1).read() } else { 0 };
        u32::from(low) | u32::from(high) << 16
    };
    let first = word(address);
    let length = if first & 3 == 3 { 4 } else { 2 };
    let pair = is_hint(first).is_some() || first & 0x7f == 0x17;
    decode(address, first, pair.then(|| word(address + length)))
}

/// Returns the length of the instruction at an address in bytes, also of one that the decoder does not know.
///
/// # Safety
/// As for [`decode_at`].
pub unsafe fn length_at(address: u64) -> u64 {
    // SAFETY: passed on from the caller; instructions are aligned to two bytes.
    if unsafe { (address as *const u16).read() } & 3 == 3 { 4 } else { 2 }
}

/// Set by the handler of SIGILL.
static ILLEGAL: AtomicBool = AtomicBool::new(false);

/// Returns ZICBOM if this processor executes CBO.CLEAN, and nothing otherwise. Tries it once.
pub fn executable() -> Features {
    static FOUND: OnceLock<Features> = OnceLock::new();
    *FOUND.get_or_init(|| {
        install(libc::SIGILL, on_illegal);
        let byte = 0u8;
        // SAFETY: the instruction changes no byte. If it is illegal, the handler continues after it.
        unsafe {
            std::arch::asm!(".option push", ".option arch, +zicbom", "cbo.clean ({})", ".option pop",
                            in(reg) &raw const byte, options(nostack));
        }
        // SAFETY: resetting a signal to its default has no precondition.
        unsafe { libc::signal(libc::SIGILL, libc::SIG_DFL) };
        if ILLEGAL.load(Relaxed) { Features::empty() } else { Features::ZICBOM }
    })
}

extern "C" fn on_illegal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    ILLEGAL.store(true, Relaxed);
    // SAFETY: the kernel hands a valid context to handlers installed with SA_SIGINFO. Register 0 is the program counter, and
    // the instruction has four bytes.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.__gregs[0] += 4 };
}

/// The name of a hint NTL; `None` for other instructions.
fn is_hint(word: u32) -> Option<&'static str> {
    let names = ["ntl.p1", "ntl.pall", "ntl.s1", "ntl.all"];
    // ADD x0, x0, and x2 to x5; or the same compressed.
    (2..=5)
        .zip(names)
        .find(|(register, _)| word == 0x33 | register << 20 || word == 0x9002 | register << 2)
        .map(|it| it.1)
}

/// Decodes an instruction as at an address, and the one that follows it, if its meaning depends on that.
///
/// # Errors
/// As [`decode_at`].
pub fn decode(address: u64, word: u32, following: Option<u32>) -> Result<Step, String> {
    let length = if word & 3 == 3 { 4 } else { 2 };
    let (opcode, funct3, rd) = (word & 0x7f, word >> 12 & 7, word >> 7 & 0x1f);
    let step = |mnemonic: &str, text: String, kind, needs| Step {
        address,
        length,
        mnemonic: mnemonic.to_owned(),
        text,
        next: next(address, word),
        kind,
        needs,
        line: (kind == Kind::WriteBack).then_some((word >> 15 & 0x1f) as usize),
    };
    let special = |name: &str, kind, needs| Ok(step(name, name.to_owned(), kind, needs));
    let disassembler = || Disassembler::new(Xlen::XLEN64);
    if let Some(name) = is_hint(word) {
        let hinted = following.and_then(|word| disassembler().disassmeble_one(word));
        let stores = hinted.is_some_and(|it| ["sd", "c.sd", "vse8.v"].contains(&it.get_name()));
        return special(name, if stores { Kind::NontemporalStore } else { Kind::Other }, Features::ZIHINTNTL);
    }
    // The immediate of the cache-block instructions is their number.
    match (opcode, funct3, word >> 20) {
        (0x0f, 2, 1) => return special("cbo.clean", Kind::WriteBack, Features::ZICBOM),
        (0x0f, 2, 2) => return special("cbo.flush", Kind::WriteBack, Features::ZICBOM),
        (0x0f, 2, 4) => return special("cbo.zero", Kind::Other, Features::ZICBOZ),
        (0x13, 6, 1) if rd == 0 => return special("prefetch.r", Kind::Other, Features::empty()),
        (0x13, 6, 3) if rd == 0 => return special("prefetch.w", Kind::Other, Features::empty()),
        _ => {}
    }
    match word {
        FENCE_RW_RW => return special("fence rw, rw", Kind::Barrier, Features::empty()),
        FENCE_IORW_IORW => return special("fence iorw, iorw", Kind::Completion, Features::empty()),
        _ => {}
    }
    let decoded = disassembler().disassmeble_one(word);
    let decoded = decoded.ok_or_else(|| format!("{word:#010x} at {address:#x} is no known instruction"))?;
    let name = decoded.get_name();
    let needs = if name.starts_with('v') { Features::RVV } else { Features::empty() };
    let mut step = step(name, decoded.asm(address), Kind::Other, needs);
    // AUIPC and JALR through the same register: a call or a jump to a distance of 32 bits.
    if let Some(jalr) = following.filter(|it| opcode == 0x17 && it & 0x707f == 0x67 && it >> 15 & 0x1f == rd)
    {
        let distance = i64::from((word & 0xffff_f000) as i32) + i64::from(jalr as i32 >> 20);
        let target = address.wrapping_add_signed(distance);
        step.length = 8;
        step.next = match jalr >> 7 & 0x1f {
            0 => Next::Jump(target),
            RA => Next::Call(target),
            _ => Next::Computed,
        };
    }
    Ok(step)
}

/// Where the program goes on.
fn next(address: u64, word: u32) -> Next {
    let bits = |from: u32, count: u32| word >> from & ((1 << count) - 1);
    // A distance of `size` bits with a sign.
    let to = |distance: u32, size: u32| {
        address.wrapping_add_signed(i64::from((distance << (32 - size)) as i32 >> (32 - size)))
    };
    if word & 3 != 3 {
        let jump = || {
            let distance = bits(12, 1) << 11 | bits(11, 1) << 4 | bits(9, 2) << 8 | bits(8, 1) << 10;
            to(distance | bits(7, 1) << 6 | bits(6, 1) << 7 | bits(3, 3) << 1 | bits(2, 1) << 5, 12)
        };
        let branch = || {
            let distance = bits(12, 1) << 8 | bits(10, 2) << 3 | bits(5, 2) << 6;
            to(distance | bits(3, 2) << 1 | bits(2, 1) << 5, 9)
        };
        return match (word & 3, word >> 13) {
            (1, 5) => Next::Jump(jump()),
            (1, 6 | 7) => Next::Branch(branch()),
            (0, 0) if word == 0 => Next::Trap,
            (2, 4) if bits(2, 5) == 0 => match (bits(12, 1), bits(7, 5)) {
                (0, RA) => Next::Return,
                (1, 0) => Next::Trap,
                _ => Next::Computed,
            },
            _ => Next::Following,
        };
    }
    let (rd, rs1) = (bits(7, 5), bits(15, 5));
    match word & 0x7f {
        0x63 => {
            let distance = bits(31, 1) << 12 | bits(7, 1) << 11 | bits(25, 6) << 5 | bits(8, 4) << 1;
            Next::Branch(to(distance, 13))
        }
        0x6f => {
            let distance = bits(31, 1) << 20 | bits(12, 8) << 12 | bits(20, 1) << 11 | bits(21, 10) << 1;
            match rd {
                0 => Next::Jump(to(distance, 21)),
                RA => Next::Call(to(distance, 21)),
                _ => Next::Computed,
            }
        }
        0x67 if rd == 0 && rs1 == RA && word >> 20 == 0 => Next::Return,
        0x67 => Next::Computed,
        // EBREAK.
        0x73 if word == 0x0010_0073 => Next::Trap,
        _ => Next::Following,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_go_both_ways_and_backwards() {
        let next = |word: u32| decode(0x1000, word, None).unwrap().next;
        assert_eq!(next(0x0080_006f), Next::Jump(0x1008), "j .+8");
        assert_eq!(next(0xffdf_f0ef), Next::Call(0xffc), "jal .-4");
        assert_eq!(next(0xfe05_0ce3), Next::Branch(0xff8), "beqz a0, .-8");
        assert_eq!(next(0x0000_8067), Next::Return);
        assert_eq!(next(0x8082), Next::Return, "c.jr ra");
        assert_eq!(next(0x9502), Next::Computed, "c.jalr a0");
        assert_eq!(next(0x8502), Next::Computed, "c.jr a0");
        assert_eq!(next(0xbfed), Next::Jump(0xffa), "c.j .-6");
        assert_eq!(next(0xd97d), Next::Branch(0xff6), "c.beqz a0, .-10");
        assert_eq!(next(0x0000_0013), Next::Following, "nop");
    }

    #[test]
    fn a_call_by_two_instructions_is_one() {
        // auipc ra, 0x1; jalr ra, -8(ra)
        let step = decode(0x1000, 0x0000_1097, Some(0xff80_80e7)).unwrap();
        assert_eq!((step.length, step.next), (8, Next::Call(0x1ff8)));
    }

    #[test]
    fn kinds_and_features_are_told() {
        let of = |word: u32, following: Option<u32>| {
            let step = decode(0, word, following).unwrap();
            (step.kind, step.needs)
        };
        assert_eq!(of(0x0015_200f, None), (Kind::WriteBack, Features::ZICBOM), "cbo.clean (a0)");
        assert_eq!(of(0x0025_200f, None), (Kind::WriteBack, Features::ZICBOM), "cbo.flush (a0)");
        assert_eq!(of(0x0045_200f, None), (Kind::Other, Features::ZICBOZ), "cbo.zero (a0)");
        assert_eq!(of(0x0330_000f, None).0, Kind::Barrier);
        assert_eq!(of(0x0ff0_000f, None).0, Kind::Completion);
        let sd = 0x00b5_3023;
        let ld = 0x0005_3583;
        assert_eq!(of(sd, None), (Kind::Other, Features::empty()));
        assert_eq!(of(0x0050_0033, Some(sd)), (Kind::NontemporalStore, Features::ZIHINTNTL));
        assert_eq!(of(0x0050_0033, Some(ld)), (Kind::Other, Features::ZIHINTNTL));
        assert_eq!(of(0x9016, Some(sd)), (Kind::NontemporalStore, Features::ZIHINTNTL), "c.ntl.all");
        assert_eq!(of(0x0205_0427, None), (Kind::Other, Features::RVV), "vse8.v v8, (a0)");
    }
}
