//! The engine for fio, in Debian's unmodified fio.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::toolchain::{SOURCE, installed};

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

/// Runs a job with the engine on a file of 8 MiB in a folder of its own. `None` if there is no engine.
fn job(options: &[&str]) -> Option<Output> {
    let engine = engine()?;
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("fio");
    command.current_dir(folder.path()).args(["--name=job", "--filename=file", "--size=8m", "--thread"]);
    command.arg(format!("--ioengine=external:{}", engine.display())).args(options);
    Some(command.output().unwrap())
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
        (&["--rw=read", "--attribute=wc"], "filename=/dev/bulkmem, not file"),
    ] {
        let Some(output) = job(options) else { return };
        let both = [&output.stdout[..], &output.stderr].concat();
        let printed = String::from_utf8_lossy(&both);
        assert!(!output.status.success() && printed.contains(reason), "{options:?}: {printed}");
    }
}
