//! Huge pages that are reserved for a measurement and given back after it, whatever becomes of the process.
//!
//! The kernel keeps the number of reserved pages until somebody changes it: a process that is killed would leave them
//! behind, lost to everybody else. So a guardian, a small shell process in a process group of its own, reserves them
//! and waits at a pipe. When the reservation is dropped, or the process ends in any way at all, the pipe ends, and the
//! guardian gives the pages back.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bulkmem::Pages;

use crate::engine::error::fits;
use crate::engine::numa::bound_nodes;
use crate::engine::{MeasureError, PageSize, Result};

const GUARDIAN: &str = include_str!("reservation/guardian.sh");

/// Huge pages that were reserved, by their guardian; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Reservation(Child);

impl Reservation {
    /// Sees to it that `bytes` in pages of that size can be mapped: reserves what is missing. `None` where nothing is. Fails
    /// where that is not allowed, or the kernel has not got so many pages; then none stay reserved.
    pub(crate) fn of(bytes: u64, pages: PageSize) -> Result<Option<Reservation>> {
        Pool::of(pages).map_or(Ok(None), |pool| pool.reserve(bytes))
    }

    /// Whether this machine has such pages, and [`Reservation::of`] is allowed and has a chance, as far as can be known
    /// without trying: if not, what is in the way, and the remedy. Memory in pages that need no reservation is only checked
    /// for its size.
    pub(crate) fn check(bytes: u64, pages: PageSize) -> Result<()> {
        pages.check()?;
        Pool::of(pages).map_or_else(|| fits(bytes), |pool| pool.missing(bytes).map(drop))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Closes the pipe. Once the guardian ended, the pages are given back. Where that was refused, it said so itself.
        _ = self.0.wait();
    }
}

/// The kernel's reserved pages of one size.
#[derive(Debug)]
struct Pool {
    folder: PathBuf,
    page: PageSize,
}

impl Pool {
    /// The pool that pages of that size come from, where they come from one: that of the node that memory is bound to.
    fn of(page: PageSize) -> Option<Pool> {
        let Pages::Explicit(bytes) = page.0 else { return None };
        // The pool of a node has the same files, without the number of promised pages.
        let parent = match bound_nodes() {
            Some(nodes) if nodes.0.len() == 1 => format!("/sys/devices/system/node/node{nodes}"),
            _ => "/sys/kernel/mm".to_owned(),
        };
        let folder = format!("{parent}/hugepages/hugepages-{}kB", bytes / 1024).into();
        Some(Pool { folder, page })
    }

    fn numbers(&self) -> PathBuf {
        self.folder.join("nr_hugepages")
    }

    fn read(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Pages that nobody uses and that were promised to nobody.
    fn free(&self) -> u64 {
        self.read("free_hugepages").saturating_sub(self.read("resv_hugepages"))
    }

    /// How many pages are needed for `bytes`, and how many of them must be reserved first; whether that can be tried.
    fn missing(&self, bytes: u64) -> Result<(u64, u64)> {
        let needed = bytes.div_ceil(self.page.bytes());
        let missing = needed.saturating_sub(self.free());
        if missing > 0 {
            fits(missing.saturating_mul(self.page.bytes()))?;
            // Opening changes nothing.
            File::options().write(true).open(self.numbers()).map_err(|error| {
                self.refused(needed, &format!("reserving them is refused ({error})"), &self.by_hand(missing))
            })?;
        }
        Ok((needed, missing))
    }

    fn reserve(&self, bytes: u64) -> Result<Option<Reservation>> {
        let (needed, missing) = self.missing(bytes)?;
        if missing == 0 {
            return Ok(None);
        }
        let (reservation, got) = self.hold(missing)?;
        self.judge(reservation, got, needed, missing).map(Some)
    }

    /// Has a guardian reserve pages; how many it got, where it said so.
    fn hold(&self, pages: u64) -> Result<(Reservation, Option<u64>)> {
        let guardian = guardian(&self.folder, pages, Stdio::piped())
            .map_err(|source| MeasureError::System { doing: "start sh, which guards huge pages", source })?;
        let mut reservation = Reservation(guardian);
        let got = reservation.0.stdout.take().and_then(got);
        Ok((reservation, got))
    }

    /// Keeps what is enough, and gives back what is not.
    fn judge(
        &self,
        reservation: Reservation,
        got: Option<u64>,
        needed: u64,
        missing: u64,
    ) -> Result<Reservation> {
        let Some(got) = got else {
            return Err(self.refused(needed, "reserving them failed", &self.by_hand(missing)));
        };
        if got >= missing {
            return Ok(reservation);
        }
        let why = format!(
            "the kernel found {got} of the {missing} that are missing, as memory is taken or in fragments; they \
             were given back"
        );
        let size = self.page;
        let remedy = format!(
            "free memory, or gather it with `echo 1 > /proc/sys/vm/compact_memory` as root; at boot there is \
             enough in one piece: add `hugepagesz={size} hugepages={needed}` to the kernel's parameters"
        );
        Err(self.refused(needed, &why, &remedy))
    }

    fn by_hand(&self, missing: u64) -> String {
        let wanted = self.read("nr_hugepages").saturating_add(missing);
        let file = self.numbers();
        format!("run this as root (sudo), or reserve them as root: echo {wanted} > {}", file.display())
    }

    fn refused(&self, needed: u64, why: &str, remedy: &str) -> MeasureError {
        let (size, free) = (self.page.to_string(), self.free());
        MeasureError::HugePages { needed, size, free, reason: format!("{why}; {remedy}") }
    }
}

/// Starts a guardian that reserves pages and keeps them until its input ends.
fn guardian(folder: &Path, wanted: u64, input: Stdio) -> io::Result<Child> {
    Command::new("sh")
        .args(["-c", GUARDIAN, "bulkmem-guardian"])
        .arg(folder)
        .arg(wanted.to_string())
        .stdin(input)
        .stdout(Stdio::piped())
        // What a terminal sends to the process does not reach the guardian.
        .process_group(0)
        .spawn()
}

/// How many pages the guardian says that it got.
fn got(output: impl io::Read) -> Option<u64> {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).ok()?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests;
