//! Clear, fill and copy by size and method: the tables that the sources made with `perf bench mem`.

use bulkmem::Operation;
mod first_touch;

use bulkmem::machine::Machine;
use bulkmem_kmod::Attribute;

use self::first_touch::FirstTouch;
use crate::engine::Peers;
use crate::engine::arena::RawRange;
use crate::engine::buffer::{Buffer, Content};
use crate::engine::implementation::MethodSet;
use crate::engine::memory;
use crate::engine::passes::Passes;
use crate::engine::run::{Measure, Run, Sampler};
use crate::engine::selection::{FIRST_TOUCH, Selection, kernel};
use crate::engine::{Config, Measurement, Metric, PageSize, units};
use crate::measurements::checks::{self, invalid};
use crate::measurements::participants::{pass_samplers, sampler};
use crate::target::device::{self, Attributes, Uncommon};
use crate::{Kind, MeasureError, OptionName};

/// Options for measuring an operation by size and method.
#[derive(Clone, Debug)]
pub struct SizesOptions {
    /// Clear, fill or copy.
    pub operation: Operation,
    /// Bytes.
    pub sizes: Vec<u64>,
    /// The page sizes of the memory.
    pub page_sizes: Vec<PageSize>,
    /// For clear and fill: cache attributes of memory of the kernel module's device to measure instead.
    pub attributes: Attributes,
    /// Bytes per call. Default: the whole size.
    pub chunk: Option<u64>,
    /// Passes over the memory per sample. Default: as many as can be timed precisely.
    pub loops: Option<u32>,
    /// Numbers of threads to divide the work among.
    pub threads: Vec<usize>,
    /// The byte to fill with.
    pub byte: u8,
    /// If set, the memory and the source of a copy hold zeros before. Otherwise they hold mixed bytes, and memory to clear
    /// is written to again before each pass: some processors move and clear zeros faster than other bytes.
    pub zeros: bool,
    /// Offset in bytes from the start of a page, for the memory and the source of a copy.
    pub offset: u64,
    /// The methods.
    pub methods: MethodSet,
    /// The other participants.
    pub peers: Peers,
    /// The candidate to compare results with; measured if it is a method.
    pub baseline: Option<String>,
    /// Samples of each.
    pub runs: usize,
}

impl SizesOptions {
    /// The sources' sizes that memory suffices for, in transparent huge pages, 5 samples.
    pub fn new(operation: Operation) -> SizesOptions {
        SizesOptions {
            operation,
            // Copies need twice as much, and the kernel's first touch as much again.
            sizes: memory::defaults([16 << 20, 128 << 20, 1 << 30], |size| size * 3),
            page_sizes: vec![PageSize::TRANSPARENT],
            attributes: Attributes::Own,
            chunk: None,
            loops: None,
            threads: vec![1],
            byte: 0xA5,
            zeros: false,
            offset: 0,
            methods: MethodSet::Representative,
            peers: Peers::All,
            baseline: None,
            runs: 5,
        }
    }

    fn content(&self) -> Content {
        if self.zeros { Content::Zeros } else { Content::Mixed }
    }

    /// Distance from the destination to the source of a copy.
    fn distance(&self, size: u64) -> u64 {
        let page = Machine::current().page_size as u64;
        if self.operation == Operation::Copy {
            size.saturating_add(self.offset).next_multiple_of(page)
        } else {
            0
        }
    }

    /// Bytes of memory for a size.
    fn needed(&self, size: u64) -> u64 {
        self.distance(size).saturating_add(size).saturating_add(self.offset)
    }

    fn selection(&self) -> Result<Selection, MeasureError> {
        let mut others = vec!["policy"];
        if self.peers == Peers::All {
            others.push("read");
            if self.has_first_touch() {
                others.push(FIRST_TOUCH);
            }
        }
        Selection::new(self.operation, &self.methods, self.peers, self.baseline.as_deref(), &others)
    }

    /// True if the kernel's first touch takes part: for ordinary memory.
    fn has_first_touch(&self) -> bool {
        self.operation == Operation::Clear && self.peers == Peers::All && !self.attributes.of_device()
    }

    fn config(&self, size: u64, pages: PageSize, threads: usize) -> Config {
        Config {
            operation: Some(self.operation),
            size: Some(size),
            chunk: self.chunk,
            page_size: Some(pages),
            threads: (self.threads != [1]).then_some(threads),
            content: self.zeros.then(|| "zeros".to_owned()),
            offset: Some(self.offset).filter(|offset| *offset > 0),
            ..Config::default()
        }
    }
}

impl Measure for SizesOptions {
    fn measurement(&self) -> Measurement {
        match self.operation {
            Operation::Fill => Measurement::Fill,
            Operation::Copy => Measurement::Copy,
            _ => Measurement::Clear,
        }
    }

    fn validate(&self) -> Result<(), MeasureError> {
        let Some(smallest) = self.sizes.iter().min() else {
            return invalid(OptionName::Sizes, "name at least one");
        };
        if let Some(chunk) = self.chunk.filter(|chunk| chunk > smallest || *chunk == 0) {
            let reason = format!("{chunk} bytes are not from 1 to the smallest size, {smallest} bytes");
            return invalid(OptionName::Chunk, reason);
        }
        checks::threads(&self.threads)?;
        let page = Machine::current().page_size as u64;
        if self.offset >= page {
            let reason = format!("it counts from the start of a page: name less than {page} bytes");
            return invalid(OptionName::Offset, reason);
        }
        if self.attributes.of_device() && self.operation == Operation::Copy {
            let reason =
                "memory of other attributes is cleared and filled here; `bench iops` copies from and to it";
            return invalid(OptionName::Attribute, reason);
        }
        for size in &self.sizes {
            if self.attributes.of_device() {
                let bytes = self.needed(*size).saturating_mul(self.attributes.requested().len() as u64);
                self.page_sizes.iter().try_for_each(|pages| device::check(bytes, *pages))?;
            } else {
                checks::memory(self.needed(*size), &self.page_sizes)?;
            }
        }
        self.selection()?;
        self.attributes.check()
    }

    fn seconds(&self) -> f64 {
        let implementations =
            self.selection().map_or(8, |selection| selection.implementations.len() + 3) as f64;
        let loops = f64::from(self.loops.unwrap_or(1));
        // The memory is written to before each clear.
        let passes = if self.operation == Operation::Clear && !self.zeros { 2.0 } else { 1.0 };
        let a_sample = |size: &u64| loops * passes * *size as f64 / 12e9 + 0.004;
        let group = implementations * (self.runs + 1) as f64;
        // Uncached memory is written at a hundredth of the speed.
        let attributes = self.attributes.requested();
        let slow = |attribute: &Attribute| if *attribute == Attribute::Uc { 100.0 } else { 1.0 };
        let times: f64 = if attributes.is_empty() { 1.0 } else { attributes.iter().map(slow).sum() };
        let groups: f64 =
            self.sizes.iter().map(|size| group * a_sample(size) * times + *size as f64 / 4e9).sum();
        groups * (self.page_sizes.len() * self.threads.len()) as f64
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        run.expect_groups(self.sizes.len() * self.page_sizes.len() * self.threads.len());
        let attributes = self.attributes.possible(run)?;
        for &pages in &self.page_sizes {
            for &size in &self.sizes {
                if run.stopped() {
                    return Ok(());
                }
                let Some(mut memory) = self.memory(run, size, pages, &attributes)? else { return Ok(()) };
                for &threads in &self.threads {
                    let mut samplers = Vec::new();
                    for memory in &mut memory {
                        let config = memory.config(self.config(size, pages, threads));
                        samplers.extend(self.samplers(run, config, memory.raw_range(), threads)?);
                    }
                    let mut what = format!("{}, {pages} pages", units::bytes(size));
                    if self.threads != [1] {
                        what += &format!(", {threads} {}", if threads == 1 { "thread" } else { "threads" });
                    }
                    run.interleave(&what, Metric::Bandwidth, self.runs, &mut samplers)?;
                }
            }
        }
        self.conclude(run);
        Ok(())
    }
}

/// Memory to measure in.
enum Memory {
    Ordinary(Buffer),
    Device(Uncommon),
}

impl Memory {
    fn raw_range(&mut self) -> RawRange {
        match self {
            Memory::Ordinary(buffer) => buffer.raw_range(),
            Memory::Device(memory) => memory.raw_range(),
        }
    }

    /// Adds the properties of this memory to a configuration.
    fn config(&self, config: Config) -> Config {
        match self {
            Memory::Ordinary(_) => config,
            Memory::Device(memory) => {
                let Config { target, attribute, page_size, .. } = memory.config();
                Config { target, attribute, page_size, ..config }
            }
        }
    }
}

impl SizesOptions {
    /// Allocates memory for a size: ordinary, or one range for each attribute. `None` if the run was stopped.
    fn memory(
        &self,
        run: &mut Run<'_>,
        size: u64,
        pages: PageSize,
        attributes: &[Attribute],
    ) -> Result<Option<Vec<Memory>>, MeasureError> {
        if attributes.is_empty() {
            let buffer = Buffer::of_run(run, self.needed(size), pages, self.content())?;
            return Ok(buffer.map(|buffer| vec![Memory::Ordinary(buffer)]));
        }
        let mut memory = Vec::new();
        for &attribute in attributes {
            let raw_range = Uncommon::new(self.needed(size), attribute, pages)?;
            let ready = self.zeros
                || raw_range.fill(&mut |share| {
                    run.say(&format!("preparing {attribute} memory: {:.0} %", share * 100.0), 0.0);
                    !run.stopped()
                });
            if !ready {
                return Ok(None);
            }
            run.backed_by(Some(raw_range.backing_page_size()));
            memory.push(Memory::Device(raw_range));
        }
        Ok(Some(memory))
    }

    /// Compares the policy's choice with the C library and with the best of all methods.
    fn conclude(&self, run: &mut Run<'_>) {
        let of = |run: &Run<'_>, wanted: &dyn Fn(&crate::engine::Candidate) -> bool| -> Vec<(Config, f64)> {
            let rows = run
                .rows()
                .filter(|row| row.config.operation == Some(self.operation) && wanted(&row.candidate));
            rows.map(|row| (row.config.clone(), row.stats.median)).collect()
        };
        let policy = of(run, &|candidate| candidate.kind == Kind::Policy);
        let against = |others: &[(Config, f64)]| {
            let best = |config: &Config| {
                let there = others.iter().filter(|(other, _)| other == config).map(|(_, speed)| *speed);
                there.reduce(f64::max)
            };
            let ratios = policy.iter().filter_map(|(config, chosen)| Some(chosen / best(config)?));
            ratios.fold(None, |range: Option<[f64; 2]>, ratio| {
                let [least, most] = range.unwrap_or([ratio, ratio]);
                Some([least.min(ratio), most.max(ratio)])
            })
        };
        let c_library = of(run, &|candidate| candidate.name == "c_library");
        let methods = of(run, &|candidate| candidate.kind == Kind::Method || candidate.name == "c_library");
        let times = |[least, most]: [f64; 2]| match (format!("{least:.2}"), format!("{most:.2}")) {
            (least, most) if least == most => least,
            (least, most) => format!("{least} to {most}"),
        };
        let operation = self.operation;
        if let Some(range) = against(&c_library) {
            let best = against(&methods)
                .map(|range| format!(", and at {} times that of the best method measured", times(range)));
            run.add_finding(format!(
                "{operation}: the policy's choice runs at {} times the speed of the C library{}.",
                times(range),
                best.unwrap_or_default()
            ));
        }
    }

    fn samplers<'c>(
        &self,
        run: &mut Run<'c>,
        config: Config,
        whole: RawRange,
        threads: usize,
    ) -> Result<Vec<Sampler<'c>>, MeasureError> {
        let size = config.size.unwrap_or_default();
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let chunk = self.chunk.and_then(|chunk| usize::try_from(chunk).ok()).unwrap_or(length).min(length);
        let dst = whole.start.wrapping_add(usize::try_from(self.offset).unwrap_or_default());
        let distance = usize::try_from(self.distance(size)).unwrap_or(usize::MAX);
        let passes = Passes {
            operation: self.operation,
            byte: self.byte,
            dst,
            src: dst.wrapping_add(distance),
            length,
            chunk,
            threads,
            loops: self.loops,
            rewritten_by: (!self.zeros).then_some(threads),
        };
        // SAFETY: the memory is `needed` bytes long: the destination and, `distance` bytes after its start, the source of
        // a copy, both `offset` past a page. `measure` keeps it while its samplers live, and no other code uses it.
        let mut samplers = unsafe { pass_samplers(run, self.selection()?, self.peers, passes, &config) };
        if self.has_first_touch() {
            let pages = config.page_size.unwrap_or_default();
            match FirstTouch::new(size, pages, threads) {
                Ok(touch) => samplers.push(sampler(kernel(), &config, false, move || touch.sample())),
                Err(error) => run.note(format!(
                    "the kernel's first touch is left out, as it needs memory of its own: {}",
                    chain(&error)
                )),
            }
        }
        Ok(samplers)
    }
}

/// Formats an error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::engine::testing::run;

    fn small(operation: Operation) -> SizesOptions {
        let methods = MethodSet::Named(vec!["portable".into(), "c_library".into()]);
        let page_sizes = vec!["4K".parse().unwrap()];
        SizesOptions {
            sizes: vec![1 << 16, 1 << 20],
            page_sizes,
            methods,
            runs: 3,
            ..SizesOptions::new(operation)
        }
    }

    #[test]
    fn each_size_has_a_row_of_everybody() {
        for operation in [Operation::Clear, Operation::Fill, Operation::Copy] {
            let (results, saves) = run(&small(operation), false);
            let results = results.unwrap();
            assert!(results.complete && saves == 3, "after each size and at the end");
            for size in [1 << 16, 1 << 20] {
                let names: Vec<&str> = results
                    .rows
                    .iter()
                    .filter(|row| row.config.size == Some(size))
                    .map(|row| row.candidate.name.as_str())
                    .collect();
                for name in ["policy", "portable", "c_library", "read"] {
                    assert!(names.contains(&name), "{operation}: {names:?}");
                }
                assert_eq!(names.contains(&FIRST_TOUCH), operation == Operation::Clear, "{names:?}");
            }
            for row in &results.rows {
                assert_eq!(row.chosen.is_some(), row.candidate.kind == Kind::Policy, "{row:?}");
            }
            assert!(results.findings[0].text.contains("times the speed of the C library"));
            assert!(results.rows.iter().all(|row| row.samples.len() == 3 && row.stats.median > 0.0));
        }
    }

    /// Configurations hold exactly the dimensions that distinguish rows.
    #[test]
    fn threads_chunks_offsets_and_zeros_are_said() {
        let mut options = SizesOptions {
            threads: vec![1, 2],
            chunk: Some(4096),
            offset: 16,
            zeros: true,
            peers: Peers::None,
            loops: Some(1),
            ..small(Operation::Copy)
        };
        let (results, saves) = run(&options, false);
        let results = results.unwrap();
        assert_eq!((results.rows.len(), saves), (2 * 2 * 3, 5));
        for row in &results.rows {
            let config = &row.config;
            assert!(config.threads.is_some_and(|threads| (1..=2).contains(&threads)), "{config:?}");
            assert_eq!((config.chunk, config.offset), (Some(4096), Some(16)));
            assert_eq!(config.content.as_deref(), Some("zeros"));
        }
        options.threads = vec![1];
        assert_eq!(options.config(1, PageSize::TRANSPARENT, 1).threads, None);
    }

    #[test]
    fn options_that_make_no_sense_are_refused_by_name() {
        let small = || small(Operation::Clear);
        for (options, said) in [
            (SizesOptions { sizes: vec![], ..small() }, "--size: "),
            (SizesOptions { chunk: Some(1 << 17), ..small() }, "--chunk: 131072 bytes are not from 1 to"),
            (SizesOptions { chunk: Some(0), ..small() }, "--chunk: "),
            (SizesOptions { threads: vec![0], ..small() }, "--threads: 0 is not from 1 to 1024"),
            (SizesOptions { offset: 4096, ..small() }, "--offset: "),
            (
                SizesOptions { baseline: Some("nosuch".into()), ..small() },
                "--baseline: `nosuch` takes no part",
            ),
        ] {
            let error = run(&options, false).0.unwrap_err().to_string();
            assert!(error.starts_with(said), "{said}: {error}");
        }
    }

    #[test]
    fn attributes_stand_beside_each_other_or_the_error_says_how_to_get_the_module() {
        let attributes = Attributes::Named(vec![Attribute::Wb, Attribute::Uc]);
        let options = SizesOptions { attributes, sizes: vec![1 << 16], ..small(Operation::Clear) };
        match run(&options, false).0 {
            Ok(results) => {
                for attribute in ["wb", "uc"] {
                    let of = |name: &str| {
                        let mut rows = results.rows.iter();
                        rows.any(|row| {
                            row.candidate.name == name && row.config.attribute.as_deref() == Some(attribute)
                        })
                    };
                    assert!(of("policy") && of("portable") && !of(FIRST_TOUCH), "{attribute}");
                }
            }
            Err(error) => {
                println!("skipped: clearing memory of other attributes: {error}");
                assert!(matches!(error, MeasureError::Kernel(_)), "{error}");
            }
        }
        let copy = SizesOptions { operation: Operation::Copy, ..options };
        let error = copy.validate().unwrap_err().to_string();
        assert!(error.starts_with("--attr: ") && error.contains("bench iops"), "{error}");
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before() {
        let mut options = small(Operation::Clear);
        options.sizes = vec![1 << 46];
        assert!(matches!(run(&options, false), (Err(MeasureError::TooLarge { .. }), 0)));
        let mut options = small(Operation::Clear);
        options.methods = MethodSet::Named(vec!["nosuch".into()]);
        assert!(matches!(run(&options, false), (Err(MeasureError::Method { .. }), 0)));
        assert!(matches!(run(&small(Operation::Clear), true), (Err(MeasureError::Interrupted), _)));
    }
}
