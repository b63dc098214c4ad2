//! Attacks on the daemon: its descriptors, its memory, its core file. They succeed against a daemon that runs as the
//! tenant's user and can be inspected.

use std::fs;
use std::os::fd::OwnedFd;

use bulkmem_pool::Weakness;
use rustix::process::{DumpableBehavior, Pid, Signal, kill_process, set_dumpable_behavior};
use testkit::harness::Suite;

use super::{BOBS, bytes_of};
use crate::pool::{ALICE, BOB, POOL_USER, Pool, UNIT, full_of, lease, read_file};
use crate::process::{Channel, Child, drop_capabilities};

/// Returns the bytes that Alice can take from a daemon.
type Steal = fn(Pid) -> Vec<u8>;

pub(super) fn add(suite: &mut Suite) {
    let attacks: [(&str, Steal); 4] = [
        ("descriptors_of_the_daemon_through_proc", open_descriptors),
        ("descriptors_of_the_daemon_by_pidfd_getfd", get_descriptors),
        ("memory_of_the_daemon_by_process_vm_readv", read_memory),
        ("memory_of_the_daemon_by_ptrace", trace),
    ];
    for (name, steal) in attacks {
        suite.test(&format!("attack::{name}"), move || {
            let (weak, _) = stolen(&Pool::start_as(ALICE, 1, weaken, allow_inspection), steal);
            assert!(
                weak > 0,
                "the attack steals nothing even from a weakened pool, so this test proves nothing"
            );
            // Nothing of a ready unit, either. A process that could be inspected until it became the daemon no longer can.
            let real = stolen(&Pool::start(1, |_| ()), steal);
            let same_user = stolen(&Pool::start_as(ALICE, 1, |_| (), allow_inspection), steal);
            assert_eq!((real, same_user), ((0, 0), (0, 0)));
            println!("{name}: weakened pool {weak} bytes; real pool, and a real one of the tenant's user: 0");
            Ok(())
        });
    }
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with(['|', '/', '@']) || pattern.trim().is_empty() {
        let why = format!(
            "core files of this machine go elsewhere: /proc/sys/kernel/core_pattern is {}",
            pattern.trim()
        );
        suite.skip("attack::core_dump_of_the_daemon", &why);
    } else {
        suite.test("attack::core_dump_of_the_daemon", || {
            core_dump();
            Ok(())
        });
    }
}

fn weaken(config: &mut bulkmem_pool::Config) {
    config.hooks.weak = vec![Weakness::Dumpable, Weakness::Recycles];
    config.filter_system_calls = false;
}

/// Undoes what changing the user has done. Without its capability, the daemon has nothing that Alice does not have.
fn allow_inspection() {
    drop_capabilities();
    set_dumpable_behavior(DumpableBehavior::Dumpable).expect("always possible");
}

/// Bob receives a unit, and the daemon has the next one ready; afterwards, Alice steals what she can from the daemon. Returns the
/// bytes of Bob's secret in it, and all bytes.
fn stolen(pool: &Pool, steal: Steal) -> (usize, usize) {
    let daemon = pool.daemon.pid();
    // What a daemon that runs as Alice cannot change owners of, it cannot hand out to Bob: he is in her place.
    let bobs_user = if fs::metadata(format!("/proc/{daemon}")).is_ok() { owner(daemon) } else { BOB };
    let bobs_user = if bobs_user == ALICE { ALICE } else { BOB };
    let mut alice = Child::of_user(ALICE, move |channel: &mut Channel| {
        channel.receive::<bool>();
        let taken = steal(daemon);
        channel.send((bytes_of(BOBS, &taken), taken.len()));
    });
    let mut bob = Child::of_user(bobs_user, |channel| {
        let unit = lease(&pool.client);
        rustix::io::pwrite(&unit.file, &full_of(BOBS), 0).expect("the unit is his");
        channel.send(true);
        channel.receive::<bool>();
    });
    bob.channel.receive::<bool>();
    pool.wait_until_full();
    alice.channel.send(true);
    alice.channel.receive()
}

fn owner(process: Pid) -> u32 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("a user");
    line.split_whitespace().next().and_then(|user| user.parse().ok()).expect("a number")
}

fn open_descriptors(daemon: Pid) -> Vec<u8> {
    let files = fs::read_dir(format!("/proc/{daemon}/fd")).into_iter().flatten().flatten();
    let open = |entry: fs::DirEntry| -> Option<OwnedFd> {
        let name = fs::read_link(entry.path()).ok()?;
        let unit = name.to_string_lossy().contains("memfd:bulkmem-pool");
        unit.then(|| fs::File::open(entry.path()).ok())?.map(OwnedFd::from)
    };
    files.filter_map(open).flat_map(|file| read_file(&file)).collect()
}

fn get_descriptors(daemon: Pid) -> Vec<u8> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let process = pidfd_open(daemon, PidfdFlags::empty()).expect("a process");
    let get = |raw| pidfd_getfd(&process, raw, PidfdGetfdFlags::empty()).ok();
    let is_unit =
        |file: &OwnedFd| rustix::fs::fstat(file).is_ok_and(|about| u64::try_from(about.st_size) == Ok(UNIT));
    (0..64).filter_map(get).filter(is_unit).flat_map(|file| read_file(&file)).collect()
}

/// Returns the ranges of the daemon's mappings of units.
fn mappings(daemon: Pid) -> Vec<(usize, usize)> {
    let maps = fs::read_to_string(format!("/proc/{daemon}/maps")).unwrap_or_default();
    let unit = |line: &str| {
        let range = line.contains("memfd:bulkmem-pool").then(|| line.split(' ').next())??;
        let (from, to) = range.split_once('-')?;
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
    };
    maps.lines().filter_map(unit).collect()
}

fn read_memory(daemon: Pid) -> Vec<u8> {
    let read = |(from, to): (usize, usize)| {
        let mut bytes = vec![0; to - from];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: from as *mut _, iov_len: bytes.len() };
        // SAFETY: the local range is the vector; the kernel checks the remote one.
        let copied = unsafe {
            libc::process_vm_readv(
                daemon.as_raw_nonzero().get(),
                &raw const local,
                1,
                &raw const remote,
                1,
                0,
            )
        };
        bytes.truncate(usize::try_from(copied).unwrap_or_default());
        bytes
    };
    mappings(daemon).into_iter().flat_map(read).collect()
}

fn trace(daemon: Pid) -> Vec<u8> {
    let pid = daemon.as_raw_nonzero().get();
    // SAFETY: the calls stop another process and read its memory, which the kernel checks.
    unsafe {
        if libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0) != 0 {
            return Vec::new();
        }
        libc::waitpid(pid, std::ptr::null_mut(), 0);
        let words = mappings(daemon).into_iter().flat_map(|(from, to)| (from..to).step_by(8));
        let peek = |at: usize| libc::ptrace(libc::PTRACE_PEEKDATA, pid, at, 0).to_le_bytes();
        let bytes = words.flat_map(peek).collect();
        libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
        bytes
    }
}

/// Alice makes the daemon dump its memory, in which a weakened one has Bob's unit.
fn core_dump() {
    let found = |user, weak: bool| {
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::chown(folder.path(), Some(user), Some(user)).expect("the tests run as root");
        let change = |config: &mut bulkmem_pool::Config| {
            if weak {
                weaken(config);
            }
        };
        let mut pool = Pool::start_as(user, 1, change, || {
            std::env::set_current_dir(folder.path()).expect("its folder");
            // The daemon's own user keeps the right to change owners.
            if user == ALICE {
                allow_inspection();
                let all = rustix::process::Rlimit { current: None, maximum: None };
                _ = rustix::process::setrlimit(rustix::process::Resource::Core, all);
            }
        });
        let daemon = pool.daemon.pid();
        let bobs_user = if user == ALICE { ALICE } else { BOB };
        let mut bob = Child::of_user(bobs_user, |channel| {
            let unit = lease(&pool.client);
            rustix::io::pwrite(&unit.file, &full_of(BOBS), 0).expect("the unit is his");
            channel.send(true);
            channel.receive::<bool>();
        });
        bob.channel.receive::<bool>();
        let mut alice = Child::of_user(ALICE, |_| _ = kill_process(daemon, Signal::ABORT));
        alice.wait();
        if user == ALICE {
            // She may send signals to her own processes: the daemon dies, and leaves no core file.
            pool.daemon.wait();
        }
        let files = fs::read_dir(folder.path()).expect("the folder").flatten();
        let bytes = files
            .filter_map(|file| fs::read(file.path()).ok())
            .map(|core| bytes_of(BOBS, &core))
            .sum::<usize>();
        (bytes, pool.daemon.has_ended())
    };
    let (weak, _) = found(ALICE, true);
    assert!(weak > 0, "no core file has the secret even of a weakened pool, so this test proves nothing");
    assert_eq!(found(ALICE, false), (0, true));
    assert_eq!(found(POOL_USER, false), (0, false));
    println!("core_dump_of_the_daemon: weakened pool {weak} bytes; real pool: 0 bytes");
}
