//! The engine for fio, in Debian's unmodified fio.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::toolchain::{SOURCE, installed, run};

/// Builds the engine, once. `None` if it cannot be built on this machine, which is printed.
fn engine() -> Option<&'static Path> {
    static ENGINE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        if !installed("fio", "the engine for fio") {
            return None;
        }
        let script = Path::new(SOURCE).join("../../scripts/build-fio.sh");
        let archive = testkit::archive::archive("bulkmem_c");
        let output = Command::new(script).arg(archive).output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        // Without a network, or with another version of fio than the source that the script fetches.
        if let Some(why) =
            ["cannot be fetched", "is installed, and this"].iter().find(|why| complaints.contains(**why))
        {
            println!("skipped: the engine for fio: {why}: {complaints}");
            return None;
        }
        assert!(output.status.success(), "{complaints}");
        let path = String::from_utf8(output.stdout).unwrap();
        Some(Path::new(SOURCE).join("../..").join(path.trim()).canonicalize().unwrap())
    });
    engine.as_deref()
}

/// fio with the engine, for jobs in a folder. `None` if there is no engine.
fn fio(folder: &Path) -> Option<Command> {
    let engine = engine()?;
    let mut command = Command::new("fio");
    command.current_dir(folder).args(["--thread", "--name=job"]);
    command.arg(format!("--ioengine=external:{}", engine.display()));
    Some(command)
}

/// Runs a job with the engine on a file of 8 MiB in a folder of its own. `None` if there is no engine.
fn job(options: &[&str]) -> Option<Output> {
    let folder = tempfile::tempdir().unwrap();
    Some(fio(folder.path())?.args(["--filename=file", "--size=8m"]).args(options).output().unwrap())
}

/// Bytes that differ from one 4 KiB block to the next.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index / 4096 + index % 251) as u8).collect()
}

/// The little-endian number at an offset of a file, which is the offset if fio wrote it there with `verify_pattern=%o`.
fn number_at(file: &Path, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    fs::File::open(file).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    u64::from_le_bytes(bytes)
}

/// Writes at random places, then reads everything back and compares checksums.
#[test]
fn fio_verifies_what_the_engine_wrote() {
    let verify = ["--rw=randwrite", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1"];
    for options in [
        &["--bs=4k"][..],
        &["--bs=1m"],
        &["--bsrange=512-64k", "--fsync=16"],
        &["--bs=4k", "--method=nontemporal_sse2", "--read_method=movntdqa_store_sse41"],
        &["--bs=64k", "--persist=1", "--fsync=16"],
        &["--bsrange=64-4k", "--persist=1", "--method=movnti"],
        &["--bs=256k", "--intent=stream", "--offset=1m"],
        &["--bs=4k", "--rw=randrw", "--nrfiles=4"],
    ] {
        let Some(output) = job(&[&verify, options].concat()) else { return };
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("err= 0"), "{options:?}: {output:?}");
        assert!(printed.contains("READ: ") && printed.contains("WRITE: "), "{options:?}: {printed}");
        let dax = printed.contains("is not on DAX: persist=1");
        assert_eq!(dax, options.contains(&"--persist=1"), "{options:?}: {printed}");
    }
}

#[test]
fn what_the_engine_cannot_do_is_refused_with_the_reason() {
    for (options, reason) in [
        (&["--rw=write", "--method=nonsense"][..], "unknown method `nonsense`"),
        (&["--rw=read", "--read_method=clzero"], "clzero"),
        (&["--rw=write", "--persist=1", "--method=rep_movsb"], "rep_movsb"),
        (&["--rw=write", "--intent=fast"], "throughput"),
        (&["--rw=read", "--attribute=wc"], "filename=/dev/bulkmem-memory, not file"),
        (&["--rw=read", "--create_on_open=1"], "has 0 bytes, and the job needs 8388608"),
        (
            &["--rw=read", "--filename=/dev/zero", "--offset=4m"],
            "offset= and offset_increment= cannot be used",
        ),
        (&["--rw=read", "--filename=/dev/zero", "--size=50%"], "no size of its own: say size="),
    ] {
        let Some(output) = job(options) else { return };
        let both = [&output.stdout[..], &output.stderr].concat();
        let printed = String::from_utf8_lossy(&both);
        assert!(!output.status.success() && printed.contains(reason), "{options:?}: {printed}");
    }
}

#[test]
fn a_job_changes_only_what_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let before = content(1 << 20);
    fs::write(&file, &before).unwrap();
    let job = |options: &[&str]| {
        let output = fio(folder.path())?.arg("--filename=file").args(options).output().unwrap();
        assert!(output.status.success(), "{options:?}: {output:?}");
        Some(fs::read(&file).unwrap())
    };
    for options in [&["--rw=read"][..], &["--rw=randread", "--size=64k", "--offset=64k"]] {
        let Some(after) = job(options) else { return };
        assert!(after == before, "{options:?}");
    }
    let after = job(&["--rw=write", "--size=4k", "--offset=8k"]).unwrap();
    assert!(after[8192..12288] != before[8192..12288], "not written");
    assert!(after[..8192] == before[..8192] && after[12288..] == before[12288..]);

    // What one job wrote, other jobs verify.
    for options in [&["--rw=write"][..], &["--rw=write", "--verify_only"], &["--rw=read"]] {
        job(&[&["--verify=crc32c"], options].concat());
    }
}

#[test]
fn blocks_go_to_their_place_and_never_beyond_the_mapping() {
    let folder = tempfile::tempdir().unwrap();
    let pattern = ["--verify=pattern", "--verify_pattern=%o", "--bs=4k", "--do_verify=1"];
    let run = |options: &[&str]| Some(fio(folder.path())?.args(pattern).args(options).output().unwrap());
    let path = |name| folder.path().join(name);

    let two = ["--filename=b:a", "--size=2m", "--file_service_type=roundrobin", "--rw=randwrite"];
    let Some(output) = run(&two) else { return };
    assert!(output.status.success(), "{output:?}");
    for offset in (0..1 << 20).step_by(4096) {
        assert_eq!([number_at(&path("a"), offset), number_at(&path("b"), offset)], [offset; 2]);
    }

    // Zones of 64 KiB, one in each MiB, beyond the range of `size`.
    fs::write(path("zones"), vec![0xff; 4 << 20]).unwrap();
    let zones = ["--zonemode=strided", "--zonesize=64k", "--zonerange=64k", "--zoneskip=960k"];
    let output = run(&[&["--filename=zones", "--size=256k", "--rw=write"], &zones[..]].concat()).unwrap();
    assert!(output.status.success(), "{output:?}");
    for zone in (0..4 << 20).step_by(1 << 20) {
        assert_eq!(
            [zone, zone + 61440].map(|offset| number_at(&path("zones"), offset)),
            [zone, zone + 61440]
        );
        assert_eq!(
            [zone + 65536, zone + 1044480].map(|offset| number_at(&path("zones"), offset)),
            [u64::MAX; 2]
        );
    }

    // A log decides the offsets.
    for (offset, reason) in
        [(3 << 20, None), (4 << 20, Some("4096 bytes at offset 4194304 are beyond the end"))]
    {
        let log =
            format!("fio version 2 iolog\nzones add\nzones open\nzones write {offset} 4096\nzones close\n");
        fs::write(path("log"), log).unwrap();
        let output = fio(folder.path()).unwrap().arg("--read_iolog=log").output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), reason.is_none(), "{output:?}");
        assert!(complaints.contains(reason.unwrap_or_default()), "{output:?}");
    }
}

/// Counts calls of `msync`, and leaves the count in a file.
const COUNTER: &str = r#"
#include <stddef.h>
#include <stdio.h>
static int calls;
int msync(void *start, size_t length, int flags)
{
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    return 0;
}
__attribute__((destructor)) static void report(void)
{
    FILE *file = fopen("calls", "w");
    fprintf(file, "%d", calls);
    fclose(file);
}
"#;

#[test]
fn sync_waits_for_each_write() {
    let folder = tempfile::tempdir().unwrap();
    if engine().is_none() {
        return;
    }
    let (source, counter) = (folder.path().join("counter.c"), folder.path().join("counter.so"));
    fs::write(&source, COUNTER).unwrap();
    run(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&counter).arg(&source));
    for (option, calls) in [("--sync=0", "0"), ("--sync=1", "16")] {
        let mut fio = fio(folder.path()).unwrap();
        fio.args(["--filename=file", "--size=64k", "--bs=4k", "--rw=write", option]);
        run(fio.env("LD_PRELOAD", &counter));
        assert_eq!(fs::read_to_string(folder.path().join("calls")).unwrap(), calls, "{option}");
    }
}

/// Memory of devices stays mapped between opens, and is unmapped when the job ends, also if other jobs of the process go on.
#[test]
fn memory_of_a_device_is_unmapped_when_the_job_ends() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut fio) = fio(folder.path()) else { return };
    let length = 0x123_4000;
    let size = format!("--size={length}");
    fio.args([
        "--filename=/dev/zero",
        &size,
        "--rw=write",
        "--bs=4k",
        "--verify=crc32c",
        "--exec_postrun=cat /proc/$PPID/maps",
    ]);
    fio.args([
        "--name=next",
        "--stonewall",
        "--ioengine=null",
        "--size=4k",
        "--exec_prerun=cat /proc/$PPID/maps",
    ]);
    run(&mut fio);
    let mapped = |file: &str| {
        let maps = fs::read_to_string(folder.path().join(file)).unwrap();
        maps.lines()
            .filter(|line| {
                let (start, end) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
                u64::from_str_radix(end, 16).unwrap() - u64::from_str_radix(start, 16).unwrap() == length
            })
            .count()
    };
    assert_eq!(mapped("job.postrun.txt"), 1);
    assert_eq!(mapped("next.prerun.txt"), 0);
}

/// A loop device, detached at the end.
struct Loop(String);

impl Loop {
    /// `None` without the right to make one, which is printed.
    fn new(file: &Path) -> Option<Loop> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(Loop(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
            }
            why => {
                println!("skipped: the engine for fio on a block device: no loop device: {why:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run(Command::new("losetup").arg("--detach").arg(&self.0));
    }
}

#[test]
fn block_devices_verify() {
    let folder = tempfile::tempdir().unwrap();
    if engine().is_none() {
        return;
    }
    let file = folder.path().join("disk");
    fs::write(&file, content(1 << 20)).unwrap();
    let Some(device) = Loop::new(&file) else { return };
    for options in [["--rw=randwrite", "--do_verify=1"], ["--rw=read", "--create_serialize=0"]] {
        let mut fio = fio(folder.path()).unwrap();
        fio.arg(format!("--filename={}", device.0)).args(["--size=256k", "--offset=64k", "--verify=crc32c"]);
        let printed = run(fio.arg("--fsync=8").args(options));
        assert!(printed.contains("READ: "), "{options:?}: {printed}");
    }
}

/// fio's configure writes `config-host.h` before it knows whether it succeeds.
#[test]
fn a_failed_configure_is_repeated() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("fio.h"), "").unwrap();
    let configure = source.path().join("configure");
    fs::write(&configure, "#!/bin/sh\n: >config-host.h\nexit 1\n").unwrap();
    run(Command::new("chmod").arg("+x").arg(&configure));
    for _ in 0..2 {
        let mut script = Command::new(Path::new(SOURCE).join("../../scripts/build-fio.sh"));
        script.arg(testkit::archive::archive("bulkmem_c")).env("FIO_SOURCE", source.path());
        let complaints = String::from_utf8(script.output().unwrap().stderr).unwrap();
        assert!(complaints.contains("configure failed"), "{complaints}");
    }
}
