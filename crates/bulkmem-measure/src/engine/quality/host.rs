//! Other use of the machine: read before and after, and compared.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::QualityFlag;
use crate::engine::clock::{processor_times, usage};

/// The kernel counts in ticks: over less time than this they say nothing.
const SHORTEST: f64 = 0.2;
/// Others disturb from so many processors on. Every machine has some daemons.
const BUSY: f64 = 0.1;
/// The hypervisor, or a limit, disturbs from this share of the time on.
const TAKEN: f64 = 0.01;
/// So many processes are named in a profile.
const MOST_NAMED: usize = 3;
/// Others must use so many processors more, and this share of all processors, to be called a heavier load: on a machine
/// that does nothing else, averages over seconds differ by less.
const HEAVIER: (f64, f64) = (0.25, 1.0 / 64.0);
/// The hypervisor, or a limit, must take this share of the time more.
const HEAVIER_TAKEN: f64 = 0.05;

/// Use of the processors by others while something was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// How many processors other processes used, on average.
    pub others: f64,
    /// How many processors the machine has.
    pub processors: usize,
    /// The share of the processors' time that the hypervisor gave to other guests (steal), 0 to 1.
    pub stolen: f64,
    /// The share of the time in which a limit (cgroup `cpu.max`) held the calibration back, 0 to 1.
    pub throttled: f64,
    /// The other processes that used most, at most three, without control characters in their names.
    pub busiest: Vec<BusyProcess>,
}

/// A process that used the processors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BusyProcess {
    /// Its name, as the kernel has it: at most 15 bytes.
    pub name: String,
    /// Its number.
    pub pid: u32,
    /// How many processors it used, on average.
    pub processors: f64,
}

/// Returns true if others took clearly more of the processors than in an earlier measurement. An unknown load counts as none.
pub(crate) fn is_heavier(load: Option<&Load>, earlier: Option<&Load>) -> bool {
    let Some(load) = load else { return false };
    let (others, stolen, throttled) =
        earlier.map_or((0.0, 0.0, 0.0), |it| (it.others, it.stolen, it.throttled));
    load.others >= others + HEAVIER.0 + HEAVIER.1 * load.processors as f64
        || load.stolen >= stolen + HEAVIER_TAKEN
        || load.throttled >= throttled + HEAVIER_TAKEN
}

/// The machine and this process at one moment. What could not be read is 0, empty or `None`.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    at: Instant,
    system: System,
    /// This process, and the seconds that it and its children that ended used.
    pid: u32,
    seconds: f64,
    /// How often the kernel took the processor away from them.
    put_off: u64,
    processes: BTreeMap<u32, Process>,
}

/// The state of the whole system, from `/proc`.
#[derive(Clone, Debug, Default, PartialEq)]
struct System {
    processors: usize,
    /// Seconds of all processors since they started: worked, and given to others by the hypervisor.
    busy: f64,
    stolen: f64,
    /// Seconds in which a process waited for a processor.
    waited: Option<f64>,
    /// Seconds in which a limit held this control group back.
    throttled: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
struct Process {
    name: String,
    parent: u32,
    seconds: f64,
    /// Ticks from the start of the machine: of two processes with the same number, another. A process can change its name, and the kernel's
    /// workers do so all the time.
    started: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Disturbance {
    /// Names all processes that worked, the largest first; without this process and its descendants.
    load: Load,
    /// The share of the time in which a thread waited for a processor.
    waited: Option<f64>,
    /// How often this process had to give up the processor.
    put_off: u64,
    /// The smallest use that the kernel's ticks can tell, processors.
    resolution: f64,
}

impl Disturbance {
    pub(super) fn flags(&self) -> impl Iterator<Item = (QualityFlag, f64)> {
        let Load { others, processors, stolen, throttled, .. } = self.load;
        let all = [
            (QualityFlag::Busy, others, BUSY + 2.0 * self.resolution),
            (QualityFlag::Stolen, stolen, TAKEN + self.resolution / processors.max(1) as f64),
            (QualityFlag::Throttled, throttled, TAKEN),
        ];
        all.into_iter().filter(|(_, size, least)| size >= least).map(|(doubt, size, _)| (doubt, size))
    }

    /// The load, as profiles have it.
    fn into_load(mut self) -> Load {
        self.load.busiest.truncate(MOST_NAMED);
        self.load
    }

    pub(super) fn others_in_words(&self) -> String {
        let Load { others, processors, .. } = self.load;
        let most = match self.load.busiest.first() {
            Some(BusyProcess { name, pid, processors }) if *processors >= others / 4.0 => {
                format!("most: `{name}`, pid {pid}")
            }
            Some(_) => "many of them, each little".to_owned(),
            None => "none that can be seen from here".to_owned(),
        };
        let mut text = format!("{others:.2} of {processors} processors ({most}");
        if let Some(waited) = self.waited.filter(|share| *share >= 0.01) {
            text += &format!("; somebody waited for a processor {:.0} % of the time", waited * 100.0);
        }
        match self.put_off {
            0 => {}
            1 => text += "; this process had to give way once",
            times => text += &format!("; this process had to give way {times} times"),
        }
        text + ")"
    }
}

/// Returns the use by others between two moments; `None` if they are too close to tell, or nothing could be read.
pub(super) fn between(before: &Snapshot, after: &Snapshot) -> Option<Disturbance> {
    let wall = after.at.saturating_duration_since(before.at).as_secs_f64();
    if wall < SHORTEST || after.system.processors == 0 {
        return None;
    }
    let since = |before: f64, after: f64| (after - before).max(0.0);
    let used = |pid: &u32, process: &Process| {
        let earlier = before.processes.get(pid).filter(|earlier| earlier.started == process.started);
        since(earlier.map_or(0.0, |earlier| earlier.seconds), process.seconds)
    };
    // Children that still run are this process's own as well, and not yet in its own account.
    let (ours, others): (Vec<_>, Vec<_>) = after
        .processes
        .iter()
        .filter(|(pid, _)| **pid != after.pid)
        .partition(|(pid, _)| descends(**pid, after.pid, &after.processes));
    let children: f64 = ours.iter().map(|(pid, process)| used(pid, process)).sum();
    let own = since(before.seconds, after.seconds) + children;
    let (system, earlier) = (&after.system, &before.system);
    let mut busiest: Vec<BusyProcess> = others
        .into_iter()
        .map(|(pid, it)| BusyProcess { name: it.name.clone(), pid: *pid, processors: used(pid, it) / wall })
        .filter(|it| it.processors > 0.0)
        .collect();
    busiest.sort_by(|a, b| b.processors.total_cmp(&a.processors));
    let share = |before: Option<f64>, after: Option<f64>| Some(since(before?, after?) / wall);
    let load = Load {
        others: (since(earlier.busy, system.busy) - own).max(0.0) / wall,
        processors: system.processors,
        stolen: since(earlier.stolen, system.stolen) / wall / system.processors as f64,
        throttled: share(earlier.throttled, system.throttled).unwrap_or_default(),
        busiest,
    };
    Some(Disturbance {
        load,
        waited: share(earlier.waited, system.waited),
        put_off: after.put_off.saturating_sub(before.put_off),
        resolution: tick() / wall,
    })
}

fn descends(mut pid: u32, of: u32, processes: &BTreeMap<u32, Process>) -> bool {
    let parents = std::iter::from_fn(|| {
        pid = processes.get(&pid)?.parent;
        Some(pid)
    });
    // Bounded, should the kernel list a circle while processes come and go.
    parents.take(processes.len()).any(|parent| parent == of)
}

fn tick() -> f64 {
    1.0 / rustix::param::clock_ticks_per_second() as f64
}

impl Snapshot {
    /// Now; `None` where `/proc` tells nothing of the processors.
    pub(crate) fn here() -> Option<Snapshot> {
        let own = [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN];
        let snapshot = Snapshot {
            at: Instant::now(),
            system: System::read(Path::new("/")),
            pid: std::process::id(),
            seconds: own.iter().flat_map(|who| processor_times(*who)).sum(),
            put_off: own.iter().map(|who| usage(*who).ru_nivcsw.unsigned_abs()).sum(),
            processes: processes(Path::new("/")),
        };
        (snapshot.system.processors > 0).then_some(snapshot)
    }

    /// The load since then; `None` if that is too short, or nothing could be read.
    pub(crate) fn load(&self) -> Option<Load> {
        between(self, &Snapshot::here()?).map(Disturbance::into_load)
    }
}

impl System {
    fn read(root: &Path) -> System {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let mut system = System::of_stat(&text("proc/stat"));
        system.waited = waited(&text("proc/pressure/cpu"));
        // Of the second version of control groups alone; the first has a folder for each controller.
        let groups = text("proc/self/cgroup");
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let group = group.map(|group| format!("sys/fs/cgroup/{group}/cpu.stat"));
        let files = group.into_iter().chain(["sys/fs/cgroup/cpu.stat".to_owned()]);
        system.throttled = files.filter_map(|file| throttled(&text(&file))).next();
        system
    }

    /// From the text of `/proc/stat`: user, nice, system, idle, waiting for input, interrupts, soft interrupts, steal.
    fn of_stat(text: &str) -> System {
        let mut system = System::default();
        for (name, numbers) in text.lines().filter_map(|line| line.split_once(' ')) {
            if name == "cpu" {
                let ticks: Vec<f64> = numbers.split_whitespace().map_while(|it| it.parse().ok()).collect();
                let of = |at: usize| ticks.get(at).copied().unwrap_or_default() * tick();
                system.busy = [0, 1, 2, 5, 6].map(of).iter().sum();
                system.stolen = of(7);
            } else if name.strip_prefix("cpu").is_some_and(|at| at.parse::<u32>().is_ok()) {
                system.processors += 1;
            }
        }
        system
    }
}

/// From the text of `/proc/pressure/cpu`: seconds in which some process waited.
fn waited(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total = line.split_whitespace().find_map(|word| word.strip_prefix("total="))?;
    Some(total.parse::<f64>().ok()? / 1e6)
}

/// From the text of a control group's `cpu.stat`: seconds in which it was held back.
fn throttled(text: &str) -> Option<f64> {
    let number = text.lines().find_map(|line| line.strip_prefix("throttled_usec "))?;
    Some(number.trim().parse::<f64>().ok()? / 1e6)
}

fn processes(root: &Path) -> BTreeMap<u32, Process> {
    let entries = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, process(&fs::read(entry.path().join("stat")).ok()?)?))
    };
    entries.filter_map(process).collect()
}

/// From the bytes of `/proc/PID/stat`. The name stands in brackets and may hold anything, brackets included.
fn process(stat: &[u8]) -> Option<Process> {
    let text = String::from_utf8_lossy(stat);
    let (head, tail) = text.rsplit_once(')')?;
    // Any process can call itself anything; control characters could move a terminal's cursor.
    let name = head.split_once('(')?.1.replace(char::is_control, "?");
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // Counted from the field after the name: state, parent, …, user time, system time, …, start.
    let seconds = (number(11)? + number(12)?) as f64 * tick();
    Some(Process { name, parent: number(1)? as u32, seconds, started: number(19)? })
}

#[cfg(test)]
mod tests;
