use super::*;

const MIB: u64 = 1 << 20;
/// The limit that version 1 writes if there is none.
const UNLIMITED: &str = "9223372036854771712";

fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// The memory left on a machine with 8 GiB available and these files.
fn left(files: &[(&str, &str)]) -> (u64, MemoryLimit) {
    let machine = ("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n");
    let root = root(&[&[machine], files].concat());
    let MemoryLeft { bytes, limit } = MemoryLeft::below(root.path());
    (bytes, limit)
}

fn group(path: &str) -> MemoryLimit {
    MemoryLimit::ControlGroup(path.into())
}

#[test]
fn without_limits_the_available_memory_counts() {
    assert_eq!(left(&[]), (8192 * MIB, MemoryLimit::Available));
    let unlimited = "Limit                     Soft Limit           Hard Limit           Units\n\
                     Max data size             unlimited            unlimited            bytes\n\
                     Max address space         unlimited            unlimited            bytes\n";
    let status = "VmSize:\t 51200 kB\nVmData:\t 10240 kB\n";
    let files = [("proc/self/limits", unlimited), ("proc/self/status", status)];
    assert_eq!(left(&files), (8192 * MIB, MemoryLimit::Available));
    // Nothing is known at all: half of the machine's memory.
    let bare = MemoryLeft::below(root(&[]).path());
    assert_eq!(bare, MemoryLeft { bytes: Machine::current().memory / 2, limit: MemoryLimit::Available });
}

#[test]
fn the_limits_of_the_process_count_less_what_it_uses() {
    let limits = |data: &str, space: &str| {
        format!(
            "Max cpu time              unlimited            unlimited            seconds\n\
             Max data size             {data:20} unlimited            bytes\n\
             Max address space         {space:20} unlimited            bytes\n"
        )
    };
    let status = ("proc/self/status", "Name:\tbulkmem\nVmSize:\t  51200 kB\nVmData:\t  10240 kB\n");
    let with = |data: &str, space: &str| left(&[("proc/self/limits", &limits(data, space)), status]);
    assert_eq!(with("unlimited", "209715200"), (150 * MIB, MemoryLimit::AddressSpace));
    assert_eq!(with("104857600", "209715200"), (90 * MIB, MemoryLimit::Data));
    // More is used than the limit that was lowered later allows.
    assert_eq!(with("unlimited", "1024"), (0, MemoryLimit::AddressSpace));
}

#[test]
fn the_commit_limit_counts_where_the_kernel_enforces_it() {
    let meminfo = "MemAvailable: 8388608 kB\nCommitLimit: 2097152 kB\nCommitted_AS: 1048576 kB\n";
    for (mode, expected) in [
        ("0\n", (8192 * MIB, MemoryLimit::Available)),
        ("1\n", (8192 * MIB, MemoryLimit::Available)),
        ("2\n", (1024 * MIB, MemoryLimit::Commit)),
    ] {
        let files = [("proc/meminfo", meminfo), ("proc/sys/vm/overcommit_memory", mode)];
        assert_eq!(left(&files), expected, "{mode}");
    }
}

const V2: &str = "31 23 0:28 / /sys rw - sysfs sysfs rw\n\
                  42 31 0:38 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                  32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                  36 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

#[test]
fn version_2_counts_every_group_from_this_one_upwards() {
    let mounts = ("proc/self/mountinfo", V2);
    let own = ("proc/self/cgroup", "0::/a/b\n");
    let at = |max: &'static str, high: &'static str, current: &'static str| {
        [
            mounts,
            own,
            ("sys/fs/cgroup/a/b/memory.max", max),
            ("sys/fs/cgroup/a/b/memory.high", high),
            ("sys/fs/cgroup/a/b/memory.current", current),
            (
                "sys/fs/cgroup/a/b/memory.stat",
                "anon 1\nfile 5\nactive_file 20971520\ninactive_file 31457280\n",
            ),
        ]
    };
    assert_eq!(left(&at("max\n", "max\n", "104857600\n")), (8192 * MIB, MemoryLimit::Available));
    // 500 MiB, of which 100 are used, 50 of these by file cache that can be dropped.
    let max = "/sys/fs/cgroup/a/b/memory.max";
    assert_eq!(left(&at("524288000\n", "max\n", "104857600\n")), (450 * MIB, group(max)));
    let high = "/sys/fs/cgroup/a/b/memory.high";
    assert_eq!(left(&at("524288000\n", "419430400\n", "104857600\n")), (350 * MIB, group(high)));
    assert_eq!(left(&at("0\n", "max\n", "104857600\n")), (0, group(max)));
    // The group above has its own limit and its own usage.
    let parent =
        [("sys/fs/cgroup/a/memory.max", "419430400"), ("sys/fs/cgroup/a/memory.current", "314572800")];
    let files = [&at("524288000\n", "max\n", "104857600\n")[..], &parent].concat();
    assert_eq!(left(&files), (100 * MIB, group("/sys/fs/cgroup/a/memory.max")));
    // A group beside this one has nothing to do with it.
    let beside = [("sys/fs/cgroup/a/c/memory.max", "1"), ("sys/fs/cgroup/a/c/memory.current", "1")];
    let files = [&at("524288000\n", "max\n", "104857600\n")[..], &beside].concat();
    assert_eq!(left(&files), (450 * MIB, group(max)));
}

#[test]
fn version_1_counts_the_memory_controller_and_limits_above_the_mount() {
    let mounts = ("proc/self/mountinfo", V1);
    let own = ("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/jobs/one\n0::/\n");
    let folder = "sys/fs/cgroup/memory/jobs/one/";
    let at = |limit: &str, stat: &str| {
        let names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"];
        let paths = names.map(|name| format!("{folder}{name}"));
        let [of_limit, of_usage, of_stat] = &paths;
        left(&[mounts, own, (of_limit, limit), (of_usage, "104857600\n"), (of_stat, stat)])
    };
    let cache = "cache 1\ninactive_file 1\ntotal_inactive_file 10485760\ntotal_active_file 10485760\n";
    assert_eq!(at(UNLIMITED, cache), (8192 * MIB, MemoryLimit::Available));
    let limit = "/sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes";
    assert_eq!(at("209715200\n", cache), (120 * MIB, group(limit)));
    let above = format!("hierarchical_memory_limit 157286400\n{cache}");
    let stat = "/sys/fs/cgroup/memory/jobs/one/memory.stat";
    assert_eq!(at(UNLIMITED, &above), (70 * MIB, group(stat)));
}

#[test]
fn groups_are_found_through_namespaces_and_partial_mounts() {
    // Root of the mount and path of the group, as /proc shows them, and the folder that is the group's or one above.
    for (mounted, path, folder) in [
        ("/", "/", Some("")),
        ("/", "/a", Some("a")),
        // A container without a namespace sees its own group at the mount point.
        ("/docker/1", "/docker/1", Some("")),
        ("/docker/1", "/docker/1/init", Some("init")),
        ("/docker/1", "/docker/2", None),
        ("/docker/1", "/docker/10", None),
        // The mount is of groups above the namespace's root: these hold all the same.
        ("/..", "/", Some("")),
        ("/../..", "/inner", Some("")),
        ("/..", "/../beside", Some("beside")),
        ("/../a", "/", None),
        // The process is in a group outside of what is mounted.
        ("/", "/../beside", None),
    ] {
        let mounts = format!("42 31 0:38 {mounted} /cg\\040roup rw - cgroup2 cgroup2 rw\n");
        let groups = format!("0::{path}\n");
        let folder = folder.map(|folder| Path::new("/cg roup").join(folder).join("memory.max"));
        let mut files = vec![("proc/self/mountinfo", mounts.as_str()), ("proc/self/cgroup", groups.as_str())];
        let max = folder.as_ref().map(|path| path.to_string_lossy()[1..].to_owned()).unwrap_or_default();
        let current = max.replace("max", "current");
        if !max.is_empty() {
            files.extend([(max.as_str(), "104857600"), (current.as_str(), "4194304")]);
        }
        let expected = match folder {
            Some(path) => (96 * MIB, MemoryLimit::ControlGroup(path)),
            None => (8192 * MIB, MemoryLimit::Available),
        };
        assert_eq!(left(&files), expected, "{mounted} {path}");
    }
}

#[test]
fn damaged_files_limit_nothing() {
    let files = [
        ("proc/self/mountinfo", "\n- -\n1 2 3 - cgroup2\n42 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n"),
        ("proc/self/cgroup", "\n0\n0:\n0::/\n"),
        ("cg/memory.max", "lots"),
        ("cg/memory.current", "-1"),
        ("cg/memory.stat", "active_file\ninactive_file x\n"),
        ("proc/self/limits", "Max address space\nMax data size  x y\n"),
        ("proc/self/status", "VmSize:\nVmData: x kB\n"),
    ];
    assert_eq!(left(&files), (8192 * MIB, MemoryLimit::Available));
}

#[test]
fn a_limit_is_named_with_what_it_leaves() {
    let left = MemoryLeft { bytes: 512 * MIB, limit: group("/sys/fs/cgroup/a/memory.max") };
    let text = "512 MiB left by the control group's limit (/sys/fs/cgroup/a/memory.max)";
    assert_eq!(left.to_string(), text);
}
