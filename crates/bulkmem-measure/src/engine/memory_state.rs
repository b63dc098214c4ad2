//! The states that a look tells apart.

use bulkmem::Pages;

use crate::engine::CacheState;

/// The state that memory is in before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryState {
    Cached,
    Uncached,
    /// Its pages are not mapped yet.
    Unmapped,
    /// Its pages are not mapped yet, and huge.
    UnmappedHuge,
}

impl MemoryState {
    /// Returns the state of memory in such pages, by default base pages.
    pub(crate) fn of(cache: CacheState, pages: Option<Pages>) -> MemoryState {
        match cache {
            CacheState::Warm => MemoryState::Cached,
            CacheState::Cold => MemoryState::Uncached,
            CacheState::Fresh if pages.unwrap_or_default() == Pages::Base => MemoryState::Unmapped,
            CacheState::Fresh => MemoryState::UnmappedHuge,
        }
    }

    /// Returns the pages of new memory.
    pub(crate) fn new_pages(self) -> Option<Pages> {
        match self {
            MemoryState::Cached | MemoryState::Uncached => None,
            MemoryState::Unmapped => Some(Pages::Base),
            MemoryState::UnmappedHuge => Some(Pages::Transparent),
        }
    }
}
