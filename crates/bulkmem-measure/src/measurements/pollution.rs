//! Cache pollution by an operation: a pointer walk before and after it, compared with a control that spends the same time
//! without touching memory.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use bulkmem::machine::Machine;
use bulkmem::{Intent, Operation};

use crate::engine::FILL_BYTE;
use crate::engine::LINE;
use crate::engine::arena::RawRange;
use crate::engine::buffer::{Buffer, Content, fits};
use crate::engine::clock::Clock;
use crate::engine::contrast::{Contrast, control_of, too_few};
use crate::engine::implementation::{self, Implementation, MethodSet};
use crate::engine::memory;
use crate::engine::neighbour::Neighbour;
use crate::engine::run::{Measure, Run, Sample, Sampler};
use crate::engine::stats::median;
use crate::engine::units::{bytes, nanoseconds};
use crate::engine::{Candidate, Config, Measurement, Metric, PageSize, Peers, Row};
use crate::measurements::checks::invalid;
use crate::measurements::participants::{participants, record_choices, sampler};
use crate::measurements::slots::Slots;
use crate::{Kind, MeasureError, OptionName};

/// Name of the control that spends the same time without touching memory.
pub const SAME_TIME: &str = "same time, no memory";
/// Name of the second control: nothing happens between the walks.
pub const NOTHING: &str = "nothing in between";

/// Destinations of successive operations.
const SLOTS: u64 = 4;
/// Time of a sample, if the number of repetitions is not given.
const SAMPLE_NS: f64 = 0.25e9;
/// Most repetitions, if their number is not given.
const MOST_REPEATS: u32 = 31;
/// Least bytes of an operation, if its length is not given.
const LEAST: u64 = 1 << 20;

/// Options for measuring cache pollution.
#[derive(Clone, Debug)]
pub struct PollutionOptions {
    /// Any operation but persist.
    pub operation: Operation,
    /// Sizes of the list that is walked, bytes.
    pub lists: Vec<u64>,
    /// Bytes of an operation. Default: twice the list, since a cache holds twice the list, and at least 1 MiB.
    pub size: Option<u64>,
    /// The page size of the memory.
    pub page_size: PageSize,
    /// Repetitions in a sample. Default: as many as take a quarter of a second, at most 31.
    pub walks: Option<u32>,
    /// The methods.
    pub methods: MethodSet,
    /// The other participants.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl PollutionOptions {
    /// Half of each cache, if memory suffices for it, transparent huge pages, 5 samples.
    ///
    /// Half, because a list as large as the cache does not stay in it: the walk's own variables, the kernel and, beyond
    /// the second level, other processors need room too.
    pub fn new(operation: Operation) -> PollutionOptions {
        let mut lists: Vec<u64> =
            Machine::current().caches.sane().levels().into_iter().map(|size| size / 2).collect();
        lists.dedup();
        let mut options = PollutionOptions {
            operation,
            lists: Vec::new(),
            size: None,
            page_size: PageSize::TRANSPARENT,
            walks: None,
            methods: MethodSet::Representative,
            peers: Peers::All,
            runs: 5,
        };
        options.lists = memory::defaults(lists, |list| options.needed(list));
        options
    }

    /// Bytes of memory for a list.
    fn needed(&self, list: u64) -> u64 {
        self.working_set(list).saturating_add(list)
    }

    fn size(&self, list: u64) -> u64 {
        self.size.unwrap_or_else(|| list.saturating_mul(2).max(LEAST))
    }

    fn has_source(&self) -> bool {
        matches!(self.operation, Operation::Copy | Operation::CopyPersist)
    }

    /// Bytes of destinations and sources for a list.
    fn working_set(&self, list: u64) -> u64 {
        let sides = if self.has_source() { 2 } else { 1 };
        self.size(list).saturating_mul(SLOTS * sides)
    }
}

/// Returns the smallest cache that a list of that size fits: `L1`, `L2`, `L3` or `memory`.
pub fn home_of(list: u64) -> &'static str {
    let levels = Machine::current().caches.sane().levels();
    let level = levels.into_iter().position(|size| list <= size);
    level.map_or("memory", |level| ["L1", "L2", "L3"][level])
}

impl Measure for PollutionOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Pollution
    }

    fn validate(&self) -> Result<(), MeasureError> {
        if self.operation == Operation::Persist {
            let reason = "persist writes nothing new and so pollutes nothing; name clear, fill, copy, fill_persist or \
                          copy_persist";
            return invalid(OptionName::Operations, reason);
        }
        for &list in &self.lists {
            if list < 2 * LINE as u64 {
                let reason =
                    format!("a list of {list} bytes has fewer than two lines; name at least 128 bytes");
                return invalid(OptionName::Lists, reason);
            }
            fits(self.needed(list))?;
        }
        self.page_size.check()?;
        implementation::methods(&self.methods, self.operation).map(drop)
    }

    fn seconds(&self) -> f64 {
        let rounds = (self.runs + 1) as f64 * 11.0;
        let once = |list: u64| (list / LINE as u64) as f64 * 8.0 * 10.0 + self.size(list) as f64 / 4.0;
        let sample =
            |list| self.walks.map_or(SAMPLE_NS.max(once(list)), |walks| once(list) * f64::from(walks));
        let seconds = |list| sample(list).min(f64::from(MOST_REPEATS) * once(list)) / 1e9 + 0.01;
        self.lists.iter().map(|&list| rounds * seconds(list)).sum()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        run.expect_groups(self.lists.len());
        for &list in &self.lists {
            if run.stopped() {
                return Ok(());
            }
            run.say("preparing memory", 0.0);
            let mut listed = Buffer::new(list, self.page_size, Content::Mixed)?;
            let mut memory = Buffer::new(self.working_set(list), self.page_size, Content::Mixed)?;
            run.backed_by(memory.backing_page_size());
            let mut samplers = self.samplers(run, list, listed.raw_range(), memory.raw_range())?;
            let what = format!("a list of {}", bytes(list));
            run.interleave(&what, Metric::Growth, self.runs, &mut samplers)?;
            self.conclude(run, list);
        }
        Ok(())
    }
}

/// The action between two walks.
#[derive(Clone, Copy)]
enum Between<'p> {
    Operation(Implementation<'p>),
    /// The time that the slowest operation takes passes.
    SameTime,
    Nothing,
}

impl PollutionOptions {
    fn samplers<'c>(
        &self,
        run: &mut Run<'c>,
        list: u64,
        listed: RawRange,
        memory: RawRange,
    ) -> Result<Vec<Sampler<'c>>, MeasureError> {
        let length = usize::try_from(self.size(list)).unwrap_or(usize::MAX);
        let intents = [Intent::Throughput, Intent::Stream];
        let implementations = participants(run, self.operation, &intents, length, &self.methods, self.peers)?;
        let config = Config {
            operation: Some(self.operation),
            size: Some(self.size(list)),
            list: Some(list),
            page_size: Some(self.page_size),
            ..Config::default()
        };
        record_choices(run, &implementations, &config, length);
        let operations = implementations.into_iter().map(|it| (it.candidate(), Between::Operation(it)));
        let controls = [(SAME_TIME, Between::SameTime), (NOTHING, Between::Nothing)];
        let controls = controls.map(|(name, between)| (Candidate::named(Kind::Control, name), between));
        let all: Vec<_> = operations.chain(controls).collect();
        // The last time of each operation: the controls need the slowest.
        let times = Rc::new(RefCell::new(vec![0.0; all.len()]));
        // SAFETY: the caller keeps the memory as long as the samplers live, and gives it to no other code.
        let neighbour = Rc::new(unsafe { Neighbour::new(listed, listed.length) });
        let samplers = all.into_iter().enumerate().map(|(own, (candidate, between))| {
            let mut walks = Walks {
                neighbour: Rc::clone(&neighbour),
                between,
                operation: self.operation,
                slots: Slots::new(memory, length, self.has_source()),
                length,
                times: Rc::clone(&times),
                own,
                repeats: self.walks,
            };
            sampler(candidate, &config, false, move || Ok(walks.sample()))
        });
        Ok(samplers.collect())
    }

    fn conclude(&self, run: &mut Run<'_>, list: u64) {
        if let Some(note) = too_few(self.runs) {
            return run.note(note);
        }
        let rows: Vec<&Row> = run.rows().filter(|row| row.config.list == Some(list)).collect();
        if let Some(text) = conclusion(&rows) {
            run.add_finding(text);
        }
    }
}

/// Summarizes the rows of one list: the least and the most pollution, and operations without any.
fn conclusion(rows: &[&Row]) -> Option<String> {
    let first = rows.first()?;
    let Config { list: Some(list), size: Some(size), operation: Some(operation), .. } = first.config else {
        return None;
    };
    let of = |kinds: &[Kind]| -> Vec<(&str, Contrast, String)> {
        let wanted = rows.iter().filter(|row| kinds.contains(&row.candidate.kind));
        let contrasts = wanted.filter_map(|row| {
            let contrast = Contrast::of(row, control_of(rows, row, SAME_TIME)?)?;
            let share = contrast.by / row.also.get("control_ns")? * 100.0;
            let [low, high] = contrast.interval.map(nanoseconds);
            let text = format!("{} ({low} to {high}), {share:+.0} %", nanoseconds(contrast.by));
            Some((row.candidate.name.as_str(), contrast, text))
        });
        contrasts.collect()
    };
    let slows = |contrast: &Contrast| contrast.distinguishable() && contrast.by > 0.0;
    let (mut loud, quiet): (Vec<_>, Vec<_>) =
        of(&[Kind::Method, Kind::Peer]).into_iter().partition(|(_, contrast, _)| slows(contrast));
    loud.sort_by(|a, b| a.1.by.total_cmp(&b.1.by));
    let home = home_of(list);
    let before = first.also.get("before_ns")? / (list as f64 / LINE as f64);
    let mut text = format!(
        "A list of {}, which fits {} (an undisturbed walk takes {before:.1} ns a line), and a {operation} of {}: the walk \
         after it takes",
        bytes(list),
        if home == "memory" { "no cache" } else { home },
        bytes(size),
    );
    match loud.as_slice() {
        [] if quiet.is_empty() => return None,
        [] => {
            text += " no distinguishably longer than after the same time without touching memory, with any candidate."
        }
        [(name, _, cost)] => text += &format!(" {cost} longer with {name}."),
        [(least, _, little), .., (most, _, much)] => {
            text += &format!(" {little} longer with {least} and {much} longer with {most}.");
        }
    }
    if !loud.is_empty() && !quiet.is_empty() {
        let names: Vec<&str> = quiet.iter().map(|(name, ..)| *name).collect();
        text += &format!(" Not distinguishably longer than the control: {}.", names.join(", "));
    }
    for (name, contrast, cost) in of(&[Kind::Policy]) {
        let verdict =
            if slows(&contrast) { format!("{cost} longer") } else { "not distinguishable here".to_owned() };
        text += &format!(" The {name}: {verdict}.");
    }
    Some(text)
}

/// Samples one candidate: a walk, something between, and a walk again.
struct Walks<'p> {
    neighbour: Rc<Neighbour>,
    between: Between<'p>,
    operation: Operation,
    slots: Slots,
    length: usize,
    times: Rc<RefCell<Vec<f64>>>,
    /// The index of this candidate's time.
    own: usize,
    repeats: Option<u32>,
}

/// Walks the cached list, calls `between`, and walks again. Returns nanoseconds of the first walk, of the second, and what
/// `between` returned.
fn around(neighbour: &Neighbour, between: impl FnOnce() -> f64) -> [f64; 3] {
    let clock = Clock::new();
    neighbour.walk();
    neighbour.walk();
    let before = clock.time(|| neighbour.walk());
    let between = between();
    let after = clock.time(|| neighbour.walk());
    [before, after, between]
}

impl Walks<'_> {
    /// Performs what happens between the walks and returns its time.
    fn act(&mut self) -> f64 {
        let clock = Clock::new();
        match self.between {
            Between::Operation(implementation) => {
                let (dst, src) = self.slots.next();
                let (operation, length) = (self.operation, self.length);
                // SAFETY: slots lie in memory that the measurement keeps while samplers live, and that no other code
                // uses.
                clock.time(|| unsafe { implementation.run(operation, dst, src, length, FILL_BYTE) })
            }
            Between::SameTime => clock.time(|| clock.spin(self.slowest())),
            Between::Nothing => 0.0,
        }
    }

    /// The last time of the slowest operation.
    fn slowest(&self) -> f64 {
        self.times.borrow().iter().copied().fold(0.0, f64::max)
    }

    /// The control: spends the time that the operation took.
    fn pass_time(&self, took: f64) -> f64 {
        let clock = Clock::new();
        let took = if matches!(self.between, Between::Nothing) { self.slowest() } else { took };
        clock.time(|| clock.spin(took))
    }

    fn sample(&mut self) -> Sample {
        let neighbour = Rc::clone(&self.neighbour);
        // A first, uncounted time determines the number of repetitions.
        let start = Instant::now();
        let [.., mut took] = around(&neighbour, || self.act());
        around(&neighbour, || self.pass_time(took));
        let once = start.elapsed().as_secs_f64() * 1e9;
        let repeats = *self.repeats.get_or_insert_with(|| ((SAMPLE_NS / once) as u32).clamp(1, MOST_REPEATS));
        let mut seen: [Vec<f64>; 5] = Default::default();
        for repeat in 0..repeats {
            // Alternates the order, so that neither always follows the other.
            let mut control = [0.0; 3];
            if repeat % 2 == 1 {
                control = around(&neighbour, || self.pass_time(took));
            }
            let [before, after, between] = around(&neighbour, || self.act());
            took = between;
            if repeat % 2 == 0 {
                control = around(&neighbour, || self.pass_time(took));
            }
            let figures = [after - control[1], before, after, control[1], between];
            seen.iter_mut().zip(figures).for_each(|(seen, figure)| seen.push(figure));
        }
        let [growth, before, after, control, between] = seen.map(|figures| median(&figures));
        if let Between::Operation(_) = self.between {
            self.times.borrow_mut()[self.own] = between;
        }
        let names = ["before_ns", "after_ns", "control_ns", "between_ns"];
        Sample { value: growth, also: names.into_iter().zip([before, after, control, between]).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing;

    fn small(operation: Operation) -> PollutionOptions {
        PollutionOptions {
            lists: vec![4096, 16384],
            size: Some(32768),
            page_size: "4K".parse().unwrap(),
            walks: Some(2),
            methods: MethodSet::All,
            runs: 5,
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
            assert_eq!((results.complete, saves), (true, 3));
            for list in options.lists {
                let rows: Vec<&Row> =
                    results.rows.iter().filter(|row| row.config.list == Some(list)).collect();
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
            assert_eq!(results.findings.len(), 2);
        }
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
        assert!(refused(&|it| it.lists = vec![64]).contains("fewer than two lines"));
        assert!(refused(&|it| it.lists = vec![1 << 46]).contains("of memory"));
        assert!(refused(&|it| it.size = Some(u64::MAX)).contains("of memory"));
        assert!(refused(&|it| it.methods = MethodSet::Named(vec!["nosuch".into()])).contains("nosuch"));
    }

    #[test]
    fn half_of_each_cache_is_walked_unless_told_otherwise() {
        let options = PollutionOptions::new(Operation::Clear);
        let homes: Vec<&str> = options.lists.iter().map(|list| home_of(*list)).collect();
        assert_eq!(homes[0], "L1");
        assert!(homes.is_sorted() && !homes.contains(&"memory"), "{homes:?}");
        assert!(options.lists.iter().all(|list| options.size(*list) >= (2 * list).max(LEAST)));
        assert_eq!(home_of(u64::MAX), "memory");
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
        let still = [&rows[3], &rows[6]];
        assert!(conclusion(&still).unwrap().contains("no distinguishably longer than after the same time"));
        assert_eq!(conclusion(&[&rows[3]]), None, "no finding without a control");
        assert_eq!(conclusion(&[]), None);
    }
}
