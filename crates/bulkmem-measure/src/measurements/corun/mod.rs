//! The slow-down of a program or of a walk over cached memory while memory is cleared or copied in the background.

mod background;
mod victim;

use std::cell::RefCell;
use std::ffi::OsString;
use std::rc::Rc;

use bulkmem::machine::Machine;
use bulkmem::{Intent, Mapping, Operation, Pages};

use self::background::{Background, Placement, Work, pinned};
use self::victim::Walker;
use crate::engine::arena::HUGE;
use crate::engine::buffer::map;
use crate::engine::clock::time;
use crate::engine::contrast::{conclude, contrasts, control_of};
use crate::engine::stats::median;
use crate::engine::units::bytes;
use crate::engine::{
    Buffer, Candidate, Config, Content, Implementation, Kind, Measure, Measurement, Metric, Neighbour,
    PageSize, Peers, RawRange, Result, Row, Run, Sample, Sampler, counters, fits, implementation,
    memory_left,
};
use crate::measurements::checks::require;
use crate::measurements::participants::Candidates;

/// Name of the control with nothing in the background.
pub const ALONE: &str = "alone";
/// Name of the control that slow-downs are relative to: a thread in the background that is as busy as the C library's memset
/// or memcpy.
pub const SAME_PROCESSOR_TIME: &str = "same processor time";

/// Candidates that achieve less than this share of the requested rate are noted, and not compared with others.
pub(crate) const FULL_RATE: f64 = 0.95;

/// Candidates whose share of a processor differs from the control's by more than this are noted, percent of a processor.
const AS_BUSY: f64 = 1.0;

/// Names of the kernel's candidates, which clear pages of these sizes.
const KERNEL: [(&str, PageSize); 2] =
    [(KERNEL_4K, PageSize(Pages::Base)), ("2M pages", PageSize::TRANSPARENT)];
/// Name of the kernel that clears page by page.
pub(crate) const KERNEL_4K: &str = "4K pages";

/// The victim: what clearing in the background may slow down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Victim {
    /// A program and its arguments; it must exit with status 0 every time.
    Command {
        /// The program first.
        words: Vec<OsString>,
        /// If set, its output goes to stderr; otherwise it is discarded.
        show_output: bool,
    },
    /// A walk over a list of half the last-level cache, for about half a second, in this process.
    Walk,
}

/// Options for measuring the slow-down by clearing in the background.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct CorunOptions {
    pub victim: Victim,
    /// What the methods do in the background; anything but persist.
    pub operation: Operation,
    /// If set, the kernel clears pages in the background too: it maps them, and unmaps them again. Not next to
    /// [`Victim::Walk`], which that would interrupt.
    pub kernel: bool,
    /// Rates that the background is limited to, GB/s; infinite for no limit.
    pub rates: Vec<f64>,
    /// Bytes of the memory that is written repeatedly. Default: twice the last-level cache.
    pub size: Option<u64>,
    /// Bytes per call; between two calls the background sleeps to keep the rate.
    pub chunk: u64,
    /// If set, binds both to the same processor. Otherwise clearing gets one processor and the victim all the others, if
    /// there is more than one.
    pub same_cpu: bool,
    pub page_size: PageSize,
    pub candidates: Candidates,
}

impl CorunOptions {
    /// Clearing in calls of 2 MiB at 1 GB/s in transparent huge pages, 5 samples.
    pub fn new(victim: Victim) -> CorunOptions {
        let usual = Machine::current().caches.sane().l3 * 2;
        CorunOptions {
            victim,
            operation: Operation::Clear,
            kernel: false,
            rates: vec![1.0],
            size: Some(memory_left().bytes / 4).filter(|most| *most < usual),
            chunk: 2 << 20,
            same_cpu: false,
            page_size: PageSize::TRANSPARENT,
            candidates: Candidates::default(),
        }
    }

    fn size(&self) -> u64 {
        let size = self.size.unwrap_or(Machine::current().caches.sane().l3 * 2);
        size.next_multiple_of(self.chunk.max(1))
    }

    fn list(&self) -> u64 {
        if self.victim == Victim::Walk { Machine::current().caches.sane().l3 / 2 } else { 0 }
    }
}

impl Measure for CorunOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Corun
    }

    fn validate(&self) -> Result<()> {
        let named = !matches!(&self.victim, Victim::Command { words, .. } if words.is_empty());
        let reason = "name a program and its arguments: bulkmem bench corun -- make -j2; or use the built-in one: \
                      bulkmem bench corun --builtin";
        require(named, "-- COMMAND", reason)?;
        for rate in &self.rates {
            let reason = format!("{rate} GB/s is out of range; name 0.001 to 1000, or max");
            require((0.001..=1000.0).contains(rate) || *rate == f64::INFINITY, "--rate", reason)?;
        }
        let fit = self.chunk > 0 && self.size.is_none_or(|size| size >= self.chunk);
        let reason = "bytes do not fit the memory that is cleared; name a smaller size";
        require(fit, "--chunk", format!("{} {reason}", self.chunk))?;
        let reason = "persist writes nothing new; name clear, fill, copy, fill_persist or copy_persist";
        require(self.operation != Operation::Persist, "--op", reason)?;
        let reason = "the kernel only clears; leave --op out, or --clearing kernel";
        require(!self.kernel || self.operation == Operation::Clear, "--clearing", reason)?;
        let reason = "the kernel clears pages of up to 2M; name a multiple of 2M";
        require(!self.kernel || self.chunk.is_multiple_of(HUGE as u64), "--chunk", reason)?;
        let reason = "unmapping pages would interrupt the built-in walk, which is in the same process; name a command: \
                      bulkmem bench corun --clearing kernel -- make -j2";
        require(!self.kernel || self.victim != Victim::Walk, "--clearing", reason)?;
        let parts = 1 + u64::from(self.operation.has_source()) + if self.kernel { 2 } else { 0 };
        fits(self.size().saturating_mul(parts).saturating_add(self.list()))?;
        self.page_size.check()?;
        self.candidates.check(self.operation)
    }

    fn seconds(&self) -> f64 {
        // The time of a command is unknown; progress adapts to what is observed.
        let once = if self.victim == Victim::Walk { 0.6 } else { 5.0 };
        let methods = implementation::methods(&self.candidates.methods, self.operation);
        // Besides the methods: the policy's choice, two controls, and the kernel with two sizes of pages.
        let all = methods.map_or(10, |methods| methods.len()) + 3 + if self.kernel { 2 } else { 0 };
        once * ((self.candidates.runs + 1) * all * self.rates.len()) as f64
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        run.expect_groups(self.rates.len());
        let mut listed = Buffer::of_run(run, self.list().max(4096), self.page_size, Content::Mixed)?;
        let mut memory = Buffer::of_run(run, self.size(), self.page_size, Content::Mixed)?;
        let sources = if self.operation.has_source() { self.size() } else { 4096 };
        let mut sources = Buffer::of_run(run, sources, self.page_size, Content::Mixed)?;
        let length = memory.raw_range().length;
        let kernel = KERNEL.iter().filter(|_| self.kernel);
        let mut kernel: Vec<(&str, Mapping)> =
            kernel.map(|(name, pages)| Ok((*name, map(length, pages.0)?))).collect::<Result<_>>()?;
        let placement = Placement::new(self.same_cpu);
        placement.note.into_iter().for_each(|note| run.note(note));
        // The victim runs in this thread, or is its child and inherits the processors.
        let _pinned = pinned(placement.victim);
        for &rate in &self.rates {
            let (whole, listed) = (memory.raw_range(), listed.raw_range());
            let chunk = usize::try_from(self.chunk).unwrap_or(usize::MAX).min(whole.length);
            let source = sources.raw_range().start.cast_const();
            let background = Background { whole, source, chunk, rate, processors: placement.background };
            let mapped = kernel
                .iter_mut()
                .map(|(name, mapping)| (*name, RawRange { start: mapping.as_mut_ptr(), length }));
            let mut samplers = self.samplers(run, background, listed, mapped.collect())?;
            let rate = rate.is_finite().then_some(rate);
            let what = beside(self.operation, rate);
            run.interleave(&what, Metric::Seconds, self.candidates.runs, &mut samplers)?;
            let rows: Vec<&Row> = run.rows().filter(|row| row.config.rate == rate).collect();
            let (text, busy) = (self.conclusion(&rows), busy_otherwise(&rows).map(|(_, note)| note));
            let notes: Vec<String> = shortfalls(&rows).into_iter().chain([busy]).flatten().collect();
            conclude(run, self.candidates.runs, text);
            notes.into_iter().for_each(|note| run.note(note));
        }
        let page = kernel.get(1).and_then(|(_, mapping)| mapping.backing_page_size().ok());
        if page.is_some_and(|bytes| bytes < HUGE) {
            run.note(SMALL_PAGES);
        }
        Ok(())
    }
}

impl CorunOptions {
    fn samplers<'c, 'a: 'c>(
        &'c self,
        run: &mut Run<'a>,
        background: Background,
        listed: RawRange,
        mapped: Vec<(&str, RawRange)>,
    ) -> Result<Vec<Sampler<'c>>> {
        let operation = self.operation;
        let policy = Implementation::policy(run.policy, Intent::Stream, background.whole.length);
        let methods = implementation::methods(&self.candidates.methods, operation)?;
        let methods = methods.into_iter().map(Implementation::Method);
        let methods =
            methods.filter(|it| self.candidates.peers == Peers::All || it.candidate().kind != Kind::Peer);
        let rate = Some(background.rate).filter(|rate| rate.is_finite());
        let config = Config::of(operation, self.size(), self.page_size);
        let config = Config { chunk: Some(self.chunk), rate, ..config };
        let control = |name| Candidate::named(Kind::Control, name);
        let spin = Work::Spin(library_ns(background, operation));
        let controls =
            [(control(ALONE), None, None), (control(SAME_PROCESSOR_TIME), None, Some((spin, background)))];
        let methods = [policy].into_iter().chain(methods).map(|it| {
            let work = Work::Operation(operation, it);
            (it.candidate(), it.chosen(operation, background.chunk, None, 1), Some((work, background)))
        });
        let kernel = mapped.into_iter().map(|(name, whole)| {
            let work = (Work::Kernel, Background { whole, ..background });
            (Candidate::named(Kind::Kernel, name), None, Some(work))
        });
        let (stop, counts) = (run.observer.stop, run.counting.groups() > 0);
        // SAFETY: the caller keeps the memory as long as the samplers live, and gives it to no other code.
        let neighbour = unsafe { Neighbour::new(listed, listed.length) };
        let walker = Rc::new(RefCell::new(Walker { neighbour, times: None }));
        let samplers = controls.into_iter().chain(methods).chain(kernel).map(|(candidate, chosen, work)| {
            let walker = Rc::clone(&walker);
            let sample = move |say: &mut dyn FnMut(&str)| -> Result<Sample> {
                let mut run = || match &self.victim {
                    Victim::Command { words, show_output } => {
                        victim::run_command(words, *show_output, stop, say)
                    }
                    Victim::Walk => walker.borrow_mut().run(stop),
                };
                let victim = || {
                    let (sample, misses) =
                        if counts { counters::misses_during(run) } else { (run(), Vec::new()) };
                    sample.map(|it: Sample| Sample { also: [it.also, misses].concat(), ..it })
                };
                let Some((work, background)) = work else { return victim() };
                // SAFETY: the measurement keeps the memory while samplers live; they take samples one after the
                // other.
                let (sample, done) = unsafe { background.alongside(work, victim) }?;
                let mut sample = sample?;
                sample.also.extend(done);
                Ok(sample)
            };
            let clears =
                KERNEL.iter().find(|(name, _)| candidate.kind == Kind::Kernel && candidate.name == *name);
            let page_size = clears.map(|(_, page_size)| *page_size).or(config.page_size);
            let config = Config { page_size, ..config.clone() };
            Sampler { candidate, config, sample: Box::new(sample), counted: false, chosen }
        });
        Ok(samplers.collect())
    }

    /// Summarizes how much each candidate slows the victim down.
    fn conclusion(&self, rows: &[&Row]) -> Option<String> {
        let beside = beside(self.operation, rows.first()?.config.rate);
        let name = match &self.victim {
            Victim::Command { words, .. } => format!("`{}`", words.first()?.to_string_lossy()),
            Victim::Walk => "the walk".to_owned(),
        };
        let all =
            contrasts(rows, &[Kind::Policy, Kind::Method, Kind::Peer, Kind::Kernel], SAME_PROCESSOR_TIME);
        let (mut slow, even): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, it)| it.distinguishable());
        slow.sort_by(|a, b| a.1.by.total_cmp(&b.1.by));
        let slow = slow.iter().map(|(row, contrast)| {
            let [low, high] = contrast.interval;
            format!("{:+.1} % ({low:+.1} to {high:+.1}) with {}", contrast.by, in_words(row))
        });
        let (longer, even) = (slow.collect::<Vec<_>>().join(", "), even.iter().map(|(row, _)| in_words(row)));
        let even = even.collect::<Vec<_>>().join(", ");
        let (longer, rest) = match (longer.as_str(), even.as_str()) {
            ("", "") => return None,
            ("", _) => ("no distinguishably longer, with any candidate,", String::new()),
            (longer, "") => (longer, String::new()),
            (longer, even) => (longer, format!(" Not distinguishable here: {even}.")),
        };
        let control = match busy_otherwise(rows) {
            None => "is as busy without touching memory".to_owned(),
            Some((share, _)) => format!("is busy {share:.0} % of the time without touching memory"),
        };
        Some(format!("Next to {beside}, {name} takes {longer} than alongside a thread that {control}.{rest}"))
    }
}

const SMALL_PAGES: &str = "the kernel did not clear 2M pages but smaller ones: transparent huge pages are disabled, or memory is fragmented \
                           (as root: echo 1 > /proc/sys/vm/compact_memory)";

/// Returns the work in the background in words: `1 GB/s of clearing`.
pub fn beside(operation: Operation, rate: Option<f64>) -> String {
    let work = match operation {
        Operation::Clear => "clearing",
        Operation::Fill => "filling",
        Operation::Copy => "copying",
        Operation::FillPersist => "persistent filling",
        Operation::CopyPersist => "persistent copying",
        Operation::Persist => "persisting",
    };
    rate.map_or_else(|| format!("unlimited {work}"), |rate| format!("{rate} GB/s of {work}"))
}

/// Measures how long the C library takes to write a chunk: the control is as busy.
fn library_ns(Background { whole, source, chunk, .. }: Background, operation: Operation) -> f64 {
    let chunks = whole.length / chunk;
    let times = (0..chunks.clamp(8, 64)).map(|number| {
        let at = number % chunks * chunk;
        let (dst, src) = (whole.start.wrapping_add(at), source.wrapping_add(at));
        // SAFETY: the chunk lies in the ranges, which the measurement keeps and no other code uses.
        time(|| unsafe {
            if operation.has_source() {
                libc::memcpy(dst.cast(), src.cast(), chunk);
            } else {
                libc::memset(dst.cast(), 0, chunk);
            }
        })
    });
    median(&times.collect::<Vec<f64>>())
}

/// The candidate's name; `the kernel, 4K pages`.
fn in_words(row: &Row) -> String {
    let of = if row.candidate.kind == Kind::Kernel { "the kernel, " } else { "" };
    format!("{of}{}", row.candidate.name)
}

/// Returns the control's share of a processor, percent, and a note that names the candidates whose share is another; `None`
/// if there are none.
fn busy_otherwise(rows: &[&Row]) -> Option<(f64, String)> {
    let share = |row: &Row| row.also.get("busy_percent").copied();
    let first = rows.first()?;
    let control = share(control_of(rows, first, SAME_PROCESSOR_TIME)?)?;
    let others = rows.iter().filter(|row| row.candidate.kind != Kind::Control);
    let others = others.filter_map(|row| Some((row, share(row)?)));
    let others = others.filter(|(_, own)| (own - control).abs() > AS_BUSY);
    let others: Vec<String> = others.map(|(row, own)| format!("{} {own:.1} %", in_words(row))).collect();
    let note = format!(
        "{}: the control is not as busy as these candidates, which also changes the run time if they share a processor with \
         the command: {}; the control {control:.1} %",
        beside(first.config.operation.unwrap_or(Operation::Clear), first.config.rate),
        others.join(", ")
    );
    (!others.is_empty()).then_some((control, note))
}

/// Returns notes about candidates that did not reach the rate: because the command ended early, and because they are slow.
fn shortfalls(rows: &[&Row]) -> [Option<String>; 2] {
    let Some(asked) = rows.first().and_then(|row| row.config.rate) else { return [None, None] };
    let chunk = rows[0].config.chunk.unwrap_or_default();
    let others = rows.iter().filter(|row| row.candidate.kind != Kind::Control);
    let rates = others.filter_map(|row| Some((*row, *row.also.get("rate")?)));
    let missed = rates.filter(|(_, rate)| *rate < asked * FULL_RATE);
    // A chunk may start late, and the last one may not be complete when the command ends.
    let (early, slow): (Vec<_>, Vec<_>) =
        missed.partition(|(row, rate)| (asked - rate) * row.stats.median * 1e9 <= 2.0 * chunk as f64);
    let note = |missed: Vec<(&Row, f64)>, remedy: &str| {
        let rates = missed.iter().map(|(row, rate)| format!("{} {rate:.2}", in_words(row)));
        let rates = rates.collect::<Vec<_>>().join(", ");
        (!missed.is_empty()).then(|| {
            format!(
                "these candidates did not reach {asked} GB/s, so their slow-downs are for less work: {rates} GB/s; {remedy}"
            )
        })
    };
    let ended = format!(
        "the command ends before the last chunks of {} are complete: name one that takes longer, or a smaller --chunk",
        bytes(chunk)
    );
    [note(early, &ended), note(slow, "give a lower --rate to compare them")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{MeasureError, MethodSet};
    use crate::engine::{RunOptions, Validated, testing};
    use crate::measurements::participants::tests::named;

    fn small(words: &[&str]) -> CorunOptions {
        let victim =
            Victim::Command { words: words.iter().map(OsString::from).collect(), show_output: false };
        CorunOptions {
            rates: vec![0.1, 0.2],
            size: Some(1 << 20),
            chunk: 64 << 10,
            page_size: "4K".parse().unwrap(),
            candidates: named(&["portable", "c_library"], Peers::All, 5),
            ..CorunOptions::new(victim)
        }
    }

    #[test]
    fn a_command_runs_beside_everybody_and_beside_the_controls() {
        let (results, saves) = testing::run(&small(&["sleep", "0.1"]), false);
        let results = results.unwrap();
        assert!(results.complete && testing::saved_after_each(2, saves), "{saves}");
        for rate in [0.1, 0.2] {
            let of = |name: &str| {
                let here = |row: &&Row| row.config.rate == Some(rate) && row.candidate.name == name;
                let rows: Vec<&Row> = results.rows.iter().filter(here).collect();
                assert_eq!(rows.len(), 1, "{name} at {rate}");
                rows[0]
            };
            for name in [ALONE, SAME_PROCESSOR_TIME, "policy, stream", "portable", "c_library"] {
                assert!(of(name).stats.min >= 0.1 && of(name).also.contains_key("user_s"));
            }
            assert!(!of(ALONE).also.contains_key("rate"));
            assert_eq!(of(SAME_PROCESSOR_TIME).also["written_gb"], 0.0);
            assert!(of("portable").also["written_gb"] > 0.0 && of("portable").also["busy_percent"] > 0.0);
        }
        assert_eq!(results.findings.len(), 2);
    }

    #[test]
    fn the_walk_of_our_own_needs_no_command() {
        let options = CorunOptions {
            rates: vec![0.1],
            candidates: named(&["portable"], Peers::All, 1),
            same_cpu: true,
            ..CorunOptions { victim: Victim::Walk, ..small(&[]) }
        };
        let results = testing::run(&options, false).0.unwrap();
        assert_eq!(results.rows.len(), 4);
        assert!(results.rows.iter().all(|row| row.stats.median > 0.0 && row.also["user_s"] > 0.0));
    }

    #[test]
    fn the_kernel_clears_too_and_copies_and_persists_take_part() {
        let kernel = CorunOptions {
            kernel: true,
            rates: vec![0.5, f64::INFINITY],
            size: Some(4 << 20),
            chunk: 2 << 20,
            ..small(&["sleep", "0.02"])
        };
        let results = testing::run(&kernel, false).0.unwrap();
        assert_eq!(results.rows.len(), 2 * 7);
        for rate in [Some(0.5), None] {
            let rows = || results.rows.iter().filter(move |row| row.config.rate == rate);
            let kernel: Vec<&Row> = rows().filter(|row| row.candidate.kind == Kind::Kernel).collect();
            let names: Vec<&str> = kernel.iter().map(|row| row.candidate.name.as_str()).collect();
            assert_eq!(names, [KERNEL_4K, "2M pages"]);
            let pages: Vec<_> = kernel.iter().map(|row| row.config.page_size).collect();
            assert_eq!(pages, KERNEL.map(|(_, page_size)| Some(page_size)));
            let all: Vec<&Row> = rows().collect();
            assert!(kernel.iter().all(|row| control_of(&all, row, SAME_PROCESSOR_TIME).is_some()));
            assert!(kernel.iter().all(|row| row.also["written_gb"] > 0.0 && row.also["busy_percent"] > 0.0));
            assert!(rows().all(|row| row.config.operation == Some(Operation::Clear)));
        }
        assert!(results.findings[1].text.starts_with("Next to unlimited clearing, `sleep`"));
        for operation in [Operation::Fill, Operation::Copy, Operation::CopyPersist, Operation::FillPersist] {
            if implementation::methods(&MethodSet::Representative, operation).unwrap().is_empty() {
                continue;
            }
            let candidates = Candidates { peers: Peers::None, runs: 1, ..Candidates::default() };
            let options = CorunOptions { operation, rates: vec![0.1], candidates, ..small(&["true"]) };
            let results = testing::run(&options, false).0.unwrap();
            let methods = results.rows.iter().filter(|row| row.candidate.kind == Kind::Method);
            let worked =
                methods.filter(|row| row.config.operation == Some(operation) && row.also["rate"] >= 0.0);
            assert!(worked.count() > 0, "{operation}");
        }
    }

    #[test]
    fn what_was_measured_before_a_command_failed_stays() {
        let file = std::env::temp_dir().join(format!("bulkmem-corun-fails-{}", std::process::id()));
        // Fails once it has run 8 times: in the second counted round of five samplers.
        let script = "echo >> $0; test $(wc -l < $0) -lt 8";
        let options = small(&["sh", "-c", script, file.to_str().unwrap()]);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let mut rows = 0;
        let mut save = |found: &crate::engine::Results| {
            rows = found.rows.len();
            Ok(())
        };
        let watch = crate::engine::Observer { progress: &mut |_| {}, save: &mut save, stop: &stop };
        let policy = bulkmem::policy::Policy::defaults(Machine::current());
        let outcome = Validated::new(&[&options]).unwrap().measure(&policy, RunOptions::default(), watch);
        std::fs::remove_file(&file).unwrap();
        assert!(matches!(outcome, Err(MeasureError::Command { .. })), "{outcome:?}");
        assert_eq!(rows, 2, "those who had been sampled by then");
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before() {
        let refused = |change: &dyn Fn(&mut CorunOptions)| {
            let mut options = small(&["true"]);
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        for rate in [0.0, -1.0, f64::NAN, 1e9] {
            assert!(refused(&|it| it.rates = vec![rate]).contains("0.001 to 1000"));
        }
        assert!(refused(&|it| it.operation = Operation::Persist).contains("writes nothing new"));
        assert!(refused(&|it| it.kernel = true).contains("a multiple of 2M"));
        let copy = |it: &mut CorunOptions| (it.kernel, it.operation) = (true, Operation::Copy);
        assert!(refused(&copy).contains("the kernel only clears"));
        let walk = |it: &mut CorunOptions| {
            *it = CorunOptions { kernel: true, ..CorunOptions::new(Victim::Walk) };
        };
        assert!(refused(&walk).contains("name a command"));
        assert!(refused(&|it| it.chunk = 0).contains("name a smaller size"));
        assert!(refused(&|it| it.chunk = 2 << 20).contains("name a smaller size"));
        assert!(refused(&|it| it.size = Some(1 << 46)).contains("of memory"));
        assert!(refused(&|it| it.victim = small(&[]).victim).contains("name a program"));
        let missing = testing::run(&small(&["no-such-program"]), false).0.unwrap_err();
        assert!(missing.to_string().contains("cannot start `no-such-program`"), "{missing}");
    }

    fn planted(kind: Kind, name: &str, seconds: f64) -> Row {
        let config = Config { rate: Some(2.0), ..Config::default() };
        let samples: Vec<f64> =
            [0.995, 0.998, 1.0, 1.002, 1.005].iter().map(|noise| noise * seconds).collect();
        let rate = if name == "slow" { 1.2 } else { 2.0 };
        testing::row(Measurement::Corun, (kind, name), config, (Metric::Seconds, &samples), &[("rate", rate)])
    }

    #[test]
    fn planted_slowdowns_are_told_and_noise_is_not_distinguishable() {
        let rows = [
            planted(Kind::Control, ALONE, 9.0),
            planted(Kind::Control, SAME_PROCESSOR_TIME, 10.0),
            planted(Kind::Method, "slow", 12.0),
            planted(Kind::Method, "little", 10.5),
            planted(Kind::Policy, "policy, stream", 10.01),
        ];
        let all: Vec<&Row> = rows.iter().collect();
        let options = small(&["make", "-j2"]);
        let text = options.conclusion(&all).unwrap();
        for part in [
            "Next to 2 GB/s of clearing, ",
            "`make` takes +5.0 % (",
            "with little, +20.0 % (",
            "Not distinguishable here: policy, stream.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let text = options.conclusion(&[&rows[1], &rows[4]]).unwrap();
        assert!(text.contains("no distinguishably longer"), "{text}");
        assert_eq!(options.conclusion(&[&rows[0], &rows[2]]), None, "no finding without the control");
        let mut busy: Vec<Row> = rows.to_vec();
        for (row, share) in busy.iter_mut().skip(1).zip([3.7, 22.9, 4.5, 3.0]) {
            row.also.insert("busy_percent".to_owned(), share);
        }
        let busy: Vec<&Row> = busy.iter().collect();
        let text = options.conclusion(&busy).unwrap();
        assert!(text.contains("a thread that is busy 4 % of the time without touching memory."), "{text}");
        let (_, note) = busy_otherwise(&busy).unwrap();
        assert!(note.ends_with("with the command: slow 22.9 %; the control 3.7 %"), "{note}");
        assert_eq!((busy_otherwise(&[busy[1], busy[3]]), busy_otherwise(&all)), (None, None));
        let [None, Some(note)] = shortfalls(&all) else { panic!("one is slow") };
        assert!(note.contains("slow 1.20 GB/s; give a lower") && !note.contains("little"), "{note}");
        assert_eq!(shortfalls(&all[3..]), [None, None]);
    }

    #[test]
    fn a_command_that_ends_before_the_first_chunk_needs_no_lower_rate() {
        let mut row = planted(Kind::Method, "movnti", 0.0015);
        row.config.chunk = Some(2 << 20);
        row.also.insert("rate".to_owned(), 0.0);
        let [Some(note), None] = shortfalls(&[&row]) else { panic!("it ended early") };
        assert!(
            note.contains("movnti 0.00 GB/s; the command ends before the last chunks of 2 MiB"),
            "{note}"
        );
        assert!(note.ends_with("name one that takes longer, or a smaller --chunk"), "{note}");
    }
}
