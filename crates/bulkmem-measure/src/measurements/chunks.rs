//! An extent cleared in chunks: what a processor makes of the length of one call, and what the kernel gives away by
//! clearing page by page.

use bulkmem::machine::Machine;
use bulkmem::{Intent, Operation};

use crate::engine::arena::RawRange;
use crate::engine::buffer::{Buffer, Content};
use crate::engine::implementation::{Implementation, MethodSet};
use crate::engine::passes::Passes;
use crate::engine::reservation::Reservation;
use crate::engine::run::{Measure, Run, Sampler};
use crate::engine::selection::Selection;
use crate::engine::{Config, Measurement, Metric, PageSize, Peers, Row, units};
use crate::{Kind, MeasureError, OptionName, memory_left};

/// Where nothing is asked for, an extent is not larger than this: the sources' own.
const LARGEST: u64 = 4 << 30;
/// The sources' chunks.
const CHUNKS: [u64; 7] = [4 << 10, 64 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20, 1 << 30];
/// A method whose fastest chunk is not faster than its slowest by more than this is flat.
const FLAT: f64 = 1.10;
/// A method is ahead of the one that was ahead before by at least this.
const AHEAD: f64 = 1.03;

/// How to measure clearing in chunks.
#[derive(Clone, Debug)]
pub struct ChunksOptions {
    /// Bytes cleared.
    pub extent: u64,
    /// Bytes a call, fence included; none larger than the extent.
    pub chunks: Vec<u64>,
    /// The pages behind the memory.
    pub page_sizes: Vec<PageSize>,
    /// Which methods.
    pub methods: MethodSet,
    /// Who else.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl ChunksOptions {
    /// An extent of 4 GiB, or of half the available memory where that is less, in the sources' chunks and transparent
    /// huge pages, 5 samples.
    pub fn new() -> ChunksOptions {
        let half = (memory_left().bytes / 2).max(2 * CHUNKS[0]);
        ChunksOptions::of(LARGEST.min(1 << half.ilog2()))
    }

    /// The same for an extent of so many bytes, in those of the sources' chunks that it holds.
    pub fn of(extent: u64) -> ChunksOptions {
        ChunksOptions {
            extent,
            chunks: CHUNKS.into_iter().filter(|chunk| *chunk <= extent).collect(),
            page_sizes: vec![PageSize::TRANSPARENT],
            methods: MethodSet::Representative,
            peers: Peers::All,
            runs: 5,
        }
    }

    fn selection(&self) -> Result<Selection, MeasureError> {
        Selection::new(Operation::Clear, &self.methods, self.peers, None, &[])
    }
}

impl Default for ChunksOptions {
    fn default() -> ChunksOptions {
        ChunksOptions::new()
    }
}

impl Measure for ChunksOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Chunks
    }

    fn validate(&self) -> Result<(), MeasureError> {
        let wrong = |reason| Err(MeasureError::Option { option: OptionName::Chunk, reason });
        let Some(largest) = self.chunks.iter().max() else {
            return wrong("name at least one".to_owned());
        };
        if *largest > self.extent || self.chunks.contains(&0) {
            return wrong(format!(
                "a chunk has at least 1 byte, and no more than the extent: {} bytes",
                self.extent
            ));
        }
        for pages in &self.page_sizes {
            pages.check()?;
            Reservation::check(self.extent, *pages)?;
        }
        self.selection().map(drop)
    }

    fn seconds(&self) -> f64 {
        let implementations =
            self.selection().map_or(8, |selection| selection.implementations.len() + 2) as f64;
        let samples = implementations * (self.runs + 1) as f64 * self.chunks.len() as f64;
        // Cleared, and written to again before.
        let a_sample = self.extent as f64 / 12e9 + self.extent as f64 / 20e9 + 0.001;
        (samples * a_sample + self.extent as f64 / 4e9) * self.page_sizes.len() as f64
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        run.expect_groups(self.chunks.len() * self.page_sizes.len());
        for &pages in &self.page_sizes {
            let Some(mut memory) = Buffer::of_run(run, self.extent, pages, Content::Mixed)? else {
                return Ok(());
            };
            let whole = memory.raw_range();
            for &chunk in &self.chunks {
                if run.stopped() {
                    break;
                }
                let mut samplers = self.samplers(run, pages, chunk, whole)?;
                let what = format!("chunks of {}, {pages} pages", units::bytes(chunk));
                run.interleave(&what, Metric::Bandwidth, self.runs, &mut samplers)?;
            }
            let rows: Vec<&Row> = run.rows().filter(|row| row.config.page_size == Some(pages)).collect();
            if let Some(text) = conclusion(&rows, pages) {
                run.add_finding(text);
            }
        }
        Ok(())
    }
}

impl ChunksOptions {
    fn samplers<'c>(
        &self,
        run: &mut Run<'c>,
        pages: PageSize,
        chunk: u64,
        whole: RawRange,
    ) -> Result<Vec<Sampler<'c>>, MeasureError> {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (length, part) = (bytes(self.extent), bytes(chunk));
        let config = Config {
            operation: Some(Operation::Clear),
            size: Some(self.extent),
            chunk: Some(chunk),
            page_size: Some(pages),
            ..Config::default()
        };
        let selection = self.selection()?;
        if let Some(reason) = selection.missing {
            run.note(reason);
        }
        let mut implementations = vec![Implementation::policy(run.policy(), Intent::Throughput, length)];
        implementations.extend(selection.implementations);
        if self.peers == Peers::All {
            implementations.push(Implementation::Read);
        }
        let choice = run.policy().choose_part(Operation::Clear, part, length, Intent::Throughput);
        run.chooses(&implementations[0].candidate(), &config, choice);
        let rounds = Passes {
            operation: Operation::Clear,
            byte: 0,
            dst: whole.start,
            src: whole.start,
            length,
            chunk: part,
            threads: 1,
            loops: Some(1),
            rewritten_by: Some(Machine::current().processors.clamp(1, 16)),
        };
        let (stop, counting) = (run.stop_flag(), run.counting());
        let samplers = implementations.into_iter().map(|implementation| Sampler {
            candidate: implementation.candidate(),
            config: config.clone(),
            // SAFETY: the memory is the extent's; `measure` keeps it while its samplers live, and nobody else uses
            // it. Nothing is copied. The implementations were chosen for clearing.
            sample: unsafe { rounds.sampler(implementation, stop, counting.clone()) },
            counted: true,
        });
        Ok(samplers.collect())
    }
}

/// Who is flat across chunk sizes and who is not, and from which size on somebody else is the best.
fn conclusion(rows: &[&Row], pages: PageSize) -> Option<String> {
    // What is chosen from: of the peers only the C library.
    let able = |row: &Row| row.candidate.kind == Kind::Method || row.candidate.name == "c_library";
    let rivals = || rows.iter().filter(|row| able(row));
    let mut names: Vec<&str> = Vec::new();
    for row in rivals() {
        if !names.contains(&row.candidate.name.as_str()) {
            names.push(&row.candidate.name);
        }
    }
    let mut chunks: Vec<u64> = rivals().filter_map(|row| row.config.chunk).collect();
    chunks.sort_unstable();
    chunks.dedup();
    let [first, .., last] = chunks[..] else { return None };
    let speed = |name: &str, chunk: u64| {
        let row = rivals().find(|row| row.candidate.name == name && row.config.chunk == Some(chunk))?;
        Some(row.stats.median)
    };
    let (mut flat, mut others) = (Vec::new(), Vec::new());
    for name in &names {
        let speeds: Vec<f64> = chunks.iter().filter_map(|chunk| speed(name, *chunk)).collect();
        let (least, most) =
            speeds.iter().fold((f64::INFINITY, 0.0), |(least, most), it| (it.min(least), it.max(most)));
        if most <= least * FLAT {
            flat.push(*name);
        } else if let (Some(short), Some(long)) = (speed(name, first), speed(name, last)) {
            others.push(format!("{name} from {short:.1} to {long:.1} GB/s"));
        }
    }
    let mut sentences = Vec::new();
    let (short, long) = (units::bytes(first), units::bytes(last));
    if !flat.is_empty() {
        let are = if flat.len() == 1 { "is" } else { "are" };
        sentences.push(format!("{} {are} flat, within 10 %, from {short} to {long}", flat.join(", ")));
    }
    if !others.is_empty() {
        sentences.push(format!("from chunks of {short} to {long}, {}", others.join(", ")));
    }
    // Whoever was ahead stays so until somebody is clearly faster.
    let mut leaders: Vec<(u64, &str)> = Vec::new();
    for &chunk in &chunks {
        let speeds = names.iter().filter_map(|name| Some((*name, speed(name, chunk)?)));
        let Some((best, most)) = speeds.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        let stays = leaders.last().and_then(|(_, leader)| speed(leader, chunk));
        if stays.is_none_or(|speed| most > speed * AHEAD) {
            leaders.push((chunk, best));
        }
    }
    match &leaders[..] {
        [] => {}
        [(_, only)] => sentences.push(format!("{only} is the best at every chunk size")),
        [(_, first), rest @ ..] => {
            let changes = rest.iter().map(|(chunk, name)| format!("from {} on {name}", units::bytes(*chunk)));
            sentences.push(format!(
                "the best is {first} for the smallest chunks, {}",
                changes.collect::<Vec<_>>().join(", ")
            ));
        }
    }
    Some(format!("{pages} pages: {}.", sentences.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{row, run};

    fn small() -> ChunksOptions {
        ChunksOptions {
            chunks: vec![4096, 1 << 20],
            page_sizes: vec!["4K".parse().unwrap()],
            methods: MethodSet::Named(vec!["portable".into()]),
            runs: 2,
            ..ChunksOptions::of(1 << 20)
        }
    }

    #[test]
    fn each_chunk_size_has_a_row_of_everybody() {
        let (results, saves) = run(&small(), false);
        let results = results.unwrap();
        assert!(results.complete && saves == 3, "after each chunk size and at the end");
        for chunk in [4096, 1 << 20] {
            let of_chunk = || results.rows.iter().filter(|row| row.config.chunk == Some(chunk));
            for name in ["policy", "portable", "c_library", "read"] {
                let row =
                    of_chunk().find(|row| row.candidate.name == name).unwrap_or_else(|| panic!("{name}"));
                assert_eq!((row.samples.len(), row.config.size), (2, Some(1 << 20)));
            }
        }
        assert_eq!(results.findings.len(), 1);
    }

    #[test]
    fn what_makes_no_sense_is_refused_before() {
        for (options, said) in [
            (ChunksOptions { chunks: vec![], ..small() }, "--chunk: name at least one"),
            (ChunksOptions { chunks: vec![0], ..small() }, "--chunk: a chunk has at least 1 byte"),
            (ChunksOptions { chunks: vec![2 << 20], ..small() }, "no more than the extent: 1048576 bytes"),
            (ChunksOptions { extent: 1 << 46, ..small() }, "of memory"),
        ] {
            let error = run(&options, false).0.unwrap_err().to_string();
            assert!(error.contains(said), "{said}: {error}");
        }
        assert!(matches!(run(&small(), true), (Err(MeasureError::Interrupted), _)));
    }

    #[test]
    fn the_usual_extent_fits_and_holds_its_chunks() {
        let options = ChunksOptions::new();
        assert!(options.extent <= LARGEST && options.extent <= memory_left().bytes);
        options.validate().unwrap();
        assert_eq!(ChunksOptions::of(8 << 20).chunks, CHUNKS[..4]);
    }

    /// The sources' own table of Milan, in GB/s, says what their text says.
    #[test]
    fn flat_methods_and_changes_of_the_best_are_named() {
        let table: [(u64, [f64; 3]); 7] = [
            (4 << 10, [13.0, 17.8, 45.6]),
            (64 << 10, [15.2, 18.5, 46.0]),
            (2 << 20, [14.8, 18.6, 39.1]),
            (8 << 20, [14.0, 18.6, 46.0]),
            (32 << 20, [22.5, 18.6, 46.0]),
            (128 << 20, [29.3, 18.6, 38.9]),
            (1 << 30, [35.8, 18.6, 46.0]),
        ];
        let rows = |names: &[(usize, &str)]| -> Vec<Row> {
            let cells = table.iter().flat_map(|(chunk, speeds)| {
                names.iter().map(move |(at, name)| {
                    let config = Config { chunk: Some(*chunk), ..Config::default() };
                    let samples = (Metric::Bandwidth, &[speeds[*at]][..]);
                    row(Measurement::Chunks, (Kind::Method, name), config, samples, &[])
                })
            });
            cells.collect()
        };
        let all = rows(&[(0, "rep_stosb"), (1, "movnti"), (2, "clzero")]);
        let text = conclusion(&all.iter().collect::<Vec<_>>(), "4K".parse().unwrap()).unwrap();
        assert!(text.starts_with("4K pages: movnti is flat, within 10 %, from 4 KiB to 1 GiB; "), "{text}");
        assert!(text.contains("rep_stosb from 13.0 to 35.8 GB/s"), "{text}");
        assert!(text.ends_with("clzero is the best at every chunk size."), "{text}");
        let two = rows(&[(0, "rep_stosb"), (1, "movnti")]);
        let text = conclusion(&two.iter().collect::<Vec<_>>(), "4K".parse().unwrap()).unwrap();
        assert!(
            text.ends_with("the best is movnti for the smallest chunks, from 32 MiB on rep_stosb."),
            "{text}"
        );
        assert_eq!(conclusion(&[], PageSize::TRANSPARENT), None);
    }
}
