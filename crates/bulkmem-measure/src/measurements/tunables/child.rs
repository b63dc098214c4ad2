//! The processes that measure: the C library reads its tunables at the start of a program, so each setting needs a process.
//!
//! A process reads the size of its memory and its processor from the first line, and answers with the size of its pages.
//! Each further line is a configuration, and the answer is the time of one operation in it. The end of its input ends it.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bulkmem::machine::Machine;
use bulkmem::policy::Choice;
use bulkmem::{Operation, Pages, method};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::listing::VARIABLE;
use crate::engine::{
    Alignment, Arena, CacheState, Cell, Condition, Config, Cost, Implementation, MeasureError, Result,
    Workloads, memory_left, workload,
};

/// The variable that is set for processes that measure.
pub const PROCESS: &str = "BULKMEM_TUNABLES_PROCESS";

/// The distance of destination and source modulo 4096 of copies that page aliasing may slow down, bytes.
const ALIASED_DISTANCE: usize = 8;

/// A process that measures, and its pipes.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a command with a value of `GLIBC_TUNABLES`.
    pub(super) fn start(command: &[OsString], tunables: &str) -> Result<Process> {
        let (program, arguments) = command.split_first().expect("a command has a program");
        let mut command = Command::new(program);
        // Only the C library's own functions are measured.
        command.args(arguments).env(PROCESS, "1").env(VARIABLE, tunables).env_remove("LD_PRELOAD");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C stops `bulkmem tunables`, which then ends its processes.
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        let (requests, answers) = child.stdin.take().zip(child.stdout.take()).expect("both are piped");
        Ok(Process { child, requests, answers: BufReader::new(answers) })
    }

    /// Sends a request and waits for the answer.
    pub(super) fn request(&mut self, request: &impl Serialize) -> Result<f64> {
        let line = serde_json::to_string(request).map_err(|error| failed(error.into()))? + "\n";
        let mut answer = String::new();
        let sent = self.requests.write_all(line.as_bytes());
        match sent.and_then(|()| self.answers.read_line(&mut answer)) {
            Ok(1..) => {
                answer.trim().parse().map_err(|_| failed(io::Error::other(format!("it wrote {answer:?}"))))
            }
            _ => Err(self.ended()),
        }
    }

    /// The error of a process that ended.
    fn ended(&mut self) -> MeasureError {
        let mut text = String::new();
        _ = self.child.kill();
        _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        failed(io::Error::other(format!("it ended early ({status}): {}", text.trim())))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn failed(source: io::Error) -> MeasureError {
    MeasureError::System { doing: "measure in a process with other tunables", source }
}

/// Answers the requests of `bulkmem tunables`, until they end.
///
/// # Errors
/// If there is not enough memory, or a line is not a request.
pub fn answer_requests(requests: impl BufRead, mut answers: impl Write) -> Result<()> {
    let mut lines = requests.lines();
    let Some(first) = lines.next() else { return Ok(()) };
    let (side, processor): (u64, usize) = read(first)?;
    let neighbour = workload::second_level(Machine::current());
    let arena = Arena::new(side, neighbour, Pages::Transparent, Duration::MAX)?;
    if arena.longest() < side {
        return Err(MeasureError::Memory { needed: 2 * side, left: memory_left() });
    }
    // On one processor, all processes have the same caches and the same clock.
    let mut processors = CpuSet::new();
    processors.set(processor);
    sched_setaffinity(None, &processors).map_err(|error| failed(error.into()))?;
    let mut answer =
        |answer: f64| writeln!(answers, "{answer}").and_then(|()| answers.flush()).map_err(failed);
    answer(arena.backing_page_size() as f64)?;
    let library = Choice::of(method::c_library(), Operation::Copy);
    let mut workloads = Workloads::new(Instant::now(), arena, Rc::default());
    for line in lines {
        let config: Config = read(line)?;
        let operation = config.operation.unwrap_or(Operation::Copy);
        let length = config.size.unwrap_or_default().min(side);
        if config.alignment == Some(Alignment::PageAliased) {
            answer(workloads.copy_at(&library, length as usize, ALIASED_DISTANCE))?;
            continue;
        }
        let aligned = config.alignment != Some(Alignment::Unaligned);
        let condition = Condition::new(aligned, config.cache == Some(CacheState::Warm), 1);
        let cost = Cost::of(config.intent.unwrap_or_default());
        let cell = Cell::new(operation, cost, length, condition);
        let c_library = Implementation::Method(Choice::of(method::c_library(), operation));
        // Other processes have used the caches since: the first sample is a warm-up.
        workloads.sample(&cell, &c_library)?;
        answer(workloads.sample(&cell, &c_library)?.ns)?;
    }
    Ok(())
}

fn read<R: DeserializeOwned>(line: io::Result<String>) -> Result<R> {
    serde_json::from_str(&line.map_err(failed)?).map_err(|error| failed(error.into()))
}
