use std::sync::atomic::AtomicBool;

use bulkmem::policy::Policy;

use super::*;
use crate::engine::{Observer, Peers, Results, RunOptions, Validated, testing};
use crate::measurements::participants::tests::named;

fn small() -> VmOptions {
    VmOptions {
        size: 4 << 20,
        page_sizes: vec!["4K".parse().unwrap()],
        threads: vec![1, 2],
        candidates: named(&["portable"], Peers::None, 3),
        hint: false,
    }
}

fn run(options: &VmOptions) -> Result<Results, MeasureError> {
    testing::run(options, false).0
}

/// Says why there are no virtual machines here; true where there are.
fn guests_run(what: &str) -> bool {
    match usable() {
        Ok(None) => return true,
        Ok(Some(why)) | Err(why) => println!("skipped: {what}: {why}"),
    }
    false
}

#[test]
fn fresh_and_reused_memory_have_rows_with_their_phases() {
    let found = run(&small()).unwrap();
    assert!(found.complete);
    for threads in [1, 2] {
        let of = |name: &str, memory| {
            found
                .rows
                .iter()
                .find(|row| {
                    row.candidate.name == name
                        && row.config.threads == Some(threads)
                        && row.config.memory == Some(memory)
                })
                .unwrap_or_else(|| panic!("{name} {memory:?} {threads}"))
        };
        let kernel = of(PREFAULT, Memory::Fresh);
        for name in ["reserve_s", "prefault_s", "release_s", "first_s", "bytes_per_ns"] {
            assert!(kernel.also[name] > 0.0, "{name}");
        }
        assert!(kernel.also["reserve_s"] + kernel.also["prefault_s"] <= kernel.stats.max * 1.001);
        assert!((kernel.also["bytes_per_ns"] - (4 << 20) as f64 / 1e9 / kernel.stats.median).abs() < 1e-6);
        assert_eq!(kernel.samples.len(), 3);
        for name in [prefaults::BULKMEM, prefaults::PROCESSES] {
            let row = of(name, Memory::Fresh);
            assert!(
                row.also["prefault_s"] > 0.0 && row.also["prefault_s"] <= row.stats.max * 1.001,
                "{name}"
            );
        }
        of("policy", Memory::Reused);
        of("portable", Memory::Reused);
    }
    assert!(
        found.findings.iter().any(|it| it.text.contains("4 MiB in 4K pages") && it.text.contains("bytes/ns"))
    );
    let of = |name: &str| found.rows.iter().filter(|row| row.candidate.name == name).count();
    assert_eq!((of(prefaults::FALLOCATE), of(prefaults::QEMU)), (1, 0));
    assert!(found.notes.iter().any(|note| note.contains("QEMU's preallocation: not measured: its start")));
    let conclusion = found.findings.iter().find(|it| it.text.contains("bulkmem's prefault")).unwrap();
    assert!(conclusion.text.contains("with 2 threads") && conclusion.text.contains("independent processes"));
    let guests = found.rows.iter().filter(|row| row.candidate.name == GUEST).count();
    match usable() {
        Ok(_) => assert_eq!(guests, 2),
        Err(_) => assert!(guests == 0 && found.notes.iter().any(|note| note.contains("not available: "))),
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_guest_finds_zeros_and_what_it_writes_is_there() {
    if !guests_run("a guest that looks at its memory") {
        return;
    }
    let stop = AtomicBool::new(false);
    for (size, pages) in [(4096, "4K"), (1 << 20, "4K"), (6 << 20, "thp"), (20 << 20, "thp")] {
        let pages = pages.parse().unwrap();
        let job = Job { size, pages, threads: 2, hint: false, guest: Some(true) };
        let (phases, _) = prepared(job, &stop).unwrap();
        for name in ["guest_s", "register_s", "vcpu_s"] {
            assert!(phases.0.iter().any(|(phase, _)| *phase == name), "{name}: {phases:?}");
        }
    }
}

/// The check is worth something: memory that was not cleared is noticed, from its first byte to its last page.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_guest_notices_memory_that_is_not_clear() {
    if !guests_run("a guest that finds what was left") {
        return;
    }
    let size = 4 << 20;
    for dirty in [None, Some(0), Some(size - 4096)] {
        let mut memory = bulkmem::Mapping::new(size, bulkmem::Pages::Base).unwrap();
        dirty.inspect(|at| memory[*at] = 1);
        let stop = AtomicBool::new(false);
        let seen = kvm::create(&mut memory, &mut Phases(Vec::new(), Instant::now()), true, &stop);
        match dirty {
            None => seen.unwrap(),
            Some(_) => assert!(why(&seen.unwrap_err()).contains("not zero")),
        }
    }
}

#[test]
fn what_cannot_be_measured_is_refused_before() {
    let refused = |options: VmOptions| run(&options).unwrap_err().to_string();
    assert!(refused(VmOptions { size: 5000, ..small() }).contains("not a whole number of 4K pages"));
    assert!(refused(VmOptions { size: 0, ..small() }).contains("not a whole number"));
    assert!(refused(VmOptions { size: 1 << 46, ..small() }).contains("available"));
    assert!(refused(VmOptions { threads: vec![0], ..small() }).contains("--threads"));
    assert!(refused(VmOptions { candidates: named(&["no"], Peers::All, 1), ..small() }).contains("`no`"));
}

#[test]
fn a_stop_halfway_keeps_what_was_measured() {
    let stop = AtomicBool::new(false);
    // Fresh memory is measured first.
    let mut save = |_: &Results| {
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    };
    let watch = Observer { progress: &mut |_| (), save: &mut save, stop: &stop };
    let found = Validated::new(&[&small()])
        .unwrap()
        .measure(&Policy::defaults(Machine::current()), RunOptions::default(), watch)
        .unwrap();
    assert!(!found.complete);
    assert!(found.rows.iter().all(|row| row.config.memory == Some(Memory::Fresh)) && !found.rows.is_empty());
}

#[test]
fn the_usual_options_can_be_measured() {
    let usual = VmOptions::default();
    usual.validate().unwrap();
    assert!(usual.size >= 64 << 20 && usual.seconds() > 0.0 && !usual.threads.is_empty());
}

#[test]
fn a_hint_stands_beside_none_or_is_said_to_be_not_available() {
    let found = run(&VmOptions { hint: true, ..small() }).unwrap();
    let hinted = found.rows.iter().filter(|row| row.candidate.name == HINTED).count();
    match BulkHint::available() {
        Ok(()) => assert_eq!(hinted, 2, "one and two threads"),
        Err(error) => {
            println!("skipped: memory declared to the kernel module: {error}");
            assert_eq!(hinted, 0);
            let note = found.notes.iter().find(|note| note.contains("bulk hint: not available")).unwrap();
            assert!(note.contains("/dev/bulkmem"), "{note}");
        }
    }
    let unasked = run(&small()).unwrap();
    assert!(!unasked.notes.iter().any(|note| note.contains("bulk hint")), "{:?}", unasked.notes);
}

#[test]
fn qemu_is_run_with_and_without_preallocation() {
    let program = OsStr::new(prefaults::QEMU_PROGRAM);
    if let Err(error) = prefaults::start(program, "memory-backend-ram,id=memory,size=1M") {
        return println!("skipped: QEMU's preallocation: {}", with_causes(&error));
    }
    let phases = prefaults::preallocated(program, 64 << 20, "4K".parse().unwrap(), 2).unwrap();
    assert!(
        phases.ready() > 0.0 && phases.0.iter().any(|(name, seconds)| *name == "start_s" && *seconds > 0.0)
    );
    // The error has QEMU's own words.
    let error = prefaults::start(program, "memory-backend-ram,id=memory,size=none").unwrap_err();
    assert!(with_causes(&error).contains("size"), "{}", with_causes(&error));
    let missing = prefaults::start(OsStr::new("/nowhere/qemu"), "").unwrap_err();
    assert!(
        matches!(missing, MeasureError::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
    );
}

#[test]
fn conclusions_compare_threads_processes_and_qemu() {
    let row = |kind, name, threads, seconds: f64| {
        let config = Config { threads: Some(threads), memory: Some(Memory::Fresh), ..Config::default() };
        testing::row(Measurement::Vm, (kind, name), config, (Metric::Seconds, &[seconds; 3]), &[])
    };
    let rows = [
        row(Kind::Method, prefaults::BULKMEM, 1, 2.0),
        row(Kind::Method, prefaults::BULKMEM, 2, 1.0),
        row(Kind::Control, prefaults::PROCESSES, 1, 1.8),
        row(Kind::Control, prefaults::PROCESSES, 2, 1.0),
        row(Kind::Peer, prefaults::QEMU, 2, 1.5),
    ];
    let text = prefault_finding("8 GiB in 2M pages", &rows[0], &rows, Some(2));
    let expected = "8 GiB in 2M pages: bulkmem's prefault has fresh memory ready after 2.00 s, with 2 threads 2.00 times \
                    as fast (2 independent processes: 1.80); QEMU's preallocation with as many takes 1.50 times as \
                    long.";
    assert_eq!(text, expected);
    let text = prefault_finding("8 GiB", &rows[0], &rows[..1], None);
    assert_eq!(text, "8 GiB: bulkmem's prefault has fresh memory ready after 2.00 s.");
}
