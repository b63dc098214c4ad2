//! The logic against a folder of plain files that looks like sysfs; the kernel's own pages where that is allowed.

use std::sync::Mutex;
use std::thread;

use super::*;

/// A pool of 2 MiB pages that no kernel stands behind.
struct Fake {
    folder: tempfile::TempDir,
    pool: Pool,
}

impl Fake {
    /// 10 pages reserved; 3 free, of which 1 is promised.
    fn new() -> Fake {
        let folder = tempfile::tempdir().unwrap();
        let pool = Pool { folder: folder.path().into(), page: "2M".parse().unwrap() };
        let fake = Fake { folder, pool };
        for (file, number) in
            [("nr_hugepages", 10), ("free_hugepages", 3), ("resv_hugepages", 1), ("surplus_hugepages", 0)]
        {
            fake.write(file, number);
        }
        fake
    }

    fn write(&self, file: &str, number: u64) {
        fs::write(self.folder.path().join(file), format!("{number}\n")).unwrap();
    }

    fn reserved(&self) -> u64 {
        self.pool.read("nr_hugepages")
    }
}

/// Waits until something is so, and fails where it never is.
fn eventually(what: &str, so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if so() {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what}");
}

#[test]
fn only_what_is_missing_is_reserved_and_all_of_it_is_given_back() {
    let fake = Fake::new();
    let reservation = fake.pool.reserve(5 << 20).unwrap().expect("3 pages are needed, 2 are free");
    assert_eq!(fake.reserved(), 11);
    drop(reservation);
    assert_eq!(fake.reserved(), 10);
    assert!(fake.pool.reserve(4 << 20).unwrap().is_none(), "2 pages are there");
    assert_eq!(fake.reserved(), 10);
}

/// The kernel added 2 of the 10 on its own, and takes them away on its own.
#[test]
fn pages_that_the_kernel_added_are_neither_counted_nor_kept() {
    let fake = Fake::new();
    fake.write("surplus_hugepages", 2);
    let reservation = fake.pool.reserve(5 << 20).unwrap().expect("3 pages are needed, 2 are free");
    assert_eq!(fake.reserved(), 11);
    drop(reservation);
    assert_eq!(fake.reserved(), 8);
}

#[test]
fn what_others_change_meanwhile_stays() {
    let fake = Fake::new();
    let ours = fake.pool.reserve(10 << 20).unwrap().unwrap();
    assert_eq!(fake.reserved(), 13);
    let theirs = fake.pool.reserve(10 << 20).unwrap().unwrap();
    assert_eq!(fake.reserved(), 16);
    drop(ours);
    assert_eq!(fake.reserved(), 13);
    fake.write("nr_hugepages", 53);
    drop(theirs);
    assert_eq!(fake.reserved(), 50);
    // Somebody took more away than was there before: no number below 0 is written.
    let ours = fake.pool.reserve(10 << 20).unwrap().unwrap();
    fake.write("nr_hugepages", 1);
    drop(ours);
    assert_eq!(fake.reserved(), 0);
}

/// A kernel that finds 3 of the 5 pages that are missing.
#[test]
fn a_part_is_given_back_and_refused_with_cause_and_remedy() {
    let fake = Fake::new();
    let (part, got) = fake.pool.hold(3).unwrap();
    assert_eq!((got, fake.reserved()), (Some(3), 13));
    let error = fake.pool.judge(part, got, 7, 5).unwrap_err().to_string();
    assert_eq!(fake.reserved(), 10);
    for word in
        ["7 huge pages of 2M are needed and 2 are free", "found 3 of the 5", "compact_memory", "hugepages=7"]
    {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn a_pool_that_cannot_be_written_is_named_with_the_remedy() {
    let fake = Fake::new();
    fs::remove_file(fake.pool.numbers()).unwrap();
    fs::create_dir(fake.pool.numbers()).unwrap();
    let error = fake.pool.reserve(8 << 20).unwrap_err().to_string();
    for word in ["4 huge pages of 2M are needed and 2 are free", "refused", "sudo", "echo 2 >"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    assert!(fake.pool.missing(8 << 20).is_err() && fake.pool.missing(4 << 20).is_ok());
}

#[test]
fn more_than_memory_holds_is_refused_before_anything_is_reserved() {
    let fake = Fake::new();
    assert!(matches!(fake.pool.reserve(1 << 46), Err(MeasureError::TooLarge { .. })));
    assert_eq!(fake.reserved(), 10);
    assert!(Reservation::check(1 << 46, "4K".parse().unwrap()).is_err());
    assert!(Reservation::of(1 << 46, "4K".parse().unwrap()).unwrap().is_none());
}

/// The pipe is held by another process, which is killed without a chance to do anything.
#[test]
fn a_holder_that_is_killed_leaves_nothing_behind() {
    let fake = Fake::new();
    let (input, pipe) = io::pipe().unwrap();
    let mut holder = Command::new("sleep").arg("600").stdout(pipe).spawn().unwrap();
    let mut guardian = guardian(fake.folder.path(), 4, input.into()).unwrap();
    assert_eq!(got(guardian.stdout.take().unwrap()).unwrap(), 4);
    assert_eq!(fake.reserved(), 14);
    // What a terminal would send to both does not end the guardian.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: our own child, not waited for yet.
        assert_eq!(unsafe { libc::kill(guardian.id().try_into().unwrap(), signal) }, 0);
    }
    thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!((fake.reserved(), guardian.try_wait().unwrap()), (14, None));
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("the pages are given back", || fake.reserved() == 10);
    assert!(guardian.wait().unwrap().success());
}

/// One at a time: these tests change a number of the whole machine's.
static REAL: Mutex<()> = Mutex::new(());

#[test]
fn the_kernel_gives_pages_and_takes_them_back() {
    let _guard = REAL.lock();
    let page: PageSize = "2M".parse().unwrap();
    let pool = Pool::of(page).unwrap();
    let needed = pool.free() + 2;
    let bytes = needed * page.bytes();
    if let Err(error) = page.check().and_then(|()| Reservation::check(bytes, page)) {
        println!("skipped: reserving huge pages: {error}");
        return;
    }
    let before = pool.read("nr_hugepages");
    let reservation = match pool.reserve(bytes) {
        Ok(reservation) => reservation.expect("2 are missing"),
        Err(error) => {
            println!("skipped: reserving huge pages: {error}");
            return;
        }
    };
    let length = usize::try_from(bytes).unwrap();
    let mut region = bulkmem::Mapping::new(length, page.0).unwrap();
    region.prefault().unwrap();
    assert_eq!(region.backing_page_size().unwrap(), 2 << 20);
    // Pages in use are given back when they are free.
    drop(reservation);
    region.fill(1);
    drop(region);
    eventually("as many as before", || pool.read("nr_hugepages") == before);
}
