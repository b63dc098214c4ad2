//! The files that a calibration writes, their previous content, and what may replace it.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkmem::Operation;
use bulkmem::machine::Machine;
use bulkmem_measure::calibration::{Profile, ProfileError};
use bulkmem_measure::{Kept, Merged, is_heavier_than, load_during, merge};
use bulkmem_output::{self, OutputFile, folder_of};
use serde_json::Value;

use crate::active_policy::policy_of;
use crate::failure::{Failure, chain};
use crate::output::exact_size;
use crate::provenance;
use crate::sink::free_name;

/// More bytes than a profile has, for checking before measuring that there is room.
const ROOM: usize = 1 << 20;
/// Duration of measuring the load before a calibration: the kernel counts it in ticks of 10 ms.
const LOAD_TIME: Duration = Duration::from_millis(300);
const POLICY_START: &[u8] = b"bulkmem-policy ";

/// The profile and the policy file to write, locked.
#[derive(Debug)]
pub(super) struct Target {
    /// The profile, symbolic links resolved.
    pub(super) path: PathBuf,
    /// The policy file, which programs load: next to the name that was given.
    policy: PathBuf,
    /// The previous profile; if it is damaged, or of another machine or version: why it cannot be merged with.
    pub(super) previous: Option<Result<Profile, String>>,
    /// True if any rules may be replaced.
    force: bool,
    /// The copy of the previous profile.
    pub(super) backup: Option<PathBuf>,
    backed_up: bool,
    /// The file for measurements that may not replace the previous profile.
    unmerged: Option<PathBuf>,
    _lock: Lock,
}

#[derive(Debug, Default)]
pub(super) struct Saved {
    /// The content of the profile; `None` if it is unchanged.
    pub(super) written: Option<Profile>,
    /// The operations whose new measurements are not in the file.
    pub(super) kept: Vec<(Operation, Kept)>,
    /// The file next to the profile with measurements that may not replace it, and the reason.
    pub(super) unmerged: Option<(PathBuf, Failure)>,
}

impl Saved {
    /// Returns the names of the operations that were kept for this reason, separated by commas.
    pub(super) fn kept_because(&self, reason: Kept) -> String {
        let kept = self.kept.iter().filter(|(_, why)| *why == reason);
        kept.map(|(operation, _)| operation.name()).collect::<Vec<_>>().join(", ")
    }
}

impl Target {
    /// Checks that the files can be written, locks them, and reads the previous profile. Unless `force`, fails also if that has
    /// rules for greater lengths than `longest`, or the load is so heavy that none of its rules for these operations would be
    /// replaced.
    pub(super) fn open(
        given: &Path,
        operations: &[Operation],
        longest: Option<u64>,
        force: bool,
    ) -> Result<Target, Failure> {
        match fs::create_dir_all(folder_of(given)) {
            // The next step reports that it is not a directory.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(cannot_write(given, error));
            }
            _ => {}
        }
        let (file, path) = regular(given)?;
        file.check(ROOM).map_err(|error| cannot_write(given, error))?;
        let policy = policy_of(given);
        check_policy(&policy, &file)?;
        for previous in [&path, &policy] {
            regular(&previous.with_added_extension("old"))?;
        }
        let _lock = Lock::take(&path)?;
        spare_the_processors(&path, &policy, Machine::current().emulator.as_deref())?;
        let previous = previous(&path)?;
        if let Some(Ok(old)) = &previous {
            // A calibration that was killed between writing the two files left an older policy file.
            save_policy(&policy, old)?;
            if let Some(longest) = longest.filter(|_| !force) {
                keep_greater_lengths(&path, old, operations, longest)?;
            }
            let load = if force { None } else { load_during(LOAD_TIME) };
            if let Some(load) = load.filter(|load| is_heavier_than(load, old, operations)) {
                let (load, path) = (provenance::load(&load), path.display());
                let error = format!("other processes use {load}; {path} was measured under a lighter load");
                return Err(Failure::new(error).help(
                    "stop them, or calibrate when the machine is idle; --force calibrates and replaces it now",
                ));
            }
        }
        let (backup, unmerged) = (None, None);
        Ok(Target { path, policy, previous, force, backup, backed_up: false, unmerged, _lock })
    }

    /// Saves the measurements so far: merged into the previous profile, or next to it.
    pub(super) fn save(&mut self, measured: &Profile) -> Result<Saved, Failure> {
        let Merged { profile, kept, changed } = match &self.previous {
            Some(Ok(old)) => merge(old, measured, self.force),
            Some(Err(why)) if !measured.coverage.complete => {
                let why = format!("it cannot be used: {why}");
                let help = "calibrate all operations, which replaces it, or name another file: --output FILE";
                let unmerged = Some(self.set_aside("partial", measured, &why, help)?);
                return Ok(Saved { unmerged, ..Saved::default() });
            }
            _ => Merged { profile: measured.clone(), kept: Vec::new(), changed: true },
        };
        if !changed {
            return Ok(Saved { kept, ..Saved::default() });
        }
        if !self.backed_up {
            self.backup = self.previous.is_some().then(|| back_up(&self.path)).transpose()?;
            if self.policy.exists() {
                back_up(&self.policy)?;
            }
            self.backed_up = true;
        }
        save_profile(&self.path, &profile)?;
        save_policy(&self.policy, &profile)?;
        Ok(Saved { written: Some(profile), kept, unmerged: None })
    }

    /// Saves the finished calibration; next to the profile, if a part was measured under a heavier load.
    pub(super) fn finish(&mut self, measured: &Profile) -> Result<Saved, Failure> {
        let mut saved = self.save(measured)?;
        let heavier = saved.kept_because(Kept::Quieter);
        if !heavier.is_empty() {
            let why = format!("{heavier} was measured under a heavier load than before");
            let help = "stop other processes and calibrate again, or replace it anyway: --force";
            saved.unmerged = Some(self.set_aside("under-load", measured, &why, help)?);
        } else if saved.written.is_some()
            && let Some(partial) = self.unmerged.take()
        {
            // The complete calibration replaced the profile that this could not be merged with.
            fs::remove_file(&partial).map_err(|error| cannot_write(&partial, error))?;
        }
        Ok(saved)
    }

    /// Saves measurements that may not replace the profile next to it. Returns the file and the reason.
    fn set_aside(
        &mut self,
        word: &str,
        measured: &Profile,
        why: &str,
        help: &str,
    ) -> Result<(PathBuf, Failure), Failure> {
        let path = self.unmerged.get_or_insert_with(|| free_name(&self.path, word));
        save_profile(path, measured)?;
        let error = format!("the profile was not replaced by {}: {why}", path.display());
        Ok((path.clone(), Failure::new(error).help(help)))
    }
}

/// Fails under an emulator if one of the files was measured on the processor: not even a calibration of all operations replaces
/// rules that programs use by rules that they refuse. Looks at the text, because files of another processor or version cannot
/// be loaded.
fn spare_the_processors(profile: &Path, policy: &Path, emulator: Option<&str>) -> Result<(), Failure> {
    let Some(emulator) = emulator else { return Ok(()) };
    let in_profile = |text: &str| {
        let profile: Result<Value, _> = serde_json::from_str(text);
        profile.is_ok_and(|it| it["provenance"]["emulator"].is_string())
    };
    let in_policy = |text: &str| text.lines().any(|line| line.starts_with("emulator "));
    for (path, is_labelled) in [(profile, &in_profile as &dyn Fn(&str) -> bool), (policy, &in_policy)] {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|error| cannot_write(path, error))?,
        };
        // A crash of the machine may have left zeros.
        let is_empty = bytes.iter().all(|byte| *byte == 0);
        if !is_empty && !is_labelled(&String::from_utf8_lossy(&bytes)) {
            let why = format!(
                "it was measured on the processor itself, and this calibration under the emulator {emulator}"
            );
            return Err(cannot_write(path, why));
        }
    }
    Ok(())
}

/// Reads the previous profile, as [`Target::previous`] keeps it.
fn previous(path: &Path) -> Result<Option<Result<Profile, String>>, Failure> {
    let check = |profile: Profile| profile.check(Machine::current()).map(|()| profile);
    match Profile::load(path).and_then(check) {
        Ok(profile) if profile.provenance.emulator != Machine::current().emulator => {
            let under = |emulator: &Option<String>| match emulator {
                Some(name) => format!("under the emulator {name}"),
                None => "on the processor itself".to_owned(),
            };
            Ok(Some(Err(format!(
                "it was measured {}, and this calibration {}",
                under(&profile.provenance.emulator),
                under(&Machine::current().emulator)
            ))))
        }
        Ok(profile) => Ok(Some(Ok(profile))),
        Err(ProfileError::Missing) => Ok(None),
        Err(error @ ProfileError::Format) => Err(cannot_write(path, chain(&error))),
        Err(_) if fs::metadata(path).is_ok_and(|about| about.len() == 0) => Ok(None),
        Err(error) => Ok(Some(Err(chain(&error)))),
    }
}

/// Fails if a profile has measurements of these operations at greater lengths, whose rules would be lost.
fn keep_greater_lengths(
    path: &Path,
    old: &Profile,
    operations: &[Operation],
    longest: u64,
) -> Result<(), Failure> {
    let figures = old.figures.iter().filter(|it| operations.contains(&it.operation));
    match figures.max_by_key(|it| it.length) {
        Some(it) if it.length > longest => {
            let (path, operation) = (path.display(), it.operation);
            let (greatest, longest) = (exact_size(it.length), exact_size(longest));
            let error = format!(
                "{path} has rules for {operation} of up to {greatest}; --max-size {longest} would replace them by rules for less"
            );
            let help = format!(
                "--max-size {} measures them again; or calibrate other operations only (--op), write to another file \
                 (--output FILE), or replace them (--force)",
                it.length
            );
            Err(Failure::new(error).help(help))
        }
        _ => Ok(()),
    }
}

/// Opens a regular file, and returns its path with symbolic links resolved.
fn regular(path: &Path) -> Result<(OutputFile, PathBuf), Failure> {
    // Opening a FIFO would wait for its reader.
    if !fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir()) {
        let file = OutputFile::open(path).map_err(|error| cannot_write(path, error))?;
        if let Some(resolved) = file.regular().map(Path::to_owned) {
            return Ok((file, resolved));
        }
    }
    Err(cannot_write(path, "it is not a regular file"))
}

/// Checks that a path names a policy file, or none, and not the profile.
fn check_policy(path: &Path, profile: &OutputFile) -> Result<(), Failure> {
    if regular(path)?.0.replaces_the_same_as(profile) {
        return Err(cannot_write(path, "it is the same file as the profile, which ends in .json"));
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(POLICY_START.len() as u64).read_to_end(&mut start));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(cannot_write(path, error)),
        // A crash of the machine may have left zeros.
        Ok(_) if start == POLICY_START || start.iter().all(|byte| *byte == 0) => Ok(()),
        Ok(_) => Err(cannot_write(path, "it is not a policy file, and would be overwritten")),
    }
}

/// Copies a previous file, and returns the path of the copy.
fn back_up(path: &Path) -> Result<PathBuf, Failure> {
    let copy = path.with_added_extension("old");
    let copied = fs::read(path).and_then(|bytes| bulkmem_output::write(&copy, &bytes));
    copied.map_err(|error| cannot_write(&copy, error))?;
    Ok(copy)
}

/// Writes the policy file of a profile, unless it is there already.
fn save_policy(path: &Path, profile: &Profile) -> Result<(), Failure> {
    let text = profile.policy_text();
    if fs::read(path).is_ok_and(|present| present == text.as_bytes()) {
        return Ok(());
    }
    bulkmem_output::write(path, text.as_bytes()).map_err(|error| cannot_write(path, error))
}

fn save_profile(path: &Path, profile: &Profile) -> Result<(), Failure> {
    profile.save(path).map_err(|error| cannot_write(path, chain(&error)))
}

/// A lock on a profile: the file `profile.json.lock` next to it, which holds the process id. It is locked with flock(2),
/// which ends with the process; a file that a killed process left behind locks nothing.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn take(profile: &Path) -> Result<Lock, Failure> {
        let path = profile.with_added_extension("lock");
        let mut options = File::options();
        // No other user can open it: they could lock it too.
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW);
        loop {
            let mut file = options.open(&path).map_err(|error| cannot_write(profile, error))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(running(profile, &mut file)),
                Err(TryLockError::Error(error)) => return Err(cannot_write(profile, error)),
            }
            let place = |about: Metadata| (about.dev(), about.ino());
            // The previous holder may have removed the file after it was opened here.
            if fs::symlink_metadata(&path).ok().map(place) == file.metadata().ok().map(place) {
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

fn running(profile: &Path, file: &mut File) -> Failure {
    let mut text = String::new();
    _ = file.take(32).read_to_string(&mut text);
    let (process, end) = match text.trim().parse::<u32>() {
        Ok(pid) => (format!(": process {pid}"), format!(", or end it: kill {pid}")),
        Err(_) => Default::default(),
    };
    Failure::new(format!("a calibration of {} is already running{process}", profile.display()))
        .help(format!("wait until it ends{end}"))
}

/// Returns the error for a file of a calibration that cannot be written.
fn cannot_write(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot write the profile {}: {why}", path.display())).help(
        "name a file you may write: bulkmem calibrate --output FILE.json; BULKMEM_PROFILE=FILE.policy makes programs use it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulators_calibration_replaces_only_an_emulators() {
        let folder = tempfile::tempdir().unwrap();
        let (profile, policy) = (folder.path().join("profile.json"), folder.path().join("profile.policy"));
        let spared = |emulator| spare_the_processors(&profile, &policy, emulator).is_err();
        assert!(!spared(Some("qemu")), "there are no files");
        // Of another version and of any processor.
        let on_processor = r#"{"version": 99, "provenance": {"cpu": {}}}"#;
        let emulated = r#"{"version": 99, "provenance": {"emulator": "qemu"}}"#;
        let rules = "bulkmem-policy 9\ncpu 6 1 1 Other\n";
        for (in_profile, in_policy, expected) in [
            (on_processor, "", true),
            ("not JSON", "", true),
            ("", rules, true),
            (emulated, rules, true),
            ("\0\0", "\0", false),
            (emulated, "bulkmem-policy 9\ncpu 6 1 1 Other\nemulator qemu\n", false),
        ] {
            fs::write(&profile, in_profile).unwrap();
            fs::write(&policy, in_policy).unwrap();
            assert_eq!(spared(Some("qemu")), expected, "{in_profile}, {in_policy}");
            assert!(!spared(None));
        }
    }
}
