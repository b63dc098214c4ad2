//! Tests cgroups whose processes are hinted.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::callers::{ALL, LONG, Signal};
use crate::device::{Device, HintCgroup};
use crate::hints::{choose, touch};
use crate::huge::{HugeMapping, MIDDLE, Source};
use crate::module;
use crate::process::Child;

const ROOT: &str = "/sys/fs/cgroup";
/// The cgroups that can be hinted at a time.
const LIMIT: usize = 64;
const NONE: [u64; 0] = [];

pub(crate) fn tests(suite: &mut Suite) {
    for source in [Source::Pool2M, Source::Transparent] {
        let mut add = |name: &str, test: fn(Source) -> Result<(), Failed>| {
            suite.test(&format!("cgroups::{name}::{source:?}"), move || test(source));
        };
        add("members_and_those_below", members_and_those_below);
        add("entering_and_leaving", entering_and_leaving);
        add("withdrawn", withdrawn);
    }
    suite.test("cgroups::the_hint_outlives_its_process", the_hint_outlives_its_process);
    suite.test("cgroups::end_with_the_cgroup", end_with_the_cgroup);
    suite.test("cgroups::need_a_capability", need_a_capability);
    suite.test("cgroups::have_a_limit", have_a_limit);
    suite.test("cgroups::nonsense_is_refused", nonsense_is_refused);
    suite.test("loading::unloaded_while_a_cgroup_is_hinted", unloaded_while_a_cgroup_is_hinted);
}

/// A cgroup, which is removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> io::Result<Cgroup> {
        let path = Path::new(ROOT).join(name);
        fs::create_dir(&path)?;
        Ok(Cgroup(path))
    }

    fn request(&self, flags: u32) -> io::Result<()> {
        request(&File::open(&self.0)?, flags)
    }

    fn hint(&self) -> io::Result<()> {
        self.request(0)
    }

    /// Runs `work` in a child that is in the cgroup.
    fn run(&self, work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
        Child::spawn(|| {
            enter(&self.0)?;
            work()
        })?
        .succeed()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A test that removed it itself has nothing left to remove.
        _ = fs::remove_dir(&self.0);
    }
}

/// Moves this process to a cgroup.
fn enter(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.procs"), "0")
}

fn request(folder: &File, flags: u32) -> io::Result<()> {
    let asked = HintCgroup { size: HintCgroup::SIZE, flags, fd: folder.as_raw_fd(), reserved: 0, later: 0 };
    Device::open()?.hint_cgroup_as(&asked)
}

/// Returns the numbers of the hinted cgroups.
fn listed() -> Result<Vec<u64>, Failed> {
    let text = fs::read_to_string("/sys/class/misc/bulkmem/hinted_cgroups")?;
    Ok(text.lines().map(str::parse).collect::<Result<_, _>>()?)
}

/// Chooses parameters, and checks that no cgroup is hinted.
fn start() -> Result<(), Failed> {
    choose(LONG)?;
    assert_eq!(listed()?, NONE);
    Ok(())
}

/// Faults in a huge page, which must be part of an extent of this length, or of its own (0).
fn fault(source: Source, extent: u64) -> Result<(), Failed> {
    touch(&HugeMapping::new(source, 1)?, &[(MIDDLE / 2, extent)])
}

fn members_and_those_below(source: Source) -> Result<(), Failed> {
    start()?;
    let above = Cgroup::new("above")?;
    let hinted = Cgroup::new("above/hinted")?;
    let below = Cgroup::new("above/hinted/below")?;
    let beside = Cgroup::new("above/beside")?;
    hinted.hint()?;
    for (cgroup, extent) in [(&above, 0), (&hinted, ALL), (&below, ALL), (&beside, 0)] {
        cgroup.run(|| {
            fault(source, extent)?;
            // Also a process that it starts.
            Child::spawn(|| fault(source, extent))?.succeed()
        })?;
    }
    fault(source, 0)?;
    // A second one; the first stays.
    beside.hint()?;
    beside.run(|| fault(source, ALL))?;
    below.run(|| fault(source, ALL))?;
    above.run(|| fault(source, 0))?;
    hinted.request(HintCgroup::REMOVE)?;
    beside.request(HintCgroup::REMOVE)?;
    assert_eq!(listed()?, NONE);
    Ok(())
}

fn entering_and_leaving(source: Source) -> Result<(), Failed> {
    start()?;
    let cgroup = Cgroup::new("hinted")?;
    cgroup.hint()?;
    Child::spawn(|| {
        fault(source, 0)?;
        enter(&cgroup.0)?;
        fault(source, ALL)?;
        enter(Path::new(ROOT))?;
        fault(source, 0)
    })?
    .succeed()?;
    cgroup.request(HintCgroup::REMOVE)?;
    Ok(())
}

fn withdrawn(source: Source) -> Result<(), Failed> {
    start()?;
    let cgroup = Cgroup::new("hinted")?;
    cgroup.hint()?;
    // A second time changes nothing.
    cgroup.hint()?;
    assert_eq!(listed()?.len(), 1);
    cgroup.run(|| fault(source, ALL))?;
    cgroup.request(HintCgroup::REMOVE)?;
    cgroup.run(|| fault(source, 0))?;
    let again = cgroup.request(HintCgroup::REMOVE).map_err(|error| error.raw_os_error());
    assert_eq!(again, Err(Some(libc::ESRCH)));
    cgroup.hint()?;
    cgroup.run(|| fault(source, ALL))?;
    cgroup.request(HintCgroup::REMOVE)?;
    Ok(())
}

fn the_hint_outlives_its_process() -> Result<(), Failed> {
    start()?;
    let cgroup = Cgroup::new("hinted")?;
    Child::spawn(|| Ok(cgroup.hint()?))?.succeed()?;
    cgroup.run(|| fault(Source::Pool2M, ALL))?;
    cgroup.request(HintCgroup::REMOVE)?;
    Ok(())
}

fn end_with_the_cgroup() -> Result<(), Failed> {
    start()?;
    let cgroup = Cgroup::new("hinted")?;
    let other = Cgroup::new("other")?;
    let number =
        |cgroup: &Cgroup| Ok::<_, io::Error>(std::os::unix::fs::MetadataExt::ino(&fs::metadata(&cgroup.0)?));
    cgroup.hint()?;
    other.hint()?;
    assert_eq!(listed()?, [number(&cgroup)?, number(&other)?]);
    let folder = File::open(&cgroup.0)?;
    fs::remove_dir(&cgroup.0)?;
    assert_eq!(listed()?, [number(&other)?]);
    // A cgroup that was removed cannot be hinted, one of the same name is another.
    let refused = request(&folder, 0).map_err(|error| error.raw_os_error());
    assert_eq!(refused, Err(Some(libc::ENOENT)));
    fs::create_dir(&cgroup.0)?;
    cgroup.run(|| fault(Source::Pool2M, 0))?;
    other.request(HintCgroup::REMOVE)?;
    Ok(())
}

fn need_a_capability() -> Result<(), Failed> {
    start()?;
    let cgroup = Cgroup::new("hinted")?;
    let device = Device::open()?;
    let folder = File::open(&cgroup.0)?;
    for flags in [0, HintCgroup::REMOVE] {
        Child::spawn(|| {
            // SAFETY: changes the user of this child only.
            assert_eq!(unsafe { libc::setresuid(1000, 1000, 1000) }, 0);
            let asked =
                HintCgroup { size: HintCgroup::SIZE, flags, fd: folder.as_raw_fd(), reserved: 0, later: 0 };
            let refused = device.hint_cgroup_as(&asked).map_err(|error| error.raw_os_error());
            assert_eq!(refused, Err(Some(libc::EPERM)));
            Ok(())
        })?
        .succeed()?;
    }
    assert_eq!(listed()?, NONE);
    Ok(())
}

fn have_a_limit() -> Result<(), Failed> {
    start()?;
    let mut cgroups = Vec::new();
    for number in 0..LIMIT {
        cgroups.push(Cgroup::new(&format!("hinted{number}"))?);
        cgroups[number].hint()?;
    }
    let one_more = Cgroup::new("more")?;
    assert_eq!(one_more.hint().map_err(|error| error.raw_os_error()), Err(Some(libc::ENOSPC)));
    assert_eq!(listed()?.len(), LIMIT);
    cgroups[LIMIT - 1].run(|| fault(Source::Pool2M, ALL))?;
    // A removed cgroup makes room without a look at the list.
    cgroups.pop();
    one_more.hint()?;
    one_more.run(|| fault(Source::Pool2M, ALL))?;
    drop((cgroups, one_more));
    assert_eq!(listed()?, NONE);
    Ok(())
}

fn nonsense_is_refused() -> Result<(), Failed> {
    start()?;
    let cgroup = Cgroup::new("hinted")?;
    let device = Device::open()?;
    let (folder, other) = (File::open(&cgroup.0)?, File::open("/tmp")?);
    let file = File::open(cgroup.0.join("cgroup.procs"))?;
    let sound =
        HintCgroup { size: HintCgroup::SIZE, flags: 0, fd: folder.as_raw_fd(), reserved: 0, later: 0 };
    for (asked, error) in [
        (HintCgroup { size: HintCgroup::SIZE - 1, ..sound }, libc::EINVAL),
        (HintCgroup { size: 0, ..sound }, libc::EINVAL),
        (HintCgroup { size: u32::MAX, ..sound }, libc::E2BIG),
        (HintCgroup { size: HintCgroup::SIZE + 8, later: 1, ..sound }, libc::E2BIG),
        (HintCgroup { flags: 2, ..sound }, libc::EINVAL),
        (HintCgroup { reserved: 1, ..sound }, libc::EINVAL),
        (HintCgroup { fd: -1, ..sound }, libc::EBADF),
        (HintCgroup { fd: other.as_raw_fd(), ..sound }, libc::EBADF),
        (HintCgroup { fd: file.as_raw_fd(), ..sound }, libc::EBADF),
        (HintCgroup { flags: HintCgroup::REMOVE, ..sound }, libc::ESRCH),
    ] {
        let refused = device.hint_cgroup_as(&asked).map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(error)), "{asked:?}");
    }
    assert_eq!(listed()?, NONE, "nothing of it was taken");
    device.hint_cgroup_as(&HintCgroup { size: HintCgroup::SIZE + 8, ..sound })?;
    assert_eq!(listed()?.len(), 1);
    cgroup.request(HintCgroup::REMOVE)?;
    Ok(())
}

fn unloaded_while_a_cgroup_is_hinted() -> Result<(), Failed> {
    start()?;
    let cgroup = Cgroup::new("hinted")?;
    cgroup.hint()?;
    let signal = Signal::new()?;
    let child = Child::spawn(|| {
        enter(&cgroup.0)?;
        signal.wait()?;
        fault(Source::Transparent, 0)
    })?;
    module::unload()?;
    start()?;
    signal.give()?;
    child.succeed()?;
    // The module held the cgroup no longer.
    fs::remove_dir(&cgroup.0)?;
    Ok(())
}
