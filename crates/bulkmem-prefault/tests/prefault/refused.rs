//! What cannot be prefaulted: the error names the cause and what is ready, and no signal ends the process.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use bulkmem_prefault::{Cause, Error, Options, Ready, prefault_file};
use rustix::mm::{MapFlags, MprotectFlags, mprotect};
use rustix::param::page_size;

use crate::child::is_child;
use crate::{MIB, Map, WAYS, memfd};

#[test]
fn a_file_that_is_too_short_is_not_extended() {
    let file = memfd(MIB as u64, 0).unwrap();
    let error = prefault_file(&file, 0..2 << 20, &Options::new()).unwrap_err();
    assert!(matches!(error.cause, Cause::TooShort { length: 0x10_0000, end: 0x20_0000 }), "{error:?}");
    assert_eq!((error.ready, error.total, file.metadata().unwrap().blocks()), (0, 2 << 20, 0));
}

/// Also a mapping beyond the end of the file, where an access means SIGBUS.
#[test]
fn a_file_that_is_truncated_meanwhile_is_an_error_and_no_signal() {
    for touch in WAYS {
        for mapped in [false, true] {
            let size = 64 * MIB;
            let file = memfd(size as u64, 0).unwrap();
            let observer = |progress: &bulkmem_prefault::Progress| {
                if progress.ready > 0 {
                    file.set_len(MIB as u64).unwrap();
                }
                ControlFlow::Continue(())
            };
            let options =
                Options::new().threads(2).rate(64 << 20).progress(&observer).without_populate(touch);
            let result = if mapped {
                Map::of(&file, size, MapFlags::SHARED).prefault(&options)
            } else {
                prefault_file(&file, 0..size as u64, &options)
            };
            let error = result.unwrap_err();
            assert!(matches!(error.cause, Cause::TooShort { length: 0x10_0000, .. }), "{error:?}");
            assert!(error.ready > 0 && error.ready < size as u64, "{error:?}");
        }
    }
}

#[test]
fn a_full_tmpfs_says_how_much_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |arguments: &[&str]| {
        Command::new("mount").args(arguments).arg(folder.path()).output().is_ok_and(|it| it.status.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "size=4M", "tmpfs"]) {
        return println!("skipped: prefaulting a file on a full tmpfs: mounting one needs root");
    }
    let outcome = std::panic::catch_unwind(|| {
        for touch in WAYS {
            let path = folder.path().join("memory");
            let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
            file.set_len(16 << 20).unwrap();
            let options = Options::new().threads(2).without_populate(touch);
            let error = prefault_file(&file, 0..16 << 20, &options).unwrap_err();
            assert!(matches!(error.cause, Cause::NoSpace { free: 0 }), "{error:?}");
            assert_eq!((error.ready, file.metadata().unwrap().blocks() * 512), (4 << 20, 4 << 20));
            // Pages that exist need no room.
            assert_eq!(prefault_file(&file, 0..4 << 20, &options).unwrap().bytes, 4 << 20);
            // The mapping has no file system in view before an error.
            let error = Map::of(&file, 16 << 20, MapFlags::SHARED).prefault(&options).unwrap_err();
            assert!(matches!(error.cause, Cause::NoSpace { free: 0 }), "{error:?}");
            assert_eq!(error.ready, 4 << 20);
        }
    });
    assert!(Command::new("umount").arg(folder.path()).status().unwrap().success());
    outcome.unwrap();
}

fn refused(result: Result<Ready, Error>, text: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error.cause, Cause::Unsupported { .. }), "{error:?}");
    assert!(error.cause.to_string().contains(text), "{}", error.cause);
    assert_eq!(error.ready, 0);
}

#[test]
fn what_has_no_pages_to_map_is_refused_with_a_remedy() {
    let options = Options::new();
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    refused(prefault_file(null, 0..4096, &options), "not a regular file");
    refused(prefault_file(File::open("/").unwrap(), 0..4096, &options), "not a regular file");
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4096).unwrap();
    refused(
        prefault_file(File::open(file.path()).unwrap(), 0..4096, &options),
        "open it for reading and writing",
    );
    refused(prefault_file(file.as_file(), 0..4096, &options.clone().lock(true)), "lock");
    let sealed = memfd(4096, libc::MFD_ALLOW_SEALING).unwrap();
    rustix::fs::fcntl_add_seals(&sealed, rustix::fs::SealFlags::WRITE).unwrap();
    refused(prefault_file(&sealed, 0..4096, &options), "seal against writing");
}

/// In a process of its own: another test could map something in the hole.
#[test]
fn ranges_with_a_hole_or_without_the_right_to_write_are_refused() {
    if !is_child("refused::ranges_with_a_hole_or_without_the_right_to_write_are_refused", &|_| ()) {
        return;
    }
    let options = Options::new();
    let map = Map::anonymous(4 * page_size(), MapFlags::PRIVATE);
    let second = map.start.wrapping_add(page_size());
    // SAFETY: a page of the mapping, which nothing uses.
    unsafe { mprotect(second.cast(), page_size(), MprotectFlags::READ) }.unwrap();
    refused(map.prefault(&options), "not mapped for writing");
    // SAFETY: as above; no other test runs in this process, so nothing is mapped there until the mapping ends.
    unsafe { rustix::mm::munmap(second.cast(), page_size()) }.unwrap();
    refused(map.prefault(&options), "nothing is mapped at");
}

#[test]
fn a_limit_leaves_what_is_to_stay_free_and_existing_pages_need_no_room() {
    for touch in WAYS {
        let options = Options::new().threads(2).without_populate(touch);
        let file = memfd(8 << 20, 0).unwrap();
        let private = Map::anonymous(8 << 20, MapFlags::PRIVATE);
        let shared = Map::of(&file, 8 << 20, MapFlags::SHARED);
        let all = options.clone().keep_free(u64::MAX);
        let mut none = 0;
        for prefault in [
            &|options: &Options<'_>| private.prefault(options),
            &|options: &Options<'_>| shared.prefault(options),
            &|options: &Options<'_>| prefault_file(&file, 0..8 << 20, options),
        ] as [&dyn Fn(&Options<'_>) -> Result<Ready, Error>; 3]
        {
            match prefault(&all) {
                Err(error) => {
                    assert!(matches!(error.cause, Cause::Limit { .. }), "{error:?}");
                    assert_eq!(error.ready, 0);
                    none += 1;
                }
                // The same file's pages exist since the second one.
                Ok(ready) => assert!(none == 2 && ready.bytes == 8 << 20),
            }
            prefault(&options).unwrap();
            assert_eq!(prefault(&all).unwrap().bytes, 8 << 20);
        }
        assert_eq!(none, 2);
        assert!(fs::metadata("/proc/self/pagemap").is_ok());
    }
}
