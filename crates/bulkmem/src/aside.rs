//! Files that are whole at every moment: written beside, then renamed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces a file, whose folder is made where it is missing. Whoever reads sees the old file or the new one, whole; a
/// failure leaves the old one, and nothing beside it. A symbolic link is followed. Everybody may read it.
pub(crate) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if target.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder)?;
    // Dropped before it is renamed, the file beside is removed. Others may read it: /etc holds everybody's files.
    let mut aside = tempfile::Builder::new()
        .prefix(".bulkmem-")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    let file = aside.as_file_mut();
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    aside.persist(&target).map_err(|error| error.error)?;
    // The name, too, must outlast a power cut; a file system that cannot sync folders has renamed all the same.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}
