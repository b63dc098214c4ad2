//! A block write cache, as dm-writecache lays it out in persistent memory: a superblock with the number of the next commit,
//! an entry for each slot, and the slots.
//!
//! A write copies a block to a free slot, and the numbers of the block and of the next commit to the slot's entry. A commit
//! fences and raises the superblock's number: entries with lower numbers are valid from then on, and the highest of a block
//! counts. When more than half of the slots are in use, each commit copies the oldest blocks to their places in the origin,
//! fences, and empties their entries.

use bulkmem::method;
use bulkmem::{Mapping, Pages};

use super::{Application, store_words};
use crate::engine::arena::write_something;
use crate::engine::buffer::map;
use crate::engine::{Buffer, Implementation, RawRange, Result};
use crate::measurements::persist::write_by;

pub(super) const SUPERBLOCK: usize = 64;
/// Bytes of an entry: the number of the block, and that of the commit.
pub(super) const ENTRY: usize = 16;
/// Alignment of the first slot.
pub(super) const ALIGNMENT: usize = 4096;
/// The number of the commit in entries of empty slots.
const EMPTY: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Cache {
    superblock: *mut u8,
    entries: *mut u8,
    slots: *mut u8,
    /// The blocks of the device that is cached, as many as there are slots: ordinary memory.
    origin: *mut u8,
    _origin: Buffer,
    block: usize,
    /// Share of reads, percent.
    reads: u8,
    /// The slots in the order in which they are taken, again and again. The first is the place 0, and places are counted on.
    order: Vec<usize>,
    /// The block at each place, modulo the number of slots; `None` if a newer place has it, or the origin.
    held: Vec<Option<usize>>,
    /// The newest place of each block; `None` if only the origin has it.
    newest: Vec<Option<usize>>,
    /// The first place in use, the first that is not committed, and the first that is free.
    oldest: usize,
    uncommitted: usize,
    free: usize,
    /// Writes since the last commit.
    writes: u64,
    /// The number of the next commit.
    next_commit: u64,
    /// Committed places of blocks that were written again.
    superseded: Vec<usize>,
    random: fastrand::Rng,
    pub(super) written: Mapping,
    pub(super) read: Mapping,
}

impl Cache {
    /// Returns the number of slots in memory of some length.
    pub(super) fn slots_in(length: usize, block: usize) -> usize {
        length.saturating_sub(SUPERBLOCK + ALIGNMENT) / (block + ENTRY)
    }

    /// Formats memory as a cache of blocks, half of it in use.
    ///
    /// # Safety
    /// The memory is valid for reads and writes as long as the cache lives, and only the cache uses it.
    pub(super) unsafe fn new(memory: RawRange, block: usize, reads: u8, mut origin: Buffer) -> Result<Cache> {
        let count = Cache::slots_in(memory.length, block).min(origin.raw_range().length / block);
        let entries = memory.start.wrapping_add(SUPERBLOCK);
        let mut random = fastrand::Rng::with_seed(1);
        let mut order: Vec<usize> = (0..count).collect();
        random.shuffle(&mut order);
        let half = |place| (place < count / 2).then_some(place);
        let mut written = map(block, Pages::Base)?;
        write_something(&mut written);
        let cache = Cache {
            superblock: memory.start,
            entries,
            slots: memory.start.wrapping_add((SUPERBLOCK + count * ENTRY).next_multiple_of(ALIGNMENT)),
            origin: origin.raw_range().start,
            _origin: origin,
            block,
            reads,
            order,
            held: (0..count).map(half).collect(),
            newest: (0..count).map(half).collect(),
            oldest: 0,
            uncommitted: count / 2,
            free: count / 2,
            writes: 0,
            next_commit: 1,
            superseded: Vec::new(),
            random,
            written,
            read: map(block, Pages::Base)?,
        };
        for place in 0..count {
            let commit = if place < cache.free { 0 } else { EMPTY };
            cache.put_entry(place, place, commit);
        }
        cache.put_superblock();
        method::fence();
        Ok(cache)
    }

    /// Returns the slot of a place.
    fn slot(&self, place: usize) -> usize {
        self.order[place % self.order.len()]
    }

    fn data(&self, place: usize) -> *mut u8 {
        self.slots.wrapping_add(self.slot(place) * self.block)
    }

    fn held_mut(&mut self, place: usize) -> &mut Option<usize> {
        let count = self.held.len();
        &mut self.held[place % count]
    }

    fn put_entry(&self, place: usize, block: usize, commit: u64) {
        let entry = self.entries.wrapping_add(self.slot(place) * ENTRY);
        // SAFETY: the entry lies in the memory, which is valid as `new` requires.
        unsafe { store_words(entry, &[block as u64, commit]) }
    }

    fn put_superblock(&self) {
        // SAFETY: the superblock lies in the memory, which is valid as `new` requires.
        unsafe { store_words(self.superblock, &[self.next_commit]) }
    }

    fn original(&self, block: usize) -> *mut u8 {
        self.origin.wrapping_add(block * self.block)
    }

    /// Reads a block, from its slot or from the origin.
    pub(super) fn read(&mut self, block: usize) {
        let from = self.newest[block].map_or_else(|| self.original(block), |place| self.data(place));
        // SAFETY: slots and origin have whole blocks, and the buffer is as long as one and apart from them.
        unsafe { libc::memcpy(self.read.as_mut_ptr().cast(), from.cast(), self.block) };
    }

    /// Writes the buffer to a block, and commits if that completes a group.
    pub(super) fn write(&mut self, block: usize, by: &Implementation<'_>, group: u64) {
        let place = match self.newest[block] {
            Some(place) if place >= self.uncommitted => place,
            committed => {
                self.superseded.extend(committed);
                let place = self.free;
                self.free += 1;
                self.newest[block] = Some(place);
                *self.held_mut(place) = Some(block);
                place
            }
        };
        // SAFETY: the slot lies in the memory, which is valid as `new` requires; the buffer is as long and apart from it.
        unsafe { write_by(by, self.data(place), self.written.as_ptr(), self.block) };
        self.put_entry(place, block, self.next_commit);
        self.writes += 1;
        if self.writes >= group {
            self.commit();
        }
    }

    fn commit(&mut self) {
        // Blocks and entries are durable before the number that makes them valid,
        method::fence();
        self.next_commit += 1;
        self.put_superblock();
        // and that before anything older is dropped.
        method::fence();
        (self.uncommitted, self.writes) = (self.free, 0);
        let mut dropped = std::mem::take(&mut self.superseded);
        dropped.iter().for_each(|place| *self.held_mut(*place) = None);
        let superseded = dropped.len();
        while self.free - self.oldest > self.order.len() / 2 {
            let place = self.oldest;
            self.oldest += 1;
            let Some(block) = self.held_mut(place).take() else { continue };
            self.newest[block] = None;
            // SAFETY: a slot and a block of the origin, which lie apart.
            unsafe { libc::memcpy(self.original(block).cast(), self.data(place).cast(), self.block) };
            dropped.push(place);
        }
        // The origin has the blocks before their entries are empty,
        if dropped.len() > superseded {
            method::fence();
        }
        // and these are empty before the slots are taken again.
        if !dropped.is_empty() {
            dropped.iter().for_each(|place| self.put_entry(*place, 0, EMPTY));
            method::fence();
        }
    }
}

impl Application for Cache {
    fn step(&mut self, by: &Implementation<'_>, group: u64) -> u64 {
        let block = self.random.usize(..self.newest.len());
        if self.random.u8(..100) < self.reads {
            self.read(block);
        } else {
            // No two writes are alike.
            self.written[..8].copy_from_slice(&self.random.u64(..).to_ne_bytes());
            self.write(block, by, group);
        }
        1
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
