//! Non-temporal pairs: STNP and LDNP, a hint that the bytes are not used again soon. A processor may ignore it.
//!
//! Not for bytes that are read soon.

use super::entry::{copy_kernel, fill_kernel, ordered, weak};
use super::{line, loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

/// Defines the method of one width.
macro_rules! stnp {
    ($module:ident, $name:literal, $width:literal, $line:ident) => {
        mod $module {
            use super::*;
            use line::$line as Line;

            fill_kernel!(fill = loops::fill::<Line>, |dst, len, byte, p| dst, len, byte);
            copy_kernel!(copy = loops::copy_nontemporal::<Line, Line>, |dst, src, len, p| dst, src, len, p);

            pub(super) const METHOD: Method = Method {
                name: $name,
                summary: concat!("non-temporal stores of ", $width, " bytes (STNP)"),
                effect: CacheEffect::Bypasses,
                ordering: Ordering::Weak,
                requires: Features::empty(),
                code: Code {
                    clear: weak!(FillFn, fill, &[]),
                    fill: weak!(FillFn, fill, &[]),
                    copy: weak!(CopyFn, copy, tunables::NONTEMPORAL_COPY),
                    ..Code::NONE
                },
            };
        }
    };
}

stnp!(stnp_16, "stnp_16", "16", Stnp16);
stnp!(stnp_32, "stnp_32", "32", Stnp32);

copy_kernel!(
    copy_ldnp = loops::copy_nontemporal_loads::<line::LdnpStnp32, line::LdnpStnp32>,
    |dst, src, len, p| dst,
    src,
    len,
    p
);
copy_kernel!(
    copy_ldnp_cached = loops::copy_nontemporal_loads::<line::LdnpStp32, line::LdnpStp32>,
    |dst, src, len, p| dst,
    src,
    len,
    p
);

copy_kernel!(copy_streaming = loops::copy_nta::<line::Stnp32>, |dst, src, len, p| dst, src, len, p);

const STREAMING: Method = Method {
    name: "stnp_32_strm_source",
    summary: "non-temporal stores of 32 bytes, PRFM PLDL1STRM of the source ahead",
    code: Code { copy: weak!(CopyFn, copy_streaming, &[tunables::NTA_DISTANCE]), ..Code::NONE },
    ..stnp_32::METHOD
};
const LDNP: Method = Method {
    name: "ldnp_stnp_32",
    summary: "non-temporal loads (LDNP) and stores of 32 bytes",
    code: Code { copy: weak!(CopyFn, copy_ldnp, tunables::NONTEMPORAL_COPY), ..Code::NONE },
    ..stnp_32::METHOD
};
const LDNP_CACHED: Method = Method {
    name: "ldnp_stp_32",
    summary: "non-temporal loads (LDNP), cached stores of 32 bytes",
    effect: CacheEffect::Allocates,
    ordering: Ordering::Ordered,
    code: Code { copy: ordered!(CopyFn, copy_ldnp_cached, tunables::NONTEMPORAL_COPY), ..Code::NONE },
    ..LDNP
};

pub(super) static METHODS: &[Method] = &[stnp_16::METHOD, stnp_32::METHOD, STREAMING, LDNP, LDNP_CACHED];
