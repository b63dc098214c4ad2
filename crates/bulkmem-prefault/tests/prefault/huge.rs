//! Explicit huge pages: all of them, and fewer than needed.

use std::os::unix::fs::MetadataExt;

use bulkmem_prefault::{Cause, Options, prefault_file};
use rustix::mm::MapFlags;
use testkit::huge_pages::{HUGE_PAGE as PAGE, HugePages, reserved};

use crate::{Map, WAYS, memfd};

/// One test, because the pool is the machine's.
#[test]
fn huge_pages_are_mapped_or_the_error_says_how_many() {
    let _pages = match HugePages::reserve(6) {
        Ok(pages) => pages,
        Err(why) => {
            println!("skipped: prefaulting explicit huge pages: {why}");
            return;
        }
    };
    for touch in WAYS {
        let options = Options::new().threads(2).without_populate(touch);
        let file = memfd(4 * PAGE, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB).unwrap();
        let mut map = Map::of(&file, 4 << 21, MapFlags::SHARED);
        map.bytes()[5] = 3;
        let ready = map.prefault(&options).unwrap();
        assert_eq!((ready.bytes, ready.page_size), (4 * PAGE, PAGE));
        assert_eq!(file.metadata().unwrap().blocks() * 512, 4 * PAGE);
        assert_eq!(map.bytes()[..8], [0, 0, 0, 0, 0, 3, 0, 0]);
        // An odd part within the pages.
        assert_eq!(prefault_file(&file, 4097..PAGE + 1, &options).unwrap().bytes, PAGE + 1 - 4097);
        drop((map, file));

        // More than any pool of these tests has, in a file and in a mapping that reserves nothing.
        let many = reserved() + 8;
        let file = memfd(many * PAGE, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB).unwrap();
        let error = prefault_file(&file, 0..many * PAGE, &options).unwrap_err();
        assert!(matches!(error.cause, Cause::HugePages { page: PAGE, .. }), "{error:?}");
        assert!(error.ready >= PAGE && error.ready % PAGE == 0, "{error:?}");
        assert_eq!(error.ready, file.metadata().unwrap().blocks() * 512, "touch {touch}");
        drop(file);
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::NORESERVE;
        let map = Map::anonymous((many * PAGE) as usize, flags);
        let error = map.prefault(&options).unwrap_err();
        assert!(matches!(error.cause, Cause::HugePages { page: PAGE, .. }), "{error:?}");
        assert!(error.ready >= PAGE && error.to_string().contains("are ready"), "{error:?}");
        drop(map);

        // Some stay free for others.
        let file = memfd(4 * PAGE, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB).unwrap();
        let error = prefault_file(&file, 0..4 * PAGE, &options.keep_free(u64::MAX)).unwrap_err();
        assert!(error.ready == 0 && matches!(error.cause, Cause::HugePages { free: 1.., .. }), "{error:?}");
        assert_eq!(file.metadata().unwrap().blocks(), 0);
    }
}
