//! Targets that measurements read from and write to: ordinary memory, memory of the kernel module's device, a file, a DAX
//! file, or a device.

pub(crate) mod device;
mod memory;

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bulkmem::machine::Machine;
use bulkmem_kmod::{self, Attribute};
use rustix::fs::{Access, access, major, makedev, minor, statvfs};

pub(crate) use self::memory::Memory;
use self::memory::{Mapping, Step, allocate};
use crate::engine::buffer::fits;
use crate::engine::workload::last_level;
use crate::engine::{Buffer, Config, Content, MeasureError, PageSize, Reservation, Result, Run, memory_left};
use crate::target::device::Attributes;

/// Ordinary memory as a target. A file of that name is `./ram`.
pub const RAM: &str = "ram";

/// A target to read from and write to, with permissions and properties.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// [`RAM`]; [`bulkmem_kmod::MEMORY_PATH`] for memory of the kernel module's device, zeroed, of any cache attribute; or the path
    /// of a file, a DAX file, or a device that can be mapped.
    pub target: PathBuf,
    /// Bytes to work on, from the start of the target. A file that does not exist is created with this size and removed
    /// afterwards. `None`: all of an existing target; of ordinary memory, what suits the measurement.
    pub size: Option<u64>,
    /// If set, existing content may be overwritten.
    pub overwrite: bool,
    /// If set, a file that was created is kept.
    pub keep: bool,
    /// The cache attribute: expected of the target, assumed for a device that does not report it, and requested for memory
    /// of the kernel module.
    pub attribute: Option<Attribute>,
    /// Page size of ordinary memory and of memory of the kernel module.
    pub page_size: PageSize,
}

impl TargetOptions {
    /// Ordinary memory in transparent huge pages.
    pub fn ram() -> TargetOptions {
        TargetOptions {
            target: RAM.into(),
            size: None,
            overwrite: false,
            keep: false,
            attribute: None,
            page_size: PageSize::TRANSPARENT,
        }
    }
}

/// A measurement's requirements on a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) writes: bool,
    pub(crate) least: u64,
    /// Default bytes of ordinary memory.
    pub(crate) usual: u64,
}

impl Want {
    /// Returns requirements by which a measurement uses many times the last-level cache by default, at least and at most
    /// `usual`, and leaves most of the memory to other processes.
    pub(crate) fn new(writes: bool, least: u64, usual: RangeInclusive<u64>, targets: u64) -> Want {
        let caches = last_level(Machine::current()).saturating_mul(8).clamp(*usual.start(), *usual.end());
        Want { writes, least, usual: caches.min(memory_left().bytes / 4 / targets).max(least) }
    }
}

/// A prepared target: mapped, with every page touched.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) memory: Memory,
    /// The configuration that identifies the target in results.
    pub(crate) config: Config,
    /// The durability of what is written, for the results.
    note: Option<String>,
}

/// A target that was examined and not changed.
#[derive(Debug, Default)]
struct Found {
    bytes: u64,
    attribute: Option<Attribute>,
    /// True if only the options specify the attribute.
    told: bool,
    /// An existing file or device.
    file: Option<File>,
    /// True if it is memory of a device; other files are in the page cache unless they are DAX.
    device: bool,
}

impl TargetOptions {
    /// Returns the target with room for so many bytes, in whole units of its mappings, but never for more than its size.
    pub(crate) fn with_room(&self, bytes: u64) -> TargetOptions {
        let align = fs::metadata(&self.target).ok().and_then(|metadata| dax_figure(&metadata, "align"));
        let unit = align.unwrap_or(Machine::current().page_size as u64).max(1);
        let room = bytes.checked_next_multiple_of(unit).unwrap_or(bytes);
        TargetOptions { size: Some(self.size.map_or(room, |size| size.min(room))), ..self.clone() }
    }

    /// Checks that the target can be used, without changing anything. The error is the first obstacle, with the remedy.
    pub(crate) fn check(&self, want: Want) -> Result<()> {
        self.find(want).map(drop)
    }

    /// Prepares the target, and reports the progress and notes on the target to the run. Removes a file that it created if
    /// the target cannot be used after all, or the run was stopped.
    pub(crate) fn open_for(&self, run: &mut Run<'_>, want: Want) -> Result<Opened> {
        let opened = self.open(want, &mut |share| preparing(run, self.target.display(), share))?;
        run.backed_by(opened.memory.backing_page_size());
        opened.note.iter().for_each(|note| run.note(note));
        Ok(opened)
    }

    fn open(&self, want: Want, step: Step<'_>) -> Result<Opened> {
        let found = self.find(want)?;
        let Found { bytes, attribute, .. } = found;
        let mut config = Config {
            target: Some(self.target.display().to_string()),
            size: Some(bytes),
            attribute: attribute.map(|attribute| attribute.to_string()),
            ..Config::default()
        };
        let (memory, durable, note) = match self.target.to_str() {
            Some(RAM) => {
                step(0.0)?;
                config.page_size = Some(self.page_size);
                (Memory::Ram(Buffer::new(bytes, self.page_size, Content::Mixed)?), false, None)
            }
            Some(bulkmem_kmod::MEMORY_PATH) => {
                step(0.0)?;
                let memory = device::allocate(bytes, attribute.unwrap_or_default(), self.page_size)?;
                config.page_size = Some(PageSize(memory.options().pages));
                config.content = Some("zeros".to_owned());
                (Memory::Module(memory), false, None)
            }
            _ => match &found.file {
                Some(file) => self.map(file, &found, want.writes, step)?,
                None => self.map(&self.create()?, &found, true, step).inspect_err(|_| {
                    if self.keep {
                        // An error means that it was removed in the meantime.
                        _ = fs::remove_file(&self.target);
                    }
                })?,
            },
        };
        config.durable = durable.then_some(true);
        Ok(Opened { memory, config, note })
    }

    /// Maps a file and touches it. Returns its memory, whether persisted bytes survive a power failure, and the note on it.
    fn map(
        &self,
        file: &File,
        found: &Found,
        writes: bool,
        step: Step<'_>,
    ) -> Result<(Memory, bool, Option<String>)> {
        let Found { bytes, attribute, told, device, .. } = *found;
        if writes {
            allocate(file, bytes).or_else(|error| {
                let remedy = "give a smaller --size, or name a file on another file system";
                self.refuse(format!("cannot hold {bytes} bytes: {error}"), remedy)
            })?;
        }
        let (mapping, synchronous) = Mapping::new(file, bytes, writes).or_else(|error| {
            let remedy = match error.raw_os_error() {
                Some(libc::ENOMEM) => {
                    "give a smaller --size, or raise the limit of the address space (ulimit -v)"
                }
                _ => "name a file on a file system, or a device, that can be mapped",
            };
            self.refuse(format!("cannot be mapped: {error}"), remedy)
        })?;
        let durable = synchronous && !is_emulated(file);
        let meaning = match (synchronous, device) {
            (true, _) if durable => "mapped with MAP_SYNC: persisted bytes are durable",
            (true, _) => {
                "mapped with MAP_SYNC, but emulated in ordinary memory (memmap=): nothing survives a power failure, and its \
                 speed is not that of persistent memory"
            }
            (false, true) => "memory of a device: whether it survives a power failure depends on the device",
            (false, false) => {
                fits(bytes)?;
                "mapped through the page cache, as MAP_SYNC was refused: persisting moves bytes out of the processor's \
                 caches, but only a sync writes them to the file, and the kernel's own write-back adds noise"
            }
        };
        let told = if told { "; its cache attribute is the one given by --attr" } else { "" };
        let mut memory = Memory::Mapped(mapping);
        // An existing target that is only read keeps its content. Memory of a device need not be touched.
        if attribute.is_none_or(|attribute| attribute == Attribute::Wb) {
            memory.touch(writes, step)?;
        }
        Ok((memory, durable, Some(format!("{}: {meaning}{told}", self.target.display()))))
    }

    /// Creates a file. Unless it is to be kept, removes its name immediately, in case the process is killed.
    fn create(&self) -> Result<File> {
        let created = File::options().read(true).write(true).create_new(true).open(&self.target);
        let unnamed = |file| if self.keep { Ok(file) } else { fs::remove_file(&self.target).map(|()| file) };
        created.and_then(unnamed).or_else(|error| {
            self.refuse(format!("cannot be created: {error}"), "name a file in a folder you may write to")
        })
    }

    fn find(&self, want: Want) -> Result<Found> {
        let bytes = self.size.unwrap_or(want.usual);
        let found = match self.target.to_str() {
            Some(RAM) => {
                let attribute = self.attribute_of(Some(Attribute::Wb))?;
                self.page_size.check()?;
                Reservation::check(bytes, self.page_size)?;
                Found { bytes, attribute, ..Found::default() }
            }
            Some(bulkmem_kmod::MEMORY_PATH) => {
                let attribute = self.attribute.unwrap_or_default();
                device::check(bytes, self.page_size)?;
                Attributes::Named(vec![attribute]).check()?;
                Found { bytes, attribute: Some(attribute), ..Found::default() }
            }
            _ => self.find_file(want)?,
        };
        if found.bytes < want.least {
            let remedy = "give a larger --size or name a larger target, or write smaller blocks or records";
            let cause = format!("{} bytes are too small: {} are needed", found.bytes, want.least);
            return self.refuse(cause, remedy);
        }
        Ok(found)
    }

    fn find_file(&self, want: Want) -> Result<Found> {
        let metadata = match fs::metadata(&self.target) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.missing(),
            Err(error) => return self.refuse(format!("cannot be examined: {error}"), "name another target"),
        };
        let kind = metadata.file_type();
        let usable = kind.is_file() || kind.is_char_device() || kind.is_block_device();
        // Writing there would crash the machine.
        let all_memory = [makedev(1, 1), makedev(1, 2), makedev(1, 4)];
        let is_all_memory = kind.is_char_device() && all_memory.contains(&metadata.rdev());
        let obstacles = [
            (kind.is_dir(), "is a folder", "name a file in it, or one to create there with --size"),
            (!usable, "is neither a file nor a device", "name a file, or a device that can be mapped"),
            (is_all_memory, "is all of this machine's memory", "name `ram`, a file, or another device"),
            (
                want.writes && !self.overwrite,
                "exists, and what it holds would be overwritten",
                "give --overwrite if that may be lost, or name a file that does not exist, with --size",
            ),
        ];
        if let Some((_, cause, remedy)) = obstacles.into_iter().find(|(met, ..)| *met) {
            return self.refuse(cause, remedy);
        }
        let dax_size = dax_figure(&metadata, "size");
        let known = match kind.is_char_device() {
            true => dax_size.map(|_| Attribute::Wb),
            false => Some(attribute_of_file(&self.target)),
        };
        let attribute = self.attribute_of(known)?;
        // For a block device: fails if it is in use, for example by a mounted file system.
        let exclusive = if kind.is_block_device() && want.writes { libc::O_EXCL } else { 0 };
        let file = File::options().read(true).write(want.writes).custom_flags(exclusive).open(&self.target);
        let mut file = file.or_else(|error| {
            let doing = if want.writes { "written" } else { "read" };
            let remedy = "name one that you may use and that is not in use, or run as a user who may";
            self.refuse(format!("cannot be {doing}: {error}"), remedy)
        })?;
        let no_size = || self.refuse("is a device that does not report its size", "give it: --size SIZE");
        let has = match kind.is_char_device() {
            true => dax_size.or(self.size).map_or_else(no_size, Ok)?,
            // The metadata of block devices have none.
            false => file.seek(SeekFrom::End(0)).or_else(|error| {
                self.refuse(format!("does not report its size: {error}"), "name another target")
            })?,
        };
        let bytes = self.size.unwrap_or(has);
        if bytes > has {
            let remedy = "give a smaller --size, or name a larger target";
            return self.refuse(format!("has {has} bytes, and {bytes} are requested"), remedy);
        }
        let unit = dax_figure(&metadata, "align").unwrap_or(Machine::current().page_size as u64).max(1);
        let bytes = bytes / unit * unit;
        let device = kind.is_char_device() || known != Some(Attribute::Wb);
        let told = known.is_none() && attribute.is_some();
        Ok(Found { bytes, attribute, told, file: Some(file), device })
    }

    /// Returns the folder of a file.
    fn folder(&self) -> &Path {
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new("."))
    }

    /// Returns what all names of a target have in common: the number of the device, or that of the file on its device; for
    /// a file that does not exist, the number of its folder and its name.
    fn identity(&self) -> Option<(bool, u64, u64, Option<&OsStr>)> {
        if self.target.to_str() == Some(RAM) {
            return None;
        }
        let (it, name) = match fs::metadata(&self.target) {
            Ok(it) => (it, None),
            Err(_) => (fs::metadata(self.folder()).ok()?, self.target.file_name()),
        };
        let kind = it.file_type();
        let is_device = kind.is_block_device() || kind.is_char_device();
        let [number, file] = if is_device { [it.rdev(), 0] } else { [it.dev(), it.ino()] };
        Some((kind.is_char_device(), number, file, name))
    }

    /// Checks that a file can be created there.
    fn missing(&self) -> Result<Found> {
        let folder = self.folder();
        if folder == "/dev" {
            return self.refuse("there is no such device", "name one that exists, or a file elsewhere");
        }
        let Some(bytes) = self.size else {
            let remedy = "give --size to create one for the measurement, or name one that exists";
            return self.refuse("there is no such file", remedy);
        };
        let attribute = self.attribute_of(Some(Attribute::Wb))?;
        let system = access(folder, Access::WRITE_OK | Access::EXEC_OK).and_then(|()| statvfs(folder));
        let system = system.or_else(|error| {
            let cause = format!("no file can be created in {}: {}", folder.display(), io::Error::from(error));
            self.refuse(cause, "name a file in a folder you may write to")
        })?;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        if bytes > free {
            let remedy = "give a smaller --size, or name a file on another file system";
            return self.refuse(format!("needs {bytes} bytes, and the file system has {free} free"), remedy);
        }
        // Files of such file systems are ordinary memory.
        const TMPFS: rustix::fs::FsWord = 0x0102_1994;
        if rustix::fs::statfs(folder).is_ok_and(|system| system.f_type == TMPFS) {
            fits(bytes)?;
        }
        let bytes = bytes.next_multiple_of(Machine::current().page_size as u64);
        Ok(Found { bytes, attribute, ..Found::default() })
    }

    /// Returns the attribute, which must be the requested one if any.
    fn attribute_of(&self, known: Option<Attribute>) -> Result<Option<Attribute>> {
        let target = self.target.display();
        match (known, self.attribute) {
            (Some(known), Some(asked)) if known != asked => Err(MeasureError::Option {
                option: "--attr",
                reason: format!(
                    "{target} is mapped {known}, not {asked}; name a target that is: /dev/bulkmem-memory, which the kernel module \
                     provides, or the memory of a PCI device, as /sys/bus/pci/devices/…/resource0_wc (wc) or resource0 (uc)"
                ),
            }),
            (known, asked) => Ok(known.or(asked)),
        }
    }

    fn refuse<T>(&self, cause: impl Into<String>, remedy: &'static str) -> Result<T> {
        Err(MeasureError::Target { target: self.target.display().to_string(), cause: cause.into(), remedy })
    }
}

/// Checks that all targets can be used at the same time.
pub(crate) fn check_all(targets: &[TargetOptions], want: Want) -> Result<()> {
    for (at, target) in targets.iter().enumerate() {
        let same = |earlier: &&TargetOptions| {
            earlier.target == target.target
                || target.identity().is_some_and(|it| earlier.identity() == Some(it))
        };
        if let Some(earlier) = targets[..at].iter().find(same) {
            let cause = match earlier.target == target.target {
                true => "is named twice".to_owned(),
                false => format!("is the same as {}", earlier.target.display()),
            };
            return target.refuse(cause, "name each target once");
        }
        target.check(want)?;
    }
    Ok(())
}

/// Prepares all targets, as [`TargetOptions::open_for`] does.
pub(crate) fn open_all(run: &mut Run<'_>, targets: &[TargetOptions], want: Want) -> Result<Vec<Opened>> {
    targets.iter().map(|target| target.open_for(run, want)).collect()
}

/// Reports which share of a target is prepared. Returns [`MeasureError::Interrupted`] if the run was stopped.
pub(crate) fn preparing(run: &mut Run<'_>, target: impl fmt::Display, share: f64) -> Result<()> {
    run.say(&format!("preparing {target}: {:.0} %", share * 100.0), 0.0);
    if run.stopped() { Err(MeasureError::Interrupted) } else { Ok(()) }
}

/// Returns the attribute of a file's mapping: that of its name for PCI resource files, write-back for all others.
fn attribute_of_file(path: &Path) -> Attribute {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = real.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (device, attribute) =
        name.strip_suffix("_wc").map_or((name, Attribute::Uc), |rest| (rest, Attribute::Wc));
    let number = device.strip_prefix("resource").filter(|_| real.starts_with("/sys/"));
    if number.is_some_and(|it| it.parse::<u32>().is_ok()) { attribute } else { Attribute::Wb }
}

/// Returns true for a device that the kernel emulates in ordinary memory (`memmap=SIZE!START`), and for a file on one.
fn is_emulated(file: &File) -> bool {
    let device = |metadata: Metadata| match metadata.file_type().is_char_device() {
        true => format!("char/{}:{}", major(metadata.rdev()), minor(metadata.rdev())),
        false => format!("block/{}:{}", major(metadata.dev()), minor(metadata.dev())),
    };
    // Old firmware describes NVDIMMs in the same table.
    let emulates = fs::read_to_string("/proc/cmdline").is_ok_and(|line| line.contains("memmap="));
    let path =
        file.metadata().and_then(|metadata| fs::canonicalize(format!("/sys/dev/{}", device(metadata))));
    emulates && path.is_ok_and(|path| path.components().any(|part| part.as_os_str() == "e820_pmem"))
}

/// Returns a figure of a DAX device: `size` or `align`, the alignment of mappings, bytes. `None` for other files.
fn dax_figure(metadata: &Metadata, name: &str) -> Option<u64> {
    if !metadata.file_type().is_char_device() {
        return None;
    }
    let (major, minor) = (major(metadata.rdev()), minor(metadata.rdev()));
    let text = fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/{name}")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests;
