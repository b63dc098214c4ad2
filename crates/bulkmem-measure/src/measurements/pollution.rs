//! Cache pollution by an operation: a pointer walk before and after it, compared with a control that spends the same time
//! without touching memory.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use bulkmem::machine::Machine;
use bulkmem::{Intent, Operation, Pages};

use crate::engine::clock::{spin, time};
use crate::engine::contrast::{conclude, contrasts, names};
use crate::engine::stats::median;
use crate::engine::units::{bytes, nanoseconds};
use crate::engine::{
    Buffer, Candidate, Config, Content, Contrast, CopySide, FILL_BYTE, Kind, LINE, Measure, Measurement,
    Metric, Neighbour, PageSize, RawRange, Result, Row, Run, Sample, Sampler, Slots, distinct, fits, memory,
};
use crate::measurements::checks::require;
use crate::measurements::participants::{Candidates, participant, sampler};
use crate::target::{Opened, RAM, TargetOptions, Want, check_all, open_all};

/// Name of the control that spends the same time without touching memory.
pub const SAME_TIME: &str = "same time, no memory";
/// Name of the second control: nothing happens between the walks.
pub const NOTHING: &str = "nothing in between";

const SLOTS: u64 = 4;
/// Time of a sample, if the number of repetitions is not given.
const SAMPLE_NS: f64 = 0.25e9;
/// Most repetitions, if their number is not given.
const MOST_REPEATS: u32 = 31;
/// Bytes per call where one side of a copy is measured alone: the other side is the same page in each call, so that it
/// takes up almost nothing of a cache.
const ONE_SIDE: usize = 4096;
/// Least bytes of an operation, if its length is not given.
const LEAST: u64 = 1 << 20;

/// Options for measuring cache pollution.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct PollutionOptions {
    /// Any operation but persist.
    pub operation: Operation,
    /// Sizes of the list that is walked, bytes.
    pub lists: Vec<u64>,
    /// Bytes of an operation. Default: twice the list, since a cache holds twice the list, and at least 1 MiB.
    pub size: Option<u64>,
    /// The sides of a copy that are measured alone; `None` measures both together.
    pub sides: Vec<Option<CopySide>>,
    /// Memory that the operation writes to, each of its own size; interleaved. A source alone is read in ordinary memory.
    pub targets: Vec<TargetOptions>,
    /// Page size of all ordinary memory.
    pub page_size: PageSize,
    /// Repetitions in a sample. Default: as many as take a quarter of a second, at most 31.
    pub walks: Option<u32>,
    pub candidates: Candidates,
}

impl PollutionOptions {
    /// Half of each cache, if memory suffices for it, transparent huge pages, 5 samples; of copies, both sides together,
    /// then each alone.
    ///
    /// Half, because a list as large as the cache does not stay in it: the walk's own variables, the kernel and, beyond
    /// the second level, other processors need room too.
    pub fn new(operation: Operation) -> PollutionOptions {
        let mut lists = Machine::current().caches.sane().levels().map(|size| size / 2).to_vec();
        lists.dedup();
        let mut options = PollutionOptions {
            operation,
            lists,
            size: None,
            sides: [None, Some(CopySide::Source), Some(CopySide::Destination)].to_vec(),
            targets: vec![TargetOptions::ram()],
            page_size: PageSize::TRANSPARENT,
            walks: None,
            candidates: Candidates::default(),
        };
        if !operation.has_source() {
            options.sides.truncate(1);
        }
        options.lists =
            memory::defaults(options.lists.clone(), |list| options.working_set(list).saturating_add(list));
        options
    }

    fn length(&self, list: u64) -> usize {
        usize::try_from(self.size(list)).unwrap_or(usize::MAX)
    }

    fn size(&self, list: u64) -> u64 {
        self.size.unwrap_or_else(|| list.saturating_mul(2).max(LEAST))
    }

    /// Bytes of destinations, and as many of sources, for a list.
    fn side(&self, list: u64) -> u64 {
        self.size(list).saturating_mul(SLOTS)
    }

    /// Bytes of destinations and sources for a list.
    fn working_set(&self, list: u64) -> u64 {
        let sides = if self.operation.has_source() { 2 } else { 1 };
        self.side(list).saturating_mul(sides)
    }

    /// Returns the targets with room for the destinations for a list, and what they must have. A source alone is measured
    /// once, in ordinary memory, as no target is written to.
    fn targets(&self, list: u64, side: Option<CopySide>) -> (Vec<TargetOptions>, Want) {
        let least = self.side(list);
        let page_size = self.page_size;
        let sized = |target: &TargetOptions| TargetOptions { page_size, ..target.with_room(least) };
        let targets = match side {
            Some(CopySide::Source) => vec![sized(&TargetOptions::ram())],
            _ => self.targets.iter().map(sized).collect(),
        };
        (targets, Want { writes: true, least, usual: least })
    }
}

/// Returns the words for a side that is measured alone.
pub fn alone(side: Option<CopySide>) -> &'static str {
    match side {
        None => "",
        Some(CopySide::Source) => ", its source alone (calls of 4 KiB)",
        Some(CopySide::Destination) => ", its destination alone (calls of 4 KiB)",
    }
}

/// Returns the smallest cache that a list of that size fits: `L1`, `L2`, `L3` or `no cache`.
pub fn home_of(list: u64) -> &'static str {
    let levels = Machine::current().caches.sane().levels();
    let level = levels.into_iter().position(|size| list <= size);
    level.map_or("no cache", |level| ["L1", "L2", "L3"][level])
}

impl Measure for PollutionOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Pollution
    }

    fn validate(&self) -> Result<()> {
        let reason = "persist writes nothing new and so pollutes nothing; name clear, fill, copy, fill_persist or \
                      copy_persist";
        require(self.operation != Operation::Persist, "--op", reason)?;
        let whole = self.operation.has_source() || self.sides.iter().all(Option::is_none);
        let reason = format!("a {} has no source; name copy or copy_persist with --op", self.operation);
        require(whole, "--side", reason)?;
        let once = distinct(&self.sides).len() == self.sides.len();
        require(once, "--side", "a side is named twice; name each once")?;
        for &list in &self.lists {
            let reason = format!("a list of {list} bytes has fewer than two lines; name at least 128 bytes");
            require(list >= 2 * LINE as u64, "--list", reason)?;
            fits(self.working_set(list).saturating_add(list))?;
            for &side in &self.sides {
                let (targets, want) = self.targets(list, side);
                check_all(&targets, want)?;
            }
        }
        self.page_size.check()?;
        self.candidates.check(self.operation)
    }

    fn uncounted(&self) -> Option<&'static str> {
        Some("the measured work is the walk of a list, not the operation before it")
    }

    fn seconds(&self) -> f64 {
        let rounds = (self.candidates.runs + 1) as f64 * 11.0;
        let sample = |&list: &u64| {
            let once = (list / LINE as u64) as f64 * 80.0 + self.size(list) as f64 / 4.0;
            let most = f64::from(MOST_REPEATS);
            once * self.walks.map_or((SAMPLE_NS / once).max(1.0), f64::from).min(most) / 1e9 + 0.01
        };
        let targets = |side: &Option<CopySide>| self.targets(LEAST, *side).0.len();
        let parts = self.sides.iter().map(targets).sum::<usize>() as f64;
        self.lists.iter().map(|list| rounds * sample(list)).sum::<f64>() * parts
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        run.expect_groups(self.lists.len() * self.sides.len());
        for (&list, &side) in
            self.lists.iter().flat_map(|list| self.sides.iter().map(move |side| (list, side)))
        {
            let mut listed = Buffer::of_run(run, list, self.page_size, Content::Mixed)?;
            let range = listed.raw_range();
            // SAFETY: the list outlives the samplers and is given to no other code.
            let neighbour = Rc::new(unsafe { Neighbour::new(range, range.length) });
            let mut sources = match self.operation.has_source() {
                true => Some(Buffer::of_run(run, self.side(list), self.page_size, Content::Mixed)?),
                false => None,
            };
            let sources = sources.as_mut().map(Buffer::raw_range);
            let mut page = Buffer::new(ONE_SIDE as u64, PageSize(Pages::Base), Content::Mixed)?;
            let other = page.raw_range().start;
            let (targets, want) = self.targets(list, side);
            let mut targets = open_all(run, &targets, want)?;
            let mut samplers = Vec::new();
            for target in &mut targets {
                samplers.extend(self.samplers(
                    run,
                    (list, side),
                    neighbour.clone(),
                    (sources, other),
                    target,
                )?);
            }
            let what = format!("a list of {}{}", bytes(list), alone(side));
            run.interleave(&what, Metric::Growth, self.candidates.runs, &mut samplers)?;
            for target in distinct(targets.iter().map(|target| target.config.target.clone())) {
                let wanted = |row: &&Row| {
                    (row.config.list, row.config.side) == (Some(list), side) && row.config.target == target
                };
                let text = conclusion(&run.rows().filter(wanted).collect::<Vec<_>>());
                conclude(run, self.candidates.runs, text);
            }
        }
        Ok(())
    }
}

impl PollutionOptions {
    fn samplers<'c>(
        &self,
        run: &mut Run<'c>,
        (list, side): (u64, Option<CopySide>),
        neighbour: Rc<Neighbour>,
        (sources, other): (Option<RawRange>, *mut u8),
        target: &mut Opened,
    ) -> Result<Vec<Sampler<'c>>> {
        let operation = self.operation;
        let length = self.length(list);
        let intents = [Intent::Throughput, Intent::Stream];
        let implementations = self.candidates.implementations(run, operation, &intents, length)?;
        let config = Config {
            operation: Some(operation),
            size: Some(self.size(list)),
            list: Some(list),
            chunk: side.map(|_| ONE_SIDE as u64),
            side,
            ..target.config.clone()
        };
        let memory = RawRange { length: length * SLOTS as usize, ..target.memory.raw_range() };
        // The last time of each operation: the controls need the slowest.
        let times = Rc::new(RefCell::new(vec![0.0; implementations.len()]));
        let operations = implementations.into_iter().enumerate().map(|(own, implementation)| {
            let (neighbour, times, mut repeats) = (neighbour.clone(), times.clone(), self.walks);
            let mut slots = Slots::new(memory, length, false);
            let mut sources = Slots::new(sources.unwrap_or(memory), length, false);
            participant(&implementation, &config, side.map_or(length, |_| ONE_SIDE), false, move || {
                let act = || {
                    let (dst, src) = (slots.next().0, sources.next().1);
                    // SAFETY: slots, sources and the page lie in memory that the measurement keeps while samplers live, and that
                    // no other code uses.
                    let call = |dst, src, length| unsafe {
                        implementation.run(1, operation, FILL_BYTE, (dst, src, length));
                    };
                    time(|| match side {
                        None => call(dst, src, length),
                        Some(side) => (0..length).step_by(ONE_SIDE).for_each(|at| {
                            let (dst, src) = match side {
                                CopySide::Source => (other, src.wrapping_add(at)),
                                CopySide::Destination => (dst.wrapping_add(at), other.cast_const()),
                            };
                            call(dst, src, ONE_SIDE.min(length - at));
                        }),
                    })
                };
                let (sample, took) = walks(&neighbour, act, 0.0, &mut repeats);
                times.borrow_mut()[own] = took;
                Ok(sample)
            })
        });
        let controls = [(SAME_TIME, true), (NOTHING, false)].map(|(name, idles)| {
            let (neighbour, times, mut repeats) = (neighbour.clone(), times.clone(), self.walks);
            sampler(Candidate::named(Kind::Control, name), &config, false, move || {
                let slowest = times.borrow().iter().copied().fold(0.0, f64::max);
                let act = || if idles { time(|| spin(slowest)) } else { 0.0 };
                Ok(walks(&neighbour, act, slowest, &mut repeats).0)
            })
        });
        Ok(operations.chain(controls).collect())
    }
}

/// Walks the cached list before and after `act`, which returns its time, and before and after the same time, or at least
/// `least_idle`, without touching memory. Repeats this, as often as a sample takes if `repeats` is not known yet. Samples
/// medians: how much longer the walk after `act` takes than after that time. Also returns the time of `act`.
fn walks(
    neighbour: &Neighbour,
    mut act: impl FnMut() -> f64,
    least_idle: f64,
    repeats: &mut Option<u32>,
) -> (Sample, f64) {
    let around = |between: &mut dyn FnMut() -> f64| {
        neighbour.walk();
        neighbour.walk();
        let before = time(|| neighbour.walk());
        let between = between();
        [before, time(|| neighbour.walk()), between]
    };
    let idle = |took: f64| around(&mut || time(|| spin(took.max(least_idle))));
    // A first, uncounted time determines the number of repetitions.
    let start = Instant::now();
    let [.., mut took] = around(&mut act);
    idle(took);
    let once = start.elapsed().as_secs_f64() * 1e9;
    let repeats = *repeats.get_or_insert_with(|| ((SAMPLE_NS / once) as u32).clamp(1, MOST_REPEATS));
    let mut seen: [Vec<f64>; 5] = Default::default();
    for repeat in 0..repeats {
        // Alternates the order, so that neither always follows the other.
        let earlier = (repeat % 2 == 1).then(|| idle(took));
        let [before, after, between] = around(&mut act);
        took = between;
        let [_, control, _] = earlier.unwrap_or_else(|| idle(took));
        let figures = [after - control, before, after, control, between];
        seen.iter_mut().zip(figures).for_each(|(seen, figure)| seen.push(figure));
    }
    let [growth, before, after, control, took] = seen.map(|figures| median(&figures));
    let also = [("before_ns", before), ("after_ns", after), ("control_ns", control), ("between_ns", took)];
    (Sample { value: growth, also: also.into() }, took)
}

/// Summarizes the rows of one list: the least and the most pollution, and operations without any.
fn conclusion(rows: &[&Row]) -> Option<String> {
    let first = rows.first()?;
    let Config { list: Some(list), size: Some(size), operation: Some(operation), .. } = first.config else {
        return None;
    };
    let slows = |contrast: &Contrast| contrast.distinguishable() && contrast.by > 0.0;
    let longer = |(row, contrast): &(&Row, Contrast)| {
        let share = contrast.by / row.also.get("control_ns").copied().unwrap_or(f64::NAN) * 100.0;
        let [by, low, high] = [contrast.by, contrast.interval[0], contrast.interval[1]].map(nanoseconds);
        format!("{by} ({low} to {high}), {share:+.0} % longer")
    };
    let name = |row: &Row| row.candidate.name.clone();
    let all = contrasts(rows, &[Kind::Method, Kind::Peer], SAME_TIME);
    let (mut loud, quiet): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, contrast)| slows(contrast));
    loud.sort_by(|a, b| a.1.by.total_cmp(&b.1.by));
    let before = first.also.get("before_ns")? / (list as f64 / LINE as f64);
    let effect = match loud.as_slice() {
        [] if quiet.is_empty() => return None,
        [] => {
            "no distinguishably longer than after the same time without touching memory, with any candidate"
                .to_owned()
        }
        [only] => format!("{} with {}", longer(only), name(only.0)),
        [least, .., most] => {
            format!("{} with {} and {} with {}", longer(least), name(least.0), longer(most), name(most.0))
        }
    };
    let target = first.config.target.as_deref().filter(|target| *target != RAM);
    let mut text = format!(
        "A list of {}, which fits {} (an undisturbed walk takes {before:.1} ns a line), and a {operation} of {}{}: the walk \
         after it takes {effect}.",
        bytes(list),
        home_of(list),
        bytes(size),
        target.map(|target| format!(" in {target}")).unwrap_or_default() + alone(first.config.side),
    );
    if !loud.is_empty() && !quiet.is_empty() {
        text += &format!(" Not distinguishably longer than the control: {}.", names(&quiet));
    }
    for policy in contrasts(rows, &[Kind::Policy], SAME_TIME) {
        let verdict = if slows(&policy.1) { longer(&policy) } else { "not distinguishable here".to_owned() };
        text += &format!(" The {}: {verdict}.", name(policy.0));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::implementation::{self, MethodSet};
    use crate::engine::testing;

    fn small(operation: Operation) -> PollutionOptions {
        PollutionOptions {
            lists: vec![4096, 16384],
            size: Some(32768),
            page_size: "4K".parse().unwrap(),
            walks: Some(2),
            candidates: Candidates { methods: MethodSet::All, ..Candidates::default() },
            ..PollutionOptions::new(operation)
        }
    }

    #[test]
    fn everybody_is_walked_around_and_so_are_the_controls() {
        for operation in [
            Operation::Clear,
            Operation::Fill,
            Operation::Copy,
            Operation::FillPersist,
            Operation::CopyPersist,
        ] {
            if implementation::methods(&MethodSet::All, operation).unwrap().is_empty() {
                continue;
            }
            let options = small(operation);
            let (results, saves) = testing::run(&options, false);
            let results = results.unwrap();
            let sides = options.sides.len();
            assert_eq!(sides, if operation.has_source() { 3 } else { 1 });
            assert!(results.complete && testing::saved_after_each(2 * sides, saves), "{saves}");
            for (list, &side) in
                options.lists.iter().flat_map(|list| options.sides.iter().map(move |side| (*list, side)))
            {
                let here = (Some(list), side);
                let rows: Vec<&Row> =
                    results.rows.iter().filter(|row| (row.config.list, row.config.side) == here).collect();
                for name in ["policy", "policy, stream", SAME_TIME, NOTHING] {
                    assert_eq!(
                        rows.iter().filter(|row| row.candidate.name == name).count(),
                        1,
                        "{operation}: {name}"
                    );
                }
                for row in rows {
                    assert_eq!((row.samples.len(), row.metric), (5, Metric::Growth));
                    for name in ["before_ns", "after_ns", "control_ns"] {
                        assert!(row.also[name] > 0.0, "{name} of {}", row.candidate.name);
                    }
                    assert_eq!(row.also["between_ns"] == 0.0, row.candidate.name == NOTHING);
                }
            }
            assert_eq!(results.findings.len(), 2 * sides);
        }
    }

    /// Each target has its own controls; a copy's sources are in ordinary memory, so that only writes differ.
    #[test]
    fn several_targets_are_walked_around_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made");
        let file = TargetOptions { target: path.clone(), ..TargetOptions::ram() };
        for operation in [Operation::Clear, Operation::Copy] {
            let targets = vec![TargetOptions::ram(), file.clone()];
            let options = PollutionOptions { targets, lists: vec![4096], ..small(operation) };
            let results = testing::run(&options, false).0.unwrap();
            let of = |target: &str| -> Vec<&str> {
                let rows = results.rows.iter().filter(|row| row.config.target.as_deref() == Some(target));
                let rows = rows.filter(|row| row.config.side != Some(CopySide::Source));
                rows.map(|row| row.candidate.name.as_str()).collect()
            };
            let sources = results.rows.iter().filter(|row| row.config.side == Some(CopySide::Source));
            let places: Vec<Option<&str>> = distinct(sources.map(|row| row.config.target.as_deref()));
            assert_eq!(places, vec![Some(RAM); usize::from(operation == Operation::Copy)]);
            assert!(of("ram").len() > 4 && of("ram") == of(path.to_str().unwrap()), "{operation}");
            assert!(results.rows.iter().all(|row| row.config.size == Some(32768) && row.samples.len() == 5));
            let texts: Vec<&str> = results.findings.iter().map(|it| it.text.as_str()).collect();
            // The source alone touches no target.
            let expected: &[bool] = match operation {
                Operation::Copy => &[false, true, false, false, true],
                _ => &[false, true],
            };
            assert_eq!(
                texts.iter().map(|it| it.contains(" in /")).collect::<Vec<_>>(),
                expected,
                "{texts:?}"
            );
            assert!(!path.exists());
        }
    }

    /// A target's size is never raised, or bytes would be lost that the user wants to keep.
    #[test]
    fn a_target_of_too_small_a_size_is_refused_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let file = |size| TargetOptions {
            target: path.clone(),
            size: Some(size),
            overwrite: true,
            ..TargetOptions::ram()
        };
        let sized = |size| PollutionOptions { targets: vec![file(size)], ..small(Operation::Clear) };
        let refused = || sized(65536).validate().unwrap_err().to_string();
        assert!(refused().contains("65536 bytes are too small: 131072 are needed"), "{}", refused());
        assert!(!path.exists());
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        assert!(refused().contains("too small"), "{}", refused());
        testing::run(&sized(1 << 19), false).0.unwrap();
        let content = std::fs::read(&path).unwrap();
        assert!(content.len() == 1 << 20 && content[131_072..].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before() {
        let refused = |change: &dyn Fn(&mut PollutionOptions)| {
            let mut options = small(Operation::Clear);
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        assert!(
            refused(&|it| it.operation = Operation::Persist)
                .contains("name clear, fill, copy, fill_persist or")
        );
        assert!(refused(&|it| it.sides = vec![Some(CopySide::Source)]).contains("clear has no source"));
        let mut copy = small(Operation::Copy);
        copy.sides = vec![Some(CopySide::Source), None, Some(CopySide::Source)];
        assert!(copy.validate().unwrap_err().to_string().contains("--side: a side is named twice"));
        assert!(refused(&|it| it.lists = vec![64]).contains("fewer than two lines"));
        assert!(refused(&|it| it.lists = vec![1 << 46]).contains("of memory"));
        assert!(refused(&|it| it.size = Some(u64::MAX)).contains("of memory"));
        assert!(
            refused(&|it| it.candidates.methods = MethodSet::Named(vec!["nosuch".into()])).contains("nosuch")
        );
    }

    #[test]
    fn half_of_each_cache_is_walked_unless_told_otherwise() {
        let options = PollutionOptions::new(Operation::Clear);
        let homes: Vec<&str> = options.lists.iter().map(|list| home_of(*list)).collect();
        assert_eq!(homes[0], "L1");
        assert!(homes.is_sorted() && !homes.contains(&"no cache"), "{homes:?}");
        assert!(options.lists.iter().all(|list| options.size(*list) >= (2 * list).max(LEAST)));
        assert_eq!(home_of(u64::MAX), "no cache");
    }

    fn planted(kind: Kind, name: &str, growth: f64) -> Row {
        let config = Config {
            operation: Some(Operation::Clear),
            size: Some(1 << 20),
            list: Some(4096),
            ..Config::default()
        };
        let samples = [growth - 2.0, growth - 1.0, growth, growth + 1.0, growth + 2.0];
        let figures = (Metric::Growth, &samples[..]);
        testing::row(
            Measurement::Pollution,
            (kind, name),
            config,
            figures,
            &[("control_ns", 100.0), ("before_ns", 96.0)],
        )
    }

    #[test]
    fn planted_growth_is_told_and_noise_is_not_distinguishable() {
        let rows = [
            planted(Kind::Method, "loud", 300.0),
            planted(Kind::Method, "louder", 700.0),
            planted(Kind::Method, "between", 500.0),
            planted(Kind::Method, "quiet", 1.0),
            planted(Kind::Method, "helpful", -80.0),
            planted(Kind::Policy, "policy, stream", 0.5),
            planted(Kind::Control, SAME_TIME, 0.0),
            planted(Kind::Control, NOTHING, -50.0),
        ];
        let all: Vec<&Row> = rows.iter().collect();
        let text = conclusion(&all).unwrap();
        for part in [
            "A list of 4 KiB, which fits L1 (an undisturbed walk takes 1.5 ns a line), and a clear of 1 MiB: the walk",
            "+300 % longer with loud and",
            "+700 % longer with louder.",
            "Not distinguishably longer than the control: quiet, helpful.",
            "The policy, stream: not distinguishable here.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let mut alone = [rows[0].clone(), rows[6].clone()];
        alone.iter_mut().for_each(|row| row.config.side = Some(CopySide::Source));
        let text = conclusion(&alone.iter().collect::<Vec<_>>()).unwrap();
        assert!(text.contains("a clear of 1 MiB, its source alone (calls of 4 KiB): the walk"), "{text}");
        let still = [&rows[3], &rows[6]];
        assert!(conclusion(&still).unwrap().contains("no distinguishably longer than after the same time"));
        assert_eq!(conclusion(&[&rows[3]]), None, "no finding without a control");
        assert_eq!(conclusion(&[]), None);
    }
}
