//! The profile that a calibration writes: what was there before, and what may replace it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkmem::Operation;
use bulkmem::machine::Machine;
use bulkmem_measure::calibration::{Profile, ProfileError};
use bulkmem_measure::{Kept, Merged, is_heavier_than, load_during, merge};
use bulkmem_output::{self, OutputFile, folder_of};

use super::cannot_write;
use super::lock::Lock;
use crate::active_policy::policy_of;
use crate::failure::{Failure, chain};
use crate::provenance;
use crate::sink::free_name;

/// More than a profile takes: whether there is room is found out before measuring.
const ROOM: usize = 1 << 20;
/// How long the load is measured before a calibration: the kernel counts it in ticks of 10 ms.
const LOOK: Duration = Duration::from_millis(300);

/// Every policy file starts with this.
const POLICY_START: &[u8; 15] = b"bulkmem-policy ";

/// The file to write, locked.
#[derive(Debug)]
pub(super) struct Target {
    /// The evidence, symbolic links resolved.
    path: PathBuf,
    /// The policy file, which programs load: next to the name that was given.
    policy: PathBuf,
    previous: Previous,
    /// True if a heavier load is no reason to keep the previous rules.
    force: bool,
    backup: Option<PathBuf>,
    policy_kept: bool,
    /// The file for measurements that may not replace the previous profile.
    unmerged: Option<PathBuf>,
    _lock: Lock,
}

/// The profile that is there already.
#[derive(Debug)]
enum Previous {
    None,
    /// Of this machine.
    Usable(Box<Profile>),
    /// Damaged, or of another machine or version: why it cannot be merged with.
    Other(String),
}

/// The result of saving a calibration.
#[derive(Debug)]
pub(super) struct Saved {
    /// The file, with its content; `None` if it is unchanged.
    pub(super) written: Option<(PathBuf, Profile)>,
    /// The copy of the profile before.
    pub(super) backup: Option<PathBuf>,
    /// The operations whose new measurements are not in the file.
    pub(super) kept: Vec<(Operation, Kept)>,
    /// The measurements that could not be merged.
    pub(super) unmerged: Option<Unmerged>,
}

/// Measurements that may not replace the previous profile, in a file next to it.
#[derive(Debug)]
pub(super) struct Unmerged {
    pub(super) path: PathBuf,
    /// Why they may not.
    pub(super) why: String,
    /// How they could.
    pub(super) help: &'static str,
}

impl Target {
    /// Checks that the profile can be written, locks it, and reads what is there.
    ///
    /// # Errors
    /// If it cannot be written, is another kind of file, or is being calibrated by another process.
    pub(super) fn open(path: &Path, force: bool) -> Result<Target, Failure> {
        let failed = |error: io::Error| cannot_write(path, error);
        match fs::create_dir_all(folder_of(path)) {
            // The next step says that it is not a directory.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let file = OutputFile::open(path).map_err(failed)?;
        let Some(target) = file.regular() else {
            return Err(cannot_write(path, "it is not a regular file"));
        };
        file.check(ROOM).map_err(failed)?;
        let policy = policy_of(path);
        check_policy(&policy, &file)?;
        for backup in [old_name(target), old_name(&policy)] {
            regular(&backup)?;
        }
        let lock = Lock::take(target)?;
        let previous = Previous::load(target)?;
        if let Previous::Usable(old) = &previous {
            // A calibration that was killed between the two files left the policy file of the one before.
            save_policy(&policy, old)?;
        }
        Ok(Target {
            previous,
            path: target.to_owned(),
            policy,
            force,
            backup: None,
            policy_kept: false,
            unmerged: None,
            _lock: lock,
        })
    }

    /// Refuses to measure operations under a load so heavy that none of the previous rules would be replaced.
    pub(super) fn refuse_heavier_load(&self, operations: &[Operation]) -> Result<(), Failure> {
        let Previous::Usable(old) = &self.previous else { return Ok(()) };
        if self.force {
            return Ok(());
        }
        match load_during(LOOK) {
            Some(load) if is_heavier_than(&load, old, operations) => Err(Failure::new(format!(
                "other processes use {}; {} was measured under a lighter load",
                provenance::load(&load),
                self.path.display()
            ))
            .help(
                "stop them, or calibrate when the machine is idle; --force calibrates and replaces it now",
            )),
            _ => Ok(()),
        }
    }

    /// Saves what is measured by now: merged into the previous profile, or next to it.
    pub(super) fn save(&mut self, measured: &Profile) -> Result<Saved, Failure> {
        let whole = |profile: &Profile| Merged { profile: profile.clone(), kept: Vec::new(), changed: true };
        let merged = match &self.previous {
            Previous::None => whole(measured),
            Previous::Usable(old) => merge(old, measured, self.force),
            Previous::Other(_) if measured.coverage.complete => whole(measured),
            Previous::Other(why) => {
                let unmerged = Unmerged {
                    why: format!("the one there cannot be used: {why}"),
                    help: "calibrate all operations, which replaces it, or name another file: --output FILE",
                    path: self.save_unmerged("partial", measured)?,
                };
                return Ok(Saved { written: None, backup: None, kept: Vec::new(), unmerged: Some(unmerged) });
            }
        };
        if merged.changed {
            self.back_up()?;
            save_profile(&self.path, &merged.profile)?;
        }
        // Also if the profile is from before there were policy files.
        self.back_up_policy(&merged.profile)?;
        save_policy(&self.policy, &merged.profile)?;
        Ok(Saved {
            written: merged.changed.then(|| (self.path.clone(), merged.profile)),
            backup: self.backup.clone(),
            kept: merged.kept,
            unmerged: None,
        })
    }

    /// Saves the finished calibration; all of it next to the profile, if a part was measured under a heavier load.
    pub(super) fn finish(&mut self, measured: &Profile) -> Result<Saved, Failure> {
        let mut saved = self.save(measured)?;
        let heavier: Vec<&str> = saved
            .kept
            .iter()
            .filter(|(_, why)| *why == Kept::Quieter)
            .map(|(operation, _)| operation.name())
            .collect();
        if !heavier.is_empty() {
            saved.unmerged = Some(Unmerged {
                why: format!("{} was measured under a heavier load than before", heavier.join(", ")),
                help: "stop other processes and calibrate again, or take it over all the same: --force",
                path: self.save_unmerged("under-load", measured)?,
            });
        } else if saved.written.is_some()
            && let Some(partial) = self.unmerged.take()
        {
            // Now complete, it replaced the profile that it could not be merged with.
            fs::remove_file(&partial).map_err(|error| cannot_write(&partial, error))?;
        }
        Ok(saved)
    }

    /// The file, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True if there was a profile before.
    pub(super) fn has_previous(&self) -> bool {
        !matches!(self.previous, Previous::None)
    }

    fn save_unmerged(&mut self, word: &str, measured: &Profile) -> Result<PathBuf, Failure> {
        let unmerged = self.unmerged.get_or_insert_with(|| free_name(&self.path, word));
        save_profile(unmerged, measured)?;
        Ok(unmerged.clone())
    }

    /// Keeps a copy of the previous profile, once.
    fn back_up(&mut self) -> Result<(), Failure> {
        if self.backup.is_some() || !self.has_previous() {
            return Ok(());
        }
        let backup = old_name(&self.path);
        copy(&self.path, &backup)?;
        self.backup = Some(backup);
        Ok(())
    }
}

impl Target {
    /// Keeps a copy of the previous policy file, once.
    fn back_up_policy(&mut self, next: &Profile) -> Result<(), Failure> {
        if self.policy_kept || !self.policy.exists() || has_policy_of(&self.policy, next) {
            return Ok(());
        }
        self.policy_kept = true;
        copy(&self.policy, &old_name(&self.policy))
    }
}

impl Previous {
    fn load(path: &Path) -> Result<Previous, Failure> {
        let checked = Profile::load(path).and_then(|profile| {
            profile.check(Machine::current())?;
            Ok(profile)
        });
        match checked {
            Ok(profile) => Ok(Previous::Usable(Box::new(profile))),
            Err(ProfileError::Missing) => Ok(Previous::None),
            Err(error @ ProfileError::Format) => Err(cannot_write(path, chain(&error))),
            Err(_) if fs::metadata(path).is_ok_and(|about| about.len() == 0) => Ok(Previous::None),
            Err(error) => Ok(Previous::Other(chain(&error))),
        }
    }
}

/// Checks that a path names a regular file or nothing.
fn regular(path: &Path) -> Result<OutputFile, Failure> {
    // Opening a FIFO would wait for its reader.
    if fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(cannot_write(path, "it is not a regular file"));
    }
    match OutputFile::open(path) {
        Ok(file) if file.regular().is_some() => Ok(file),
        Ok(_) => Err(cannot_write(path, "it is not a regular file")),
        Err(error) => Err(cannot_write(path, error)),
    }
}

/// Checks that a policy file may be written: that the path names one, or nothing, and not the evidence.
fn check_policy(path: &Path, evidence: &OutputFile) -> Result<(), Failure> {
    if regular(path)?.replaces_the_same_as(evidence) {
        return Err(cannot_write(path, "it is the same file as the evidence, which ends in .json"));
    }
    let mut start = [0; POLICY_START.len()];
    let read = File::open(path).and_then(|mut file| {
        let empty = file.metadata()?.len() == 0;
        if empty { Ok(()) } else { file.read_exact(&mut start) }
    });
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(cannot_write(path, error)),
        _ if start == *POLICY_START || start.iter().all(|byte| *byte == 0) => Ok(()),
        _ => Err(cannot_write(path, "it is not a policy file, and would be overwritten")),
    }
}

/// The name of the copy of the file before.
fn old_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    PathBuf::from(name)
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let copied = fs::read(from).and_then(|bytes| bulkmem_output::write(to, &bytes));
    copied.map_err(|error| cannot_write(to, error))
}

/// Writes what programs load, unless it is there already.
fn save_policy(path: &Path, profile: &Profile) -> Result<(), Failure> {
    if has_policy_of(path, profile) {
        return Ok(());
    }
    bulkmem_output::write(path, profile.policy_text().as_bytes()).map_err(|error| cannot_write(path, error))
}

fn has_policy_of(path: &Path, profile: &Profile) -> bool {
    fs::read(path).is_ok_and(|text| text == profile.policy_text().as_bytes())
}

/// Writes the evidence.
fn save_profile(path: &Path, profile: &Profile) -> Result<(), Failure> {
    profile.save(path).map_err(|error| cannot_write(path, chain(&error)))
}
