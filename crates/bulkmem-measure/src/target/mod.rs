//! Targets that measurements read from and write to: ordinary memory, memory of the kernel module's device, a file, a DAX
//! file, or a device.

pub(crate) mod device;
mod mapping;

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bulkmem::machine::Machine;
use bulkmem_kmod::{self, Attribute};
use rustix::fs::{Access, access, major, makedev, minor, statvfs};

use self::mapping::{Made, Mapping};
use crate::MeasureError;
use crate::OptionName;
use crate::engine::arena::RawRange;
use crate::engine::buffer::{Buffer, Content, fits};
use crate::engine::reservation::Reservation;
use crate::engine::{Config, PageSize, Run};
use crate::target::device::{Attributes, Uncommon};

/// A target to read from and write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Ordinary memory.
    Ram,
    /// Memory of the kernel module's device, zeroed, of any cache attribute.
    Module,
    /// A file, a DAX file, or a device that can be mapped.
    Path(PathBuf),
}

impl From<PathBuf> for Target {
    /// Parses a target: `ram` is ordinary memory (a file of that name is `./ram`), `/dev/bulkmem` memory of the kernel
    /// module, anything else a path.
    fn from(text: PathBuf) -> Target {
        match text {
            text if text.as_os_str() == "ram" => Target::Ram,
            text if text.as_os_str() == bulkmem_kmod::PATH => Target::Module,
            text => Target::Path(text),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Ram => f.write_str("ram"),
            Target::Module => f.write_str(bulkmem_kmod::PATH),
            Target::Path(path) => path.display().fmt(f),
        }
    }
}

/// A target with permissions and properties.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// The target.
    pub target: Target,
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
            target: Target::Ram,
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
    /// True if the measurement writes to it.
    pub(crate) writes: bool,
    /// Least bytes.
    pub(crate) least: u64,
    /// Default bytes of ordinary memory.
    pub(crate) usual: u64,
}

/// Durability of persisted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// They do not survive a power failure.
    Nowhere,
    /// They are in the page cache; only a sync makes them durable.
    PageCache,
    /// They survive a power failure.
    Dax,
    /// It depends on the device.
    Device,
}

/// A prepared target: mapped, with every page touched.
#[derive(Debug)]
pub(crate) struct Opened {
    memory: Memory,
    config: Config,
    durable: Durable,
    note: Option<String>,
}

#[derive(Debug)]
enum Memory {
    Ram(Buffer),
    Module(Uncommon),
    Mapped(Mapping),
}

/// A target that was examined and not changed.
#[derive(Debug)]
struct Found {
    backing: Backing,
    bytes: u64,
    attribute: Option<Attribute>,
    /// True if only the options specify the attribute.
    told: bool,
}

#[derive(Debug)]
enum Backing {
    Ram,
    Module(Attribute),
    /// A file to create.
    Missing(PathBuf),
    /// A file or a block device, in the page cache unless it is DAX.
    File(File),
    /// Memory of a device.
    Device(File),
}

impl TargetOptions {
    /// Checks that the target can be used, without changing anything.
    ///
    /// # Errors
    /// The first obstacle, with the remedy.
    pub(crate) fn check(&self, want: Want) -> Result<(), MeasureError> {
        self.find(want).map(drop)
    }

    /// Prepares the target. Calls `step` with the share that is done; an error from it ends the preparation.
    ///
    /// # Errors
    /// If the target cannot be used after all. A file that was created is removed then.
    pub(crate) fn open(
        &self,
        want: Want,
        step: &mut dyn FnMut(f64) -> Result<(), MeasureError>,
    ) -> Result<Opened, MeasureError> {
        let Found { backing, bytes, attribute, told } = self.find(want)?;
        let mut config = Config {
            target: Some(self.target.to_string()),
            size: Some(bytes),
            attribute: attribute.map(|attribute| attribute.to_string()),
            ..Config::default()
        };
        let fresh = matches!(backing, Backing::Missing(_));
        let (file, device) = match backing {
            Backing::Ram => {
                step(0.0)?;
                let buffer = Buffer::new(bytes, self.page_size, Content::Mixed)?;
                config.page_size = Some(self.page_size);
                return Ok(Opened {
                    memory: Memory::Ram(buffer),
                    config,
                    durable: Durable::Nowhere,
                    note: None,
                });
            }
            Backing::Module(attribute) => {
                step(0.0)?;
                let memory = Uncommon::new(bytes, attribute, self.page_size)?;
                let config = Config { content: Some("zeros".to_owned()), ..memory.config() };
                return Ok(Opened {
                    memory: Memory::Module(memory),
                    config,
                    durable: Durable::Nowhere,
                    note: None,
                });
            }
            Backing::Missing(path) => (self.make(path)?, false),
            Backing::File(file) => (Made::existing(file), false),
            Backing::Device(file) => (Made::existing(file), true),
        };
        if fresh || want.writes {
            file.allocate(bytes).map_err(|error| self.no_space(bytes, &error))?;
        }
        let mapping =
            Mapping::new(&file, bytes, want.writes || fresh).map_err(|error| self.not_mappable(&error))?;
        let durable = match (device, mapping.synchronous()) {
            (_, true) => Durable::Dax,
            (true, false) => Durable::Device,
            (false, false) => Durable::PageCache,
        };
        if durable == Durable::PageCache {
            fits(bytes)?;
        }
        // An existing target that is only read keeps its content. Memory of a device need not be touched.
        let fill = want.writes || fresh;
        if attribute.is_none_or(|attribute| attribute == Attribute::Wb) {
            mapping.touch(fill, step)?;
        }
        file.keep(self.keep);
        let note = Some(self.note(durable, told));
        Ok(Opened { memory: Memory::Mapped(mapping), config, durable, note })
    }

    /// As [`TargetOptions::open`], with the run's progress; `None` if the run was stopped.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn open_for(&self, run: &mut Run<'_>, want: Want) -> Result<Option<Opened>, MeasureError> {
        let opened = self.open(want, &mut |share| {
            run.say(&format!("preparing {}: {:.0} %", self.target, share * 100.0), 0.0);
            if run.stopped() { Err(MeasureError::Interrupted) } else { Ok(()) }
        });
        match opened {
            Err(MeasureError::Interrupted) => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn find(&self, want: Want) -> Result<Found, MeasureError> {
        let path = match &self.target {
            Target::Ram => {
                let bytes = self.size.unwrap_or(want.usual);
                let attribute = self.attribute_of(Some(Attribute::Wb))?;
                self.enough(bytes, want.least)?;
                self.page_size.check()?;
                Reservation::check(bytes, self.page_size)?;
                return Ok(Found { backing: Backing::Ram, bytes, attribute, told: false });
            }
            Target::Module => {
                let bytes = self.size.unwrap_or(want.usual);
                let attribute = self.attribute.unwrap_or_default();
                self.enough(bytes, want.least)?;
                device::check(bytes, self.page_size)?;
                Attributes::Named(vec![attribute]).check()?;
                return Ok(Found {
                    backing: Backing::Module(attribute),
                    bytes,
                    attribute: Some(attribute),
                    told: false,
                });
            }
            Target::Path(path) => path,
        };
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.missing(path, want),
            Err(error) => {
                return Err(self.refuse(format!("cannot be examined: {error}"), "name another target"));
            }
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(self.refuse("is a folder", "name a file in it, or one to create there with --size"));
        }
        let device = kind.is_char_device() || kind.is_block_device();
        if !kind.is_file() && !device {
            return Err(
                self.refuse("is neither a file nor a device", "name a file, or a device that can be mapped")
            );
        }
        if kind.is_char_device() && is_all_memory(&metadata) {
            return Err(
                self.refuse("is all of this machine's memory", "name `ram`, a file, or another device")
            );
        }
        let known = match kind.is_char_device() {
            true => dax_size(&metadata).map(|_| Attribute::Wb),
            false => Some(attribute_of_file(path)),
        };
        let attribute = self.attribute_of(known)?;
        if want.writes && !self.overwrite {
            return Err(self.refuse(
                "exists, and what it holds would be overwritten",
                "give --overwrite if that may be lost, or name a file that does not exist, with --size",
            ));
        }
        let file = self.open_existing(path, &metadata, want.writes)?;
        let has = match kind.is_char_device() {
            false => size_by_seeking(&file, &metadata).map_err(|error| {
                self.refuse(format!("does not report its size: {error}"), "name another target")
            })?,
            true => match (dax_size(&metadata), self.size) {
                (Some(has), _) | (None, Some(has)) => has,
                (None, None) => {
                    return Err(
                        self.refuse("is a device that does not report its size", "give it: --size SIZE")
                    );
                }
            },
        };
        let bytes = self.size.unwrap_or(has);
        if bytes > has {
            return Err(self.refuse(
                format!("has {has} bytes, and {bytes} are requested"),
                "give a smaller --size, or name a larger target",
            ));
        }
        let unit = dax_alignment(&metadata).unwrap_or(Machine::current().page_size as u64).max(1);
        let bytes = bytes / unit * unit;
        self.enough(bytes, want.least)?;
        let of_device = kind.is_char_device() || attribute_of_file(path) != Attribute::Wb;
        let backing = if of_device { Backing::Device(file) } else { Backing::File(file) };
        Ok(Found { backing, bytes, attribute, told: known.is_none() && attribute.is_some() })
    }

    /// Checks that a file can be created there.
    fn missing(&self, path: &Path, want: Want) -> Result<Found, MeasureError> {
        if folder_of(path) == "/dev" {
            return Err(self.refuse("there is no such device", "name one that exists, or a file elsewhere"));
        }
        let Some(bytes) = self.size else {
            return Err(self.refuse(
                "there is no such file",
                "give --size to create one for the measurement, or name one that exists",
            ));
        };
        let attribute = self.attribute_of(Some(Attribute::Wb))?;
        self.enough(bytes, want.least)?;
        let folder = folder_of(path);
        let refuse = |error: rustix::io::Errno| {
            self.refuse(
                format!("no file can be created in {}: {}", folder.display(), io::Error::from(error)),
                "name a file in a folder you may write to",
            )
        };
        access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(refuse)?;
        let system = statvfs(folder).map_err(refuse)?;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        if bytes > free {
            return Err(self.refuse(
                format!("needs {bytes} bytes, and the file system has {free} free"),
                "give a smaller --size, or name a file on another file system",
            ));
        }
        if is_memory(folder) {
            fits(bytes)?;
        }
        let bytes = bytes.next_multiple_of(Machine::current().page_size as u64);
        Ok(Found { backing: Backing::Missing(path.to_owned()), bytes, attribute, told: false })
    }

    fn open_existing(&self, path: &Path, metadata: &Metadata, writes: bool) -> Result<File, MeasureError> {
        let mut how = OpenOptions::new();
        how.read(true).write(writes);
        if metadata.file_type().is_block_device() && writes {
            // Fails if it is in use, for example by a mounted file system.
            how.custom_flags(libc::O_EXCL);
        }
        how.open(path).map_err(|error| {
            let doing = if writes { "written" } else { "read" };
            self.refuse(
                format!("cannot be {doing}: {error}"),
                "name one that you may use and that is not in use, or run as a user who may",
            )
        })
    }

    fn make(&self, path: PathBuf) -> Result<Made, MeasureError> {
        Made::new(path, self.keep).map_err(|error| {
            self.refuse(format!("cannot be created: {error}"), "name a file in a folder you may write to")
        })
    }

    /// Returns the attribute, which must be the requested one if any.
    fn attribute_of(&self, known: Option<Attribute>) -> Result<Option<Attribute>, MeasureError> {
        match (known, self.attribute) {
            (Some(known), Some(asked)) if known != asked => Err(MeasureError::Option {
                option: OptionName::Attribute,
                reason: format!(
                    "{} is mapped {known}, not {asked}; name a target that is: /dev/bulkmem, which the kernel module \
                     provides, or the memory of a PCI device, as /sys/bus/pci/devices/…/resource0_wc (wc) or resource0 (uc)",
                    self.target
                ),
            }),
            (known, asked) => Ok(known.or(asked)),
        }
    }

    fn enough(&self, bytes: u64, least: u64) -> Result<(), MeasureError> {
        if bytes >= least {
            return Ok(());
        }
        Err(self.refuse(
            format!("{bytes} bytes are too small: {least} are needed"),
            "give a larger --size or a smaller --block, or name a larger target",
        ))
    }

    fn refuse(&self, cause: impl Into<String>, remedy: &'static str) -> MeasureError {
        MeasureError::Target { target: self.target.to_string(), cause: cause.into(), remedy }
    }

    fn no_space(&self, bytes: u64, error: &io::Error) -> MeasureError {
        self.refuse(
            format!("cannot hold {bytes} bytes: {error}"),
            "give a smaller --size, or name a file on another file system",
        )
    }

    fn not_mappable(&self, error: &io::Error) -> MeasureError {
        if error.raw_os_error() == Some(libc::ENOMEM) {
            return self.refuse(
                format!("cannot be mapped: {error}"),
                "give a smaller --size, or raise the limit of the address space (ulimit -v)",
            );
        }
        self.refuse(
            format!("cannot be mapped: {error}"),
            "name a file on a file system, or a device, that can be mapped",
        )
    }

    /// Returns the note on the target for the results.
    fn note(&self, durable: Durable, as_told: bool) -> String {
        let target = &self.target;
        let what = match durable {
            Durable::Nowhere => "nothing survives a power failure",
            Durable::PageCache => {
                "mapped through the page cache, as MAP_SYNC was refused: persisting moves bytes out of the processor's \
                 caches, but only a sync writes them to the file, and the kernel's own write-back adds noise"
            }
            Durable::Dax => "mapped with MAP_SYNC: persisted bytes are durable",
            Durable::Device => {
                "memory of a device: whether it survives a power failure depends on the device"
            }
        };
        let told = if as_told { "; its cache attribute is the one given by --attr" } else { "" };
        format!("{target}: {what}{told}")
    }
}

impl Opened {
    /// Returns its memory, valid as long as the target lives.
    pub(crate) fn raw_range(&mut self) -> RawRange {
        match &mut self.memory {
            Memory::Ram(buffer) => buffer.raw_range(),
            Memory::Module(memory) => memory.raw_range(),
            Memory::Mapped(mapping) => mapping.raw_range(),
        }
    }

    /// Returns the configuration that identifies the target in results.
    pub(crate) fn config(&self) -> Config {
        self.config.clone()
    }

    /// Durability of persisted bytes.
    pub(crate) fn durable(&self) -> Durable {
        self.durable
    }

    /// Returns a note for the results.
    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Returns the page size of ordinary memory, as the kernel reports it.
    pub(crate) fn backing_page_size(&self) -> Option<usize> {
        match &self.memory {
            Memory::Ram(buffer) => buffer.backing_page_size(),
            Memory::Module(memory) => Some(memory.backing_page_size()),
            Memory::Mapped(_) => None,
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// True if files in that folder are ordinary memory.
fn is_memory(folder: &Path) -> bool {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    rustix::fs::statfs(folder).is_ok_and(|system| system.f_type == TMPFS)
}

/// Returns the attribute of a file's mapping: that of its name for PCI resource files, write-back for all others.
fn attribute_of_file(path: &Path) -> Attribute {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = real.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(rest) = name.strip_prefix("resource").filter(|_| real.starts_with("/sys/")) else {
        return Attribute::Wb;
    };
    let number = rest.strip_suffix("_wc").unwrap_or(rest);
    match number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Attribute::Wb,
        false if number.len() < rest.len() => Attribute::Wc,
        false => Attribute::Uc,
    }
}

/// True if a character device is all of the machine's memory, where writing would crash the machine.
fn is_all_memory(metadata: &Metadata) -> bool {
    [makedev(1, 1), makedev(1, 2), makedev(1, 4)].contains(&metadata.rdev())
}

/// Returns the size of a DAX device, bytes.
fn dax_size(metadata: &Metadata) -> Option<u64> {
    dax_figure(metadata, "size")
}

/// Returns the alignment of mappings of a DAX device, bytes.
fn dax_alignment(metadata: &Metadata) -> Option<u64> {
    dax_figure(metadata, "align")
}

fn dax_figure(metadata: &Metadata, name: &str) -> Option<u64> {
    if !metadata.file_type().is_char_device() {
        return None;
    }
    let (major, minor) = (major(metadata.rdev()), minor(metadata.rdev()));
    let text = fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/{name}")).ok()?;
    text.trim().parse().ok()
}

/// Returns the size of a file, or of a block device, which needs seeking.
fn size_by_seeking(file: &File, metadata: &Metadata) -> io::Result<u64> {
    if metadata.is_file() {
        return Ok(metadata.len());
    }
    io::Seek::seek(&mut &*file, io::SeekFrom::End(0))
}

#[cfg(test)]
mod tests;
