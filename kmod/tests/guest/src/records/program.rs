//! The commands `write` and `check`, and their output.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;

use crate::map::Map;
use crate::record::{FILE, FIRST, Found, Record, records};

/// A way to write records to memory.
pub(crate) trait Store {
    /// Creates a file and maps it.
    fn map(
        &mut self,
        path: &Path,
        length: usize,
        synchronous: bool,
    ) -> Result<&'static mut [u8], Box<dyn Error>> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(length as u64)?;
        // Make the empty file durable first: the test is about its content.
        file.sync_all()?;
        File::open(path.parent().ok_or("the file is in no folder")?)?.sync_all()?;
        let map = if synchronous { Map::synchronous(&file, length)? } else { Map::ordinary(&file, length)? };
        Ok(Box::leak(Box::new(map)).bytes_mut())
    }
    /// Returns the names of the methods that it rotates through.
    fn ways(&self) -> Vec<&'static str>;
    /// Writes a record; it is durable when this returns, if the store persists.
    fn record(&self, number: u64, to: &mut [u8], from: &[u8]) -> Result<(), Box<dyn Error>>;
    /// Writes the number of valid records, likewise.
    fn count(&self, count: u64, to: &mut [u8]) -> Result<(), Box<dyn Error>>;
}

const USAGE: &str = "Usage: pmem-records write FOLDER SESSION SEED sync|ordinary   (until it is killed)
       pmem-records check FOLDER                             (every session's file)";

pub(crate) fn run(store: &mut impl Store) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["write", folder, session, seed, how @ ("sync" | "ordinary")] => {
            write(store, Path::new(folder), session, seed, how == "sync")
        }
        ["check", folder] => check_all(Path::new(folder)),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("pmem-records: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes records into a new file, acknowledging each with a line `ack NUMBER`, until the machine is killed.
fn write(
    store: &mut impl Store,
    folder: &Path,
    session: &str,
    seed: &str,
    synchronous: bool,
) -> Result<(), Box<dyn Error>> {
    let bytes = store.map(&folder.join(format!("{session}-{seed}")), FILE, synchronous)?;
    let mut out = io::stdout().lock();
    writeln!(out, "ways: {}", store.ways().join("; "))?;
    for record in records(seed.parse()?) {
        store.record(record.number, &mut bytes[record.range()], &record.bytes)?;
        store.count(record.number + 1, &mut bytes[..8])?;
        writeln!(out, "ack {}", record.number)?;
    }
    writeln!(out, "full")?;
    loop {
        std::thread::park();
    }
}

fn check_all(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    for name in names {
        if let Some((session, seed)) = name.rsplit_once('-') {
            let file = File::options().read(true).write(true).open(folder.join(&name))?;
            let left = if file.metadata()?.file_type().is_char_device() {
                // Device DAX can only be mapped.
                check(Map::ordinary(&file, FILE)?.bytes_mut(), records(seed.parse()?))
            } else {
                check(&fs::read(folder.join(&name))?, records(seed.parse()?))
            };
            let found = left?;
            println!(
                "checked {session}: whole {} counted {} torn {} size {}",
                found.whole, found.counted, found.torn, found.size
            );
        }
    }
    Ok(())
}

/// The state of a session's file.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    /// The number of complete records from the first on, with nothing between them.
    whole: u64,
    /// The count at the start of the file.
    counted: u64,
    /// The number of incomplete records after the complete ones.
    torn: u64,
    /// The length of the file.
    size: usize,
}

fn check(file: &[u8], records: impl Iterator<Item = Record>) -> Result<Left, String> {
    let mut left = Left { whole: 0, counted: 0, torn: 0, size: file.len() };
    let Some(counted) = file.first_chunk() else { return Ok(left) };
    left.counted = u64::from_le_bytes(*counted);
    let mut end = FIRST;
    let mut broken = 0;
    for record in records.take_while(|record| record.range().end <= file.len()) {
        // Stop here: only one record is written at a time.
        if broken == 100 {
            break;
        }
        let found = record.found(file)?;
        if found == Found::Whole && broken == 0 {
            if file[end..record.start].iter().any(|byte| *byte != 0) {
                return Err(format!("something was written before record {}", record.number));
            }
            left.whole += 1;
        } else {
            broken += 1;
            left.torn += u64::from(found == Found::Torn);
        }
        end = record.range().end;
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(numbers: &[u64]) -> Vec<u8> {
        let mut file = vec![0; FILE];
        for record in records(5).take(200).filter(|record| numbers.contains(&record.number)) {
            file[record.range()].copy_from_slice(&record.bytes);
        }
        file[0] = numbers.len() as u8;
        file
    }

    #[test]
    fn what_is_lost_is_missed() {
        let left = |file: &[u8]| check(file, records(5)).map(|left| (left.whole, left.counted, left.torn));
        assert_eq!(left(&with(&[])), Ok((0, 0, 0)));
        assert_eq!(left(&with(&[0, 1, 2, 3])), Ok((4, 4, 0)));
        assert_eq!(left(&with(&[0, 1, 3, 4])), Ok((2, 4, 0)), "one is missing");
        let mut file = with(&[0, 1, 2, 3]);
        let third = records(5).nth(2).unwrap();
        file[third.range().end - 1] ^= 1;
        assert_eq!(left(&file), Ok((2, 4, 1)), "one is torn");
        let mut file = with(&[0, 1, 2, 3]);
        file[records(5).nth(3).unwrap().start - 1] = 1;
        assert!(left(&file).is_err(), "something is between them");
        assert_eq!(left(&[]), Ok((0, 0, 0)));
    }
}
