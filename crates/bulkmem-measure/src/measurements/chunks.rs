//! Clearing an extent in chunks: the effect of the length of one call, and the cost of the kernel's clearing page by
//! page.

use std::collections::BTreeSet;

use bulkmem::Operation;
use bulkmem::machine::Machine;

use crate::engine::{
    Buffer, Config, Content, Implementation, Kind, Measure, Measurement, Metric, PageSize, Passes, RawRange,
    Result, Row, Run, memory_left, units,
};
use crate::measurements::checks::{self, require};
use crate::measurements::participants::Candidates;

/// Largest default extent: that of the sources.
const LARGEST: u64 = 4 << 30;
/// The sources' chunks.
const CHUNKS: [u64; 7] = [4 << 10, 64 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20, 1 << 30];
/// A method is flat if its fastest chunk is at most this many times as fast as its slowest.
const FLAT: f64 = 1.10;
/// A new method leads if it is at least this many times as fast as the leader so far.
const AHEAD: f64 = 1.03;

/// Options for measuring clearing in chunks.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct ChunksOptions {
    pub extent: u64,
    /// Bytes per call; at most the extent. Each call includes its fence.
    pub chunks: Vec<u64>,
    pub page_sizes: Vec<PageSize>,
    pub candidates: Candidates,
}

impl ChunksOptions {
    /// An extent of `extent` bytes, in the sources' chunks that fit it and transparent huge pages, 5 samples.
    pub fn of(extent: u64) -> ChunksOptions {
        ChunksOptions {
            extent,
            chunks: CHUNKS.into_iter().filter(|chunk| *chunk <= extent).collect(),
            page_sizes: vec![PageSize::TRANSPARENT],
            candidates: Candidates::default(),
        }
    }

    fn selection(&self) -> Result<Vec<Implementation<'static>>> {
        self.candidates.selection(Operation::Clear, None, &[])
    }
}

impl Default for ChunksOptions {
    /// An extent of 4 GiB, or of half the available memory if that is less.
    fn default() -> ChunksOptions {
        let half = (memory_left().bytes / 2).max(2 * CHUNKS[0]);
        ChunksOptions::of(LARGEST.min(1 << half.ilog2()))
    }
}

impl Measure for ChunksOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Chunks
    }

    fn validate(&self) -> Result<()> {
        require(!self.chunks.is_empty(), "--chunk", "name at least one")?;
        let reason = format!("a chunk has 1 byte to as many as the total length: {} bytes", self.extent);
        let fit = self.chunks.iter().all(|chunk| (1..=self.extent).contains(chunk));
        require(fit, "--chunk", reason)?;
        checks::memory(self.extent, &self.page_sizes)?;
        self.selection().map(drop)
    }

    fn seconds(&self) -> f64 {
        let candidates = self.selection().map_or(8, |selection| selection.len() + 2);
        let samples = candidates * (self.candidates.runs + 1) * self.chunks.len();
        // Each pass writes to the memory and then clears it; before, all of it is touched.
        let gigabytes = self.extent as f64 / 1e9;
        (samples as f64 * (gigabytes / 7.5 + 0.001) + gigabytes / 4.0) * self.page_sizes.len() as f64
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        run.expect_groups(self.chunks.len() * self.page_sizes.len());
        for &pages in &self.page_sizes {
            let mut memory = Buffer::of_run(run, self.extent, pages, Content::Mixed)?;
            let RawRange { start, length } = memory.raw_range();
            for &chunk in &self.chunks {
                let config =
                    Config { chunk: Some(chunk), ..Config::of(Operation::Clear, self.extent, pages) };
                let passes = Passes {
                    operation: Operation::Clear,
                    byte: 0,
                    dst: start,
                    src: start,
                    length,
                    chunk: usize::try_from(chunk).unwrap_or(usize::MAX),
                    threads: 1,
                    loops: Some(1),
                    rewritten_by: Some(Machine::current().processors.clamp(1, 16)),
                };
                // SAFETY: the memory outlives the samplers, and no other code uses it. Nothing is copied.
                let mut samplers =
                    unsafe { self.candidates.pass_samplers(run, self.selection()?, passes, &config) };
                let what = format!("chunks of {}, {pages} pages", units::bytes(chunk));
                run.interleave(&what, Metric::Bandwidth, self.candidates.runs, &mut samplers)?;
            }
        }
        Ok(())
    }

    fn conclude(&self, run: &mut Run<'_>) {
        for &pages in &self.page_sizes {
            let rows: Vec<&Row> = run.rows().filter(|row| row.config.page_size == Some(pages)).collect();
            if let Some(text) = conclusion(&rows, pages) {
                run.add_finding(text);
            }
        }
    }
}

/// Summarizes which methods are flat across chunk sizes, and from which size another one is the best.
fn conclusion(rows: &[&Row], pages: PageSize) -> Option<String> {
    // Methods that a program could use; of the peers only the C library.
    let able = |row: &&&Row| row.candidate.kind == Kind::Method || row.candidate.name == "c_library";
    let rivals = || rows.iter().filter(able);
    let chunks: BTreeSet<u64> = rivals().filter_map(|row| row.config.chunk).collect();
    let [first, last] = [*chunks.first()?, *chunks.last()?];
    if first == last {
        return None;
    }
    let at = |chunk| rivals().filter(move |row| row.config.chunk == Some(chunk));
    let speed =
        |name: &str, chunk: u64| at(chunk).find(|row| row.candidate.name == name).map(|row| row.stats.median);
    let (mut flat, mut others) = (Vec::new(), Vec::new());
    let mut names: Vec<&str> = at(first).map(|row| row.candidate.name.as_str()).collect();
    names.dedup();
    for name in names {
        let speeds: Vec<f64> = chunks.iter().filter_map(|chunk| speed(name, *chunk)).collect();
        let [least, most] = [f64::min, f64::max].map(|of| speeds.iter().copied().reduce(of));
        if most <= least.map(|least| least * FLAT) {
            flat.push(name);
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
    // The leader stays until another method is clearly faster.
    let mut leaders: Vec<(u64, &str)> = Vec::new();
    for &chunk in &chunks {
        let Some(best) = at(chunk).max_by(|a, b| a.stats.median.total_cmp(&b.stats.median)) else { continue };
        let stays = leaders.last().and_then(|(_, leader)| speed(leader, chunk));
        if stays.is_none_or(|speed| best.stats.median > speed * AHEAD) {
            leaders.push((chunk, &best.candidate.name));
        }
    }
    if let [(_, first), rest @ ..] = &leaders[..] {
        let changes = rest.iter().map(|(chunk, name)| format!(", from {} on {name}", units::bytes(*chunk)));
        sentences.push(match rest {
            [] => format!("{first} is the best at every chunk size"),
            _ => format!("the best is {first} for the smallest chunks{}", changes.collect::<String>()),
        });
    }
    Some(format!("{pages} pages: {}.", sentences.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MeasureError;
    use crate::engine::MethodSet;
    use crate::engine::testing::{row, run, saved_after_each};

    fn small() -> ChunksOptions {
        let methods = MethodSet::Named(vec!["portable".into()]);
        ChunksOptions {
            chunks: vec![4096, 1 << 20],
            page_sizes: vec!["4K".parse().unwrap()],
            candidates: Candidates { methods, runs: 2, ..Candidates::default() },
            ..ChunksOptions::of(1 << 20)
        }
    }

    #[test]
    fn each_chunk_size_has_a_row_of_everybody() {
        let (results, saves) = run(&small(), false);
        let results = results.unwrap();
        assert!(results.complete && saved_after_each(2, saves), "{saves}");
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
            (ChunksOptions { chunks: vec![0], ..small() }, "--chunk: a chunk has 1 byte to as many as"),
            (
                ChunksOptions { chunks: vec![2 << 20], ..small() },
                "as many as the total length: 1048576 bytes",
            ),
            (ChunksOptions { extent: 1 << 46, ..small() }, "of memory"),
        ] {
            let error = run(&options, false).0.unwrap_err().to_string();
            assert!(error.contains(said), "{said}: {error}");
        }
        assert!(matches!(run(&small(), true), (Err(MeasureError::Interrupted), _)));
    }

    #[test]
    fn the_usual_extent_fits_and_holds_its_chunks() {
        let options = ChunksOptions::default();
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
