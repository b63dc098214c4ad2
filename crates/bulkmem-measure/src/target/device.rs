//! Memory of the kernel module's device: of a cache attribute that ordinary memory does not have.

use bulkmem::Pages;
use bulkmem_kmod::{Attribute, DeviceMemory, KernelError, MemoryOptions};

use crate::engine::buffer::fits;
use crate::engine::options::invalid;
use crate::engine::{MeasureError, PageSize, Result, Run, distinct};

/// Cache attributes to measure with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// That of the measured memory or target.
    Own,
    /// These, each in memory of the device, interleaved.
    Named(Vec<Attribute>),
    /// All that this kernel supports.
    All,
}

impl Attributes {
    /// Returns the requested attributes, each once, even if the kernel does not support them; none for [`Attributes::Own`].
    pub(crate) fn requested(&self) -> Vec<Attribute> {
        let some = match self {
            Attributes::Own => &[],
            Attributes::Named(some) => some.as_slice(),
            Attributes::All => &Attribute::ALL,
        };
        distinct(some.iter().copied())
    }

    /// Checks that the device provides memory of the requested attributes; for all, of any. The error has the remedy.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Attributes::All => probe(Attribute::Wb),
            some => some.requested().into_iter().try_for_each(probe),
        }
    }

    /// As [`Attributes::check`]; returns the attributes to measure. For all, notes those that the kernel does not support.
    pub(crate) fn possible(&self, run: &mut Run<'_>) -> Result<Vec<Attribute>> {
        let mut possible = Vec::new();
        for attribute in self.requested() {
            match probe(attribute) {
                Err(MeasureError::Kernel(error @ KernelError::NoAttribute { .. }))
                    if *self == Attributes::All =>
                {
                    run.note(format!("memory mapped {attribute}: not measured: {error}"));
                }
                outcome => outcome.map(|()| possible.push(attribute))?,
            }
        }
        Ok(possible)
    }
}

/// Allocates a page and releases it.
fn probe(attribute: Attribute) -> Result<()> {
    allocate(1, attribute, PageSize(Pages::Base)).map(drop)
}

/// Checks that the device provides such pages, and that there is memory for them.
pub(crate) fn check(bytes: u64, page_size: PageSize) -> Result<()> {
    pages(page_size)?;
    fits(bytes)
}

/// Returns the device's pages for the requested ones: huge ones for transparent huge ones.
fn pages(requested: PageSize) -> Result<Pages> {
    const HUGE: Pages = Pages::Explicit(2 << 20);
    match requested.0 {
        Pages::Transparent | HUGE => Ok(HUGE),
        Pages::Base => Ok(Pages::Base),
        Pages::Explicit(_) => {
            let base = PageSize(Pages::Base);
            let reason = format!("the device provides no pages of {requested}; name {base} or 2M");
            invalid("--page-size", reason)
        }
    }
}

/// Allocates zeroed memory of the device.
pub(crate) fn allocate(bytes: u64, attribute: Attribute, page_size: PageSize) -> Result<DeviceMemory> {
    check(bytes, page_size)?;
    let options = MemoryOptions::default().attribute(attribute).pages(pages(page_size)?);
    DeviceMemory::new(bytes as usize, options).map_err(MeasureError::Kernel)
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
