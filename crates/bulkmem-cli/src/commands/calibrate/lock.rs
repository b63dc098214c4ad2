//! A lock that allows one calibration of a profile at a time.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A lock on a profile: the file `profile.json.lock` next to it, which holds the process id. It is locked with flock(2),
/// which ends with the process; a file that a killed process left behind locks nothing.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock.
    ///
    /// # Errors
    /// If another process has it, with its process id, or if the file cannot be created.
    pub(super) fn take(profile: &Path) -> Result<Lock, Failure> {
        let mut path = profile.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            let mut file = open(&path).map_err(|error| cannot_write(profile, error))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(running(profile, &mut file)),
                Err(TryLockError::Error(error)) => return Err(cannot_write(profile, error)),
            }
            // The previous holder may have removed the file after it was opened here.
            if is_at(&file, &path) {
                let pid = std::process::id();
                let written = file.set_len(0).and_then(|()| file.write_all(format!("{pid}\n").as_bytes()));
                written.map_err(|error| cannot_write(profile, error))?;
                return Ok(Lock { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It is removed while it is locked; a file that stays locks nothing.
        _ = fs::remove_file(&self.path);
    }
}

/// Opens the file, which no other user can open: they could lock it too.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(path)) => (file.dev(), file.ino()) == (path.dev(), path.ino()),
        _ => false,
    }
}

fn running(profile: &Path, file: &mut File) -> Failure {
    let mut text = String::new();
    _ = file.take(32).read_to_string(&mut text);
    let profile = profile.display();
    match text.trim().parse::<u32>() {
        Ok(pid) => Failure::new(format!("a calibration of {profile} is already running: process {pid}"))
            .help(format!("wait until it ends, or end it: kill {pid}")),
        Err(_) => {
            Failure::new(format!("a calibration of {profile} is already running")).help("wait until it ends")
        }
    }
}

/// Returns the error for a file of a calibration that cannot be written.
pub(super) fn cannot_write(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot write the profile {}: {why}", path.display())).help(
        "name a file you may write: bulkmem calibrate --output FILE.json; BULKMEM_PROFILE=FILE.policy makes programs use it",
    )
}
