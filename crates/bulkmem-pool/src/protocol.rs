//! The messages between a client and the daemon: fixed sizes, little-endian, one request and one response a connection.
//! docs/pool-protocol.md describes them byte by byte.
//!
//! Parsing is a pure function of the bytes.

use std::fmt;

use crate::kind::{Kind, PageSize};

/// Length of a request in bytes.
pub const REQUEST_BYTES: usize = 32;
/// Length of a response in bytes.
pub const RESPONSE_BYTES: usize = 64;
/// First four bytes of every message: `BMPL`.
pub const MAGIC: [u8; 4] = *b"BMPL";
/// Version of the protocol.
pub const VERSION: u16 = 1;

const LEASE: u16 = 1;
const STATUS: u16 = 2;
#[cfg(feature = "test-hooks")]
const RETURN: u16 = 3;

/// A random name of a unit: of its record, and in the service manager's store of descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitId(pub [u8; 16]);

impl UnitId {
    /// Parses 32 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Option<UnitId> {
        let digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        if text.len() != 32 || !text.as_bytes().iter().all(digit) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|id| UnitId(id.to_be_bytes()))
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// One unit of this kind.
    Lease(Kind),
    /// The state of the pool.
    Status,
    /// Takes a unit back. Only pools weakened for tests know it.
    #[cfg(feature = "test-hooks")]
    Return(UnitId),
}

/// The reason why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A wrong length.
    #[error("a message of the wrong length")]
    Length,
    /// The first bytes are not the protocol's.
    #[error("a message that is not of this protocol")]
    Magic,
    /// Another version of the protocol.
    #[error(
        "a message of version {0} of the protocol; this is version {VERSION}: install both from the same release"
    )]
    Version(u16),
    /// An unknown request or response code.
    #[error("a message of an unknown type")]
    Type,
    /// A page size, length or node that no unit has, or reserved bytes that are not zero.
    #[error("a message with a field out of range")]
    Field,
}

impl Request {
    /// Parses a request.
    ///
    /// # Errors
    /// If the bytes are not exactly one request of this version with all fields in range.
    pub fn decode(bytes: &[u8]) -> Result<Request, Malformed> {
        let bytes: &[u8; REQUEST_BYTES] = bytes.try_into().map_err(|_| Malformed::Length)?;
        match head(bytes)? {
            LEASE if bytes[28..].iter().all(|byte| *byte == 0) => Ok(Request::Lease(kind(&bytes[8..28])?)),
            STATUS if bytes[8..].iter().all(|byte| *byte == 0) => Ok(Request::Status),
            LEASE | STATUS => Err(Malformed::Field),
            #[cfg(feature = "test-hooks")]
            RETURN => Ok(Request::Return(UnitId(array(&bytes[8..24])))),
            _ => Err(Malformed::Type),
        }
    }

    /// Returns the request as bytes.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        match self {
            Request::Lease(kind) => {
                put_head(&mut bytes, LEASE);
                put_kind(&mut bytes[8..28], kind);
            }
            Request::Status => put_head(&mut bytes, STATUS),
            #[cfg(feature = "test-hooks")]
            Request::Return(id) => {
                put_head(&mut bytes, RETURN);
                bytes[8..24].copy_from_slice(&id.0);
            }
        }
        bytes
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// One descriptor comes with the response.
    Ok = 0,
    /// No unit of this kind is ready.
    Empty = 1,
    /// The pool has no units of this kind.
    NoSuchKind = 2,
    /// The user's leases and this unit would exceed the quota.
    OverQuota = 3,
    /// The request could not be parsed.
    Malformed = 4,
    /// The daemon may not give files to this user.
    Refused = 5,
    /// The daemon or the kernel has reached a limit.
    Busy = 6,
}

impl Code {
    const ALL: [Code; 7] = [
        Code::Ok,
        Code::Empty,
        Code::NoSuchKind,
        Code::OverQuota,
        Code::Malformed,
        Code::Refused,
        Code::Busy,
    ];
}

/// A response of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The outcome.
    pub code: Code,
    /// The name of the unit; zeros without one.
    pub id: UnitId,
    /// Length in bytes of the file that comes with the response; 0 without one.
    pub bytes: u64,
}

impl Response {
    /// Returns a response without a descriptor.
    pub fn without_file(code: Code) -> Response {
        Response { code, id: UnitId::default(), bytes: 0 }
    }

    /// Parses a response.
    ///
    /// # Errors
    /// If the bytes are not exactly one response of this version.
    pub fn decode(bytes: &[u8]) -> Result<Response, Malformed> {
        let bytes: &[u8; RESPONSE_BYTES] = bytes.try_into().map_err(|_| Malformed::Length)?;
        let code = head(bytes)?;
        let code = Code::ALL.into_iter().find(|it| *it as u16 == code).ok_or(Malformed::Type)?;
        if bytes[32..].iter().any(|byte| *byte != 0) {
            return Err(Malformed::Field);
        }
        Ok(Response {
            code,
            id: UnitId(array(&bytes[8..24])),
            bytes: u64::from_le_bytes(array(&bytes[24..32])),
        })
    }

    /// Returns the response as bytes.
    pub fn encode(&self) -> [u8; RESPONSE_BYTES] {
        let mut bytes = [0; RESPONSE_BYTES];
        put_head(&mut bytes, self.code as u16);
        bytes[8..24].copy_from_slice(&self.id.0);
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }
}

/// Checks magic and version, and returns the type.
fn head(bytes: &[u8]) -> Result<u16, Malformed> {
    if bytes[..4] != MAGIC {
        return Err(Malformed::Magic);
    }
    match u16::from_le_bytes(array(&bytes[4..6])) {
        VERSION => Ok(u16::from_le_bytes(array(&bytes[6..8]))),
        other => Err(Malformed::Version(other)),
    }
}

fn put_head(bytes: &mut [u8], kind: u16) {
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[6..8].copy_from_slice(&kind.to_le_bytes());
}

fn kind(bytes: &[u8]) -> Result<Kind, Malformed> {
    let page = PageSize::of_bytes(u64::from_le_bytes(array(&bytes[..8]))).ok_or(Malformed::Field)?;
    let unit = u64::from_le_bytes(array(&bytes[8..16]));
    let node = match i32::from_le_bytes(array(&bytes[16..20])) {
        -1 => None,
        node => Some(u32::try_from(node).map_err(|_| Malformed::Field)?),
    };
    Kind::new(page, unit, node).map_err(|_| Malformed::Field)
}

fn put_kind(bytes: &mut [u8], kind: &Kind) {
    bytes[..8].copy_from_slice(&kind.page.bytes().to_le_bytes());
    bytes[8..16].copy_from_slice(&kind.unit.to_le_bytes());
    let node = kind.node.map_or(-1, |node| i32::try_from(node).expect("a kind's node is below 1024"));
    bytes[16..20].copy_from_slice(&node.to_le_bytes());
}

/// Copies a slice of the right length.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the caller slices N bytes")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lease() -> Request {
        Request::Lease(Kind::new(PageSize::Huge2M, 1 << 30, Some(1)).unwrap())
    }

    #[test]
    fn the_bytes_are_those_of_the_documentation() {
        let bytes = lease().encode();
        let expected = "424d504c 0100 0100 0000200000000000 0000004000000000 01000000 00000000";
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.replace(' ', ""));
        let response = Response { code: Code::OverQuota, id: UnitId([0xab; 16]), bytes: 0x1234 };
        let hex: String = response.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = format!("424d504c01000300{}3412000000000000{}", "ab".repeat(16), "00".repeat(32));
        assert_eq!(hex, expected);
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let any = Request::Lease(Kind::new(PageSize::Base, 4096, None).unwrap());
        for request in [lease(), any, Request::Status] {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        for code in Code::ALL {
            let response = Response { code, id: UnitId([7; 16]), bytes: 1 << 40 };
            assert_eq!(Response::decode(&response.encode()), Ok(response));
        }
    }

    #[test]
    fn each_wrong_field_has_its_reason() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = lease().encode();
            bytes[at] = byte;
            Request::decode(&bytes)
        };
        assert_eq!(changed(0, b'X'), Err(Malformed::Magic));
        assert_eq!(changed(4, 2), Err(Malformed::Version(2)));
        assert_eq!(changed(6, 9), Err(Malformed::Type));
        assert_eq!(changed(8, 1), Err(Malformed::Field)); // a page size that does not exist
        assert_eq!(changed(16, 1), Err(Malformed::Field)); // not a multiple of the page size
        assert_eq!(changed(27, 0x80), Err(Malformed::Field)); // a negative node
        assert_eq!(changed(31, 1), Err(Malformed::Field)); // reserved
        assert_eq!(Request::decode(&[]), Err(Malformed::Length));
        assert_eq!(Request::decode(&[0; 33]), Err(Malformed::Length));
        let mut status = Request::Status.encode();
        status[20] = 1;
        assert_eq!(Request::decode(&status), Err(Malformed::Field));
        let mut response = Response::without_file(Code::Ok).encode();
        response[63] = 1;
        assert_eq!(Response::decode(&response), Err(Malformed::Field));
        response[6] = 99;
        assert_eq!(Response::decode(&response), Err(Malformed::Type));
    }

    #[test]
    fn identifiers_are_32_digits() {
        let id = UnitId([0x0f; 16]);
        assert_eq!(UnitId::parse(&id.to_string()), Some(id));
        for text in ["", "0f", &"0F".repeat(16), &"+f".repeat(16), &"0f".repeat(17)] {
            assert_eq!(UnitId::parse(text), None, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Any bytes are refused, or are the encoding of what they are parsed as.
        #[test]
        fn any_bytes_are_refused_or_mean_one_thing(mut bytes in prop::collection::vec(any::<u8>(), 0..80), keep in 0..10_usize) {
            // Most random bytes fail at the first field, so most inputs get the start of a valid message.
            let valid = lease().encode();
            let from = [0, 4, 6, 8, 16, 24, 28, 31, 32, 32][keep];
            for (byte, good) in bytes.iter_mut().zip(&valid[..from]) {
                *byte = *good;
            }
            if keep > 3 {
                bytes.resize(REQUEST_BYTES, 0);
            }
            match Request::decode(&bytes) {
                #[cfg(feature = "test-hooks")]
                Ok(Request::Return(_)) => {}
                Ok(request) => prop_assert_eq!(&request.encode()[..], &bytes[..]),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
            if let Ok(response) = Response::decode(&bytes) {
                prop_assert_eq!(&response.encode()[..], &bytes[..]);
            }
        }
    }
}
