//! Writing output files: replaced atomically, written through, or refused, depending on what the path names.
//!
//! | the path names | result |
//! |---|---|
//! | nothing | a new file appears under this name once it is complete |
//! | a regular file | replaced atomically; mode, owner and group stay |
//! | a symbolic link to a regular file | followed, and the link stays; refused if the target does not exist |
//! | a character device, a FIFO, anything on procfs (`/dev/stdout`, `/proc/self/fd/3`) | written through |
//! | a directory, a block device, a socket, a mount point | refused |
//!
//! ```
//! use bulkmem_output::OutputFile;
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("results.json");
//! let file = OutputFile::open(&path)?;
//! file.check(100)?; // before hours of work: the directory takes files, and the disk is not full
//! file.write(b"{}")?; // now, and again after each step: readers see the old content or the new, never a part
//! assert_eq!(std::fs::read(&path)?, b"{}");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A replaced file is a new inode: other hard links keep the old content.
//!
//! A killed process leaves nothing: new content goes into a file without a name (`O_TMPFILE`), which has a temporary
//! name, `.bulkmem-XXXXXX`, only between linkat(2) and rename(2). On file systems without `O_TMPFILE` (NFS, FUSE) it has
//! that name from the start, and a killed process leaves it; it can be deleted.

/// The readme's code, as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use tempfile::TempPath;

/// The most symbolic links that the kernel follows.
const MAX_LINKS: usize = 40;
/// The start of temporary names.
const PREFIX: &str = ".bulkmem-";

/// A resolved output path, which can be written any number of times.
#[derive(Debug)]
pub struct OutputFile {
    destination: Destination,
}

#[derive(Debug)]
enum Destination {
    /// Replaced atomically; not a symbolic link.
    Regular(PathBuf),
    /// Written through. `truncate`: it is a regular file, reached through an open file descriptor.
    Stream { file: File, truncate: bool },
}

/// Writes a file. Creates its directory if missing, and makes a new file readable by every user.
///
/// # Errors
/// As [`OutputFile::open`] and [`OutputFile::write`]; an existing file is unchanged then.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder_of(path))?;
    match OutputFile::open(path)?.destination {
        Destination::Regular(target) => replace(&target, bytes, Some(0o644)),
        Destination::Stream { file, truncate } => write_through(&file, bytes, truncate),
    }
}

impl OutputFile {
    /// Resolves a path, without changing anything. Opens it if it is written through; a FIFO waits for its reader.
    ///
    /// # Errors
    /// If the path names something that cannot be written; the error contains the reason.
    pub fn open(path: &Path) -> io::Result<OutputFile> {
        let destination = resolve(path)?;
        // By the original name, so that the kernel applies its rules for symbolic links in /tmp.
        if matches!(destination, Destination::Regular(_)) {
            match File::options().write(true).open(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(OutputFile { destination })
    }

    /// Checks that `bytes` can be written, without changing anything. Call it before work that would be lost otherwise.
    ///
    /// # Errors
    /// If the directory takes no files, the disk is full, or a device refuses writes.
    pub fn check(&self, bytes: usize) -> io::Result<()> {
        match &self.destination {
            Destination::Regular(target) => {
                let (mut file, _name) = draft(folder_of(target))?;
                file.write_all(&vec![b' '; bytes])?;
                file.sync_all()
            }
            // An empty write fails on /dev/full. Other streams get none: some sockets send it as a message.
            Destination::Stream { file, .. } if file.metadata()?.file_type().is_char_device() => {
                let mut file: &File = file;
                file.write(&[]).map(drop)
            }
            Destination::Stream { .. } => Ok(()),
        }
    }

    /// Returns the file to replace, with symbolic links resolved; `None` if the path is written through.
    pub fn regular(&self) -> Option<&Path> {
        match &self.destination {
            Destination::Regular(target) => Some(target),
            Destination::Stream { .. } => None,
        }
    }

    /// True if another path names the same regular file, including through symbolic or hard links.
    pub fn is_same_file(&self, other: &Path) -> bool {
        let here = match &self.destination {
            Destination::Regular(target) => fs::metadata(target),
            Destination::Stream { file, .. } => file.metadata(),
        };
        match (here, fs::metadata(other)) {
            (Ok(here), Ok(other)) => here.is_file() && (here.dev(), here.ino()) == (other.dev(), other.ino()),
            _ => false,
        }
    }

    /// True if both replace the same file, even if it does not exist yet.
    pub fn replaces_the_same_as(&self, other: &OutputFile) -> bool {
        let entry = |file: &OutputFile| {
            let target = file.regular()?;
            Some((fs::canonicalize(folder_of(target)).ok()?, target.file_name()?.to_owned()))
        };
        entry(self).is_some_and(|here| entry(other) == Some(here))
            || other.regular().is_some_and(|other| self.is_same_file(other))
    }

    /// Replaces the content of a regular file, or writes through.
    ///
    /// # Errors
    /// If the bytes cannot be written; a regular file is unchanged then, and nothing is left next to it.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.destination {
            Destination::Regular(target) => replace(target, bytes, None),
            Destination::Stream { file, truncate } => write_through(file, bytes, *truncate),
        }
    }
}

/// Returns the directory that contains a path's last component.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason.into())
}

fn resolve(path: &Path) -> io::Result<Destination> {
    if path.as_os_str().is_empty() {
        return Err(refused("the name is empty"));
    }
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        let folder = folder_of(&at);
        match fs::metadata(folder) {
            Ok(about) if about.is_dir() => {}
            Ok(_) => return Err(refused(format!("{} is not a directory", folder.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(refused(format!("the directory {} does not exist", folder.display())));
            }
            Err(error) => return Err(error),
        }
        if is_procfs(folder)? {
            return stream(&at);
        }
        let about = match fs::symlink_metadata(&at) {
            Ok(about) => about,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if at != path => {
                let target = at.display();
                return Err(refused(format!("it is a symbolic link to {target}, which does not exist")));
            }
            Err(_) if path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                return Err(refused("the name is that of a directory"));
            }
            Err(_) => return Ok(Destination::Regular(at)),
        };
        if !about.is_symlink() {
            return by_kind(at, &about);
        }
        let link = fs::read_link(&at)?;
        let next = folder.join(link);
        at = next.strip_prefix("./").map(Path::to_owned).unwrap_or(next);
    }
    Err(Errno::LOOP.into())
}

fn by_kind(at: PathBuf, about: &Metadata) -> io::Result<Destination> {
    let kind = about.file_type();
    if kind.is_dir() {
        return Err(refused("it is a directory"));
    }
    if kind.is_block_device() {
        return Err(refused("it is a block device, whose content would be lost"));
    }
    if kind.is_socket() {
        return Err(refused("it is a socket"));
    }
    if !kind.is_file() {
        return stream(&at);
    }
    if is_mount_point(&at) {
        return Err(refused("it is a mount point, which cannot be replaced by another file"));
    }
    Ok(Destination::Regular(at))
}

fn stream(path: &Path) -> io::Result<Destination> {
    let own = |descriptor: &str| {
        let process = format!("/proc/{}/fd", std::process::id());
        path.file_name().is_some_and(|name| name == descriptor)
            && fs::canonicalize(folder_of(path)).is_ok_and(|folder| folder == Path::new(&process))
    };
    // The descriptor itself instead of its file opened again: it may be a socket, and it has a position.
    let descriptor = if own("1") {
        Some(io::stdout().as_fd().try_clone_to_owned()?)
    } else if own("2") {
        Some(io::stderr().as_fd().try_clone_to_owned()?)
    } else {
        None
    };
    if let Some(descriptor) = descriptor {
        return Ok(Destination::Stream { file: descriptor.into(), truncate: false });
    }
    // O_NOCTTY: a terminal must not become the controlling one.
    let file = File::options().write(true).custom_flags(libc::O_NOCTTY).open(path)?;
    let about = file.metadata()?;
    if about.file_type().is_block_device() {
        return Err(refused("it is a block device, whose content would be lost"));
    }
    Ok(Destination::Stream { truncate: about.is_file(), file })
}

fn write_through(mut file: &File, bytes: &[u8], truncate: bool) -> io::Result<()> {
    if truncate {
        file.set_len(0)?;
    }
    file.write_all(bytes)
}

/// Creates a file for the new content, without a name if the file system supports that.
fn draft(folder: &Path) -> io::Result<(File, Option<TempPath>)> {
    if let Some(file) = unnamed(folder)? {
        return Ok((file, None));
    }
    let named = tempfile::Builder::new()
        .prefix(PREFIX)
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    let (file, name) = named.into_parts();
    Ok((file, Some(name)))
}

#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{Mode, OFlags};
    // `named` needs /proc.
    if !Path::new("/proc/self/fd").exists() {
        return Ok(None);
    }
    match rustix::fs::open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from(0o666)) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

fn replace(target: &Path, bytes: &[u8], new_mode: Option<u32>) -> io::Result<()> {
    let before = match fs::symlink_metadata(target) {
        Ok(about) if about.is_file() => Some(about),
        Ok(_) => return Err(refused("it is no longer a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let folder = folder_of(target);
    let (mut file, name) = draft(folder)?;
    file.write_all(bytes)?;
    if let Some(before) = &before {
        // Only root can change the owner; otherwise the file belongs to the writer.
        _ = fchown(&file, Some(before.uid()), Some(before.gid()));
    }
    if let Some(mode) = before.map(|before| before.mode() & 0o777).or(new_mode) {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.sync_all()?;
    let name = match name {
        Some(name) => name,
        None => named(&file, folder)?,
    };
    name.persist(target).map_err(|error| error.error)?;
    // The name must survive a power failure, too. If the file system cannot sync directories, the rename still happened.
    _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Gives a file without a name a temporary one.
fn named(file: &File, folder: &Path) -> io::Result<TempPath> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |name: &Path| rustix::fs::linkat(CWD, &from, CWD, name, AtFlags::SYMLINK_FOLLOW);
    let named = tempfile::Builder::new().prefix(PREFIX).make_in(folder, |name| Ok(link(name)?))?;
    Ok(named.into_temp_path())
}

/// True if the files of a directory stand for the kernel's data or for open descriptors and cannot be replaced.
#[cfg(target_os = "linux")]
fn is_procfs(folder: &Path) -> io::Result<bool> {
    Ok(rustix::fs::statfs(folder)?.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

#[cfg(not(target_os = "linux"))]
fn is_procfs(_: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(target_os = "linux")]
fn is_mount_point(path: &Path) -> bool {
    use rustix::fs::{StatxAttributes, StatxFlags, statx};
    // Kernels before 5.8 do not report it; there, the rename fails later.
    statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())
        .is_ok_and(|about| about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
fn is_mount_point(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// A process that is killed while it writes leaves nothing.
    #[test]
    fn an_unfinished_file_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, name) = draft(folder.path()).unwrap();
        file.write_all(b"new").unwrap();
        if name.is_some() {
            println!(
                "skipped: files without a name: the temporary directory's file system does not support them"
            );
            return;
        }
        assert!(names(folder.path()).is_empty());
        let name = named(&file, folder.path()).unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"new");
        drop(name);
        assert!(names(folder.path()).is_empty(), "a failure after that removes it");
    }

    #[test]
    fn a_link_created_after_open_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = OutputFile::open(&path).unwrap();
        symlink("nowhere", &path).unwrap();
        assert!(file.write(b"new").unwrap_err().to_string().contains("no longer a regular file"));
        assert!(path.is_symlink());
        fs::remove_file(&path).unwrap();
        file.write(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn chains_of_links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("deep")).unwrap();
        fs::write(at("target"), "old").unwrap();
        symlink("../target", at("deep/second")).unwrap();
        symlink("deep/second", at("first")).unwrap();
        write(&at("first"), b"new").unwrap();
        assert!(at("first").is_symlink() && at("deep/second").is_symlink());
        assert_eq!(fs::read(at("target")).unwrap(), b"new");
        let [first, target] = [at("first"), at("target")].map(|path| OutputFile::open(&path).unwrap());
        assert!(first.replaces_the_same_as(&target) && first.is_same_file(&at("target")));
        assert!(!first.is_same_file(&at("nowhere")));
    }

    #[test]
    fn new_shared_files_are_readable_by_every_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder/profile.json");
        write(&path, b"{}").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        write(&path, b"[]").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "of an old file, the mode stays");
    }

    #[test]
    fn an_empty_name_is_refused() {
        let error = OutputFile::open(Path::new("")).unwrap_err();
        assert_eq!(error.to_string(), "the name is empty");
    }
}
