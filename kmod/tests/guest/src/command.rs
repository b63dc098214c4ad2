//! Tests the `bulkmem` command and the library with the real module: status, parameters from a profile, and hints.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};

use bulkmem::machine::Machine;
use bulkmem::method::Parameters as Tunables;
use bulkmem::policy::Situation;
use bulkmem::{Mapping, Operation, Pages};
use bulkmem_kmod::{
    BulkHint, DeviceMemory, KernelError, MemoryOptions, Method, Module, Settings, prefault_hinted,
};
use bulkmem_measure::Provenance;
use bulkmem_measure::calibration::{Coverage, FORMAT, Mode, ModuleFigure, Profile, Rule, VERSION};
use libtest_mimic::Failed;
use serde_json::Value;
use testkit::harness::Suite;

use crate::huge::{HugeMapping, MIDDLE, Source};
use crate::module::{self, Counters, METHODS, Parameters, counter, until};
use crate::process::Child;

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("command::without_the_module_it_says_how_to_get_it", without_the_module);
    suite.test("command::status_says_what_the_files_say", status_says_what_the_files_say);
    suite.test("command::prometheus_says_what_the_files_say", prometheus_says_what_the_files_say);
    suite.test("command::a_disabled_device_is_named", a_disabled_device_is_named);
    for method in ["movnti", "rep_stosq", "prefetchw"] {
        let name = format!("command::apply_sets_what_the_profile_says::{method}");
        match module::possible().contains(&method) {
            true => suite.test(&name, move || apply_sets_what_the_profile_says(method)),
            false => suite.skip(&name, "this processor does not have the instruction"),
        }
    }
    suite.test("command::apply_needs_measurements_of_the_module", apply_needs_measurements_of_the_module);
    suite.test("command::other_machines_profiles_change_nothing", other_machines_profiles_change_nothing);
    suite.test("command::a_refusal_changes_nothing", a_refusal_changes_nothing);
    let lacking = "command::what_the_processor_lacks_changes_nothing";
    match module::possible().contains(&"clzero") {
        true => {
            suite.skip(lacking, "this processor has CLZERO, the instruction that the test takes to be absent")
        }
        false => suite.test(lacking, what_the_processor_lacks_changes_nothing),
    }
    suite.test("command::a_hint_lives_as_long_as_its_value", a_hint_lives_as_long_as_its_value);
    suite.test("command::vm_with_a_hint_beside_none", vm_with_a_hint_beside_none);
    for method in ["stock", "rep_movsb", "movnti"] {
        suite
            .test(&format!("command::fork_counts_copies_of_huge_pages::{method}"), move || fork_huge(method));
    }
    suite.test("command::fork_without_huge_pages_says_how_to_reserve_them", fork_without_huge_pages);
    suite.test("command::run_hints_a_program", run_hints_a_program);
    suite.test("command::hint_cgroup_hints_it", hint_cgroup_hints_it);
    suite.test("command::run_says_why_it_cannot_hint", run_says_why_it_cannot_hint);
}

fn bulkmem(arguments: &[&str]) -> Result<Output, Failed> {
    Ok(Command::new("/bin/bulkmem").args(arguments).env("COLUMNS", "80").output()?)
}

/// Runs the command, which must succeed, and returns its output.
pub(crate) fn text(arguments: &[&str]) -> Result<String, Failed> {
    let output = bulkmem(arguments)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{arguments:?} ended with {}: {said}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// As [`text`], parsed as JSON.
pub(crate) fn json(arguments: &[&str]) -> Result<Value, Failed> {
    Ok(serde_json::from_str(&text(arguments)?)?)
}

fn without_the_module() -> Result<(), Failed> {
    module::gone()?;
    let asked: [&[&str]; 3] =
        [&["kmod", "status"], &["bench", "iops", "--attr", "uc"], &["bench", "clear", "--attr", "all"]];
    for arguments in asked {
        let output = bulkmem(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(1) || !said.contains("modprobe bulkmem") || !output.stdout.is_empty()
        {
            return Err(format!("{arguments:?} ended with {}: {said}", output.status).into());
        }
    }
    let found = BulkHint::available();
    assert!(matches!(found, Err(KernelError::NotLoaded { .. })), "{found:?}");
    assert!(!prefault_hinted(&mut Mapping::new(1 << 20, Pages::Base)?)?);
    Ok(())
}

/// Checks that the command reports every number as the module's files do.
fn agrees() -> Result<Value, Failed> {
    let (parameters, counters) = (Parameters::read()?, Counters::read()?);
    let mut at_first = BTreeMap::new();
    for name in METHODS.iter().flat_map(|method| [format!("{method}/ns"), format!("{method}/longest")]) {
        at_first.insert(name.clone(), module::counter(&name)?);
    }
    let found = json(&["kmod", "status", "--json"])?;
    let own = &found["parameters"];
    let (text, number) =
        (|name: &str| own[name].as_str().unwrap_or_default().to_owned(), |name: &str| own[name].as_u64());
    let read = Parameters {
        method: text("method"),
        cached_method: text("cached_method"),
        threshold: number("threshold").ok_or("no threshold")?,
        chunk: number("chunk").ok_or("no chunk")?,
        prefetch_distance: number("prefetch_distance").ok_or("no prefetch_distance")?,
        ignore_quirks: own["ignore_quirks"].as_bool().ok_or("no ignore_quirks")?,
        copy_method: text("copy_method"),
        copy_cached_method: text("copy_cached_method"),
        copy_threshold: number("copy_threshold").ok_or("no copy_threshold")?,
        automatic: own["automatic"].as_bool().ok_or("no automatic")?,
    };
    assert_eq!(read, parameters);
    for (at, method) in METHODS.iter().enumerate() {
        let of = &found["counters"]["methods"][at];
        assert_eq!(of["method"], *method);
        // The command itself may fault in huge pages, so the numbers can have grown.
        for counter in ["extents", "pages", "bytes", "hinted", "ns", "longest"] {
            let name = format!("{method}/{counter}");
            let before =
                if ["ns", "longest"].contains(&counter) { at_first[&name] } else { counters.get(&name) };
            assert!(
                of[counter].as_u64().is_some_and(|now| now >= before),
                "{method}/{counter}: {of} < {before}"
            );
        }
    }
    Ok(found)
}

fn status_says_what_the_files_say() -> Result<(), Failed> {
    module::fresh()?;
    let found = agrees()?;
    assert_eq!(
        (&found["state"], &found["loaded"], &found["hint_device"], &found["memory_device"]),
        (&"enabled".into(), &true.into(), &"present".into(), &"present".into())
    );
    let available: Vec<String> = serde_json::from_value(found["available"].clone())?;
    assert_eq!(available, module::available()?);
    let available: Vec<String> = serde_json::from_value(found["copy_available"].clone())?;
    assert_eq!(available.join(" "), module::get("copy_available")?);
    // Every value that is not the default, and a number that is not the one of the file.
    for (name, value) in [
        ("copy_method", "movnti"),
        ("copy_cached_method", "rep_movsb"),
        ("copy_threshold", "12345"),
        ("automatic", "1"),
    ] {
        module::set(name, value)?;
    }
    agrees()?;
    let shown = text(&["kmod", "status"])?;
    for word in
        ["active", "rep_stosb", "threshold", "huge pages were cleared", "12345", "huge pages were copied"]
    {
        assert!(shown.contains(word), "{word}\n{shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    Ok(())
}

fn prometheus_says_what_the_files_say() -> Result<(), Failed> {
    module::fresh()?;
    module::set("threshold", "0")?;
    module::set("method", "movnti")?;
    HugeMapping::new(Source::Transparent, 1)?.touch(0);
    let (before, ns, longest) =
        (Counters::read()?, module::counter("movnti/ns")?, module::counter("movnti/longest")?);
    let shown = testkit::prometheus::parse(&text(&["kmod", "status", "--prometheus"])?)?.samples;
    let value = |name: &str| shown.get(name).copied().ok_or_else(|| format!("no {name} in {shown:?}"));
    for (name, known) in [
        ("bulkmem_faults_total", before.get("faults") as f64),
        ("bulkmem_cleared_bytes_total{method=\"movnti\"}", before.get("movnti/bytes") as f64),
        ("bulkmem_extents_total{method=\"movnti\"}", before.get("movnti/extents") as f64),
        ("bulkmem_cleared_seconds_total{method=\"movnti\"}", ns as f64 / 1e9),
        ("bulkmem_longest_bytes{method=\"movnti\"}", longest as f64),
    ] {
        // The command itself may fault in huge pages.
        let found = value(name)?;
        assert!(known > 0.0 && (known..=known * 100.0).contains(&found), "{name}: {found}, at first {known}");
    }
    for name in ["module_loaded", "livepatch_enabled", "device_present{device=\"/dev/bulkmem-memory\"}"] {
        assert_eq!(value(&format!("bulkmem_{name}"))?, 1.0, "{name}");
    }
    module::gone()?;
    let output = bulkmem(&["kmod", "status", "--prometheus"])?;
    let shown = testkit::prometheus::parse(std::str::from_utf8(&output.stdout)?)?.samples;
    assert_eq!((output.status.code(), shown["bulkmem_module_loaded"]), (Some(1), 0.0));
    Ok(())
}

fn a_disabled_device_is_named() -> Result<(), Failed> {
    let memory = || DeviceMemory::new(MIDDLE, MemoryOptions::default()).map(drop);
    for (parameter, hints, states) in
        [("hint_device", false, ["disabled", "present"]), ("memory_device", true, ["present", "disabled"])]
    {
        module::gone()?;
        module::load(&format!("{parameter}=0"))?;
        let (works, fails) =
            if hints { (BulkHint::available(), memory()) } else { (memory(), BulkHint::available()) };
        assert!(works.is_ok(), "{parameter}: {works:?}");
        match fails {
            Err(error @ KernelError::Disabled { .. }) => {
                assert!(error.to_string().contains(&format!("{parameter}=0")), "{error}");
            }
            other => return Err(format!("{parameter}: {other:?}").into()),
        }
        let found = json(&["kmod", "status", "--json"])?;
        assert_eq!([&found["hint_device"], &found["memory_device"]], states, "{parameter}");
        let counters = &found["counters"]["methods"];
        assert!(counters.as_array().is_some_and(|methods| methods.len() == METHODS.len()), "{counters}");
    }
    Ok(module::gone()?)
}

/// Returns a profile of this processor in which `method` measured best, and `rep_stosb` second.
fn profile(method: &str) -> Profile {
    let machine = Machine::current();
    let rule = |from, method: &str| Rule {
        operation: Operation::Clear,
        situation: Situation::Throughput,
        from,
        method: method.to_owned(),
        parameters: Tunables::default(),
        reason: "a test".to_owned(),
    };
    let gb_per_s = |it: &str| match it {
        _ if it == method => 20.0,
        "rep_stosb" => 15.0,
        _ => 10.0,
    };
    let module = ["stock", "rep_stosb", "rep_stosq", "movnti", "prefetchw"].map(|it| {
        let ns = MIDDLE as f64 / gb_per_s(it);
        ModuleFigure {
            method: it.to_owned(),
            prefetch_distance: (it == "prefetchw").then_some(4096),
            extent: MIDDLE as u64,
            chunk: MIDDLE as u64,
            median_ns: ns,
            quartiles_ns: [ns, ns],
            samples: 9,
        }
    });
    Profile {
        format: FORMAT.to_owned(),
        version: VERSION,
        provenance: Provenance {
            cpu: machine.cpu.clone(),
            microcode: machine.microcode.clone(),
            caches: [machine.caches.l1d, machine.caches.l2, machine.caches.l3],
            processors: machine.processors,
            kernel: machine.kernel.clone(),
            page_size: machine.page_size,
            backing_page_size: machine.page_size,
            date: "2026-11-21T12:00:00Z".to_owned(),
            bulkmem: "0.1.0".to_owned(),
            commit: "unknown".to_owned(),
            seconds: 1.0,
            samples: 1,
            ..Provenance::default()
        },
        coverage: Coverage { mode: Mode::Quick, complete: true, operations: Vec::new() },
        durability: None,
        looks: Vec::new(),
        aliasing: None,
        rules: vec![rule(0, "rep_stosb"), rule(MIDDLE as u64, "movnti")],
        threads: Vec::new(),
        figures: Vec::new(),
        module: module.into(),
    }
}

fn saved(profile: &Profile) -> Result<&'static str, Failed> {
    const PATH: &str = "/tmp/profile.json";
    fs::write(PATH, serde_json::to_vec(profile)?)?;
    Ok(PATH)
}

fn apply_needs_measurements_of_the_module() -> Result<(), Failed> {
    module::fresh()?;
    let before = Parameters::read()?;
    let mut silent = profile("movnti");
    silent.module.clear();
    let output = bulkmem(&["kmod", "apply", "--profile", saved(&silent)?])?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("run `bulkmem calibrate` again"), "{said}");
    assert_eq!(Parameters::read()?, before);
    Ok(())
}

fn apply_sets_what_the_profile_says(method: &str) -> Result<(), Failed> {
    const FILE: &str = "/etc/modprobe.d/bulkmem.conf";
    module::fresh()?;
    let path = saved(&profile(method))?;
    let before = Parameters::read()?;
    text(&["kmod", "apply", "--profile", path, "--dry-run"])?;
    assert_eq!(Parameters::read()?, before, "a dry run sets nothing");
    text(&["kmod", "apply", "--profile", path, "--persist"])?;
    let now = Parameters::read()?;
    let cached = if method == "movnti" { "rep_stosb" } else { method };
    assert_eq!((now.method.as_str(), now.cached_method.as_str()), (method, cached));
    let threshold = if method == "movnti" { MIDDLE as u64 } else { before.threshold };
    assert_eq!((now.threshold, now.ignore_quirks, now.chunk), (threshold, false, MIDDLE as u64));
    // A page fault uses the method.
    let counted = Counters::read()?;
    let mapping = HugeMapping::new(Source::Transparent, 1)?;
    mapping.touch(0);
    assert_eq!(mapping.first_dirt(), None);
    let since = Counters::read()?.since(&counted);
    assert!(since.get(&format!("{method}/bytes")) >= (MIDDLE - 5 * 4096) as u64, "{since:?}");
    agrees()?;
    // Loading the module with the saved line gives the same parameters.
    let written = fs::read_to_string(FILE)?;
    let options = written.lines().find_map(|line| line.strip_prefix("options bulkmem "));
    module::gone()?;
    module::load(options.ok_or("no options were written")?)?;
    assert_eq!(Parameters::read()?, now, "{written}");
    Ok(())
}

fn other_machines_profiles_change_nothing() -> Result<(), Failed> {
    module::fresh()?;
    let before = Parameters::read()?;
    let mut foreign = profile("movnti");
    foreign.provenance.cpu.model += 1;
    let output = bulkmem(&["kmod", "apply", "--profile", saved(&foreign)?])?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("was measured on"), "{said}");
    assert_eq!(Parameters::read()?, before);
    Ok(())
}

fn a_refusal_changes_nothing() -> Result<(), Failed> {
    module::fresh()?;
    let mut first = Settings::default();
    first.ignore_quirks = Some(!Parameters::read()?.ignore_quirks);
    let mut settings = first;
    settings.chunk = Some(4097);
    refused(&settings, "chunk", libc::EINVAL)?;
    let mut settings = first;
    settings.prefetch_distance = Some(65537);
    refused(&settings, "prefetch_distance", libc::EINVAL)?;
    let mut settings = first;
    settings.chunk = Some(8192);
    settings.cached_method = Some(Method::Movnti);
    refused(&settings, "cached_method", libc::EINVAL)
}

/// Checks that the kernel refuses `parameter` with the error `number`, and that no parameter changes.
fn refused(settings: &Settings, parameter: &str, number: i32) -> Result<(), Failed> {
    let before = Parameters::read()?;
    match Module::running().set(settings) {
        Err(KernelError::Refused { name, source, .. }) => {
            assert_eq!((name, source.raw_os_error()), (parameter, Some(number)));
        }
        other => return Err(format!("{settings:?}: {other:?}").into()),
    }
    assert_eq!(Parameters::read()?, before, "{settings:?}");
    Ok(())
}

fn what_the_processor_lacks_changes_nothing() -> Result<(), Failed> {
    module::fresh()?;
    let mut settings = Settings::default();
    settings.threshold = Some(1);
    settings.method = Some(Method::Clzero);
    refused(&settings, "method", libc::EOPNOTSUPP)
}

fn a_hint_lives_as_long_as_its_value() -> Result<(), Failed> {
    module::fresh()?;
    module::set("method", "movnti")?;
    module::set("threshold", (2 * MIDDLE).to_string())?;
    let mut mapping = Mapping::new(4 * MIDDLE, Pages::Transparent)?;
    let before = Counters::read()?;
    let hint = BulkHint::of(&mapping)?;
    assert_eq!(Counters::read()?.get("hints"), before.get("hints") + 1);
    mapping.prefault()?;
    drop(hint);
    let after = Counters::read()?;
    assert_eq!(after.get("hints"), before.get("hints"));
    assert!(after.since(&before).get("movnti/hinted") >= 4, "{:?}", after.since(&before));
    assert!(mapping.iter().all(|byte| *byte == 0));
    let mut mapping = Mapping::new(4 * MIDDLE, Pages::Transparent)?;
    assert!(prefault_hinted(&mut mapping)?);
    assert!(Counters::read()?.since(&after).get("movnti/hinted") >= 4);
    Ok(())
}

fn vm_with_a_hint_beside_none() -> Result<(), Failed> {
    module::fresh()?;
    module::set("method", "movnti")?;
    module::set("threshold", (2 * MIDDLE).to_string())?;
    let before = Counters::read()?;
    let found = json(&[
        "bench",
        "vm",
        "--hint",
        "--size",
        "8M",
        "--page-size",
        "thp",
        "--threads",
        "1,2",
        "--runs",
        "1",
        "--method",
        "movnti",
        "--peers",
        "none",
        "--json",
    ])?;
    let since = Counters::read()?.since(&before);
    for name in ["prefault", "prefault, hinted"] {
        let rows = found["rows"].as_array().into_iter().flatten();
        assert_eq!(
            rows.filter(|row| row["candidate"]["name"] == name).count(),
            2,
            "{name}: one and two threads"
        );
    }
    // A warm-up and one pass, by one thread and by two, four huge pages each.
    assert!(since.get("movnti/hinted") >= 16, "{since:?}");
    assert_eq!(Counters::read()?.get("hints"), before.get("hints"));
    Ok(())
}

const FORK: [&str; 10] =
    ["bench", "fork", "--huge", "--size", "4M", "--loops", "1", "--runs", "2", "--method=portable"];

/// The command's counts of a fork, from pagemap and from the module, are those of a buffer of two huge pages. It reserves
/// the pages, as root.
fn fork_huge(method: &str) -> Result<(), Failed> {
    module::fresh()?;
    module::set("copy_threshold", "0")?;
    module::set("copy_method", method)?;
    let found = json(&[&FORK[..], &["--json"]].concat())?;
    let shown = text(&FORK);
    module::set("copy_method", "stock")?;
    let rows = found["rows"].as_array().ok_or("no rows")?;
    for (name, pages) in
        [("fork, child writes", 2.0), ("fork, parent writes", 2.0), ("fork, child reads", 0.0)]
    {
        let row = rows.iter().find(|row| row["candidate"]["name"] == name).ok_or(name)?;
        let also = |counter: &str| row["also"][counter].as_f64();
        assert_eq!(also("buffer_pages_copied"), Some(pages), "{name}: {row}");
        assert_eq!(also("module_pages"), Some(pages), "{name}: {row}");
        let bytes = also(&format!("module_{method}_bytes")).ok_or("no bytes")?;
        // All but the written page, which is the first, and two after it.
        let expected = if method == "stock" { MIDDLE } else { MIDDLE - 3 * 4096 };
        assert_eq!(bytes, pages * expected as f64, "{name}: {row}");
    }
    // Nothing copies huge pages now, so the numbers are equal.
    let copies = json(&["kmod", "status", "--json"])?["copies"].clone();
    assert!(copies["faults"].as_u64() >= Some(4), "{copies}");
    for name in ["faults", "skipped", "redone", "failed"] {
        assert_eq!(copies[name], counter(&format!("copies/{name}"))?, "{name}");
    }
    for (at, method) in ["stock", "rep_movsb", "movnti"].into_iter().enumerate() {
        assert_eq!(copies["methods"][at]["method"], method);
        for name in ["extents", "bytes"] {
            let expected = counter(&format!("copies/{method}_{name}"))?;
            assert_eq!(copies["methods"][at][name], expected, "{method}: {name}");
        }
    }
    // At 80 columns, the table has no room for the module's method and says so.
    assert!(shown?.contains("of buffer"));
    assert_eq!(fs::read_to_string("/proc/sys/vm/nr_hugepages")?.trim(), "0", "they are given back");
    Ok(())
}

/// More than the machine's memory.
fn fork_without_huge_pages() -> Result<(), Failed> {
    let output = bulkmem(&["bench", "fork", "--huge", "--size", "1G"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(said.contains("available") || said.contains("hugepages"), "{said}");
    Ok(())
}

/// A program that does not know of the module: its buffer is transparent huge pages, which a system call faults in.
const DD: [&str; 6] = ["--", "/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=16M", "count=1"];

fn run_hints_a_program() -> Result<(), Failed> {
    module::fresh()?;
    module::set("method", "movnti")?;
    module::set("threshold", (64 * MIDDLE).to_string())?;
    // No library of these names; the program ignores the variables.
    fs::create_dir_all("/tmp/lib")?;
    for library in ["libpmem.so.1", "libbulkmem_preload.so"] {
        fs::write(format!("/tmp/lib/{library}"), "")?;
    }
    for options in [&[][..], &["--libpmem"], &["--histogram"], &["--from", "1M"]] {
        let run = |hint: &[&str]| {
            let before = Counters::read()?;
            let output = Command::new("/bin/bulkmem")
                .args([&["run"], hint, options, &DD].concat())
                .env("BULKMEM_LIBDIR", if options.is_empty() { "/nowhere" } else { "/tmp/lib" })
                .output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains("1+0 records out"), "{options:?}: {said}");
            Ok::<_, Failed>(Counters::read()?.since(&before))
        };
        let since = run(&["--bulk-hint"])?;
        // Of 16 MiB that do not start at a huge page, 7; each has at least one range around the touched page.
        assert!(since.get("movnti/hinted") >= 7, "{options:?}: {since:?}");
        until("processes are hinted", || Ok(counter("hinted_processes")? == 0))?;
        if !options.is_empty() {
            let since = run(&[])?;
            assert_eq!((since.get("movnti/hinted"), since.get("skipped") >= 7), (0, true), "{since:?}");
        }
    }
    Ok(())
}

fn run_says_why_it_cannot_hint() -> Result<(), Failed> {
    let refused = |words: &str| {
        let output = bulkmem(&[&["run", "--bulk-hint"], &DD[..]].concat())?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(1) || !said.contains(words) || said.contains("records") {
            return Err(Failed::from(format!("{words:?} is not in: {said}")));
        }
        Ok(())
    };
    module::gone()?;
    refused("the kernel module `bulkmem` is not loaded")?;
    module::load("hint_device=0")?;
    refused("was loaded with hint_device=0")?;
    module::unload()?;
    module::fresh()?;
    Child::spawn(|| {
        // SAFETY: changes the user of this child only.
        assert_eq!(unsafe { libc::setresuid(1000, 1000, 1000) }, 0);
        refused("/dev/bulkmem is for root only")
    })?
    .succeed()?;
    module::enable(false)?;
    until("the livepatch is there", || Ok(!fs::exists("/sys/kernel/livepatch/bulkmem")?))?;
    refused("its livepatch is not in force")?;
    until("the module is in use", || Ok(module::remove().is_ok()))?;
    Ok(())
}

fn hint_cgroup_hints_it() -> Result<(), Failed> {
    const FOLDER: &str = "/sys/fs/cgroup/by-the-command";
    module::fresh()?;
    fs::create_dir(FOLDER)?;
    let listed = || Ok::<_, Failed>(json(&["kmod", "status", "--json"])?["hinted_cgroups"].clone());
    let none = Value::Array(Vec::new());
    assert_eq!(listed()?, none);
    text(&["kmod", "hint-cgroup", FOLDER])?;
    assert_eq!(listed()?[0]["path"], FOLDER);
    assert!(text(&["kmod", "status"])?.contains(FOLDER));
    text(&["kmod", "hint-cgroup", "--remove", FOLDER])?;
    assert_eq!(listed()?, none);
    let refused: [(&[&str], &str); 3] = [
        (&["kmod", "hint-cgroup", "--remove", FOLDER], "is not hinted: `bulkmem kmod status` lists"),
        (&["kmod", "hint-cgroup", "/tmp"], "/tmp is not the folder of a control group"),
        (&["kmod", "hint-cgroup", "/nowhere"], "/nowhere cannot be read"),
    ];
    for (arguments, words) in refused {
        let output = bulkmem(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(words), "{words:?} is not in: {said}");
    }
    fs::remove_dir(FOLDER)?;
    Ok(())
}
