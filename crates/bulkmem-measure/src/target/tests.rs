//! Rejected targets, their errors, and that no content is lost.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::engine::arena::RawRange;

const SIZE: u64 = 1 << 20;

fn want(writes: bool) -> Want {
    Want { writes, least: 4096, usual: SIZE }
}

fn at(path: impl Into<PathBuf>) -> TargetOptions {
    TargetOptions { target: path.into(), ..TargetOptions::ram() }
}

fn open(options: &TargetOptions, writes: bool) -> Result<Opened, MeasureError> {
    options.open(want(writes), &mut |_| Ok(()))
}

fn refused(options: &TargetOptions, writes: bool, words: &[&str]) {
    let checked =
        options.check(want(writes)).expect_err("it is refused before anything is measured").to_string();
    let opened = open(options, writes).expect_err("it is refused").to_string();
    assert_eq!(checked, opened);
    for word in words {
        assert!(checked.contains(word), "{word}: {checked}");
    }
}

/// The bytes of a target.
fn bytes(opened: &mut Opened) -> Vec<u8> {
    let RawRange { start, length } = opened.memory.raw_range();
    // SAFETY: the target is mapped, and no other code writes to it here.
    unsafe { std::slice::from_raw_parts(start, length) }.to_vec()
}

#[test]
fn ordinary_memory_is_as_large_as_asked_or_as_usual() {
    let mut options = TargetOptions::ram();
    let mut opened = open(&options, true).unwrap();
    let config = opened.config;
    assert_eq!(
        (config.target.as_deref(), config.size, config.attribute.as_deref()),
        (Some("ram"), Some(SIZE), Some("wb"))
    );
    assert_eq!((opened.memory.raw_range().length as u64, &opened.note), (SIZE, &None));
    options.size = Some(8192);
    assert_eq!(open(&options, true).unwrap().config.size, Some(8192));
    options.size = Some(100);
    refused(&options, true, &["ram: 100 bytes are too small: 4096 are needed", "larger --size"]);
}

#[test]
fn what_ordinary_memory_cannot_be_is_said_with_who_can() {
    for attribute in [Attribute::Wc, Attribute::Uc] {
        let options = TargetOptions { attribute: Some(attribute), ..TargetOptions::ram() };
        let error = options.check(want(true)).unwrap_err();
        assert!(matches!(error, MeasureError::Option { option: "--attr", .. }), "{error}");
        let text = error.to_string();
        for word in ["ram is mapped wb, not", attribute.name(), "resource0_wc (wc)", "/dev/bulkmem"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
    TargetOptions { attribute: Some(Attribute::Wb), ..TargetOptions::ram() }.check(want(true)).unwrap();
    assert_eq!("wc".parse::<Attribute>(), Ok(Attribute::Wc));
    assert!("WX".parse::<Attribute>().unwrap_err().to_string().contains("write wb, wc, uc or wt"));
}

#[test]
fn a_file_that_is_made_has_no_name_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = at(folder.path().join("made"));
    refused(&options, true, &["made: there is no such file", "--size"]);
    options.size = Some(SIZE);
    options.check(want(true)).unwrap();
    let empty = || std::fs::read_dir(folder.path()).unwrap().next().is_none();
    assert!(empty(), "checking makes nothing");
    for writes in [true, false] {
        let mut opened = open(&options, writes).unwrap();
        assert!(empty(), "whatever becomes of the process, nothing stays");
        assert_eq!(opened.memory.raw_range().length as u64, SIZE);
        assert!(bytes(&mut opened).chunks(64).all(|line| line.iter().any(|byte| *byte != 0)));
    }
    let stopped = options.open(want(true), &mut |_| Err(MeasureError::Interrupted));
    assert!(matches!(stopped, Err(MeasureError::Interrupted)) && empty());
}

#[test]
fn a_file_that_is_kept_is_there_but_not_where_it_was_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept");
    let options = TargetOptions { size: Some(SIZE), keep: true, ..at(&path) };
    let stopped = options.open(want(true), &mut |_| Err(MeasureError::Interrupted));
    assert!(stopped.is_err() && !path.exists());
    drop(open(&options, true).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE);
    assert!(std::fs::read(&path).unwrap().chunks(64).all(|line| line.iter().any(|byte| *byte != 0)));
}

#[test]
fn what_exists_is_written_over_only_where_that_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("there");
    let content: Vec<u8> = (0..20_000u32).map(|index| (index % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let mut options = at(&path);
    refused(&options, true, &["would be overwritten", "--overwrite"]);
    let mut opened = open(&options, false).unwrap();
    assert_eq!(bytes(&mut opened), content[..16384], "whole pages");
    drop(opened);
    assert_eq!(std::fs::read(&path).unwrap(), content, "reading changes nothing");
    options.size = Some(1 << 30);
    options.overwrite = true;
    refused(&options, true, &["has 20000 bytes, and 1073741824 are requested", "smaller --size"]);
    options.size = Some(8192);
    drop(open(&options, true).unwrap());
    let left = std::fs::read(&path).unwrap();
    assert_eq!((left.len(), &left[8192..]), (content.len(), &content[8192..]), "only the requested bytes");
    assert_ne!(left[..8192], content[..8192]);
}

#[test]
fn what_cannot_be_used_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let sized = |path: PathBuf| TargetOptions { size: Some(SIZE), overwrite: true, ..at(path) };
    refused(&sized(folder.path().to_owned()), true, &["is a folder", "name a file in it"]);
    refused(
        &sized(folder.path().join("no/file")),
        true,
        &["no file can be created in", "folder you may write to"],
    );
    let vast = TargetOptions { size: Some(1 << 46), ..at(folder.path().join("vast")) };
    refused(&vast, true, &["needs 70368744177664 bytes, and the file system has", "smaller --size"]);
    std::fs::write(folder.path().join("small"), [1; 100]).unwrap();
    let small = TargetOptions { overwrite: true, ..at(folder.path().join("small")) };
    refused(&small, true, &["0 bytes are too small: 4096 are needed", "larger target"]);
    refused(
        &TargetOptions { overwrite: true, ..at("/dev/zero") },
        true,
        &["does not report its size", "--size SIZE"],
    );
    refused(&sized("/dev/nosuch".into()), true, &["there is no such device"]);
    if Path::new("/dev/mem").exists() {
        refused(&sized("/dev/mem".into()), true, &["all of this machine's memory"]);
    }
    let error = open(&sized("/dev/null".into()), true).unwrap_err().to_string();
    assert!(error.contains("cannot be mapped") && error.contains("that can be mapped"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was made");
}

/// Written through two names, a file would be compared with itself.
#[test]
fn other_names_of_a_target_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("file"), [1; 8192]).unwrap();
    std::fs::write(path("ram"), [1; 8192]).unwrap();
    std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
    std::fs::hard_link(path("file"), path("other")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
    let check = |names: [PathBuf; 2]| {
        let target = |name| TargetOptions { overwrite: true, size: Some(8192), ..at(name) };
        check_all(&names.map(target), want(true)).map_err(|error| error.to_string())
    };
    for other in ["link", "other"] {
        let error = check([path("file"), path(other)]).unwrap_err();
        assert!(error.contains("is the same as") && error.contains("name each target once"), "{error}");
    }
    assert!(check(["/dev/zero".into(), path("zero")]).unwrap_err().contains("is the same as /dev/zero"));
    assert!(check([path("new"), path("../").join(folder.path().file_name().unwrap()).join("new")]).is_err());
    for names in [[path("file"), path("ram")], [RAM.into(), path("ram")], [path("new"), path("newer")]] {
        check(names).unwrap();
    }
    check(["/dev/zero".into(), "/dev/null".into()]).unwrap();
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locked");
    std::fs::write(&path, [1; 8192]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let options = TargetOptions { overwrite: true, ..at(&path) };
    if File::options().write(true).open(&path).is_ok() {
        println!("skipped: a file without permission to write: this user may write to all files");
    } else {
        refused(&options, true, &["cannot be written", "run as a user who may"]);
    }
    // A running program cannot be opened for writing.
    let program = std::env::current_exe().unwrap();
    let options = TargetOptions { overwrite: true, ..at(&program) };
    refused(&options, true, &["cannot be written", "not in use"]);
}

#[test]
fn a_device_is_as_large_as_it_is_said_to_be() {
    let mut options = TargetOptions { size: Some(SIZE), overwrite: true, ..at("/dev/zero") };
    let mut opened = open(&options, true).unwrap();
    assert_eq!((opened.memory.raw_range().length as u64, opened.config.attribute), (SIZE, None));
    assert!(opened.note.unwrap().contains("memory of a device"));
    options.attribute = Some(Attribute::Uc);
    let opened = open(&options, true).unwrap();
    assert_eq!(opened.config.attribute.as_deref(), Some("uc"));
    assert!(opened.note.unwrap().contains("--attr"));
}

#[test]
fn device_memory_is_told_by_its_name() {
    for (path, attribute) in [
        ("/sys/bus/pci/devices/0000:00:00.0/resource0", Attribute::Uc),
        ("/sys/bus/pci/devices/0000:00:00.0/resource2_wc", Attribute::Wc),
        ("/sys/bus/pci/devices/0000:00:00.0/resource", Attribute::Wb),
        ("/sys/bus/pci/devices/0000:00:00.0/resource0_resize", Attribute::Wb),
        ("/home/user/resource0", Attribute::Wb),
    ] {
        assert_eq!(attribute_of_file(Path::new(path)), attribute, "{path}");
    }
}
