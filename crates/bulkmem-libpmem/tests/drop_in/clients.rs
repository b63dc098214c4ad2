//! Debian's programs, unmodified, on a file in memory that they take for persistent memory.

use std::process::Command;

use crate::toolchain::{assert_loads_ours, folder, installed, run, with_ours};

/// Writes at random places, then reads everything back and compares checksums.
#[test]
fn fio_verifies_what_it_wrote() {
    if !installed("fio", "fio") {
        return;
    }
    if !run(Command::new("fio").arg("--enghelp")).contains("libpmem") {
        println!("skipped: fio with our libpmem: fio with ioengine=libpmem is not installed");
        return;
    }
    assert_loads_ours("fio");
    // direct: non-temporal stores; sync: a drain after each block.
    for (sizes, direct, sync) in
        [("4k-4k", "1", "1"), ("512-64k", "0", "1"), ("1m-1m", "1", "0"), ("64-4k", "0", "0")]
    {
        let folder = folder();
        let printed = run(with_ours("fio")
            .current_dir(folder.path())
            .env("PMEM_IS_PMEM_FORCE", "1")
            .args([
                "--name=job",
                "--ioengine=libpmem",
                "--filename=file",
                "--size=8m",
                "--thread",
                "--rw=randwrite",
            ])
            .args(["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--group_reporting"])
            .arg(format!("--bsrange={sizes}"))
            .arg(format!("--direct={direct}"))
            .arg(format!("--sync={sync}")));
        assert!(printed.contains("err= 0"), "{sizes}: {printed}");
        assert!(!printed.contains("verify failed"), "{sizes}: {printed}");
    }
}

/// libpmemobj and the other libraries of pools use libpmem for every access.
#[test]
fn pmempool_checks_pools_that_either_library_created() {
    if !installed("pmempool", "pmdk-tools") {
        return;
    }
    assert_loads_ours("pmempool");
    let [ours, theirs] = [
        || with_ours("pmempool"),
        || {
            let mut command = Command::new("pmempool");
            command.env_remove("LD_LIBRARY_PATH");
            command
        },
    ] as [fn() -> Command; 2];
    let kinds: [&[&str]; 3] = [&["obj", "--layout=test"], &["blk", "512"], &["log"]];
    for kind in kinds {
        for (create, check) in [(ours, theirs), (theirs, ours), (ours, ours)] {
            let folder = folder();
            let pool = |create: fn() -> Command, arguments: &[&str]| {
                let mut command = create();
                run(command.current_dir(folder.path()).env("PMEM_IS_PMEM_FORCE", "1").args(arguments))
            };
            pool(create, &[&["create", kind[0], "--size=32M"], &kind[1..], &["pool"]].concat());
            let checked = pool(check, &["check", "-v", "pool"]);
            assert!(checked.contains("pool: consistent"), "{kind:?}: {checked}");
            let shown = pool(ours, &["info", "pool"]);
            assert_eq!(shown, pool(theirs, &["info", "pool"]), "{kind:?}");
            assert!(shown.contains("33554432"), "{kind:?}: {shown}");
        }
    }
}
