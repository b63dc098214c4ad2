//! Memory limits of control groups, versions 1 and 2.

use std::path::{Component, Path, PathBuf};

use crate::engine::memory::text;

/// The bytes that each limited group leaves, and the file with its limit. The files of `/proc` and `/sys` are taken from
/// below `root`; the paths returned are those within it.
pub(super) fn left(root: &Path) -> Vec<(u64, PathBuf)> {
    let text = |path: &str| text(root, Path::new(path));
    let (mounts, groups) = (text("proc/self/mountinfo"), text("proc/self/cgroup"));
    let mut found = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        for line in groups.lines() {
            if let Some(inner) = mount.version.path(line).and_then(|path| below(&mount.root, path)) {
                for folder in ancestors(&mount.point, &inner) {
                    found.extend(mount.version.left(root, &folder));
                }
            }
        }
    }
    found
}

/// The version of a hierarchy of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A mounted hierarchy of control groups.
#[derive(Debug)]
struct Mount {
    version: Version,
    /// The group that the mount point shows, relative to the root of this process's control group namespace.
    root: String,
    point: PathBuf,
}

impl Mount {
    /// Reads a line of `/proc/self/mountinfo`: number, parent, device, root, mount point, options, optional fields, a
    /// dash, type, source, options of the file system.
    fn parse(line: &str) -> Option<Mount> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (unescape(mount.next()?), unescape(mount.next()?).into());
        let mut system = system.split(' ');
        let version = match (system.next()?, system.nth(1)?) {
            ("cgroup2", _) => Version::Two,
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Mount { version, root, point })
    }
}

/// Replaces the octal codes that the kernel writes for blanks and backslashes.
fn unescape(text: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.into_iter().fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter))
}

impl Version {
    /// The path of this process's group, from a line of `/proc/self/cgroup`, if that line is about this hierarchy.
    fn path(self, line: &str) -> Option<&str> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let ours = match self {
            Version::One => controllers.split(',').any(|name| name == "memory"),
            Version::Two => controllers.is_empty(),
        };
        ours.then_some(path)
    }

    /// The bytes that the limits of the group in a folder leave.
    fn left(self, root: &Path, folder: &Path) -> Vec<(u64, PathBuf)> {
        let text = |file: &str| text(root, &folder.join(file));
        let number = |file: &str| text(file).trim().parse::<u64>().ok();
        let stat = text("memory.stat");
        let line = |name: &str| {
            let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(key, _)| *key == name)?.1.trim().parse::<u64>().ok()
        };
        let (usage, cache, limits) = match self {
            Version::One => (
                number("memory.usage_in_bytes"),
                ["total_active_file", "total_inactive_file"],
                vec![
                    ("memory.limit_in_bytes", number("memory.limit_in_bytes")),
                    // Covers groups above the mount point, too.
                    ("memory.stat", line("hierarchical_memory_limit")),
                ],
            ),
            Version::Two => (
                number("memory.current"),
                ["active_file", "inactive_file"],
                ["memory.max", "memory.high"].map(|file| (file, number(file))).to_vec(),
            ),
        };
        let Some(usage) = usage else { return Vec::new() };
        let cache: u64 = cache.into_iter().filter_map(line).fold(0, u64::saturating_add);
        let used = usage.saturating_sub(cache);
        let known = limits.into_iter().filter_map(|(file, limit)| Some((file, limit?)));
        known.map(|(file, limit)| (limit.saturating_sub(used), folder.join(file))).collect()
    }
}

/// The path from a mount's root to a group; both are relative to the root of the control group namespace. Empty if the
/// mount shows a group above the namespace, whose children's names cannot be known from here: its own limits hold all
/// the same. `None` if the group is not below the mount.
fn below(mount: &str, group: &str) -> Option<PathBuf> {
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let (mount, group) = (parts(mount), parts(group));
    let common = mount.iter().zip(&group).take_while(|(a, b)| a == b).count();
    let (mount, group) = (&mount[common..], &group[common..]);
    if mount.is_empty() {
        return (!group.iter().any(|part| part == "..")).then(|| group.iter().collect());
    }
    let above = mount.iter().all(|part| part == "..") && !group.iter().any(|part| part == "..");
    above.then(PathBuf::new)
}

/// The folder of a group and those of all groups above it, up to the mount point.
fn ancestors(point: &Path, inner: &Path) -> Vec<PathBuf> {
    let depth = inner.components().filter(|part| matches!(part, Component::Normal(_))).count();
    point.join(inner).ancestors().take(depth + 1).map(Path::to_path_buf).collect()
}
