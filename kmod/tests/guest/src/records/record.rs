//! The positions and contents of a session's records, and the check that they exist.
//!
//! Everything follows from the session's seed, so the checker can compare every bit.

use std::ops::Range;

/// The length of a session's file.
pub(crate) const FILE: usize = 96 << 20;
/// The offset of the first record: the file starts with the number of valid records, in a cache line of its own.
pub(crate) const FIRST: usize = 64;
/// The length of a record's header: seed, number, length of the payload, checksum, 8 bytes each.
const HEAD: usize = 32;

/// A record: its position and its bytes.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) start: usize,
    pub(crate) bytes: Vec<u8>,
}

/// The state of a record in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Every bit is there.
    Whole,
    /// Only a part is there, as its checksum shows.
    Torn,
    /// Only zeros are there.
    Absent,
}

impl Record {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes.len()
    }

    /// # Errors
    /// If the checksum and the comparison disagree.
    pub(crate) fn found(&self, file: &[u8]) -> Result<Found, String> {
        let there = &file[self.range()];
        let same = there == self.bytes;
        if same != is_consistent(there, self.number) {
            return Err(format!("record {}: bits the same: {same}, but its checksum denies it", self.number));
        }
        Ok(match same {
            true => Found::Whole,
            false if there.iter().all(|byte| *byte == 0) => Found::Absent,
            false => Found::Torn,
        })
    }
}

/// Returns the records of a session in order, as many as fit in its file.
pub(crate) fn records(seed: u64) -> impl Iterator<Item = Record> {
    let mut places = fastrand::Rng::with_seed(seed);
    let mut end = FIRST;
    (0..).map_while(move |number| {
        // Most are short; some span so many pages that the machine is killed while they are written.
        let payload = match places.u8(..32) {
            0..20 => places.usize(..200),
            20..28 => places.usize(200..2000),
            28..31 => places.usize(2000..8000),
            _ => places.usize(50_000..200_000),
        };
        // Adjacent records share cache lines, or leave some out.
        let start = end + places.usize(..100);
        end = start + HEAD + payload;
        (end <= FILE).then(|| Record { number, start, bytes: bytes(seed, number, payload) })
    })
}

fn bytes(seed: u64, number: u64, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEAD + payload];
    // Consecutive seeds would give similar streams.
    let mut content = fastrand::Rng::with_seed(seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Some are a repeated byte, as fills write.
    if number.is_multiple_of(3) {
        bytes[HEAD..].fill(content.u8(1..))
    } else {
        content.fill(&mut bytes[HEAD..])
    }
    for (at, word) in [seed, number, payload as u64].into_iter().enumerate() {
        bytes[8 * at..][..8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = checksum(&bytes);
    bytes[24..HEAD].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// True if the bytes are a valid record by their own checksum.
fn is_consistent(bytes: &[u8], number: u64) -> bool {
    bytes[8..16] == number.to_le_bytes() && bytes[24..HEAD] == checksum(bytes).to_le_bytes()
}

/// Returns the FNV-1a hash by words of everything except the checksum.
fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes[..24].chunks(8).chain(bytes[HEAD..].chunks(8));
    words.fold(0xcbf2_9ce4_8422_2325, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_lie_behind_one_another_and_are_alike_each_time() {
        let mut end = FIRST;
        let mut offsets = [false; 64];
        for (record, again) in records(7).zip(records(7)) {
            assert!(record.start >= end, "record {} overlaps the one before", record.number);
            assert_eq!((record.start, &record.bytes), (again.start, &again.bytes));
            end = record.range().end;
            offsets[record.start % 64] = true;
        }
        assert!(end <= FILE && end > FILE - 300_000, "the file is used to its end");
        assert!(offsets.iter().all(|seen| *seen), "every offset into a line comes");
        assert_ne!(records(7).next().unwrap().bytes, records(8).next().unwrap().bytes);
    }

    #[test]
    fn a_record_is_whole_torn_or_absent() {
        let mut file = vec![0; 1 << 20];
        for record in records(3).take(50) {
            assert_eq!(record.found(&file), Ok(Found::Absent));
            file[record.range()].copy_from_slice(&record.bytes);
            assert_eq!(record.found(&file), Ok(Found::Whole));
            for at in [0, record.bytes.len() / 2, record.bytes.len() - 1] {
                file[record.start + at] ^= 4;
                assert_eq!(record.found(&file), Ok(Found::Torn), "a bit of byte {at} turned");
                file[record.start + at] ^= 4;
            }
            let half = record.start + record.bytes.len() / 2..record.range().end;
            file[half].fill(0);
            assert_eq!(record.found(&file), Ok(Found::Torn), "only its first half");
            file[record.range()].copy_from_slice(&record.bytes);
        }
    }
}
