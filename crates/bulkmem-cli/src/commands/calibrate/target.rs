//! The files that a calibration writes, their previous content, and what may replace it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkmem::Operation;
use bulkmem::machine::Machine;
use bulkmem_measure::calibration::{Profile, ProfileError};
use bulkmem_measure::{Kept, Merged, is_heavier_than, load_during, merge};
use bulkmem_output::{self, OutputFile, folder_of};

use super::lock::{Lock, cannot_write};
use crate::active_policy::policy_of;
use crate::failure::{Failure, chain};
use crate::provenance;
use crate::sink::free_name;

/// More bytes than a profile has, for checking before measuring that there is room.
const ROOM: usize = 1 << 20;
/// Duration of measuring the load before a calibration: the kernel counts it in ticks of 10 ms.
const LOAD_TIME: Duration = Duration::from_millis(300);
const POLICY_START: &[u8; 15] = b"bulkmem-policy ";

/// The profile and the policy file to write, locked.
#[derive(Debug)]
pub(super) struct Target {
    /// The profile, symbolic links resolved.
    path: PathBuf,
    /// The policy file, which programs load: next to the name that was given.
    policy: PathBuf,
    previous: Previous,
    /// True if rules that were measured under a lighter load may be replaced.
    force: bool,
    backup: Option<PathBuf>,
    policy_kept: bool,
    /// The file for measurements that may not replace the previous profile.
    unmerged: Option<PathBuf>,
    _lock: Lock,
}

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
    /// The profile and its file; `None` if it is unchanged.
    pub(super) written: Option<(PathBuf, Profile)>,
    /// The copy of the previous profile.
    pub(super) backup: Option<PathBuf>,
    /// The operations whose new measurements are not in the file.
    kept: Vec<(Operation, Kept)>,
    pub(super) unmerged: Option<Unmerged>,
}

/// Measurements that may not replace the previous profile, in a file next to it.
#[derive(Debug)]
pub(super) struct Unmerged {
    pub(super) path: PathBuf,
    pub(super) why: String,
    pub(super) help: &'static str,
}

impl Saved {
    /// Returns the names of the operations that were kept for this reason, separated by commas.
    pub(super) fn kept_because(&self, reason: Kept) -> String {
        let kept = self.kept.iter().filter(|(_, why)| *why == reason);
        kept.map(|(operation, _)| operation.name()).collect::<Vec<_>>().join(", ")
    }
}

impl Target {
    /// Checks that the files can be written, locks them, and reads the previous profile.
    ///
    /// # Errors
    /// If one cannot be written, is another kind of file, or is being calibrated by another process.
    pub(super) fn open(path: &Path, force: bool) -> Result<Target, Failure> {
        let failed = |error: io::Error| cannot_write(path, error);
        match fs::create_dir_all(folder_of(path)) {
            // The next step reports that it is not a directory.
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
            // A calibration that was killed between writing the two files left an older policy file.
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

    /// Fails if the load is so heavy that none of the previous rules for these operations would be replaced.
    pub(super) fn refuse_heavier_load(&self, operations: &[Operation]) -> Result<(), Failure> {
        let Previous::Usable(old) = &self.previous else { return Ok(()) };
        if self.force {
            return Ok(());
        }
        match load_during(LOAD_TIME) {
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

    /// Saves the measurements so far: merged into the previous profile, or next to it.
    pub(super) fn save(&mut self, measured: &Profile) -> Result<Saved, Failure> {
        let Merged { profile, kept, changed } = match &self.previous {
            Previous::Usable(old) => merge(old, measured, self.force),
            Previous::Other(why) if !measured.coverage.complete => {
                let unmerged = Unmerged {
                    why: format!("it cannot be used: {why}"),
                    help: "calibrate all operations, which replaces it, or name another file: --output FILE",
                    path: self.save_unmerged("partial", measured)?,
                };
                return Ok(Saved { written: None, backup: None, kept: Vec::new(), unmerged: Some(unmerged) });
            }
            Previous::None | Previous::Other(_) => {
                Merged { profile: measured.clone(), kept: Vec::new(), changed: true }
            }
        };
        if changed {
            if self.backup.is_none() && self.has_previous() {
                self.backup = Some(back_up(&self.path)?);
            }
            save_profile(&self.path, &profile)?;
        }
        if !self.policy_kept && self.policy.exists() && !has_policy_of(&self.policy, &profile) {
            back_up(&self.policy)?;
            self.policy_kept = true;
        }
        save_policy(&self.policy, &profile)?;
        let written = changed.then(|| (self.path.clone(), profile));
        Ok(Saved { written, backup: self.backup.clone(), kept, unmerged: None })
    }

    /// Saves the finished calibration; next to the profile, if a part was measured under a heavier load.
    pub(super) fn finish(&mut self, measured: &Profile) -> Result<Saved, Failure> {
        let mut saved = self.save(measured)?;
        let heavier = saved.kept_because(Kept::Quieter);
        if !heavier.is_empty() {
            saved.unmerged = Some(Unmerged {
                why: format!("{heavier} was measured under a heavier load than before"),
                help: "stop other processes and calibrate again, or replace it anyway: --force",
                path: self.save_unmerged("under-load", measured)?,
            });
        } else if saved.written.is_some()
            && let Some(partial) = self.unmerged.take()
        {
            // The complete calibration replaced the profile that this could not be merged with.
            fs::remove_file(&partial).map_err(|error| cannot_write(&partial, error))?;
        }
        Ok(saved)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn has_previous(&self) -> bool {
        !matches!(self.previous, Previous::None)
    }

    fn save_unmerged(&mut self, word: &str, measured: &Profile) -> Result<PathBuf, Failure> {
        let unmerged = self.unmerged.get_or_insert_with(|| free_name(&self.path, word));
        save_profile(unmerged, measured)?;
        Ok(unmerged.clone())
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

/// Checks that a path names a policy file, or none, and not the profile.
fn check_policy(path: &Path, profile: &OutputFile) -> Result<(), Failure> {
    if regular(path)?.replaces_the_same_as(profile) {
        return Err(cannot_write(path, "it is the same file as the profile, which ends in .json"));
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

/// Returns the name of the copy of a previous file.
fn old_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    PathBuf::from(name)
}

/// Copies a previous file, and returns the path of the copy.
fn back_up(path: &Path) -> Result<PathBuf, Failure> {
    let copy = old_name(path);
    let copied = fs::read(path).and_then(|bytes| bulkmem_output::write(&copy, &bytes));
    copied.map_err(|error| cannot_write(&copy, error))?;
    Ok(copy)
}

/// Writes the policy file of a profile, unless it is there already.
fn save_policy(path: &Path, profile: &Profile) -> Result<(), Failure> {
    if has_policy_of(path, profile) {
        return Ok(());
    }
    bulkmem_output::write(path, profile.policy_text().as_bytes()).map_err(|error| cannot_write(path, error))
}

fn has_policy_of(path: &Path, profile: &Profile) -> bool {
    fs::read(path).is_ok_and(|text| text == profile.policy_text().as_bytes())
}

fn save_profile(path: &Path, profile: &Profile) -> Result<(), Failure> {
    profile.save(path).map_err(|error| cannot_write(path, chain(&error)))
}
