//! Memory of the kernel module's device: of a cache attribute that ordinary memory does not have.

use bulkmem::Pages;
use bulkmem::machine::Machine;
use bulkmem_kmod::{Attribute, DeviceMemory, KernelError, MemoryOptions};

use crate::engine::arena::{RawRange, write_something};
use crate::engine::buffer::fits;
use crate::engine::{Config, PageSize, Run};
use crate::{MeasureError, OptionName};

/// Which cache attributes memory is measured with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Attributes {
    /// That of the memory, or of the target, that is measured in any case.
    #[default]
    Own,
    /// These, each in memory of the device; taken in turns.
    Named(Vec<Attribute>),
    /// All that this kernel has.
    All,
}

impl Attributes {
    /// Whether the device is needed.
    pub(crate) fn of_device(&self) -> bool {
        *self != Attributes::Own
    }

    /// Those that are asked for; what the kernel lacks of all is not known yet.
    pub(crate) fn asked(&self) -> Vec<Attribute> {
        match self {
            Attributes::Own => Vec::new(),
            Attributes::Named(some) => distinct(some),
            Attributes::All => Attribute::ALL.to_vec(),
        }
    }

    /// Whether there is memory of those that are asked for; of all, of any.
    ///
    /// # Errors
    /// [`MeasureError::Kernel`], which says how to get the module where that is what lacks.
    pub(crate) fn check(&self) -> Result<(), MeasureError> {
        match self {
            Attributes::Own => Ok(()),
            Attributes::Named(some) => some.iter().try_for_each(|attribute| probe(*attribute)),
            Attributes::All => probe(Attribute::Wb),
        }
    }

    /// Those that are to be measured. What the kernel lacks of all is said.
    ///
    /// # Errors
    /// As [`Attributes::check`].
    pub(crate) fn possible(&self, run: &mut Run<'_>) -> Result<Vec<Attribute>, MeasureError> {
        let mut possible = Vec::new();
        for attribute in self.asked() {
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

/// Each once, in the order given.
fn distinct(some: &[Attribute]) -> Vec<Attribute> {
    let mut list = Vec::new();
    for attribute in some {
        if !list.contains(attribute) {
            list.push(*attribute);
        }
    }
    list
}

/// Takes a page, and gives it back.
fn probe(attribute: Attribute) -> Result<(), MeasureError> {
    let options = MemoryOptions { attribute, ..MemoryOptions::default() };
    DeviceMemory::new(1, options).map(drop).map_err(MeasureError::Kernel)
}

/// A range of the device's memory.
#[derive(Debug)]
pub(crate) struct Uncommon {
    memory: DeviceMemory,
    page_size: PageSize,
}

/// Whether so much memory in such pages can be asked for.
///
/// # Errors
/// [`MeasureError::Option`] for pages that the device does not give, [`MeasureError::TooLarge`].
pub(crate) fn check(bytes: u64, page_size: PageSize) -> Result<(), MeasureError> {
    pages(page_size)?;
    fits(bytes)
}

/// The device's pages for those that are asked for: where transparent huge ones would do, huge ones.
fn pages(asked: PageSize) -> Result<Pages, MeasureError> {
    const HUGE: Pages = Pages::Explicit(2 << 20);
    match asked.0 {
        Pages::Transparent | HUGE => Ok(HUGE),
        Pages::Base => Ok(Pages::Base),
        Pages::Explicit(_) => {
            let base = PageSize(Pages::Base);
            let reason = format!("the device gives no pages of {asked}; name {base} or 2M");
            Err(MeasureError::Option { option: OptionName::PageSize, reason })
        }
    }
}

impl Uncommon {
    /// Takes memory, zeroed.
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
        let options = MemoryOptions { attribute, pages, node: None };
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = DeviceMemory::new(length, options).map_err(MeasureError::Kernel)?;
        Ok(Uncommon { memory, page_size: PageSize(pages) })
    }

    /// Writes bytes of which no line is like the next, all of it by the widest copies that there are: uncached memory
    /// takes its time.
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
            // SAFETY: the part lies in the memory, which nobody else uses yet; the content is as long, and apart from it.
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

    /// Where it is. Valid as long as this lives.
    pub(crate) fn raw_range(&self) -> RawRange {
        RawRange { start: self.memory.as_ptr(), length: self.memory.len() }
    }

    /// What rows say of where they were measured.
    pub(crate) fn config(&self) -> Config {
        Config {
            target: Some(bulkmem_kmod::PATH.to_owned()),
            size: Some(self.memory.len() as u64),
            attribute: Some(self.memory.options().attribute.to_string()),
            page_size: Some(self.page_size),
            ..Config::default()
        }
    }

    /// The size of its pages.
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
        assert_eq!(twice.asked(), [Attribute::Uc, Attribute::Wb]);
        assert!(Attributes::Own.asked().is_empty() && Attributes::Own.check().is_ok());
        assert_eq!(Attributes::All.asked(), Attribute::ALL);
    }

    #[test]
    fn what_lacks_is_said_with_the_remedy() {
        if Attributes::All.check().is_ok() {
            println!("skipped: what is said without the kernel module: it is loaded");
            return;
        }
        for attributes in [Attributes::All, Attributes::Named(vec![Attribute::Uc])] {
            let text = attributes.check().unwrap_err().to_string();
            assert!(text.contains("/dev/bulkmem") && text.contains("root"), "{text}");
        }
    }
}
