//! Clear, fill and copy by size and method: the tables that the sources made with `perf bench mem`.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bulkmem::Operation;
use bulkmem::machine::Machine;
use bulkmem_kmod::Attribute;

use crate::engine::buffer::{map, prefault};
use crate::engine::run::ONE_THREAD;
use crate::engine::{
    Buffer, Candidate, Config, Content, Implementation, Kind, Measure, Measurement, MethodSet, Metric,
    PageSize, Passes, Peers, RawRange, Reservation, Result, Row, Run, Sample, Sampler, implementation,
    memory, units, with_causes,
};
use crate::measurements::checks::{self, require};
use crate::measurements::participants::{Candidates, FIRST_TOUCH, sampler};
use crate::target::device::{self, Attributes};
use crate::target::{Memory, preparing};

/// Options for measuring an operation by size and method.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct SizesOptions {
    /// Clear, fill or copy.
    pub operation: Operation,
    pub sizes: Vec<u64>,
    pub page_sizes: Vec<PageSize>,
    /// For clear and fill: cache attributes of memory of the kernel module's device to measure instead.
    pub attributes: Attributes,
    /// Bytes per call. Default: the whole size.
    pub chunk: Option<u64>,
    /// Passes over the memory per sample. Default: as many as can be timed precisely.
    pub loops: Option<u32>,
    /// Numbers of threads to divide the work among.
    pub threads: Vec<usize>,
    pub byte: u8,
    /// If set, the memory and the source of a copy hold zeros before. Otherwise they hold mixed bytes, and memory to clear
    /// is written to again before each pass: some processors move and clear zeros faster than other bytes.
    pub zeros: bool,
    /// Offset in bytes from the start of a page, for the memory and the source of a copy.
    pub offset: u64,
    /// The candidate to compare results with; measured if it is a method.
    pub baseline: Option<String>,
    pub candidates: Candidates,
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
            baseline: None,
            candidates: Candidates::default(),
        }
    }

    /// Distance from the destination to the source of a copy.
    fn distance(&self, size: u64) -> u64 {
        let page = Machine::current().page_size as u64;
        match self.operation {
            Operation::Copy => size.saturating_add(self.offset).next_multiple_of(page),
            _ => 0,
        }
    }

    /// Bytes of memory for a size.
    fn needed(&self, size: u64) -> u64 {
        self.distance(size).saturating_add(size).saturating_add(self.offset)
    }

    fn selection(&self) -> Result<Vec<Implementation<'static>>> {
        let others: &[&str] = match self.candidates.peers {
            Peers::None => &["policy"],
            Peers::All if self.has_first_touch() => &["policy", "read", FIRST_TOUCH],
            Peers::All => &["policy", "read"],
        };
        let mut all = self.candidates.selection(self.operation, self.baseline.as_deref(), others)?;
        if self.candidates.methods == MethodSet::Representative {
            let mut variants = implementation::variants(self.operation);
            // A baseline may be one of them.
            variants.retain(|it| all.iter().all(|other| other.candidate() != Candidate::method(it)));
            all.extend(variants.into_iter().map(Implementation::Method));
        }
        Ok(all)
    }

    /// True if the kernel's first touch takes part: for ordinary memory.
    fn has_first_touch(&self) -> bool {
        self.operation == Operation::Clear
            && self.candidates.peers == Peers::All
            && self.attributes.requested().is_empty()
    }

    fn config(&self, size: u64, pages: PageSize, threads: usize) -> Config {
        Config {
            chunk: self.chunk,
            threads: (self.threads != [1]).then_some(threads),
            content: self.zeros.then(|| "zeros".to_owned()),
            offset: Some(self.offset).filter(|offset| *offset > 0),
            ..Config::of(self.operation, size, pages)
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

    fn validate(&self) -> Result<()> {
        require(!self.sizes.is_empty(), "--size", "name at least one")?;
        if let Some((chunk, smallest)) = self.chunk.zip(self.sizes.iter().copied().min()) {
            let reason = format!("{chunk} bytes are not from 1 to the smallest size, {smallest} bytes");
            require((1..=smallest).contains(&chunk), "--chunk", reason)?;
        }
        checks::threads(&self.threads)?;
        let page = Machine::current().page_size as u64;
        let reason = format!("it counts from the start of a page: name less than {page} bytes");
        require(self.offset < page, "--offset", reason)?;
        let attributes = self.attributes.requested().len() as u64;
        let reason =
            "memory of other attributes is cleared and filled here; `bench iops` copies from and to it";
        require(attributes == 0 || self.operation != Operation::Copy, "--attr", reason)?;
        for size in &self.sizes {
            let bytes = self.needed(*size);
            let device = |pages: &PageSize| device::check(bytes.saturating_mul(attributes), *pages);
            match attributes {
                0 => checks::memory(bytes, &self.page_sizes)?,
                _ => self.page_sizes.iter().try_for_each(device)?,
            }
        }
        self.selection()?;
        self.attributes.check()
    }

    fn uncounted(&self) -> Option<&'static str> {
        (!self.threads.contains(&1)).then_some(ONE_THREAD)
    }

    fn seconds(&self) -> f64 {
        let implementations = self.selection().map_or(8, |selection| selection.len() + 3);
        let loops = f64::from(self.loops.unwrap_or(1));
        // The memory is written to before each clear.
        let passes = if self.operation == Operation::Clear && !self.zeros { 2.0 } else { 1.0 };
        let attributes = self.attributes.requested();
        // Uncached memory is written at a hundredth of the speed.
        let times = attributes.iter().map(|it| if *it == Attribute::Uc { 100.0 } else { 1.0 }).sum::<f64>();
        let samples = (implementations * (self.candidates.runs + 1)) as f64 * times.max(1.0);
        let group = |size: f64| samples * (loops * passes * size / 12e9 + 0.004) + size / 4e9;
        let groups: f64 = self.sizes.iter().map(|size| group(*size as f64)).sum();
        groups * (self.page_sizes.len() * self.threads.len()) as f64
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        run.expect_groups(self.sizes.len() * self.page_sizes.len() * self.threads.len());
        let attributes = self.attributes.possible(run)?;
        for &pages in &self.page_sizes {
            for &size in &self.sizes {
                let mut memory = self.memory(run, size, pages, &attributes)?;
                for &threads in &self.threads {
                    let mut samplers = Vec::new();
                    for memory in &mut memory {
                        let mut config = self.config(size, pages, threads);
                        if let Memory::Module(memory) = memory {
                            config.target = Some(bulkmem_kmod::MEMORY_PATH.to_owned());
                            config.attribute = Some(memory.options().attribute.to_string());
                            config.page_size = Some(PageSize(memory.options().pages));
                        }
                        samplers.extend(self.samplers(run, config, memory.raw_range(), threads)?);
                    }
                    let mut what = format!("{}, {pages} pages", units::bytes(size));
                    if self.threads != [1] {
                        what += &format!(", {}", units::plural(threads, "thread"));
                    }
                    run.interleave(&what, Metric::Bandwidth, self.candidates.runs, &mut samplers)?;
                }
            }
        }
        Ok(())
    }

    /// Compares the policy's choice with the C library and with the best of all methods.
    fn conclude(&self, run: &mut Run<'_>) {
        let rows: Vec<&Row> = run.rows().collect();
        // The range of the policy's speed relative to the best of some candidates.
        let against = |some: fn(&Candidate) -> bool| {
            let ratio = |policy: &&Row| {
                let others = rows.iter().filter(|row| some(&row.candidate) && row.config == policy.config);
                Some(policy.stats.median / others.map(|row| row.stats.median).reduce(f64::max)?)
            };
            let ratios = rows.iter().filter(|row| row.candidate.kind == Kind::Policy).filter_map(ratio);
            units::range(ratios)
        };
        let c_library = against(|candidate| candidate.name == "c_library");
        let best = against(|candidate| candidate.kind == Kind::Method || candidate.name == "c_library");
        if let (Some(c_library), Some(best)) = (c_library, best) {
            run.add_finding(format!(
                "{}: the policy's choice runs at {c_library} times the speed of the C library, and at {best} times that of \
                 the best method measured.",
                self.operation
            ));
        }
    }
}

impl SizesOptions {
    /// Allocates memory for a size: ordinary, or one range for each attribute.
    fn memory(
        &self,
        run: &mut Run<'_>,
        size: u64,
        pages: PageSize,
        attributes: &[Attribute],
    ) -> Result<Vec<Memory>> {
        let needed = self.needed(size);
        if attributes.is_empty() {
            let content = if self.zeros { Content::Zeros } else { Content::Mixed };
            return Ok(vec![Memory::Ram(Buffer::of_run(run, needed, pages, content)?)]);
        }
        let of_device = |attribute: &Attribute| {
            let mut memory = Memory::Module(device::allocate(needed, *attribute, pages)?);
            if !self.zeros {
                memory.touch(true, &mut |share| preparing(run, format!("{attribute} memory"), share))?;
            }
            run.backed_by(memory.backing_page_size());
            Ok(memory)
        };
        attributes.iter().map(of_device).collect()
    }

    fn samplers<'c>(
        &self,
        run: &mut Run<'c>,
        config: Config,
        whole: RawRange,
        threads: usize,
    ) -> Result<Vec<Sampler<'c>>> {
        let size = config.size.unwrap_or_default();
        let length = size as usize;
        let dst = whole.start.wrapping_add(self.offset as usize);
        let passes = Passes {
            operation: self.operation,
            byte: self.byte,
            dst,
            src: dst.wrapping_add(self.distance(size) as usize),
            length,
            chunk: self.chunk.map_or(length, |chunk| length.min(chunk as usize)),
            threads,
            loops: self.loops,
            rewritten_by: (!self.zeros).then_some(threads),
        };
        // SAFETY: the memory is `needed` bytes long: the destination and, `distance` bytes after its start, the source of
        // a copy, both `offset` past a page. `measure` keeps it while its samplers live, and no other code uses it.
        let mut samplers = unsafe { self.candidates.pass_samplers(run, self.selection()?, passes, &config) };
        if self.has_first_touch() {
            let (pages, stop) = (config.page_size.unwrap_or_default(), run.observer.stop);
            match Reservation::check(size, pages).and_then(|()| Reservation::of(size, pages)) {
                Ok(reservation) => {
                    let kernel = Candidate::named(Kind::Kernel, FIRST_TOUCH);
                    samplers.push(sampler(kernel, &config, false, move || {
                        let _reserved = &reservation;
                        first_touch(length, pages, threads, stop)
                    }));
                }
                Err(error) => {
                    let left_out = "the kernel's first touch is left out, as it needs memory of its own";
                    run.note(format!("{left_out}: {}", with_causes(&error)));
                }
            }
        }
        Ok(samplers)
    }
}

/// Samples the kernel's own clearing, GB/s: several threads prefault a part of fresh memory each. The time includes that
/// the kernel allocates, clears and maps the pages.
fn first_touch(length: usize, pages: PageSize, threads: usize, stop: &AtomicBool) -> Result<Sample> {
    let mut region = map(length, pages.0)?;
    let start = Instant::now();
    prefault(&mut region, threads, stop)?;
    Ok((length as f64 / start.elapsed().as_nanos() as f64).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MeasureError;
    use crate::engine::testing::{run, saved_after_each};

    fn small(operation: Operation) -> SizesOptions {
        let methods = MethodSet::Named(vec!["portable".into(), "c_library".into()]);
        let candidates = Candidates { methods, runs: 3, ..Candidates::default() };
        let page_sizes = vec!["4K".parse().unwrap()];
        SizesOptions { sizes: vec![1 << 16, 1 << 20], page_sizes, candidates, ..SizesOptions::new(operation) }
    }

    #[test]
    fn each_size_has_a_row_of_everybody() {
        for operation in [Operation::Clear, Operation::Fill, Operation::Copy] {
            let (results, saves) = run(&small(operation), false);
            let results = results.unwrap();
            assert!(results.complete && saved_after_each(2, saves), "{saves}");
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
            loops: Some(1),
            ..small(Operation::Copy)
        };
        options.candidates.peers = Peers::None;
        let (results, saves) = run(&options, false);
        let results = results.unwrap();
        assert_eq!(results.rows.len(), 2 * 2 * 3);
        assert!(saved_after_each(4, saves), "{saves}");
        for row in &results.rows {
            let config = &row.config;
            assert!(config.threads.is_some_and(|threads| (1..=2).contains(&threads)), "{config:?}");
            assert_eq!((config.chunk, config.offset), (Some(4096), Some(16)));
            assert_eq!(config.content.as_deref(), Some("zeros"));
        }
        options.threads = vec![1];
        assert_eq!(options.config(1, PageSize::TRANSPARENT, 1).threads, None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_default_table_has_the_variants_of_the_sources_once() {
        let baseline = Some("rep_movsd".to_owned());
        let options = SizesOptions { baseline, ..SizesOptions::new(Operation::Copy) };
        let names: Vec<String> = options.selection().unwrap().iter().map(|it| it.candidate().name).collect();
        for wanted in ["rep_movsd", "loop_aligned_sse2", "loop_unaligned_sse2"] {
            assert_eq!(names.iter().filter(|name| *name == wanted).count(), 1, "{names:?}");
        }
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
    fn first_touches_can_be_sampled_again_and_again() {
        let stop = AtomicBool::new(false);
        for (bytes, threads) in [(1, 1), (4096, 4), (1 << 20, 3), (10 * 4096 + 1, 2)] {
            for _ in 0..3 {
                let sample = first_touch(bytes, "4K".parse().unwrap(), threads, &stop).unwrap();
                assert!(sample.value > 0.0, "{bytes} bytes, {threads} threads");
            }
        }
        assert!(first_touch(1 << 46, "4K".parse().unwrap(), 1, &stop).is_err());
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before() {
        let mut options = small(Operation::Clear);
        options.sizes = vec![1 << 46];
        assert!(matches!(run(&options, false), (Err(MeasureError::TooLarge { .. }), 0)));
        let mut options = small(Operation::Clear);
        options.candidates.methods = MethodSet::Named(vec!["nosuch".into()]);
        assert!(matches!(run(&options, false), (Err(MeasureError::Method { .. }), 0)));
        assert!(matches!(run(&small(Operation::Clear), true), (Err(MeasureError::Interrupted), _)));
    }
}
