//! One calibration of a profile at a time.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::cannot_write;
use crate::failure::Failure;

/// A lock on a profile: a file next to it, `profile.json.lock`, which holds the process id. The lock is flock(2)'s, and
/// ends with the process, however that ends; a file that a killed process left locks nothing.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock.
    ///
    /// # Errors
    /// If another process has it, with its process id, or if the file cannot be made.
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
            // The holder before may have removed the file after it was opened here.
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
        // Removed while it is locked. One that stays locks nothing.
        _ = fs::remove_file(&self.path);
    }
}

/// No other user can open it: a lock needs no permission to write.
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
