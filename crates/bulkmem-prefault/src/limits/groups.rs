//! Memory control groups: those of this process and above it, and what their limits leave.

use std::path::{Component, Path, PathBuf};

use super::{number, text};

/// The files of a control group by version.
#[derive(Debug)]
struct Files {
    usage: &'static str,
    limits: &'static [&'static str],
    /// Lines of `memory.stat` with memory that the kernel can drop.
    droppable: [&'static str; 2],
    /// The line of `memory.stat` with the least limit of the group and all above it, mounted or not.
    above: Option<&'static str>,
}

const VERSION_1: Files = Files {
    usage: "memory.usage_in_bytes",
    limits: &["memory.limit_in_bytes"],
    droppable: ["total_active_file ", "total_inactive_file "],
    above: Some("hierarchical_memory_limit "),
};
const VERSION_2: Files = Files {
    usage: "memory.current",
    limits: &["memory.max", "memory.high"],
    droppable: ["active_file ", "inactive_file "],
    above: None,
};
const STATISTICS: &str = "memory.stat";

/// A group with a memory controller.
#[derive(Debug)]
pub(crate) struct Group {
    /// The folder of `/proc` and `/sys`.
    root: PathBuf,
    folder: PathBuf,
    files: &'static Files,
    /// The least limit of the groups above, when the group was found.
    above: Option<u64>,
}

impl Group {
    /// Returns the groups of this process: its own, and those above it up to the mount points. The files of `/proc` and
    /// `/sys` are taken from below `root`.
    pub(crate) fn of_process(root: &Path) -> Vec<Group> {
        let text = |path| text(root, Path::new(path));
        let (mounts, groups) = (text("proc/self/mountinfo"), text("proc/self/cgroup"));
        let mut found = Vec::new();
        for (controller, mount, point) in mounts.lines().filter_map(mounted) {
            // The path of this process's group, from a line: number, controllers, path.
            let path = |line: &str| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                let ours = controllers.split(',').any(|name| name == controller);
                ours.then(|| below(&mount, path))?
            };
            let files = if controller == UNIFIED { &VERSION_2 } else { &VERSION_1 };
            for inner in groups.lines().filter_map(path) {
                let depth = inner.components().count();
                for folder in point.join(inner).ancestors().take(depth + 1) {
                    let mut group = Group { root: root.into(), folder: folder.into(), files, above: None };
                    group.above = files.above.and_then(|line| group.number(STATISTICS, line));
                    if group.number(files.usage, "").is_some() {
                        found.push(group);
                    }
                }
            }
        }
        found
    }

    fn number(&self, file: &str, line: &str) -> Option<u64> {
        number(&text(&self.root, &self.folder.join(file)), line)
    }

    /// Returns the bytes that the limits leave, and the file with the limit that leaves the fewest. File cache that the kernel
    /// can drop counts as used, unless `drop_cache`, which takes the kernel longer to report.
    pub(crate) fn left(&self, drop_cache: bool) -> Option<(u64, PathBuf)> {
        let cached = || {
            let lines = self.files.droppable.into_iter();
            lines.filter_map(|line| self.number(STATISTICS, line)).fold(0, u64::saturating_add)
        };
        let limits = self.files.limits.iter();
        let limits = limits.filter_map(|file| Some((self.number(file, "")?, *file)));
        let (limit, file) = limits.chain(self.above.map(|limit| (limit, STATISTICS))).min()?;
        let used = self.number(self.files.usage, "")?;
        let used = if drop_cache { used.saturating_sub(cached()) } else { used };
        Some((limit.saturating_sub(used), self.folder.join(file)))
    }
}

/// In place of a controller in `/proc/self/cgroup`: the one hierarchy of version 2. Version 1 has one for `memory`.
const UNIFIED: &str = "";

/// Reads a line of `/proc/self/mountinfo`: number, parent, device, root, mount point, options, optional fields, a dash,
/// type, source, options of the file system. Returns the controller of the hierarchy of control groups that is mounted, the
/// group that the mount point shows, relative to the root of this process's control group namespace, and the mount point.
fn mounted(line: &str) -> Option<(&'static str, PathBuf, PathBuf)> {
    let (mount, system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3).map(unescape);
    let mut system = system.split(' ');
    let controller = match (system.next()?, system.nth(1)?) {
        ("cgroup2", _) => UNIFIED,
        ("cgroup", options) if options.split(',').any(|option| option == "memory") => "memory",
        _ => return None,
    };
    Some((controller, mount.next()?.into(), mount.next()?.into()))
}

/// Replaces the octal codes that the kernel writes for blanks and backslashes.
fn unescape(text: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.into_iter().fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter))
}

/// The path from a mount's root to a group; both are relative to the root of the control group namespace. Empty if the
/// mount shows a group above the namespace, whose children's names cannot be known from here: its own limits hold all
/// the same. `None` if the group is not below the mount.
fn below(mount: &Path, group: &str) -> Option<PathBuf> {
    let group = Path::new(group);
    let up = |part: Component<'_>| part == Component::ParentDir;
    if let Ok(inner) = group.strip_prefix(mount) {
        return (!inner.components().any(up)).then(|| inner.to_owned());
    }
    let common = mount.components().zip(group.components()).take_while(|(a, b)| a == b).count();
    let above = mount.components().skip(common).all(up) && !group.components().skip(common).any(up);
    above.then(PathBuf::new)
}
