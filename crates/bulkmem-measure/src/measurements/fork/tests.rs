use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;
use crate::engine::{Peers, Results, testing};
use crate::measurements::participants::tests::named;

/// One test at a time: as long as another test's child lives, it shares every page of this process, too.
fn alone() -> MutexGuard<'static, ()> {
    static FORKS: Mutex<()> = Mutex::new(());
    FORKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn small() -> ForkOptions {
    ForkOptions {
        sizes: vec![4 * BASE.bytes(), 9 * BASE.bytes()],
        pages: BASE,
        loops: Some(3),
        candidates: named(&["portable", "c_library"], Peers::All, 2),
    }
}

fn run(options: &ForkOptions) -> Result<Results, MeasureError> {
    testing::run(options, false).0
}

/// A buffer of so many pages.
fn buffer(pages: u64) -> Buffer {
    Buffer::new(pages * BASE.bytes(), BASE, Content::Mixed).unwrap()
}

#[test]
fn a_page_written_is_a_page_copied_and_no_other_of_the_buffer_is() {
    let _alone = alone();
    for pages in [1, 7, 64] {
        let mut buffer = buffer(pages);
        for (work, expected) in [
            (Work::ChildWrites, pages),
            (Work::ParentWrites, pages),
            (Work::ChildReads, 0),
            (Work::Nothing, 0),
        ] {
            let counted = match counted(buffer.raw_range(), BASE.bytes() as usize, work) {
                Ok(counted) => counted,
                Err(error) => {
                    println!("skipped: counting pages around a fork: {error}");
                    return;
                }
            };
            let [buffer_copied, copied, _, tables, faults] =
                counted[..5].iter().map(|(_, count)| *count as u64).collect::<Vec<_>>()[..]
            else {
                panic!("{counted:?}")
            };
            assert_eq!(buffer_copied, expected, "{pages} pages, {work:?}: {counted:?}");
            assert!(copied > buffer_copied, "the stack at least: {counted:?}");
            assert!(tables >= 4, "one of each level at least: {counted:?}");
            let written_by_child = if work == Work::ChildWrites { pages } else { 0 };
            assert!(faults >= written_by_child, "{work:?}: {counted:?}");
        }
    }
}

#[test]
fn pages_touched_first_are_pages_cleared() {
    let page = Machine::current().page_size;
    let (took, pages) = first_touch(5 * page, BASE, true).unwrap();
    assert!(took > Duration::ZERO);
    match pages {
        Some(pages) => assert_eq!(pages, 5),
        None => println!("skipped: counting pages touched first: /proc/self/pagemap cannot be read"),
    }
}

/// What the child wrote stays the child's, and what the parent wrote is there.
#[test]
fn the_parent_keeps_its_own_pages() {
    let _alone = alone();
    let mut buffer = buffer(3);
    let whole = buffer.raw_range();
    for (work, byte) in [(Work::ChildWrites, 1), (Work::Nothing, 1), (Work::ParentWrites, 2)] {
        // SAFETY: the buffer is this test's own.
        unsafe { child::fork(whole, BASE.bytes() as usize, work, None) }.unwrap();
        // SAFETY: it is mapped and touched.
        assert_eq!(unsafe { whole.start.read_volatile() }, byte, "{work:?}");
    }
    _ = buffer.raw_range();
}

#[test]
fn each_size_has_a_row_of_everybody_with_the_pages_counted() {
    let _alone = alone();
    let options = small();
    let found = run(&options).unwrap();
    assert!(found.complete);
    for &size in &options.sizes {
        let of = |name: &str, operation| {
            found
                .rows
                .iter()
                .find(|row| {
                    row.candidate.name == name
                        && row.config.size == Some(size)
                        && row.config.operation == Some(operation)
                })
                .unwrap_or_else(|| panic!("{name} {operation} {size}"))
        };
        let writes = of(CHILD_WRITES, Operation::Copy);
        assert_eq!((writes.samples.len(), writes.metric), (2, Metric::Nanoseconds));
        for name in [ALONE, "fork, child reads", "fork, parent writes", "policy", "portable", "c_library"] {
            assert!(of(name, Operation::Copy).stats.median > 0.0);
        }
        for name in [FIRST_TOUCH, "policy", "portable", "c_library"] {
            assert!(of(name, Operation::Clear).stats.median > 0.0);
        }
        let pairs =
            found.rows.iter().filter(|row| row.config.size == Some(size) && row.config.operation.is_none());
        let pairs: Vec<&str> = pairs.map(|row| row.candidate.name.as_str()).collect();
        let all = [STRING_PAGES, CACHED_PAGES, BYPASSING_PAGES, BYPASSING_COPIES, BYPASSING_CLEARS];
        assert_eq!(pairs, if cfg!(target_arch = "x86_64") { &all[..] } else { &[] });
        if let Some(pages) = writes.also.get("buffer_pages_copied") {
            assert_eq!(*pages, (size / BASE.bytes()) as f64);
            assert_eq!(of(ALONE, Operation::Copy).also["buffer_pages_copied"], 0.0);
        } else {
            assert!(found.notes.iter().any(|note| note.contains("not available: ")), "{:?}", found.notes);
        }
    }
    let said = |what: &str| found.findings.iter().any(|finding| finding.text.contains(what));
    assert!(said("A fork whose child ends immediately takes") && said("The fork itself is"));
    assert_eq!(said("cleared, copied and used within the process"), cfg!(target_arch = "x86_64"));
    let lost = found.notes.iter().any(|note| note.contains("takes less than forks vary"));
    assert!(lost != said("a page copied on write costs"));
}

#[test]
fn methods_that_only_copy_leave_clearing_to_the_others() {
    let _alone = alone();
    let name = if bulkmem::method::by_name("rep_movsb").is_some_and(|method| method.available()) {
        "rep_movsb"
    } else {
        println!("skipped: a method that only copies: this machine has no rep_movsb");
        return;
    };
    let found = run(&ForkOptions { candidates: named(&[name], Peers::All, 2), ..small() }).unwrap();
    let does = |operation| {
        found.rows.iter().any(|row| row.candidate.name == name && row.config.operation == Some(operation))
    };
    assert!(does(Operation::Copy) && !does(Operation::Clear));
    assert!(found.notes.iter().any(|note| note.contains("none of the named methods can clear")));
}

#[test]
fn what_cannot_be_measured_is_refused_before() {
    let refused = |options: ForkOptions| run(&options).unwrap_err().to_string();
    assert!(refused(ForkOptions { sizes: vec![5000], ..small() }).contains("name a multiple of"));
    assert!(refused(ForkOptions { sizes: vec![1 << 46], ..small() }).contains("available"));
    assert!(refused(ForkOptions { candidates: named(&["no"], Peers::All, 2), ..small() }).contains("`no`"));
}

#[test]
fn a_child_that_is_killed_is_an_error() {
    let _alone = alone();
    // A child that cannot write its buffer.
    let page = Machine::current().page_size;
    let mut region = map(page, Pages::Base).unwrap();
    let whole = RawRange { start: region.as_mut_ptr(), length: page };
    region[0] = 1;
    // SAFETY: the region's own page, which no code uses until it is readable again. A forked child has none of it, and
    // dies of touching it.
    assert_eq!(unsafe { libc::madvise(whole.start.cast(), page, libc::MADV_DONTFORK) }, 0);
    // SAFETY: the parent's buffer is mapped; the child's is not, which is what is tried here: it gets a signal.
    let error = unsafe { child::fork(whole, page, Work::ChildWrites, None) }.unwrap_err();
    assert!(error.to_string().contains("signal 11"), "{error}");
}

/// A huge page counts as one, and as the module counts it.
#[test]
fn a_huge_page_is_copied_whole() {
    let _alone = alone();
    let Ok(options) = ForkOptions::huge() else {
        println!("skipped: copies of huge pages: this machine has none");
        return;
    };
    let (pages, size) = (options.pages, 2 * options.pages.bytes());
    let options = ForkOptions { sizes: vec![size], pages, ..small() };
    if let Err(error) = options.validate() {
        assert!(error.to_string().contains("huge pages of"), "{error}");
        println!("skipped: copies of huge pages: {error}");
        return;
    }
    let found = run(&options).unwrap();
    let of = |name: &str| found.rows.iter().find(|row| row.candidate.name == name).unwrap();
    for (name, copied) in [(CHILD_WRITES, 2.0), ("fork, parent writes", 2.0), ("fork, child reads", 0.0)] {
        let row = of(name);
        assert_eq!((row.config.size, row.config.page_size), (Some(size), Some(pages)));
        if let Some(pages) = row.also.get("buffer_pages_copied") {
            assert_eq!(*pages, copied, "{name}");
        }
        if let Some(pages) = row.also.get("module_pages") {
            assert_eq!(*pages, copied, "{name}");
        }
    }
    assert!(found.rows.iter().all(|row| row.config.operation.is_some()), "the pairs are about base pages");
}
