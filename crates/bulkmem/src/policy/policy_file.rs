//! The policy file: the rules of one machine in a few kilobytes of text, which programs load.
//!
//! ```text
//! bulkmem-policy 4
//! cpu 6 207 2 GenuineIntel
//! emulator qemu-x86_64
//! durability flush-to-memory
//! rule clear throughput 0 c_library
//! rule clear throughput 1048576 write_prefetch_avx512[write_distance=4096]
//! rule clear cached 0 c_library
//! rule clear uncached 0 nontemporal_avx512
//! look clear 65536 400 40000 c_library 200000 16777216
//! aliasing copy 2112 786432 store_avx
//! threads clear 67108864 2
//! end
//! ```
//!
//! The rules of one operation and intent stand together, rising from 0. Operations and intents without rules keep the
//! defaults. In place of an intent, `cached`, `uncached`, `several_threads`, `uncached_reuse` and `cached_reuse` name rules that a look selects;
//! they come before the look. Lines that start with `#` are comments. Reading needs no heap, and no error holds a byte of the file: a set-user-ID program may be made to read a
//! file that its user may not.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, openat};
use rustix::io::Errno;

use super::aliasing::PageAliasing;
use super::format::{MOST_THREADS, POLICY_FORMAT, POLICY_VERSION};
use super::look::{LEAST_LOOKED, Look, NewHugePages, Unmapped};
use super::rules::{RuleError, RuleOrigin, Rules};
use super::situation::Situation;
use super::{Choice, LineError, PolicyFileError};
use crate::built_in;
use crate::durability::Durability;
use crate::machine::{CpuKey, Target};
use crate::operation::Operation;

/// A full policy file fits.
const MOST_BYTES: u64 = 384 << 10;
/// Room for the longest line and what is read ahead.
pub(super) const BUFFER: usize = 1024;

/// Whose file it is, and so how far it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Named by the user or the program: may have been measured under an emulator.
    Named,
    /// The user's, which programs load by default.
    User,
    /// The administrator's: must belong to root and be writable by no other user.
    System,
}

/// Reads a policy file into `rules`, which must be empty. After an error they hold part of the file.
pub(super) fn load(
    path: &CStr,
    owner: Owner,
    machine: Target,
    buffer: &mut [u8; BUFFER],
    rules: &mut Rules,
) -> Result<(), PolicyFileError> {
    // Not blocking, so that a FIFO waits for no writer; the type is that of the opened file, not of what the name may
    // stand for a moment later.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // As the C library opens files: filters of system calls allow that.
    let file = openat(CWD, path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => PolicyFileError::Missing,
        other => PolicyFileError::Unreadable { errno: other.raw_os_error() },
    })?;
    let unreadable = |error: Errno| PolicyFileError::Unreadable { errno: error.raw_os_error() };
    let bytes = match acceptable(&rustix::fs::fstat(&file).map_err(unreadable)?, owner) {
        Err(PolicyFileError::TooLarge { .. }) if is_json(&file, path) => {
            return Err(PolicyFileError::Profile);
        }
        other => other?,
    };
    let mut left = bytes as usize;
    let read = |buffer: &mut [u8]| {
        // No more than the size: what is appended at this moment is not part of the file that was looked at.
        let most = buffer.len().min(left);
        if most == 0 {
            return Ok(0);
        }
        let count = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut buffer[..most]))?;
        left -= count;
        Ok(count)
    };
    parse(&mut Lines::new(read, buffer), owner, machine, rules)
}

/// True if a file that is too large is JSON by its name or its first byte, as the profile is, which has a megabyte.
fn is_json(file: &OwnedFd, path: &CStr) -> bool {
    let mut first = [0];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(file, &mut first));
    path.to_bytes().ends_with(b".json") || read == Ok(1) && first == *b"{"
}

/// True if a file may be read as a policy; its size.
fn acceptable(about: &Stat, owner: Owner) -> Result<u64, PolicyFileError> {
    // Files in /proc are regular, have the size 0, and may block or have effects when they are read.
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile || about.st_size <= 0 {
        return Err(PolicyFileError::NotAFile);
    }
    let bytes = about.st_size as u64;
    if bytes > MOST_BYTES {
        return Err(PolicyFileError::TooLarge { bytes, most: MOST_BYTES });
    }
    let others_may_write = about.st_mode & 0o022 != 0;
    if owner == Owner::System && (about.st_uid != 0 || others_may_write) {
        return Err(PolicyFileError::Untrusted);
    }
    Ok(bytes)
}

/// Reads rules from bytes, as from a named file.
pub(super) fn parse_bytes(
    mut bytes: &[u8],
    machine: Target,
    rules: &mut Rules,
) -> Result<(), PolicyFileError> {
    let read = |buffer: &mut [u8]| {
        let count = buffer.len().min(bytes.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        Ok(count)
    };
    parse(&mut Lines::new(read, &mut [0; BUFFER]), Owner::Named, machine, rules)
}

fn parse<R>(
    lines: &mut Lines<R>,
    owner: Owner,
    machine: Target,
    rules: &mut Rules,
) -> Result<(), PolicyFileError>
where
    R: FnMut(&mut [u8]) -> Result<usize, Errno>,
{
    if lines.first_byte()? == Some(b'{') {
        return Err(PolicyFileError::Profile);
    }
    head(lines.next()?)?;
    let mut for_this_cpu = false;
    let mut durability_known = false;
    while let Some((number, line)) = lines.next()? {
        let wrong = |error| PolicyFileError::Line { line: number, error };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let done = match word {
            "cpu" => {
                if cpu(rest).ok_or(wrong(LineError::Fields))? != machine.cpu {
                    return Err(PolicyFileError::ForeignCpu);
                }
                for_this_cpu = true;
                Ok(())
            }
            _ if !for_this_cpu => Err(LineError::NoCpu),
            "emulator" if rest.is_empty() => Err(LineError::Fields),
            "emulator" if owner == Owner::Named => Ok(()),
            "emulator" => return Err(PolicyFileError::Emulated),
            // Two lines may contradict each other, and the wrong one loses data.
            "durability" if std::mem::replace(&mut durability_known, true) => Err(LineError::Twice),
            "durability" => durability(rest, rules),
            "rule" => rule(rest, machine, rules),
            "look" => look(rest, machine, rules),
            "aliasing" => aliasing(rest, machine, rules),
            "threads" => threads(rest, machine, rules),
            "end" if rest.is_empty() => return lines.nothing_more(),
            _ => Err(LineError::Unknown),
        };
        done.map_err(wrong)?;
    }
    Err(PolicyFileError::Truncated)
}

/// Checks the first line.
fn head(line: Option<(u32, &str)>) -> Result<(), PolicyFileError> {
    let (_, line) = line.ok_or(PolicyFileError::NotAPolicy)?;
    let version = line.strip_prefix(POLICY_FORMAT).and_then(|rest| rest.strip_prefix(' '));
    let version: u32 = version.and_then(|it| it.parse().ok()).ok_or(PolicyFileError::NotAPolicy)?;
    if version == POLICY_VERSION { Ok(()) } else { Err(PolicyFileError::Version { found: version }) }
}

/// `FAMILY MODEL STEPPING VENDOR`; the vendor may hold spaces.
fn cpu(text: &str) -> Option<CpuKey<'_>> {
    let mut words = text.splitn(4, ' ');
    let mut number = || words.next()?.parse().ok();
    let (family, model, stepping) = (number()?, number()?, number()?);
    Some(CpuKey { vendor: words.next()?, family, model, stepping })
}

/// `flush-to-memory` or `caches-included`.
fn durability(text: &str, rules: &mut Rules) -> Result<(), LineError> {
    let found = Durability::ALL.into_iter().find(|it| it.name() == text).ok_or(LineError::Fields)?;
    rules.set_durability(found);
    Ok(())
}

/// `OPERATION INTENT|STATE FROM METHOD`.
fn rule(text: &str, machine: Target, rules: &mut Rules) -> Result<(), LineError> {
    let mut words = text.split(' ');
    let mut word = || words.next().ok_or(LineError::Fields);
    let (operation, situation, from, method) = (word()?, word()?, word()?, word()?);
    let operation = Operation::by_name(operation).ok_or(LineError::Fields)?;
    let situation = Situation::by_name(situation).ok_or(LineError::Fields)?;
    let from = from.parse().map_err(|_| LineError::Fields)?;
    if words.next().is_some() {
        return Err(LineError::Fields);
    }
    let choice =
        Choice::parse_borrowed(method, operation, machine.features).map_err(|_| LineError::Method)?;
    rules.push((operation, situation), from, choice, RuleOrigin::Measured).map_err(LineError::from)
}

/// `OPERATION FROM CACHED_BELOW [UNMAPPED_FROM METHOD [HUGE_FROM LENGTH]]`: the times in ticks of the clock, the method for
/// unmapped pages, and the length from which calls bypass the cache in new huge pages.
fn look(text: &str, machine: Target, rules: &mut Rules) -> Result<(), LineError> {
    let mut words = text.split(' ');
    let operation = words.next().and_then(Operation::by_name).ok_or(LineError::Fields)?;
    let from = words.next().and_then(|from| from.parse().ok()).ok_or(LineError::Fields)?;
    let cached_below = ticks(words.next().ok_or(LineError::Fields)?)?;
    if operation == Operation::Persist || from < LEAST_LOOKED {
        return Err(LineError::Fields);
    }
    let unmapped = match (words.next(), words.next()) {
        (None, _) => None,
        (Some(from), Some(method)) => {
            let choice = Choice::parse_borrowed(method, operation, machine.features);
            let huge = match (words.next(), words.next()) {
                (None, _) => None,
                (Some(from), Some(length)) => {
                    let length = length.parse().map_err(|_| LineError::Fields)?;
                    Some(NewHugePages { from: ticks(from)?, length })
                }
                (Some(_), None) => return Err(LineError::Fields),
            };
            let from = ticks(from)?;
            // Huge pages take longer to reach than base pages.
            if huge.is_some_and(|huge| huge.from < from) {
                return Err(LineError::Fields);
            }
            Some(Unmapped { from, choice: choice.map_err(|_| LineError::Method)?, huge })
        }
        (Some(_), None) => return Err(LineError::Fields),
    };
    if words.next().is_some() {
        return Err(LineError::Fields);
    }
    rules.set_look(operation, Look { from, cached_below, unmapped }).map_err(LineError::from)
}

/// A time, which is at least a tick.
fn ticks(text: &str) -> Result<u64, LineError> {
    text.parse().ok().filter(|ticks| *ticks > 0).ok_or(LineError::Fields)
}

/// `copy FROM BELOW METHOD`.
fn aliasing(text: &str, machine: Target, rules: &mut Rules) -> Result<(), LineError> {
    let mut words = text.split(' ');
    let mut word = || words.next().ok_or(LineError::Fields);
    let (operation, from, below, method) = (word()?, word()?, word()?, word()?);
    let number = |text: &str| text.parse().map_err(|_| LineError::Fields);
    let (from, below): (usize, usize) = (number(from)?, number(below)?);
    if words.next().is_some()
        || Operation::by_name(operation) != Some(Operation::Copy)
        || !(1..below).contains(&from)
    {
        return Err(LineError::Fields);
    }
    let choice =
        Choice::parse_borrowed(method, Operation::Copy, machine.features).map_err(|_| LineError::Method)?;
    rules.set_aliasing(PageAliasing { from, below, choice }).map_err(LineError::from)
}

/// `OPERATION FROM THREADS`.
fn threads(text: &str, machine: Target, rules: &mut Rules) -> Result<(), LineError> {
    let mut words = text.split(' ');
    let mut word = || words.next().ok_or(LineError::Fields);
    let (operation, from, threads) = (word()?, word()?, word()?);
    let operation = Operation::by_name(operation).ok_or(LineError::Fields)?;
    let from = from.parse().map_err(|_| LineError::Fields)?;
    let threads: usize = threads.parse().map_err(|_| LineError::Fields)?;
    if words.next().is_some() || !(1..=MOST_THREADS).contains(&threads) {
        return Err(LineError::Fields);
    }
    rules.push_threads(operation, from, threads.min(machine.processors).max(1)).map_err(LineError::from)
}

impl From<RuleError> for LineError {
    fn from(error: RuleError) -> LineError {
        match error {
            RuleError::Order => LineError::Order,
            RuleError::TooMany => LineError::TooMany,
        }
    }
}

/// Lines of a file that is read piece by piece; comments are left out.
struct Lines<'b, R> {
    read: R,
    buffer: &'b mut [u8; BUFFER],
    /// The bytes that were read and are not part of a line yet.
    start: usize,
    end: usize,
    /// Number of the last line, from 1.
    number: u32,
}

impl<'b, R: FnMut(&mut [u8]) -> Result<usize, Errno>> Lines<'b, R> {
    fn new(read: R, buffer: &'b mut [u8; BUFFER]) -> Lines<'b, R> {
        Lines { read, buffer, start: 0, end: 0, number: 0 }
    }

    /// The first byte of all; `None` if there is none. Called before [`Lines::next`].
    fn first_byte(&mut self) -> Result<Option<u8>, PolicyFileError> {
        self.read_more()?;
        Ok(self.buffer.get(..self.end).and_then(<[u8]>::first).copied())
    }

    /// The next line without its line feed, and its number; `None` at the end. A last line without a line feed is
    /// incomplete.
    fn next(&mut self) -> Result<Option<(u32, &str)>, PolicyFileError> {
        loop {
            let (start, end) = (self.start, self.end);
            let rest = self.buffer.get(start..end).unwrap_or_default();
            if let Some(length) = rest.iter().position(|&byte| byte == b'\n') {
                self.number = self.number.saturating_add(1);
                self.start = start + length + 1;
                if rest.first() == Some(&b'#') {
                    continue;
                }
                let Ok(line) = std::str::from_utf8(&self.buffer[start..start + length]) else {
                    return Err(PolicyFileError::Line { line: self.number, error: LineError::NotText });
                };
                return Ok(Some((self.number, line)));
            }
            if !self.read_more()? {
                return if self.start == self.end { Ok(None) } else { Err(PolicyFileError::Truncated) };
            }
        }
    }

    /// Reads more bytes after the ones that are there; false at the end of the file.
    fn read_more(&mut self) -> Result<bool, PolicyFileError> {
        let kept = self.end - self.start;
        if kept == BUFFER {
            return Err(PolicyFileError::Line {
                line: self.number.saturating_add(1),
                error: LineError::TooLong,
            });
        }
        if self.start > 0 {
            let bytes = self.buffer.as_mut_ptr();
            // SAFETY: both ranges are within the buffer. Not `copy_within`, a call of memmove, which the program may
            // have replaced.
            unsafe { built_in::copy_overlapping(bytes, bytes.add(self.start), kept) }
            (self.start, self.end) = (0, kept);
        }
        let unreadable = |error: Errno| PolicyFileError::Unreadable { errno: error.raw_os_error() };
        let count = (self.read)(&mut self.buffer[kept..]).map_err(unreadable)?;
        self.end += count;
        Ok(count > 0)
    }

    fn nothing_more(&mut self) -> Result<(), PolicyFileError> {
        match self.next()? {
            None => Ok(()),
            Some((line, _)) => Err(PolicyFileError::Line { line, error: LineError::AfterEnd }),
        }
    }
}
