//! Clear, fill and copy by size and method: the tables of the sources' `perf bench mem`.

use std::time::Instant;

use bulkmem::{Intent, Operation};

use super::buffer::{Buffer, Content};
use super::doer::{self, Doer, Wanted};
use super::run::{Contender, Measure, OPERATIONS, Run, Sample};
use super::{Measurement, Metric, PageSize, Place};
use crate::arena::Stretch;
use crate::{Kind, MeasureError};

/// A sample spans at least this long, where the number of loops is left to the measurement.
const SAMPLE_NS: f64 = 2e6;

/// Who else takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peers {
    /// Nobody.
    None,
    /// The C library, libpmem where it is installed, the kernel, and reading.
    #[default]
    All,
}

/// How to measure an operation by size and method.
#[derive(Clone, Debug)]
pub struct SizesOptions {
    /// Clear, fill or copy.
    pub operation: Operation,
    /// Bytes.
    pub sizes: Vec<u64>,
    /// The pages behind the memory.
    pub page_sizes: Vec<PageSize>,
    /// Bytes a call; the whole size where not given.
    pub chunk: Option<u64>,
    /// How often a sample works through the memory; enough to be timed well where not given.
    pub loops: Option<u32>,
    /// What to fill with.
    pub byte: u8,
    /// Whether the memory, and the source of a copy, holds zeros before: as `perf bench mem` has it. Some processors
    /// move zeros faster than other bytes.
    pub zeros: bool,
    /// Which methods.
    pub methods: Wanted,
    /// Who else.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl SizesOptions {
    /// The sources' sizes, in transparent huge pages, 5 samples.
    pub fn new(operation: Operation) -> SizesOptions {
        SizesOptions {
            operation,
            sizes: vec![16 << 20, 128 << 20, 1 << 30],
            page_sizes: vec![PageSize::TRANSPARENT],
            chunk: None,
            loops: None,
            byte: 0xA5,
            zeros: false,
            methods: Wanted::Usual,
            peers: Peers::All,
            runs: 5,
        }
    }

    fn content(&self) -> Content {
        if self.zeros { Content::Zeros } else { Content::Mixed }
    }

    /// Bytes of memory a size needs.
    fn needed(&self, size: u64) -> u64 {
        if self.operation == Operation::Copy { size.saturating_mul(2) } else { size }
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
        for size in &self.sizes {
            super::buffer::fits(self.needed(*size))?;
        }
        for pages in &self.page_sizes {
            pages.check()?;
        }
        doer::methods(&self.methods, self.operation).map(drop)
    }

    fn seconds(&self) -> f64 {
        let bytes: u64 = self.sizes.iter().sum();
        let doers = 8.0;
        doers * (self.runs + 1) as f64 * self.page_sizes.len() as f64 * (bytes as f64 / 8e9 + 0.01)
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        run.expect_groups(self.sizes.len() * self.page_sizes.len());
        for &pages in &self.page_sizes {
            for &size in &self.sizes {
                if run.stopped() {
                    return Ok(());
                }
                run.say("getting memory ready", 0.0);
                let mut memory = Buffer::new(self.needed(size), pages, self.content())?;
                run.backed_by(memory.backing_page_size());
                let whole = memory.stretch();
                let mut contenders = self.contenders(run, size, pages, whole)?;
                let what = format!("{size} bytes, {pages} pages");
                run.take_turns(&what, Metric::Bandwidth, self.runs, &mut contenders)?;
            }
        }
        self.conclude(run);
        Ok(())
    }
}

impl SizesOptions {
    /// How the policy's choice did against the C library.
    fn conclude(&self, run: &mut Run<'_>) {
        let of = |name: &str| -> Vec<(Place, f64)> {
            let rows = run.rows().filter(|row| row.subject.name == name);
            rows.map(|row| (row.place.clone(), row.stats.median)).collect()
        };
        let plain = of("c_library");
        let ratios: Vec<f64> = of("policy")
            .iter()
            .filter_map(|(place, chosen)| Some(chosen / plain.iter().find(|(other, _)| other == place)?.1))
            .collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        if most > 0.0 {
            run.find(format!(
                "{}: the policy's choice runs at {least:.2} to {most:.2} times the speed of the C library.",
                self.operation
            ));
        }
    }

    fn contenders<'c>(
        &self,
        run: &mut Run<'c>,
        size: u64,
        pages: PageSize,
        whole: Stretch,
    ) -> Result<Vec<Contender<'c>>, MeasureError> {
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let mut doers = vec![Doer::Policy(run.policy(), Intent::Throughput, length)];
        doers.extend(doer::methods(&self.methods, self.operation)?.into_iter().map(Doer::Method));
        if self.peers == Peers::All {
            match doer::libraries(self.operation) {
                Ok(libraries) => doers.extend(libraries),
                Err(reason) => run.note(reason),
            }
            doers.push(Doer::Read);
        } else {
            doers.retain(|doer| doer.subject().kind != Kind::Peer);
        }
        let place = Place {
            operation: Some(self.operation),
            size: Some(size),
            chunk: self.chunk,
            page_size: Some(pages),
            content: self.zeros.then(|| "zeros".to_owned()),
            ..Place::default()
        };
        let part = self.chunk.map_or(length, |chunk| usize::try_from(chunk).unwrap_or(length)).min(length);
        let choice = run.policy().choose_part(self.operation, part, length, Intent::Throughput);
        run.chooses(&doers[0].subject(), &place, choice);
        let contenders = doers.into_iter().map(|doer| Contender {
            subject: doer.subject(),
            place: place.clone(),
            sample: self.sampler(doer, whole, length),
            counted: true,
        });
        Ok(contenders.collect())
    }

    /// Times so many loops over the memory.
    fn sampler<'c>(
        &self,
        doer: Doer<'c>,
        whole: Stretch,
        length: usize,
    ) -> Box<dyn FnMut() -> Result<Sample, MeasureError> + 'c> {
        let (operation, byte, mut loops) = (self.operation, self.byte, self.loops);
        let chunk =
            self.chunk.map_or(length, |chunk| usize::try_from(chunk).unwrap_or(length)).clamp(1, length);
        let dst = whole.start;
        let src = if operation == Operation::Copy { dst.wrapping_add(length) } else { dst };
        let once = move || {
            for from in (0..length).step_by(chunk) {
                let part = chunk.min(length - from);
                // SAFETY: the stretch holds the destination and, behind it, the source of a copy; the run keeps it
                // while its contenders live, and nobody else uses it.
                unsafe { doer.run(operation, dst.wrapping_add(from), src.wrapping_add(from), part, byte) }
            }
        };
        Box::new(move || {
            // The warming-up sample finds out how many loops can be timed well.
            let loops = *loops.get_or_insert_with(|| {
                let start = Instant::now();
                once();
                (SAMPLE_NS / start.elapsed().as_nanos().max(1) as f64).ceil() as u32
            });
            let start = Instant::now();
            for _ in 0..loops {
                once();
            }
            let ns = start.elapsed().as_secs_f64() * 1e9;
            let loops = f64::from(loops);
            Ok(Sample { value: length as f64 * loops / ns, also: vec![(OPERATIONS, loops)] })
        })
    }
}

#[cfg(test)]
mod tests {
    use bulkmem::machine::Machine;
    use bulkmem::policy::Policy;

    use super::super::testing::run;
    use super::*;

    fn small(operation: Operation) -> SizesOptions {
        let methods = Wanted::Named(vec!["portable".into(), "c_library".into()]);
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
            let rule =
                results.rule(operation, Intent::Throughput, 1 << 20).expect("the policy's rules are saved");
            let chosen = Policy::defaults(Machine::current()).choose(operation, 1 << 20, Intent::Throughput);
            assert_eq!(rule.method, chosen.method.name);
            for size in [1 << 16, 1 << 20] {
                let names: Vec<&str> = results
                    .rows
                    .iter()
                    .filter(|row| row.place.size == Some(size))
                    .map(|row| row.subject.name.as_str())
                    .collect();
                for name in ["policy", "portable", "c_library", "read"] {
                    assert!(names.contains(&name), "{operation}: {names:?}");
                }
            }
            assert!(results.rows.iter().all(|row| row.samples.len() == 3 && row.stats.median > 0.0));
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before() {
        let mut options = small(Operation::Clear);
        options.sizes = vec![1 << 46];
        assert!(matches!(run(&options, false), (Err(MeasureError::TooLarge { .. }), 0)));
        let mut options = small(Operation::Clear);
        options.methods = Wanted::Named(vec!["nosuch".into()]);
        assert!(matches!(run(&options, false), (Err(MeasureError::Method { .. }), 0)));
        assert!(matches!(run(&small(Operation::Clear), true), (Err(MeasureError::Interrupted), _)));
    }
}
