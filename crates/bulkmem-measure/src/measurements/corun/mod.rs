//! The slow-down of a program or of a walk over cached memory while memory is cleared in the background.

mod background;
mod victim;

use std::cell::RefCell;
use std::ffi::OsString;
use std::rc::Rc;

use bulkmem::machine::Machine;
use bulkmem::{Intent, Operation};

use self::background::{Background, Bound, Placement, Work};
use self::victim::Walker;
use crate::engine::clock::time;
use crate::engine::contrast::{conclude, contrasts, names};
use crate::engine::stats::median;
use crate::engine::{
    Buffer, Candidate, Config, Content, Implementation, Kind, Measure, Measurement, Metric, Neighbour,
    PageSize, Peers, RawRange, Result, Row, Run, Sample, Sampler, fits, implementation, memory_left,
};
use crate::measurements::checks::require;
use crate::measurements::participants::Candidates;

/// Name of the control with nothing in the background.
pub const ALONE: &str = "alone";
/// Name of the control that slow-downs are relative to: a thread in the background that is as busy as clearing.
pub const SAME_PROCESSOR_TIME: &str = "same processor time";

/// Candidates that achieve less than this share of the requested rate are noted.
const FULL_RATE: f64 = 0.95;

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
    /// Rates that clearing is limited to, GB/s.
    pub rates: Vec<f64>,
    /// Bytes of the memory that is cleared repeatedly. Default: twice the last-level cache.
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
            let reason = format!("{rate} GB/s is out of range; name 0.001 to 1000");
            require((0.001..=1000.0).contains(rate), "--rate", reason)?;
        }
        let fit = self.chunk > 0 && self.size.is_none_or(|size| size >= self.chunk);
        let reason = "bytes do not fit the memory that is cleared; name a smaller size";
        require(fit, "--chunk", format!("{} {reason}", self.chunk))?;
        fits(self.size().saturating_add(self.list()))?;
        self.page_size.check()?;
        self.candidates.check(Operation::Clear)
    }

    fn uncounted(&self) -> Option<&'static str> {
        Some("the measured command is another process; only this one is counted")
    }

    fn seconds(&self) -> f64 {
        // The time of a command is unknown; progress adapts to what is observed.
        let once = if self.victim == Victim::Walk { 0.6 } else { 5.0 };
        once * (self.candidates.runs + 1) as f64 * 13.0 * self.rates.len() as f64
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        run.expect_groups(self.rates.len());
        let mut listed = Buffer::of_run(run, self.list().max(4096), self.page_size, Content::Mixed)?;
        let mut memory = Buffer::of_run(run, self.size(), self.page_size, Content::Mixed)?;
        let placement = Placement::new(self.same_cpu);
        placement.note.into_iter().for_each(|note| run.note(note));
        // The victim runs in this thread, or is its child and inherits the processors.
        let _bound = Bound::to(placement.victim);
        for &rate in &self.rates {
            let (whole, listed) = (memory.raw_range(), listed.raw_range());
            let chunk = usize::try_from(self.chunk).unwrap_or(usize::MAX).min(whole.length);
            let background = Background { whole, chunk, rate, processors: placement.background };
            let mut samplers = self.samplers(run, background, listed)?;
            run.interleave(&format!("at {rate} GB/s"), Metric::Seconds, self.candidates.runs, &mut samplers)?;
            let rows: Vec<&Row> = run.rows().filter(|row| row.config.rate == Some(rate)).collect();
            let (text, notes) = (self.conclusion(&rows), shortfalls(&rows));
            conclude(run, self.candidates.runs, text);
            notes.into_iter().for_each(|note| run.note(note));
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
    ) -> Result<Vec<Sampler<'c>>> {
        let policy = Implementation::policy(run.policy, Intent::Stream, background.whole.length);
        let methods = implementation::methods(&self.candidates.methods, Operation::Clear)?;
        let methods = methods.into_iter().map(Implementation::Method);
        let methods =
            methods.filter(|it| self.candidates.peers == Peers::All || it.candidate().kind != Kind::Peer);
        let config = Config::of(Operation::Clear, self.size(), self.page_size);
        let config = Config { chunk: Some(self.chunk), rate: Some(background.rate), ..config };
        let control = |name| Candidate::named(Kind::Control, name);
        let spin = Work::Spin(memset_ns(background));
        let controls = [(control(ALONE), None, None), (control(SAME_PROCESSOR_TIME), None, Some(spin))];
        let clears = [policy]
            .into_iter()
            .chain(methods)
            .map(|it| (it.candidate(), it.chosen(Operation::Clear, background.chunk), Some(Work::Clear(it))));
        let stop = run.observer.stop;
        // SAFETY: the caller keeps the memory as long as the samplers live, and gives it to no other code.
        let neighbour = unsafe { Neighbour::new(listed, listed.length) };
        let walker = Rc::new(RefCell::new(Walker { neighbour, times: None }));
        let samplers = controls.into_iter().chain(clears).map(|(candidate, chosen, work)| {
            let walker = Rc::clone(&walker);
            let sample = move |say: &mut dyn FnMut(&str)| -> Result<Sample> {
                let mut victim = || match &self.victim {
                    Victim::Command { words, show_output } => {
                        victim::run_command(words, *show_output, stop, say)
                    }
                    Victim::Walk => walker.borrow_mut().run(stop),
                };
                let Some(work) = work else { return victim() };
                // SAFETY: the measurement keeps the memory while samplers live; they take samples one after the
                // other.
                let (sample, done) = unsafe { background.alongside(work, victim) };
                let mut sample = sample?;
                sample.also.extend(done);
                Ok(sample)
            };
            Sampler { candidate, config: config.clone(), sample: Box::new(sample), counted: false, chosen }
        });
        Ok(samplers.collect())
    }

    /// Summarizes how much each candidate slows the victim down.
    fn conclusion(&self, rows: &[&Row]) -> Option<String> {
        let rate = rows.first()?.config.rate?;
        let name = match &self.victim {
            Victim::Command { words, .. } => format!("`{}`", words.first()?.to_string_lossy()),
            Victim::Walk => "the walk".to_owned(),
        };
        let all = contrasts(rows, &[Kind::Policy, Kind::Method, Kind::Peer], SAME_PROCESSOR_TIME);
        let (mut slow, even): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, it)| it.distinguishable());
        slow.sort_by(|a, b| a.1.by.total_cmp(&b.1.by));
        let slow = slow.iter().map(|(row, contrast)| {
            let [low, high] = contrast.interval;
            format!("{:+.1} % ({low:+.1} to {high:+.1}) with {}", contrast.by, row.candidate.name)
        });
        let (longer, even) = (slow.collect::<Vec<_>>().join(", "), names(&even));
        let (longer, rest) = match (longer.as_str(), even.as_str()) {
            ("", "") => return None,
            ("", _) => ("no distinguishably longer, with any candidate,", String::new()),
            (longer, "") => (longer, String::new()),
            (longer, even) => (longer, format!(" Not distinguishable here: {even}.")),
        };
        Some(format!(
            "While memory is cleared at {rate} GB/s, {name} takes {longer} than alongside a thread that is as busy without \
             touching memory.{rest}"
        ))
    }
}

/// Measures how long the C library takes to clear a chunk: the control is as busy.
fn memset_ns(Background { whole, chunk, .. }: Background) -> f64 {
    let chunks = whole.length / chunk;
    let times = (0..chunks.clamp(8, 64)).map(|number| {
        let at = whole.start.wrapping_add(number % chunks * chunk);
        // SAFETY: the chunk lies in the range, which the measurement keeps and no other code uses.
        time(|| unsafe {
            libc::memset(at.cast(), 0, chunk);
        })
    });
    median(&times.collect::<Vec<f64>>())
}

fn shortfalls(rows: &[&Row]) -> Option<String> {
    let asked = rows.first()?.config.rate?;
    let slow = rows.iter().filter(|row| row.candidate.kind != Kind::Control).filter_map(|row| {
        let achieved = row.also.get("rate").filter(|rate| **rate < asked * FULL_RATE)?;
        Some(format!("{} {achieved:.2}", row.candidate.name))
    });
    let slow: Vec<String> = slow.collect();
    (!slow.is_empty()).then(|| {
        format!(
            "these candidates did not reach {asked} GB/s, so their slow-downs are for less clearing: {} GB/s; give a lower \
             --rate to compare them",
            slow.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MeasureError;
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
        assert_eq!((results.complete, saves), (true, 3));
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
            assert_eq!(of(SAME_PROCESSOR_TIME).also["cleared_gb"], 0.0);
            assert!(of("portable").also["cleared_gb"] > 0.0 && of("portable").also["busy_percent"] > 0.0);
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
            "While memory is cleared at 2 GB/s",
            "`make` takes +5.0 % (",
            "with little, +20.0 % (",
            "Not distinguishable here: policy, stream.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let text = options.conclusion(&[&rows[1], &rows[4]]).unwrap();
        assert!(text.contains("no distinguishably longer"), "{text}");
        assert_eq!(options.conclusion(&[&rows[0], &rows[2]]), None, "no finding without the control");
        let note = shortfalls(&all).unwrap();
        assert!(note.contains("slow 1.20 GB/s") && !note.contains("little"), "{note}");
        assert_eq!(shortfalls(&all[3..]), None);
    }
}
