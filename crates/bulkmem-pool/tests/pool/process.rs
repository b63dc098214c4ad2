//! Processes of tests: forked, and ended with the test. The tests run on one thread, so that a fork is complete.

use std::any::Any;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A channel between a test and its child.
pub(crate) struct Channel(UnixStream);

impl Channel {
    /// Closes all descriptors that this process has inherited, but the standard ones and this channel's: a tenant has none of
    /// the test's.
    fn close_others(&self) {
        let own = std::os::fd::AsRawFd::as_raw_fd(&self.0).unsigned_abs();
        for (from, to) in [(3, own - 1), (own + 1, u32::MAX)] {
            // SAFETY: the process uses none of them, and ends without destructors.
            unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
        }
    }

    pub(crate) fn send(&mut self, value: impl Serialize) {
        let text = serde_json::to_vec(&value).expect("a value of a test");
        let length = u32::try_from(text.len()).expect("a short value");
        self.0.write_all(&length.to_le_bytes()).expect("the other side lives");
        self.0.write_all(&text).expect("the other side lives");
    }

    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> T {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("the other side has not failed; its message is above");
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut text).expect("the other side lives");
        serde_json::from_slice(&text).expect("the value that the test expects")
    }
}

/// A child, killed when it is dropped.
pub(crate) struct Child {
    pid: Pid,
    status: Option<WaitStatus>,
    pub(crate) channel: Channel,
}

impl Child {
    /// Forks a process that runs a function and exits: with 0, or with 101 if the function panics.
    pub(crate) fn fork(run: impl FnOnce(&mut Channel)) -> Child {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        theirs.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        // SAFETY: the process has one thread, so every lock is free in the child.
        match unsafe { libc::fork() } {
            0 => {
                // Children of children end too, whatever they do.
                _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
                drop(ours);
                let mut channel = Channel(theirs);
                let result: Result<(), Box<dyn Any + Send>> =
                    catch_unwind(AssertUnwindSafe(|| run(&mut channel)));
                // SAFETY: ends the process without the destructors of what belongs to the parent.
                unsafe { libc::_exit(if result.is_ok() { 0 } else { 101 }) }
            }
            pid => {
                let pid = Pid::from_raw(pid).expect("fork succeeds");
                Child { pid, status: None, channel: Channel(ours) }
            }
        }
    }

    /// Forks a process of another user, without capabilities.
    pub(crate) fn of_user(user: u32, run: impl FnOnce(&mut Channel)) -> Child {
        Child::fork(|channel| {
            if user != 0 {
                bulkmem_pool::become_user(user, user).expect("the tests run as root");
                drop_capabilities();
                channel.close_others();
                // Changing the user has cleared both.
                rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
                    .expect("always possible");
                _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            }
            run(channel);
        })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn kill(&mut self) {
        if self.status.is_none() {
            _ = kill_process(self.pid, Signal::KILL);
            self.wait();
        }
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&mut self) -> WaitStatus {
        *self.status.get_or_insert_with(|| {
            waitpid(Some(self.pid), WaitOptions::empty()).expect("it is a child").expect("it has ended").1
        })
    }

    /// Returns true if the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            let ended = waitpid(Some(self.pid), WaitOptions::NOHANG).expect("it is a child");
            self.status = ended.map(|(_, status)| status);
        }
        self.status.is_some()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Drops all capabilities of this process.
pub(crate) fn drop_capabilities() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).expect("capabilities can be dropped");
}

/// Returns why this process lacks capabilities; `None` if it has them.
pub(crate) fn lacks(wanted: rustix::thread::CapabilitySet) -> Option<String> {
    let own = rustix::thread::capabilities(None).ok()?.effective;
    (!own.contains(wanted)).then(|| format!("needs {wanted:?}"))
}

/// Waits until a condition holds. Fails the test if it does not after 10,000 looks, 2 ms apart.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("waited in vain until {what}");
}
