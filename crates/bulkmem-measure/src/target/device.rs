//! Memory of the kernel module's device: of a cache attribute that ordinary memory does not have.

use bulkmem::Pages;
use bulkmem::machine::Machine;
use bulkmem_kmod::{Attribute, DeviceMemory, KernelError, MemoryOptions};

use crate::engine::arena::{RawRange, write_something};
use crate::engine::buffer::fits;
use crate::engine::{Config, PageSize, Run};
use crate::{MeasureError, OptionName};

/// Cache attributes to measure with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Attributes {
    /// That of the measured memory or target.
    #[default]
    Own,
    /// These, each in memory of the device, interleaved.
    Named(Vec<Attribute>),
    /// All that this kernel supports.
    All,
}

impl Attributes {
    /// True if the device is needed.
    pub(crate) fn of_device(&self) -> bool {
        *self != Attributes::Own
    }

    /// Returns the requested attributes. For all, includes those that the kernel may not support.
    pub(crate) fn requested(&self) -> Vec<Attribute> {
        match self {
            Attributes::Own => Vec::new(),
            Attributes::Named(some) => distinct(some),
            Attributes::All => Attribute::ALL.to_vec(),
        }
    }

    /// Checks that the device provides memory of the requested attributes; for all, of any.
    ///
    /// # Errors
    /// [`MeasureError::Kernel`], which says how to load the module if it is missing.
    pub(crate) fn check(&self) -> Result<(), MeasureError> {
        match self {
            Attributes::Own => Ok(()),
            Attributes::Named(some) => some.iter().try_for_each(|attribute| probe(*attribute)),
            Attributes::All => probe(Attribute::Wb),
        }
    }

    /// Returns the attributes to measure. For all, notes those that the kernel does not support.
    ///
    /// # Errors
    /// As [`Attributes::check`].
    pub(crate) fn possible(&self, run: &mut Run<'_>) -> Result<Vec<Attribute>, MeasureError> {
        let mut possible = Vec::new();
        for attribute in self.requested() {
            match probe(attribute) {
                Err(MeasureError::Kernel(error @ KernelError::NoAttribute { .. }))
                    if *self == Attributes::All =>
                {
                    run.note(format!("memory mapped {attribute}: not measured: {error}"));
                }
                other => other.map(|()| possible.push(attribute))?,
            }
        }
        Ok(possible)
    }
}

/// Removes duplicates, keeping the order.
fn distinct(some: &[Attribute]) -> Vec<Attribute> {
    let mut list = Vec::new();
    for attribute in some {
        if !list.contains(attribute) {
            list.push(*attribute);
        }
    }
    list
}

/// Allocates a page and releases it.
fn probe(attribute: Attribute) -> Result<(), MeasureError> {
    let options = MemoryOptions::default().attribute(attribute);
    DeviceMemory::new(1, options).map(drop).map_err(MeasureError::Kernel)
}

/// Memory of the device.
#[derive(Debug)]
pub(crate) struct Uncommon {
    memory: DeviceMemory,
    page_size: PageSize,
}

/// Checks that memory in such pages can be requested.
///
/// # Errors
/// [`MeasureError::Option`] for pages that the device does not provide, [`MeasureError::TooLarge`].
pub(crate) fn check(bytes: u64, page_size: PageSize) -> Result<(), MeasureError> {
    pages(page_size)?;
    fits(bytes)
}

/// Returns the device's pages for the requested ones: huge ones for transparent huge ones.
fn pages(requested: PageSize) -> Result<Pages, MeasureError> {
    const HUGE: Pages = Pages::Explicit(2 << 20);
    match requested.0 {
        Pages::Transparent | HUGE => Ok(HUGE),
        Pages::Base => Ok(Pages::Base),
        Pages::Explicit(_) => {
            let base = PageSize(Pages::Base);
            let reason = format!("the device provides no pages of {requested}; name {base} or 2M");
            Err(MeasureError::Option { option: OptionName::PageSize, reason })
        }
    }
}

impl Uncommon {
    /// Allocates zeroed memory.
    ///
    /// # Errors
    /// As [`check`]; [`MeasureError::Kernel`].
    pub(crate) fn new(
        bytes: u64,
        attribute: Attribute,
        page_size: PageSize,
    ) -> Result<Uncommon, MeasureError> {
        check(bytes, page_size)?;
        let pages = pages(page_size)?;
        let options = MemoryOptions::default().attribute(attribute).pages(pages);
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = DeviceMemory::new(length, options).map_err(MeasureError::Kernel)?;
        Ok(Uncommon { memory, page_size: PageSize(pages) })
    }

    /// Fills the memory with lines that all differ. Uses the widest copies, since uncached memory is slow. Returns false if
    /// `go_on`, called with the share that is done, did.
    pub(crate) fn fill(&self, go_on: &mut dyn FnMut(f64) -> bool) -> bool {
        const PIECE: usize = 1 << 20;
        let mut content = vec![0; PIECE.min(self.memory.len())];
        write_something(&mut content);
        let whole = self.memory.len();
        for at in (0..whole).step_by(PIECE) {
            if !go_on(at as f64 / whole as f64) {
                return false;
            }
            let part = PIECE.min(whole - at);
            // SAFETY: the part lies in the memory, which no other code uses yet; the content is as long, and apart from it.
            unsafe {
                bulkmem::Options::new().total_len(whole).copy_raw(
                    self.memory.as_ptr().add(at),
                    content.as_ptr(),
                    part,
                )
            }
        }
        true
    }

    /// Returns the range, valid as long as this lives.
    pub(crate) fn raw_range(&self) -> RawRange {
        RawRange { start: self.memory.as_ptr(), length: self.memory.len() }
    }

    /// Returns the configuration that identifies the memory in results.
    pub(crate) fn config(&self) -> Config {
        Config {
            target: Some(bulkmem_kmod::PATH.to_owned()),
            size: Some(self.memory.len() as u64),
            attribute: Some(self.memory.options().attribute.to_string()),
            page_size: Some(self.page_size),
            ..Config::default()
        }
    }

    /// Returns the size of its pages.
    pub(crate) fn backing_page_size(&self) -> usize {
        match self.memory.options().pages {
            Pages::Explicit(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
            _ => Machine::current().page_size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_those_that_the_device_gives() {
        let of = |text: &str| pages(text.parse().unwrap());
        assert_eq!(of("thp").unwrap(), Pages::Explicit(2 << 20));
        assert_eq!(of("2M").unwrap(), Pages::Explicit(2 << 20));
        assert_eq!(pages(PageSize(Pages::Base)).unwrap(), Pages::Base);
        let error = of("1G").unwrap_err().to_string();
        assert!(error.starts_with("--page-size: ") && error.contains("name 4K or 2M"), "{error}");
        assert!(matches!(check(1 << 60, PageSize::TRANSPARENT), Err(MeasureError::TooLarge { .. })));
    }

    #[test]
    fn attributes_are_taken_once() {
        let twice = Attributes::Named(vec![Attribute::Uc, Attribute::Wb, Attribute::Uc]);
        assert_eq!(twice.requested(), [Attribute::Uc, Attribute::Wb]);
        assert!(Attributes::Own.requested().is_empty() && Attributes::Own.check().is_ok());
        assert_eq!(Attributes::All.requested(), Attribute::ALL);
    }

    #[test]
    fn what_lacks_is_said_with_the_remedy() {
        if Attributes::All.check().is_ok() {
            println!("skipped: the error without the kernel module: it is loaded");
            return;
        }
        for attributes in [Attributes::All, Attributes::Named(vec![Attribute::Uc])] {
            let text = attributes.check().unwrap_err().to_string();
            assert!(text.contains("/dev/bulkmem") && text.contains("root"), "{text}");
        }
    }
}
