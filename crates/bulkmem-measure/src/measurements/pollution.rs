//! What an operation leaves of a neighbour's cache: a pointer walk before and after it, against a control that spends
//! the same time without touching memory.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use bulkmem::machine::Machine;
use bulkmem::{Intent, Operation};

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
use crate::engine::workload::FILL_BYTE;
use crate::engine::{Candidate, Config, Measurement, Metric, PageSize, Peers, Row};
use crate::{Kind, MeasureError, OptionName};

/// The control's name: the same time without touching memory.
pub const SAME_TIME: &str = "same time, no memory";
/// The second control's name: the walk after nothing.
pub const NOTHING: &str = "nothing in between";

/// Operations are spread over so many times the size, so that they do not find their memory where the last one left it.
const PLACES: usize = 4;
/// A sample repeats walks and operation as often as fits this time, where that is left to the measurement.
const SAMPLE_NS: f64 = 0.25e9;
/// But no more often than this.
const MOST: u32 = 31;
/// An operation is at least this long, where its length is left to the measurement.
const LEAST: u64 = 1 << 20;

/// How to measure what an operation leaves of a neighbour's cache.
#[derive(Clone, Debug)]
pub struct PollutionOptions {
    /// Anything but flush.
    pub operation: Operation,
    /// Sizes of the list that is walked, bytes.
    pub lists: Vec<u64>,
    /// Bytes of an operation; where not given, twice the list: as much as a cache holds of which the list takes half.
    /// At least 1 MiB.
    pub size: Option<u64>,
    /// The pages behind the memory.
    pub page_size: PageSize,
    /// How often a sample repeats the whole; as often as takes a quarter of a second where not given, 31 times at most.
    pub walks: Option<u32>,
    /// Which methods.
    pub methods: MethodSet,
    /// Who else.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl PollutionOptions {
    /// Half of each cache, if memory suffices for it, transparent huge pages, 5 samples.
    ///
    /// Half, because a list that takes a whole cache does not stay in it: the walk's own variables, the kernel and,
    /// beyond the second level, other processors need room too.
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

    /// Bytes of memory that a list needs.
    fn needed(&self, list: u64) -> u64 {
        self.worked_on(list).saturating_add(list)
    }

    fn size(&self, list: u64) -> u64 {
        self.size.unwrap_or_else(|| list.saturating_mul(2).max(LEAST))
    }

    fn has_source(&self) -> bool {
        matches!(self.operation, Operation::Copy | Operation::CopyPersist)
    }

    /// Bytes of destinations and sources, for one list.
    fn worked_on(&self, list: u64) -> u64 {
        let sides = if self.has_source() { 2 } else { 1 };
        self.size(list).saturating_mul(PLACES as u64 * sides)
    }
}

/// The smallest cache in which a list of that size fits: `L1`, `L2`, `L3` or `memory`.
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
            let reason = "flush writes nothing, so there is nothing to pollute with; name clear, fill, copy or persist";
            return Err(MeasureError::Option { option: OptionName::Operations, reason: reason.into() });
        }
        for &list in &self.lists {
            if list < 2 * LINE as u64 {
                let reason = format!("a list of {list} bytes has no two lines; name 128 bytes at least");
                return Err(MeasureError::Option { option: OptionName::Lists, reason });
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
        let seconds = |list| sample(list).min(f64::from(MOST) * once(list)) / 1e9 + 0.01;
        self.lists.iter().map(|&list| rounds * seconds(list)).sum()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        run.expect_groups(self.lists.len());
        for &list in &self.lists {
            if run.stopped() {
                return Ok(());
            }
            run.say("getting memory ready", 0.0);
            let mut listed = Buffer::new(list, self.page_size, Content::Mixed)?;
            let mut worked_on = Buffer::new(self.worked_on(list), self.page_size, Content::Mixed)?;
            run.backed_by(worked_on.backing_page_size());
            let mut samplers = self.samplers(run, list, listed.raw_range(), worked_on.raw_range())?;
            let what = format!("a list of {}", bytes(list));
            run.interleave(&what, Metric::Growth, self.runs, &mut samplers)?;
            self.conclude(run, list);
        }
        Ok(())
    }
}

/// What happens between two walks.
#[derive(Clone, Copy)]
enum Between<'p> {
    Operation(Implementation<'p>),
    /// As much time as the slowest operation takes passes.
    SameTime,
    Nothing,
}

impl PollutionOptions {
    fn samplers<'c>(
        &self,
        run: &mut Run<'c>,
        list: u64,
        listed: RawRange,
        worked_on: RawRange,
    ) -> Result<Vec<Sampler<'c>>, MeasureError> {
        let length = usize::try_from(self.size(list)).unwrap_or(usize::MAX);
        let policy = |intent| Implementation::policy(run.policy(), intent, length);
        let mut implementations = vec![policy(Intent::Throughput), policy(Intent::Stream)];
        implementations.extend(
            implementation::methods(&self.methods, self.operation)?.into_iter().map(Implementation::Method),
        );
        if self.peers == Peers::All {
            match implementation::libraries(self.operation) {
                Ok(libraries) => implementations.extend(libraries),
                Err(reason) => run.note(reason),
            }
        } else {
            implementations.retain(|implementation| implementation.candidate().kind != Kind::Peer);
        }
        let config = Config {
            operation: Some(self.operation),
            size: Some(self.size(list)),
            list: Some(list),
            page_size: Some(self.page_size),
            ..Config::default()
        };
        for implementation in &implementations {
            let choice = implementation.chosen(self.operation, length);
            run.chooses(&implementation.candidate(), &config, choice);
        }
        let operations = implementations
            .into_iter()
            .map(|implementation| (implementation.candidate(), Between::Operation(implementation)));
        let controls = [(SAME_TIME, Between::SameTime), (NOTHING, Between::Nothing)];
        let controls = controls.map(|(name, between)| (Candidate::named(Kind::Control, name), between));
        // Of each operation, the time it last took: the controls know the slowest by it.
        let times = Rc::new(RefCell::new(Vec::new()));
        // SAFETY: the caller keeps the memory as long as the samplers live, and gives it to nobody else.
        let neighbour = Rc::new(unsafe { Neighbour::new(listed, listed.length) });
        let samplers = operations.chain(controls).map(|(candidate, between)| {
            let walks = Walks {
                neighbour: Rc::clone(&neighbour),
                between,
                operation: self.operation,
                worked_on,
                length,
                source: self.has_source().then_some(PLACES * length),
                config: 0,
                times: Rc::clone(&times),
                mine: times.borrow().len(),
                repeats: self.walks,
            };
            times.borrow_mut().push(0.0);
            let mut walks = walks;
            let sample = Box::new(move || Ok(walks.sample()));
            Sampler { candidate, config: config.clone(), sample, counted: false }
        });
        Ok(samplers.collect())
    }

    /// Who disturbs the neighbour least and most, and who not at all.
    fn conclude(&self, run: &mut Run<'_>, list: u64) {
        if let Some(note) = too_few(self.runs) {
            return run.note(note);
        }
        let rows: Vec<&Row> = run.rows().filter(|row| row.config.list == Some(list)).collect();
        let Some(text) = conclusion(&rows) else { return };
        run.add_finding(text);
    }
}

/// What the rows of one list say, in words.
fn conclusion(rows: &[&Row]) -> Option<String> {
    let first = rows.first()?;
    let Config { list: Some(list), size: Some(size), operation: Some(operation), .. } = first.config else {
        return None;
    };
    let told = |row: &Row| {
        let contrast = Contrast::of(row, control_of(rows, row, SAME_TIME)?)?;
        let share = contrast.by / row.also.get("control_ns")? * 100.0;
        let [low, high] = contrast.interval.map(nanoseconds);
        let text = format!("{} ({low} to {high}), {share:+.0} %", nanoseconds(contrast.by));
        Some((contrast, text))
    };
    let of = |kinds: &[Kind]| -> Vec<(&Row, Contrast, String)> {
        let mut found = Vec::new();
        for &row in rows.iter().filter(|row| kinds.contains(&row.candidate.kind)) {
            found.extend(told(row).map(|(contrast, text)| (row, contrast, text)));
        }
        found
    };
    let (mut loud, quiet): (Vec<_>, Vec<_>) =
        of(&[Kind::Method, Kind::Peer]).into_iter().partition(|(_, contrast, _)| costs(contrast));
    loud.sort_by(|a, b| a.1.by.total_cmp(&b.1.by));
    let home = home_of(list);
    let before = first.also.get("before_ns")? / (list as f64 / LINE as f64);
    let mut text = format!(
        "A list of {}, which fits {} (a walk in peace takes {before:.1} ns a line), and a {operation} of {} beside it: the \
         walk after it takes",
        bytes(list),
        if home == "memory" { "no cache" } else { home },
        bytes(size),
    );
    match loud.as_slice() {
        [] if quiet.is_empty() => return None,
        [] => {
            text += " no longer, as far as can be distinguished here, than after the same time without touching memory, whatever does \
                  it."
        }
        [(row, _, cost)] => text += &format!(" {cost} longer with {}.", row.candidate.name),
        [(least, _, little), .., (most, _, much)] => {
            text += &format!(
                " {little} longer with {} and {much} longer with {}.",
                least.candidate.name, most.candidate.name
            );
        }
    }
    if !loud.is_empty() && !quiet.is_empty() {
        let names: Vec<&str> = quiet.iter().map(|(row, ..)| row.candidate.name.as_str()).collect();
        text += &format!(
            " No longer than the control, as far as can be distinguished here: {}.",
            names.join(", ")
        );
    }
    for (row, contrast, cost) in of(&[Kind::Policy]) {
        let verdict =
            if costs(&contrast) { format!("{cost} longer") } else { "not distinguishable here".to_owned() };
        text += &format!(" The {}: {verdict}.", row.candidate.name);
    }
    Some(text)
}

/// Whether something costs the neighbour beyond doubt.
fn costs(contrast: &Contrast) -> bool {
    contrast.distinguishable() && contrast.by > 0.0
}

/// One who walks, lets something happen, and walks again.
struct Walks<'p> {
    neighbour: Rc<Neighbour>,
    between: Between<'p>,
    operation: Operation,
    worked_on: RawRange,
    length: usize,
    /// How far behind the first destination the first source lies.
    source: Option<usize>,
    config: usize,
    times: Rc<RefCell<Vec<f64>>>,
    mine: usize,
    repeats: Option<u32>,
}

/// A walk in a settled cache, something that says how long it took, and a walk again: nanoseconds of the first walk, the
/// second, and what was between.
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
    /// Does what is to be done between the walks; returns how long it took.
    fn act(&mut self) -> f64 {
        let clock = Clock::new();
        match self.between {
            Between::Operation(implementation) => {
                self.config = (self.config + 1) % PLACES;
                let dst = self.worked_on.start.wrapping_add(self.config * self.length);
                let src = dst.wrapping_add(self.source.unwrap_or(0));
                let (operation, length) = (self.operation, self.length);
                // SAFETY: the range holds so many destinations and, where the operation has a source, as many
                // sources behind them; the measurement keeps it while samplers live, and nobody else uses it.
                clock.time(|| unsafe { implementation.run(operation, dst, src, length, FILL_BYTE) })
            }
            Between::SameTime => clock.time(|| clock.spin(self.slowest())),
            Between::Nothing => 0.0,
        }
    }

    /// How long the slowest operation took the last time.
    fn slowest(&self) -> f64 {
        self.times.borrow().iter().copied().fold(0.0, f64::max)
    }

    /// The control: as much time passes as what it is compared with took.
    fn pass_time(&self, took: f64) -> f64 {
        let clock = Clock::new();
        let took = if matches!(self.between, Between::Nothing) { self.slowest() } else { took };
        clock.time(|| clock.spin(took))
    }

    fn sample(&mut self) -> Sample {
        let neighbour = Rc::clone(&self.neighbour);
        // Once uncounted: how long it takes, and so how often it is repeated.
        let start = Instant::now();
        let [.., mut took] = around(&neighbour, || self.act());
        around(&neighbour, || self.pass_time(took));
        let once = start.elapsed().as_secs_f64() * 1e9;
        let repeats = *self.repeats.get_or_insert_with(|| ((SAMPLE_NS / once) as u32).clamp(1, MOST));
        let mut seen: [Vec<f64>; 5] = Default::default();
        for repeat in 0..repeats {
            // By turns, so that neither is always the one that comes behind the other.
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
            self.times.borrow_mut()[self.mine] = between;
        }
        let also = vec![
            ("before_ns", before),
            ("after_ns", after),
            ("control_ns", control),
            ("between_ns", between),
        ];
        Sample { value: growth, also }
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
        for operation in [Operation::Clear, Operation::Fill, Operation::Copy, Operation::CopyPersist] {
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
            refused(&|it| it.operation = Operation::Persist).contains("name clear, fill, copy or persist")
        );
        assert!(refused(&|it| it.lists = vec![64]).contains("no two lines"));
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
            "A list of 4 KiB, which fits L1 (a walk in peace takes 1.5 ns a line), and a clear of 1 MiB beside it",
            "+300 % longer with loud and",
            "+700 % longer with louder.",
            "as far as can be distinguished here: quiet, helpful.",
            "The policy, stream: not distinguishable here.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let still = [&rows[3], &rows[6]];
        assert!(conclusion(&still).unwrap().contains("no longer, as far as can be distinguished here"));
        assert_eq!(conclusion(&[&rows[3]]), None, "without a control nothing is said");
        assert_eq!(conclusion(&[]), None);
    }
}
