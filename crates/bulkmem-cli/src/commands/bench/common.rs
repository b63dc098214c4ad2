//! Arguments that several measurements share, and running a measurement with them.

use std::path::PathBuf;

use bulkmem_measure::engine::{Measure, MethodSet, PageSize, Peers, Results};
use bulkmem_measure::measurements::{
    Attribute, Attributes, Candidates, RAM, TargetOptions, UnknownAttribute,
};
use clap::Args;

use super::counted;
use crate::commands::runner::{self, Files};
use crate::failure::{Failure, Outcome, show};
use crate::parsers::{given_or, names, one_of, size};
use crate::{output, plain, results};

/// Turns results into text of some width.
pub(super) type View<'v> = &'v dyn Fn(&Results, usize) -> String;

/// Arguments of most measurements.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Methods to measure, or `all`; with parameters: write_prefetch_avx512[write_distance=4096] [default: a
    /// representative selection, and those that the policy chooses]
    #[arg(long, short = 'f', visible_alias = "function", value_name = "METHODS", value_parser = names)]
    method: Vec<Vec<String>>,
    /// Samples of each candidate; samples are interleaved, and follow one round of warm-up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Candidates besides methods: the C library, libpmem, the kernel, reading
    #[arg(long, value_name = "PEERS", default_value = "all", value_parser = one_of(PEERS))]
    peers: Peers,
    #[command(flatten)]
    pub(super) outputs: Outputs,
}

/// Outputs of a measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct Outputs {
    #[command(flatten)]
    counters: CountersArg,
    #[command(flatten)]
    display: Display,
    /// Save the results to this file after each step, for `report` and `compare`
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const PEERS: &[(&str, &str, Peers)] =
    &[("none", "No other candidates", Peers::None), ("all", "All that are installed", Peers::All)];

/// Whether to count hardware events.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct CountersArg {
    /// Also count cycles, instructions, cache events, and lines fetched per line written, in up to six more samples of each
    /// candidate; a measurement that cannot count says so
    #[arg(long)]
    pub(super) counters: bool,
}

/// The format that results are printed in.
#[derive(Args, Clone, Debug)]
pub(crate) struct Display {
    /// Print JSON; `bulkmem schema results` describes it
    #[arg(long)]
    json: bool,
    /// Also write the results to this file as comma-separated values; - is stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) csv: Option<PathBuf>,
}

/// The page size behind the memory.
#[derive(Args, Clone, Debug)]
pub(crate) struct PageSizeArg {
    /// Page size of the memory: 4K, thp (transparent huge pages), 2M or 1G
    #[arg(long, value_name = "SIZE", default_value = "thp")]
    pub(crate) page_size: PageSize,
}

/// Page sizes to compare.
#[derive(Args, Clone, Debug)]
pub(crate) struct PageSizesArg {
    /// Page sizes of the memory: 4K, thp (transparent huge pages), 2M or 1G
    #[arg(long, short = 'p', visible_alias = "page", value_name = "SIZES", value_delimiter = ',')]
    #[arg(default_value = "thp")]
    pub(crate) page_size: Vec<PageSize>,
}

/// The memory that is written, one or several kinds of it.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetNames {
    /// `ram`, or a path: a file, a file on DAX, /dev/daxX.Y, a PCI device's resourceN or resourceN_wc; several are
    /// interleaved, where the measurement takes several (persist, pollution) [default: ram]
    #[arg(long, value_name = "TARGETS", value_delimiter = ',')]
    pub(super) target: Vec<PathBuf>,
    /// Overwrite an existing target
    #[arg(long)]
    overwrite: bool,
}

/// The memory that is read and written.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    names: TargetNames,
    /// Bytes to work on; a file that does not exist is created with this size and removed afterwards [default: all of the
    /// file or device; of memory, many times the last-level cache]
    #[arg(long, short = 's', visible_alias = "working-set", value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Keep a file that was created
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    pages: PageSizeArg,
}

impl Common {
    /// Returns the options that every measurement has: methods, peers, and number of samples.
    pub(super) fn candidates(&self) -> Candidates {
        let methods = match self.method.concat() {
            none if none.is_empty() => MethodSet::Representative,
            some if some.iter().any(|name| name == "all") => MethodSet::All,
            some => MethodSet::Named(some),
        };
        Candidates { methods, peers: self.peers, runs: self.runs as usize }
    }
}

impl Outputs {
    /// Measures, and prints the results. `inputs` are files that are measured: they are never written to as an output.
    pub(super) fn run(&self, inputs: &[PathBuf], measurements: &[&dyn Measure], view: View<'_>) -> Outcome {
        let files = Files { json: self.output.as_deref(), csv: self.display.csv.as_deref(), inputs };
        runner::run("bench", measurements, self.counters.counters, files, |found| {
            self.display.print(found, &|found, width| view(found, width) + &counted::text(found, width))
        })
    }
}

impl Display {
    pub(super) fn print(&self, found: &Results, view: View<'_>) -> Result<(), Failure> {
        if self.csv.as_deref().is_some_and(|path| path == "-") {
            return Ok(output::print_raw(results::csv(found)?.as_bytes())?);
        }
        show(self.json, found, |width| view(&plain::results(found.clone()), width)).map(drop)
    }
}

impl TargetNames {
    /// Returns the targets, with the attribute that they must have.
    pub(super) fn options(&self, attribute: Option<Attribute>) -> Vec<TargetOptions> {
        let usual = if attribute.is_some() { bulkmem_kmod::MEMORY_PATH } else { RAM };
        let (overwrite, usual) = (self.overwrite, vec![usual.into()]);
        let option = |target| TargetOptions { target, overwrite, attribute, ..TargetOptions::ram() };
        given_or(self.target.clone(), usual).into_iter().map(option).collect()
    }
}

impl TargetArgs {
    /// Returns the targets as they were named.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.names.target
    }

    /// Returns the only target as it was named, for a measurement that takes no more than one.
    pub(super) fn only(&self, measurement: &str) -> Result<Option<&PathBuf>, Failure> {
        match self.paths() {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(Failure::usage(format!("--target: {measurement} measures one target at a time"))),
        }
    }

    /// Returns the targets, with the attribute that they must have.
    pub(crate) fn options(&self, attribute: Option<Attribute>) -> Vec<TargetOptions> {
        let (size, keep, page_size) = (self.size, self.keep, self.pages.page_size);
        let options = self.names.options(attribute).into_iter();
        options.map(|target| TargetOptions { size, keep, page_size, ..target }).collect()
    }
}

/// Parses a cache attribute, or `all`, which is `None`.
pub(super) fn attribute_or_all(text: &str) -> Result<Option<Attribute>, UnknownAttribute> {
    if text == "all" { Ok(None) } else { text.parse().map(Some) }
}

/// Turns attributes from the command line into those of a measurement.
pub(super) fn attributes(given: &[Option<Attribute>]) -> Attributes {
    match given.iter().copied().collect::<Option<Vec<Attribute>>>() {
        Some(none) if none.is_empty() => Attributes::Own,
        some => some.map_or(Attributes::All, Attributes::Named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_includes_every_other_attribute() {
        let of = |texts: &[&str]| {
            attributes(&texts.iter().map(|text| attribute_or_all(text).unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), Attributes::Own);
        assert_eq!(of(&["uc", "wb"]), Attributes::Named(vec![Attribute::Uc, Attribute::Wb]));
        assert_eq!(of(&["uc", "all"]), Attributes::All);
        assert!(attribute_or_all("most").is_err());
    }
}
