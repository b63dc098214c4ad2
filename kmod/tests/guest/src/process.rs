//! Forking, waiting for and killing children.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;

use libtest_mimic::Failed;

/// A forked child, which is killed and waited for when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    id: i32,
    waited: bool,
}

/// The way a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i32),
    Signal(i32),
}

impl Child {
    /// Starts a child that runs `work` and ends with status 0, or prints the error and ends with status 1.
    pub(crate) fn spawn(work: impl FnOnce() -> Result<(), Failed>) -> io::Result<Child> {
        // SAFETY: the tests run on the main thread only, and a test's threads end before it forks, so no other thread
        // holds a lock.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let status = match catch_unwind(AssertUnwindSafe(work)) {
                    Ok(Ok(())) => 0,
                    Ok(Err(failed)) => {
                        eprintln!("a child: {}", failed.message().unwrap_or("failed"));
                        1
                    }
                    Err(_) => abort(),
                };
                // SAFETY: ends this process without the exit handlers, which only the parent may run.
                unsafe { libc::_exit(status) }
            }
            id => Ok(Child { id, waited: false }),
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> io::Result<End> {
        self.reap()
    }

    /// Waits for its end, which must be with status 0.
    pub(crate) fn succeed(self) -> Result<(), Failed> {
        match self.wait()? {
            End::Exit(0) => Ok(()),
            end => Err(format!("the child ended with {end:?}; what it said is above").into()),
        }
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(mut self) -> io::Result<End> {
        // SAFETY: a child that was not waited for, so its number is still valid.
        unsafe { libc::kill(self.id, libc::SIGKILL) };
        self.reap()
    }

    fn reap(&mut self) -> io::Result<End> {
        let mut status = 0;
        loop {
            // SAFETY: as above; writes the status to a local.
            if unsafe { libc::waitpid(self.id, &raw mut status, 0) } == self.id {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        self.waited = true;
        Ok(if libc::WIFSIGNALED(status) {
            End::Signal(libc::WTERMSIG(status))
        } else {
            End::Exit(libc::WEXITSTATUS(status))
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.waited {
            // SAFETY: as in `kill`.
            unsafe { libc::kill(self.id, libc::SIGKILL) };
            let _ = self.reap();
        }
    }
}
