//! Instructions of aarch64: where the program goes on, what they need, and what they mean for the order of memory accesses.

use bulkmem::machine::Features;
use disarm64::{InsnDisplay, InsnOpcode, decoder};
use disarm64_defn::InsnFeatureSet;

use crate::step::{Kind, Next, Step};

/// The register of an instruction that has one in its lowest bits.
const REGISTER: u32 = 0x1f;
const DC_ZVA: u32 = 0xd50b_7420;
const DC_CVAP: u32 = 0xd50b_7c20;
const DC_CVADP: u32 = 0xd50b_7d20;
const DMB_ISH: u32 = 0xd503_3bbf;
const DMB_ISHLD: u32 = 0xd503_39bf;
const DSB_SY: u32 = 0xd503_3f9f;

/// The instructions that the methods exist for. Tests show that each of them is in the compiled code and executed.
pub const NAMED: &[&str] = &[
    "dc zva",
    "stp",
    "stnp",
    "ldnp",
    "prfm pldl1keep",
    "prfm pldl1strm",
    "prfm pldl2keep",
    "prfm pstl1keep",
    "st1b",
    "ld1b",
    "stnt1b",
    "ldnt1b",
    "setp",
    "setm",
    "sete",
    "setpn",
    "setmn",
    "seten",
    "cpyfp",
    "cpyfm",
    "cpyfe",
    "cpyfpn",
    "cpyfmn",
    "cpyfen",
    "dc cvap",
    "dc cvadp",
    "dmb ish",
    "dmb ishld",
    "dsb sy",
];

/// Decodes the instruction at an address.
///
/// # Errors
/// If the decoder does not know the instruction, or it needs a feature that this module does not know.
///
/// # Safety
/// The address is that of mapped code.
pub unsafe fn decode_at(address: u64) -> Result<Step, String> {
    // SAFETY: passed on from the caller; instructions are aligned.
    let word = unsafe { (address as *const u32).read() };
    decode(address, word)
}

/// Returns the length of the instruction at an address in bytes, also of one that the decoder does not know.
///
/// # Safety
/// As for [`decode_at`].
pub unsafe fn length_at(_: u64) -> u64 {
    4
}

/// Decodes an instruction as at an address.
///
/// # Errors
/// As [`decode_at`].
pub fn decode(address: u64, word: u32) -> Result<Step, String> {
    let opcode = decoder::decode(word)
        .ok_or_else(|| format!("{word:#010x} at {address:#x} is no known instruction"))?;
    let text = opcode.display_at(address).to_string();
    let special = match word & !REGISTER {
        DC_ZVA => Some("dc zva"),
        DC_CVAP => Some("dc cvap"),
        DC_CVADP => Some("dc cvadp"),
        _ => match word {
            DMB_ISH => Some("dmb ish"),
            DMB_ISHLD => Some("dmb ishld"),
            DSB_SY => Some("dsb sy"),
            _ => None,
        },
    };
    let name = opcode.definition().mnemonic;
    let mnemonic = match (special, name) {
        (Some(special), _) => special.to_owned(),
        // Its lowest bits say what is prefetched, and where to.
        (None, "prfm") => match word & REGISTER {
            0 => "prfm pldl1keep".to_owned(),
            1 => "prfm pldl1strm".to_owned(),
            2 => "prfm pldl2keep".to_owned(),
            16 => "prfm pstl1keep".to_owned(),
            _ => name.to_owned(),
        },
        (None, name) => name.to_owned(),
    };
    let needs = match (special, opcode.definition().feature_set) {
        (Some("dc zva"), _) => Features::DC_ZVA,
        (Some("dc cvap"), _) => Features::DC_CVAP,
        (Some("dc cvadp"), _) => Features::DC_CVADP,
        (_, InsnFeatureSet::V8 | InsnFeatureSet::FP | InsnFeatureSet::SIMD) => Features::empty(),
        (_, InsnFeatureSet::SVE) => Features::SVE,
        (_, InsnFeatureSet::MOPS) => Features::MOPS,
        (_, other) => {
            return Err(format!(
                "`{text}` needs {other:?}, for which crates/testkit/src/aarch64.rs has no feature"
            ));
        }
    };
    let kind = kind(&mnemonic);
    Ok(Step {
        address,
        length: 4,
        next: next(address, word, name),
        kind,
        line: (kind == Kind::WriteBack).then_some((word & REGISTER) as usize),
        mnemonic,
        text,
        needs,
    })
}

/// Where the program goes on.
fn next(address: u64, word: u32, name: &str) -> Next {
    // A distance in words: `bits` bits of the instruction from bit `from` on, with a sign.
    let target = |from: u32, bits: u32| {
        let distance = (word << (32 - from - bits)) as i32 >> (32 - bits);
        address.wrapping_add_signed(i64::from(distance) * 4)
    };
    match name {
        "b" => Next::Jump(target(0, 26)),
        "bl" => Next::Call(target(0, 26)),
        "cbz" | "cbnz" => Next::Branch(target(5, 19)),
        "tbz" | "tbnz" => Next::Branch(target(5, 14)),
        "ret" => Next::Return,
        "br" | "blr" | "braa" | "blraa" | "eret" => Next::Computed,
        "brk" | "udf" | "hlt" => Next::Trap,
        // B.cond, and BC.cond.
        _ if word >> 24 == 0x54 => Next::Branch(target(5, 19)),
        _ => Next::Following,
    }
}

fn kind(mnemonic: &str) -> Kind {
    // SET and CPY are P, M or E; an N among the options that follow makes both or one of the accesses non-temporal.
    let options = |prefix: &str| {
        let rest = mnemonic.strip_prefix(prefix)?;
        rest.strip_prefix(['p', 'm', 'e'])
    };
    if let Some(options) = options("cpyf").or_else(|| options("cpy")) {
        return if options.contains('n') { Kind::NontemporalCopy } else { Kind::Other };
    }
    if let Some(options) = options("set") {
        return if options.contains('n') { Kind::NontemporalStore } else { Kind::Other };
    }
    match mnemonic {
        "stnp" => Kind::NontemporalStore,
        "ldnp" => Kind::NontemporalLoad,
        "dc cvap" | "dc cvadp" => Kind::WriteBack,
        "dmb ishld" => Kind::LoadBarrier,
        "dmb ish" => Kind::Barrier,
        "dsb sy" => Kind::Completion,
        _ if mnemonic.starts_with("stnt1") => Kind::NontemporalStore,
        _ if mnemonic.starts_with("ldnt1") => Kind::NontemporalLoad,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_go_both_ways_and_backwards() {
        let next = |word: u32| decode(0x1000, word).unwrap().next;
        assert_eq!(next(0x1400_0002), Next::Jump(0x1008));
        assert_eq!(next(0x97ff_ffff), Next::Call(0xffc));
        assert_eq!(next(0xb4ff_ffc0), Next::Branch(0xff8), "cbz x0, .-8");
        assert_eq!(next(0x36ff_ffc0), Next::Branch(0xff8), "tbz w0, #31, .-8");
        assert_eq!(next(0x54ff_ffc1), Next::Branch(0xff8), "b.ne .-8");
        assert_eq!(next(0xd65f_03c0), Next::Return);
        assert_eq!(next(0xd63f_0000), Next::Computed, "blr x0");
        assert_eq!(next(0xd503_201f), Next::Following, "nop");
    }

    #[test]
    fn kinds_and_features_are_told_by_name() {
        for (word, kind, needs) in [
            (0xad00_0400, Kind::Other, Features::empty()), // stp q0, q1, [x0]
            (0xac00_0400, Kind::NontemporalStore, Features::empty()), // stnp q0, q1, [x0]
            (0xac40_0400, Kind::NontemporalLoad, Features::empty()), // ldnp q0, q1, [x0]
            (0xd50b_7421, Kind::Other, Features::DC_ZVA),
            (0xd50b_7c21, Kind::WriteBack, Features::DC_CVAP),
            (0xd50b_7d21, Kind::WriteBack, Features::DC_CVADP),
            (0xd503_3bbf, Kind::Barrier, Features::empty()),
            (0xd503_3f9f, Kind::Completion, Features::empty()),
            (0x1901_0440, Kind::Other, Features::MOPS), // cpyfp [x0]!, [x1]!, x2!
            (0x1901_c440, Kind::NontemporalCopy, Features::MOPS), // cpyfpn [x0]!, [x1]!, x2!
            (0xe401_6000, Kind::NontemporalStore, Features::SVE), // stnt1b {z0.b}, p0, [x0, x1]
        ] {
            let step = decode(0, word).unwrap();
            assert_eq!((step.kind, step.needs), (kind, needs), "{}", step.text);
        }
    }

    /// DC CVAC does not make bytes durable, so it must not count as a write-back.
    #[test]
    fn cleaning_to_the_point_of_coherency_is_no_write_back() {
        assert_eq!(decode(0, 0xd50b_7a20).unwrap().kind, Kind::Other);
    }
}
