//! Children: forked, waited for, killed.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;

use libtest_mimic::Failed;

/// A forked child. It is killed, and waited for, when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    id: i32,
    waited: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i32),
    Signal(i32),
}

impl Child {
    /// A child that does `work` and ends: with status 0, or 1 where the work failed, which it says.
    pub(crate) fn spawn(work: impl FnOnce() -> Result<(), Failed>) -> io::Result<Child> {
        // SAFETY: the tests run on the main thread alone, and threads that a test starts have ended before it forks; so
        // the child finds no lock that somebody else holds.
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
                // SAFETY: ends this process, without what only the parent may do at its end.
                unsafe { libc::_exit(status) }
            }
            id => Ok(Child { id, waited: false }),
        }
    }

    /// Waits until it ends.
    pub(crate) fn wait(mut self) -> io::Result<End> {
        self.reap()
    }

    /// Waits until it ends, which it must with status 0.
    pub(crate) fn succeed(self) -> Result<(), Failed> {
        match self.wait()? {
            End::Exit(0) => Ok(()),
            end => Err(format!("the child ended with {end:?}; what it said is above").into()),
        }
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(mut self) -> io::Result<End> {
        // SAFETY: a child of ours that was not waited for, so that its number is still its own.
        unsafe { libc::kill(self.id, libc::SIGKILL) };
        self.reap()
    }

    fn reap(&mut self) -> io::Result<End> {
        let mut status = 0;
        loop {
            // SAFETY: as above; the status is written to a local.
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
