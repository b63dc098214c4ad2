//! Compares a call with `Workers` on two processors with two processes of one thread each, which do not wait for each other.
//!
//! Prints the speed of clears of the same memory again and again, GB/s: medians of interleaved rounds, and the median of the
//! rounds' ratios with its quartiles. Each process clears half of the length.
//!
//! `cargo run --release -p bulkmem --example workers [ROUNDS]`

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bulkmem::{Mapping, Options, Pages, Workers};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const LENGTHS: [usize; 7] = [256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB];
/// How long each takes its turn.
const TURN: Duration = Duration::from_millis(60);

/// Clears memory again and again for a turn; returns GB/s.
fn speed(memory: &mut [u8], options: &Options<'_>) -> f64 {
    let start = Instant::now();
    let mut bytes = 0;
    while start.elapsed() < TURN {
        // The clock is read once for each MiB or more.
        for _ in 0..MIB.div_ceil(memory.len()) {
            options.clear(memory);
            bytes += memory.len();
        }
    }
    bytes as f64 / start.elapsed().as_nanos() as f64
}

fn pin(processor: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set)
}

/// A process of one thread. For each line that it reads, it works for one turn and prints its speed.
fn work_alone(processor: usize, length: usize) -> Result<(), Box<dyn Error>> {
    pin(processor)?;
    let mut memory = Mapping::new(length, Pages::Transparent)?;
    memory.fill(1);
    println!("ready");
    for line in std::io::stdin().lines() {
        line?;
        println!("{}", speed(&mut memory, &Options::new()));
    }
    Ok(())
}

struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(processor: usize, length: usize) -> Result<Process, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["alone", &processor.to_string(), &length.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut process = Process { child, output };
        process.read()?;
        Ok(process)
    }

    fn read(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("a process ended early: see above".into()),
            _ => Ok(line),
        }
    }

    fn begin(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(self.child.stdin.as_mut().ok_or("no pipe")?.write_all(b"\n")?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.child.stdin.take());
        _ = self.child.wait();
    }
}

/// The value below which a share of the values lie.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

fn compare(processors: [usize; 2], length: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let workers = Workers::pinned(&processors[1..])?;
    let together = Options::new().workers(&workers);
    let mut memory = Mapping::new(length, Pages::Transparent)?;
    memory.fill(1);
    let [first, second] = processors.map(|processor| Process::start(processor, length / 2));
    let mut processes = [first?, second?];
    let (mut one, mut both, mut apart, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        one.push(speed(&mut memory, &Options::new()));
        let mut sum = 0.0;
        // Each of them comes first in every second round.
        for turn in 0..2 {
            if turn == round % 2 {
                both.push(speed(&mut memory, &together));
            } else {
                processes.iter_mut().try_for_each(Process::begin)?;
                for process in &mut processes {
                    sum += process.read()?.trim().parse::<f64>()?;
                }
                apart.push(sum);
            }
        }
        ratios.push(both[round] / apart[round]);
    }
    let [one, both, apart] = [&mut one, &mut both, &mut apart].map(|speeds| quantile(speeds, 0.5));
    let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| quantile(&mut ratios, share));
    let length = format!("{} KiB", length / KIB);
    println!("{length:>12} {one:>10.1} {both:>10.1} {apart:>14.1} {middle:>8.2} ({low:.2}–{high:.2})");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["alone", processor, length] => return work_alone(processor.parse()?, length.parse()?),
        [rounds] => rounds.parse::<usize>()?.max(1),
        _ => 15,
    };
    let allowed = sched_getaffinity(None)?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    let &[first, second, ..] = allowed.as_slice() else {
        return Err("this process may use one processor only; two are needed".into());
    };
    pin(first)?;
    println!(
        "{:>12} {:>10} {:>10} {:>14} {:>8}",
        "length", "one thread", "Workers", "two processes", "ratio"
    );
    LENGTHS.into_iter().try_for_each(|length| compare([first, second], length, rounds))
}
