//! Every kind of memory: all pages are mapped, and the contents stay.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use bulkmem::{Mapping, Pages};
use bulkmem_prefault::numa::{NumberList, Topology};
use bulkmem_prefault::{Cause, Options, Placement, prefault_file, prefault_mapping};
use rustix::mm::MapFlags;
use rustix::param::page_size;

use crate::{MIB, Map, WAYS, faults, memfd};

const SIZE: usize = 9 * MIB + 4096;

/// Writes to some pages, prefaults, and checks that the contents are kept and that further writes take no page faults.
fn check(name: &str, bytes: &mut [u8], prefault: &dyn Fn() -> u64) {
    for at in [0, 4097, 3 * MIB, bytes.len() - 1] {
        bytes[at] = 7;
    }
    assert_eq!(prefault(), bytes.len() as u64, "{name}");
    let before = faults();
    (0..bytes.len()).step_by(page_size()).for_each(|at| bytes[at] |= 1);
    let taken = faults() - before;
    // The kernel may write pages of a disk's file back at any time.
    let most = if name.contains("disk") { 2400 } else { 8 };
    assert!(taken <= most, "{name}: {taken} page faults");
    for (at, byte) in bytes.iter().enumerate() {
        let written = [0, 4097, 3 * MIB, bytes.len() - 1].contains(&at);
        let expected = if written { 7 } else { u8::from(at % page_size() == 0) };
        assert_eq!(*byte, expected, "{name}: byte {at}");
    }
}

#[test]
fn memory_of_every_kind_is_mapped_and_keeps_its_contents() {
    for touch in WAYS {
        for threads in [1, 3] {
            let options = Options::new().threads(threads).without_populate(touch);
            for pages in [Pages::Base, Pages::Transparent] {
                let mut mapping = Mapping::new(SIZE, pages).unwrap();
                let (start, length) = (mapping.as_mut_ptr(), mapping.len());
                let prefault = || {
                    // SAFETY: the mapping lives on.
                    unsafe { bulkmem_prefault::prefault_range(start, length, &options) }.unwrap().bytes
                };
                check(&format!("{pages} pages, touch {touch}"), &mut mapping, &prefault);
            }
            let on_disk = tempfile::tempfile().unwrap();
            on_disk.set_len(SIZE as u64).unwrap();
            let in_memory = memfd(SIZE as u64, 0).unwrap();
            for (name, map) in [
                ("shared anonymous", Map::anonymous(SIZE, MapFlags::SHARED)),
                ("memfd", Map::of(&in_memory, SIZE, MapFlags::SHARED)),
                ("private memfd", Map::of(&in_memory, SIZE, MapFlags::PRIVATE)),
                ("disk", Map::of(&on_disk, SIZE, MapFlags::SHARED)),
            ] {
                let mut map = map;
                let (start, length) = (map.start, map.length);
                map.bytes().fill(0);
                // SAFETY: the mapping lives on.
                let prefault =
                    || unsafe { bulkmem_prefault::prefault_range(start, length, &options) }.unwrap().bytes;
                check(&format!("{name}, touch {touch}"), map.bytes(), &prefault);
            }
        }
    }
}

#[test]
fn a_mapping_is_borrowed() {
    let mut mapping = Mapping::new(3 * MIB, Pages::Base).unwrap();
    let ready = prefault_mapping(&mut mapping, &Options::new().threads(0)).unwrap();
    assert_eq!((ready.bytes, ready.page_size), (3 << 20, page_size() as u64));
    assert!(ready.threads >= 1);
}

#[test]
fn files_get_their_pages_and_keep_contents_and_length() {
    let folder = tempfile::tempdir().unwrap();
    let sparse = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(folder.path().join("sparse"))
        .unwrap();
    for touch in WAYS {
        for file in [&memfd(0, 0).unwrap(), &sparse] {
            file.set_len(0).unwrap();
            file.set_len(SIZE as u64 + 1).unwrap();
            std::os::unix::fs::FileExt::write_all_at(file, b"kept", 5 << 20).unwrap();
            let options = Options::new().threads(2).without_populate(touch);
            // A part first: no other page is allocated.
            let part = 6 * MIB as u64 + 1..7 * MIB as u64;
            assert_eq!(prefault_file(file, part.clone(), &options).unwrap().bytes, part.end - part.start);
            let blocks = || file.metadata().unwrap().blocks() * 512;
            assert!((MIB as u64..3 * MIB as u64).contains(&blocks()), "{}", blocks());
            let ready = prefault_file(file, 0..SIZE as u64 + 1, &options).unwrap();
            assert_eq!(ready.bytes, SIZE as u64 + 1);
            // A file system on disk may allocate blocks later.
            rustix::fs::fsync(file).unwrap();
            assert!(blocks() > SIZE as u64, "{}", blocks());
            assert_eq!(file.metadata().unwrap().len(), SIZE as u64 + 1);
            let mut kept = [0; 6];
            std::os::unix::fs::FileExt::read_exact_at(file, &mut kept, (5 << 20) - 1).unwrap();
            assert_eq!(&kept, b"\0kept\0");
        }
    }
}

#[test]
fn nothing_is_nothing() {
    // SAFETY: a range of no bytes.
    let ready =
        unsafe { bulkmem_prefault::prefault_range(std::ptr::null_mut(), 0, &Options::new()) }.unwrap();
    assert_eq!(ready.bytes, 0);
    assert_eq!(prefault_file(memfd(0, 0).unwrap(), 0..0, &Options::new()).unwrap().bytes, 0);
}

#[test]
fn progress_grows_to_the_end() {
    let map = Map::anonymous(32 * MIB, MapFlags::PRIVATE);
    let (last, calls) = (Cell::new(0), Cell::new(0));
    let observer = |progress: &bulkmem_prefault::Progress| {
        assert!(progress.ready >= last.get() && progress.total == 32 << 20);
        assert_eq!(progress.rate > 0.0, progress.ready > 0);
        last.set(progress.ready);
        calls.set(calls.get() + 1);
        ControlFlow::Continue(())
    };
    map.prefault(&Options::new().threads(2).rate(256 << 20).progress(&observer)).unwrap();
    assert!(last.get() == 32 << 20 && calls.get() > 2, "{} calls", calls.get());
}

#[test]
fn cancelling_keeps_what_is_ready() {
    for touch in WAYS {
        for by_flag in [false, true] {
            let map = Map::anonymous(64 * MIB, MapFlags::PRIVATE);
            let flag = AtomicBool::new(false);
            let observer = |progress: &bulkmem_prefault::Progress| match progress.ready {
                0 => ControlFlow::Continue(()),
                _ if by_flag => {
                    flag.store(true, Ordering::Relaxed);
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Break(()),
            };
            let options = Options::new().threads(2).rate(64 << 20).cpu_share(0.5).without_populate(touch);
            let error = map.prefault(&options.cancel(&flag).progress(&observer)).unwrap_err();
            assert!(matches!(error.cause, Cause::Cancelled), "{error:?}");
            assert!(error.ready > 0 && error.ready < 64 << 20, "{error:?}");
        }
    }
}

#[test]
fn nodes_are_chosen_or_refused() {
    let nodes = Topology::current().memory();
    let map = Map::anonymous(8 * MIB, MapFlags::PRIVATE);
    for placement in [
        Placement::Nodes(nodes.clone()),
        Placement::Interleave(nodes.clone()),
        Placement::Interleave(NumberList::default()),
    ] {
        let ready = map.prefault(&Options::new().threads(3).placement(placement)).unwrap();
        assert_eq!(ready.bytes, 8 << 20);
    }
    for nodes in ["1000", "0-1000"] {
        let placement = Placement::Nodes(nodes.parse().unwrap());
        let error = map.prefault(&Options::new().placement(placement)).unwrap_err();
        let text = error.cause.to_string();
        assert!(text.contains("1000 has no memory that this process may use"), "{text}");
    }
}
