//! Appends records to a log in a mapped file, each durable before it counts.
//!
//! On persistent memory (a file on a DAX file system, mapped with MAP_SYNC) `copy_persist` and `persist` suffice. On any
//! other file system they write to the page cache, and `msync` writes that to the disk.
//!
//! `cargo run --release -p bulkmem --example persist_log [FILE]`

use std::error::Error;
use std::fs::OpenOptions;
use std::path::PathBuf;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

const SIZE: usize = 1 << 20;
/// The log begins with the length of what is in it.
const HEADER: usize = 64;

/// A log whose header is written only after the record that it counts is durable, so that every counted record is complete
/// after a power failure. (Eight aligned bytes are written atomically.)
struct Log<'a> {
    bytes: &'a mut [u8],
}

impl Log<'_> {
    fn length(&self) -> usize {
        self.bytes[..8].try_into().map_or(0, u64::from_le_bytes) as usize
    }

    fn append(&mut self, record: &[u8]) -> Result<(), Box<dyn Error>> {
        let length = self.length();
        let start = HEADER + length;
        let free = self.bytes.get_mut(start..start + record.len()).ok_or("the log is full")?;
        bulkmem::copy_persist(free, record)?;
        // Ordinary stores, made durable afterwards.
        self.bytes[..8].copy_from_slice(&((length + record.len()) as u64).to_le_bytes());
        bulkmem::persist(&self.bytes[..8])?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or_else(
        || std::env::temp_dir().join(format!("bulkmem-log-{}", std::process::id())),
        PathBuf::from,
    );
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
    file.set_len(SIZE as u64)?;
    // SAFETY: a fresh mapping at a place of the kernel's choosing replaces nothing.
    let start = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            SIZE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &file,
            0,
        )?
    };
    {
        // SAFETY: just mapped, and this process alone uses the file.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), SIZE) };
        let mut log = Log { bytes };
        for number in 0..1000 {
            log.append(format!("record {number}\n").as_bytes())?;
        }
        println!("{} bytes of records in {}", log.length(), path.display());
    }
    // SAFETY: the mapping made above; no reference into it is left.
    unsafe {
        rustix::mm::msync(start, SIZE, MsyncFlags::SYNC)?;
        rustix::mm::munmap(start, SIZE)?;
    }

    let stored = std::fs::read(&path)?;
    let length = stored[..8].try_into().map(u64::from_le_bytes)? as usize;
    let text = std::str::from_utf8(&stored[HEADER..HEADER + length])?;
    assert!(text.lines().enumerate().all(|(number, line)| line == format!("record {number}")));
    println!("read back: {} records, the last is {:?}", text.lines().count(), text.lines().next_back());
    if std::env::args_os().nth(1).is_none() {
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
