//! `bulkmem kmod`, on planted files in place of a loaded module's.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use bulkmem_measure::calibration::{ModuleFigure, Profile};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::home::{Home, assert_fits, keys, profile};

const PARAMETERS: [(&str, &str); 14] = [
    ("method", "movnti"),
    ("cached_method", "rep_stosb"),
    ("threshold", "33554432"),
    ("chunk", "2097152"),
    ("prefetch_distance", "4096"),
    ("ignore_quirks", "N"),
    ("hint_device", "Y"),
    ("memory_device", "Y"),
    ("available", "stock rep_stosb rep_stosq movnti clzero prefetchw"),
    ("copy_method", "movnti"),
    ("copy_cached_method", "rep_movsb"),
    ("copy_threshold", "1073741824"),
    ("copy_available", "stock rep_movsb movnti"),
    ("automatic", "Y"),
];

const METHODS: [&str; 6] = ["stock", "rep_stosb", "rep_stosq", "movnti", "clzero", "prefetchw"];

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A root folder with a module that is loaded and active.
fn planted(home: &Home) -> PathBuf {
    let root = home.path().join("root");
    for (name, value) in PARAMETERS {
        write(root.join("sys/module/bulkmem/parameters").join(name), &format!("{value}\n"));
    }
    write(root.join("sys/module/bulkmem/taint"), "OE\n");
    write(root.join("sys/kernel/livepatch/bulkmem/enabled"), "1\n");
    write(root.join("sys/kernel/livepatch/bulkmem/transition"), "0\n");
    write(root.join("proc/sys/kernel/osrelease"), "6.1.0-56-amd64\n");
    write(root.join("proc/sys/kernel/tainted"), "45056\n");
    write(root.join("dev/bulkmem"), "");
    write(root.join("dev/bulkmem-memory"), "");
    write(root.join("lib/modules/6.1.0-56-amd64/modules.dep"), "updates/dkms/bulkmem.ko:\n");
    let misc = root.join("sys/class/misc/bulkmem");
    for (name, value) in
        [("faults", 4096), ("skipped", 7), ("hints", 1), ("hinted_processes", 3), ("unhinted_processes", 2)]
    {
        write(misc.join(name), &format!("{value}\n"));
    }
    for (name, value) in [
        ("faults", 21),
        ("skipped", 20),
        ("redone", 3),
        ("failed", 4),
        ("stock_extents", 23),
        ("stock_bytes", 430_080),
        ("rep_movsb_extents", 20),
        ("rep_movsb_bytes", 41_533_440),
        ("movnti_extents", 2),
        ("movnti_bytes", 1_073_721_344),
    ] {
        write(misc.join("copies").join(name), &format!("{value}\n"));
    }
    // One of a folder that is version 2's, one of a folder that is not, and one that is nowhere.
    let cgroups = ["machine.slice/vm1.scope", "version1"].map(|name| {
        let folder = root.join("sys/fs/cgroup").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::metadata(folder).unwrap().ino()
    });
    write(root.join("sys/fs/cgroup/machine.slice/vm1.scope/cgroup.controllers"), "");
    write(misc.join("hinted_cgroups"), &format!("{}\n{}\n{}\n", cgroups[0], cgroups[1], u64::MAX));
    for (at, method) in METHODS.iter().enumerate() {
        for (name, value) in [
            ("extents", 1),
            ("pages", 512),
            ("bytes", 2 << 20),
            ("ns", 1_000_000_007),
            ("hinted", 2),
            ("longest", 4096),
        ] {
            write(misc.join(method).join(name), &format!("{}\n", value * at));
        }
    }
    root
}

fn with_root<'a>(arguments: &[&'a str], root: &'a Path) -> Vec<&'a str> {
    [arguments, &["--root", root.to_str().unwrap()]].concat()
}

fn parameter(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join("sys/module/bulkmem/parameters").join(name)).unwrap().trim().to_owned()
}

fn parameters(root: &Path) -> Vec<String> {
    PARAMETERS.map(|(name, _)| parameter(root, name)).to_vec()
}

/// A profile in which `prefetchw` measured best for large lengths, and `rep_stosq` for a huge page.
fn measured() -> Profile {
    let mut profile = profile();
    for (extent, speeds) in
        [(2u32 << 20, [7.0, 8.0, 10.0, 4.0, 4.0, 9.0]), (32 << 20, [7.0, 8.0, 10.0, 4.0, 4.0, 20.0])]
    {
        profile.module.extend(METHODS.into_iter().zip(speeds).map(|(method, gb_per_s)| {
            let median_ns = f64::from(extent) / gb_per_s;
            ModuleFigure {
                method: method.to_owned(),
                prefetch_distance: (method == "prefetchw").then_some(4096),
                extent: extent.into(),
                chunk: if method == "stock" { 4096 } else { 2 << 20 },
                median_ns,
                quartiles_ns: [median_ns * 0.99, median_ns * 1.01],
                samples: 9,
            }
        }));
    }
    profile
}

fn home_with(profile: &Profile) -> Home {
    let home = Home::new();
    home.write_profile(profile);
    home
}

#[test]
fn status_shows_everything_and_fits() {
    let home = Home::new();
    let root = planted(&home);
    for columns in [80, 160] {
        let text = home.text(&with_root(&["kmod", "status"], &root), columns);
        assert_fits(&text, columns as usize);
        for word in [
            "active: bulkmem clears",
            "updates/dkms/bulkmem.ko",
            "hints /dev/bulkmem",
            "memory /dev/bulkmem-memory",
            "OE of the module",
            "33554432",
            "prefetch_distance",
            "8388608",
            "4096 huge pages were cleared for page faults, 7 of them below",
            "sys/fs/cgroup/machine.slice/vm1.scope number ",
            "1 hint is active. 3 processes are hinted as a whole. 2 children were not, because",
            "clear by stock, rep_stosb, rep_stosq, movnti, clzero, prefetchw; copy by stock, rep_movsb, movnti.",
            "copy_method movnti",
            "copy_cached_method rep_movsb",
            "copy_threshold 1073741824",
            "automatic 1",
            "rep_movsb 20 41533440",
            "21 huge pages were copied, 20 of them below copy_threshold (by copy_cached_method). The kernel copied 3 \
             again after an exception; 4 could not be copied because of a hardware error.",
        ] {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(word), "{word}\n{text}");
        }
    }
}

#[test]
fn status_as_json_has_what_the_files_have() {
    let home = Home::new();
    let root = planted(&home);
    let found = home.json(&with_root(&["kmod", "status", "--json"], &root));
    let expected = [
        "available",
        "copies",
        "copy_available",
        "counters",
        "flushcache",
        "hint_device",
        "hinted_cgroups",
        "installed",
        "kernel",
        "kernel_taint",
        "livepatch",
        "loaded",
        "memory_device",
        "parameters",
        "persisted",
        "state",
        "superseded_by",
        "taint",
    ];
    assert_eq!(keys(&found), expected);
    assert_eq!(
        (&found["state"], &found["loaded"], &found["hint_device"], &found["memory_device"]),
        (&json!("enabled"), &json!(true), &json!("present"), &json!("present"))
    );
    assert_eq!(found["parameters"]["threshold"], 33_554_432);
    assert_eq!(found["parameters"]["ignore_quirks"], false);
    assert_eq!(
        ["copy_method", "copy_cached_method", "copy_threshold", "automatic"]
            .map(|it| &found["parameters"][it]),
        [&json!("movnti"), &json!("rep_movsb"), &json!(1 << 30), &json!(true)]
    );
    assert_eq!(found["copy_available"], json!(["stock", "rep_movsb", "movnti"]));
    assert_eq!(
        found["copies"],
        json!({
            "faults": 21, "skipped": 20, "redone": 3, "failed": 4, "methods": [
                { "method": "stock", "extents": 23, "bytes": 430_080 },
                { "method": "rep_movsb", "extents": 20, "bytes": 41_533_440 },
                { "method": "movnti", "extents": 2, "bytes": 1_073_721_344 },
            ]
        })
    );
    let counters = &found["counters"];
    assert_eq!((&counters["hinted_processes"], &counters["unhinted_processes"]), (&json!(3), &json!(2)));
    let cgroups = found["hinted_cgroups"].as_array().unwrap();
    let paths: Vec<_> = cgroups.iter().map(|cgroup| cgroup["path"].as_str().unwrap_or("none")).collect();
    assert!(paths[0].ends_with("/sys/fs/cgroup/machine.slice/vm1.scope"), "{paths:?}");
    assert_eq!((paths[1], paths[2], &cgroups[2]["id"]), ("none", "none", &json!(u64::MAX)));
    let movnti = &found["counters"]["methods"][3];
    assert_eq!(
        *movnti,
        json!({
            "method": "movnti", "extents": 3, "pages": 1536, "bytes": 6 << 20, "ns": 3_000_000_021_u64, "hinted": 6,
            "longest": 12288
        })
    );
}

#[test]
fn each_device_has_its_state() {
    let home = Home::new();
    let root = planted(&home);
    let state = |name: &str| home.json(&with_root(&["kmod", "status", "--json"], &root))[name].clone();
    let text = || {
        let text = home.text(&with_root(&["kmod", "status"], &root), 80);
        assert_fits(&text, 80);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let disable = |name| write(root.join("sys/module/bulkmem/parameters").join(name), "N\n");
    fs::remove_file(root.join("dev/bulkmem-memory")).unwrap();
    assert_eq!((state("hint_device"), state("memory_device")), (json!("present"), json!("missing")));
    assert!(text().contains("missing: /dev/bulkmem-memory"), "{}", text());
    disable("memory_device");
    assert_eq!((state("hint_device"), state("memory_device")), (json!("present"), json!("disabled")));
    assert!(text().contains("memory none: the module was loaded with memory_device=0"), "{}", text());
    disable("hint_device");
    assert_eq!(state("hint_device"), "disabled");
    assert!(text().contains("hints none: the module was loaded with hint_device=0"), "{}", text());
}

#[test]
fn prometheus_has_what_the_files_have() {
    let home = Home::new();
    let root = planted(&home);
    let arguments = with_root(&["kmod", "status", "--prometheus"], &root);
    let text = home.text(&arguments, 80);
    let metrics = testkit::prometheus::parse(&text).unwrap();
    for (sample, value) in [
        ("bulkmem_module_loaded", 1.0),
        ("bulkmem_livepatch_enabled", 1.0),
        ("bulkmem_livepatch_transition", 0.0),
        ("bulkmem_livepatch_superseded", 0.0),
        ("bulkmem_device_present{device=\"/dev/bulkmem\"}", 1.0),
        ("bulkmem_device_present{device=\"/dev/bulkmem-memory\"}", 1.0),
        ("bulkmem_faults_total", 4096.0),
        ("bulkmem_faults_below_threshold_total", 7.0),
        ("bulkmem_hints", 1.0),
        ("bulkmem_hinted_processes", 3.0),
        ("bulkmem_unhinted_processes_total", 2.0),
        ("bulkmem_cleared_bytes_total{method=\"movnti\"}", 6_291_456.0),
        ("bulkmem_cleared_seconds_total{method=\"movnti\"}", 3.000_000_021),
        ("bulkmem_extents_total{method=\"clzero\"}", 4.0),
        ("bulkmem_hinted_extents_total{method=\"clzero\"}", 8.0),
        ("bulkmem_longest_bytes{method=\"prefetchw\"}", 20480.0),
        ("bulkmem_copies_total", 21.0),
        ("bulkmem_copies_below_threshold_total", 20.0),
        ("bulkmem_copies_redone_total", 3.0),
        ("bulkmem_copies_failed_total", 4.0),
        ("bulkmem_copied_bytes_total{method=\"stock\"}", 430_080.0),
        ("bulkmem_copied_bytes_total{method=\"rep_movsb\"}", 41_533_440.0),
        ("bulkmem_copied_extents_total{method=\"movnti\"}", 2.0),
    ] {
        assert_eq!(metrics.samples.get(sample), Some(&value), "{sample}\n{text}");
    }
    assert_eq!(metrics.samples.len(), 15 + 5 * METHODS.len() + 2 * 3, "{text}");
    // A livepatch that is not in force fails as without the option, and so does a module that is not loaded.
    write(root.join("sys/kernel/livepatch/bulkmem/enabled"), "0\n");
    write(root.join("sys/module/bulkmem/parameters/memory_device"), "N\n");
    fs::remove_file(root.join("dev/bulkmem-memory")).unwrap();
    let fails = |message: &str| {
        let assert = home.bulkmem().args(&arguments).assert().code(1).stderr(contains(message));
        testkit::prometheus::parse(std::str::from_utf8(&assert.get_output().stdout).unwrap()).unwrap().samples
    };
    let samples = fails("its livepatch is not in force");
    assert_eq!(samples["bulkmem_livepatch_enabled"], 0.0);
    assert_eq!(samples["bulkmem_device_present{device=\"/dev/bulkmem-memory\"}"], 0.0);
    fs::remove_dir_all(root.join("sys")).unwrap();
    let samples = fails("not loaded");
    assert_eq!((samples["bulkmem_module_loaded"], samples.get("bulkmem_hints")), (0.0, None));
    let both = [arguments.as_slice(), &["--json"]].concat();
    home.bulkmem().args(&both).assert().code(2);
}

#[test]
fn every_state_has_its_words() {
    let home = Home::new();
    for (enabled, transition, state, words) in [
        ("1", "1", "enabling", "being activated"),
        ("0", "1", "disabling", "being deactivated"),
        ("0", "0", "disabled", "not active"),
    ] {
        let root = planted(&home);
        write(root.join("sys/kernel/livepatch/bulkmem/enabled"), enabled);
        write(root.join("sys/kernel/livepatch/bulkmem/transition"), transition);
        assert_state(&home, &root, state, words);
    }
    let root = planted(&home);
    fs::remove_dir_all(root.join("sys/kernel/livepatch")).unwrap();
    assert_state(&home, &root, "unpatched", "not active");
}

/// Checks the state and its explanation, and that the command fails unless the livepatch is in force.
fn assert_state(home: &Home, root: &Path, state: &str, words: &str) {
    let arguments = with_root(&["kmod", "status"], root);
    let code = i32::from(!["enabled", "enabling"].contains(&state));
    let run = |more: &[&str]| {
        let assert = home.bulkmem().args(&arguments).args(more).env("COLUMNS", "80").assert().code(code);
        let said = contains("its livepatch is not in force");
        let assert = if code == 1 { assert.stderr(said) } else { assert.stderr("") };
        String::from_utf8(assert.get_output().stdout.clone()).unwrap()
    };
    let found: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert_eq!(found["state"], state);
    let text = run(&[]);
    assert_fits(&text, 80);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(words), "{words}\n{text}");
}

#[test]
fn another_livepatch_in_place_of_ours_is_noticed() {
    let home = Home::new();
    let other = |root: &Path, function: &str, enabled: &str| {
        write(root.join("sys/kernel/livepatch/kpatch_5/enabled"), enabled);
        write(root.join("sys/kernel/livepatch/kpatch_5/vmlinux").join(function).join("patched"), "1\n");
        write(root.join("sys/kernel/livepatch/bulkmem/vmlinux/folio_zero_user,1/patched"), "1\n");
    };
    let order = |root: &Path, names: [&str; 2]| {
        let lines = names.map(|name| format!("{name} 16384 1 - Live 0x0 (OEK)\n"));
        write(root.join("proc/modules"), &lines.concat());
    };
    // Stacked on ours, below it, on another function, and disabled.
    let root = planted(&home);
    other(&root, "folio_zero_user,1", "1\n");
    order(&root, ["kpatch_5", "bulkmem"]);
    assert_state(&home, &root, "superseded", "the livepatch kpatch_5, loaded later,");
    order(&root, ["bulkmem", "kpatch_5"]);
    assert_state(&home, &root, "enabled", "active:");
    order(&root, ["kpatch_5", "bulkmem"]);
    other(&root, "folio_zero_user,1", "0\n");
    assert_state(&home, &root, "enabled", "active:");
    fs::remove_dir_all(root.join("sys/kernel/livepatch/kpatch_5")).unwrap();
    other(&root, "meminfo_proc_show,1", "1\n");
    assert_state(&home, &root, "enabled", "active:");
    // A cumulative one removes ours.
    fs::remove_dir_all(root.join("sys/kernel/livepatch/bulkmem")).unwrap();
    assert_state(&home, &root, "superseded", "the livepatch kpatch_5 has probably replaced");
    write(root.join("sys/kernel/livepatch/kpatch_5/replace"), "0\n");
    assert_state(&home, &root, "unpatched", "not active");
}

#[test]
fn without_the_module_it_says_how_to_get_it() {
    let home = home_with(&measured());
    let root = home.path().join("root");
    write(root.join("proc/sys/kernel/osrelease"), "6.1.0-56-amd64\n");
    let help = contains("not loaded").and(contains("docs/kernel/README.md"));
    let missing = help.and(contains("not installed for this kernel, 6.1.0-56-amd64"));
    let status = with_root(&["kmod", "status"], &root);
    home.bulkmem().args(&status).assert().code(1).stdout("").stderr(missing);
    write(root.join("lib/modules/6.1.0-56-amd64/modules.dep"), "extra/bulkmem.ko.zst:\n");
    let installed = contains("extra/bulkmem.ko.zst: run `modprobe bulkmem`");
    home.bulkmem().args(&status).assert().code(1).stderr(installed);
    let found = home.bulkmem().args(&status).arg("--json").assert().code(1).get_output().stdout.clone();
    let found: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!((&found["state"], &found["counters"]), (&json!("absent"), &Value::Null));
    assert_eq!((&found["copies"], &found["copy_available"]), (&Value::Null, &json!([])));
    let apply = home.bulkmem().args(with_root(&["kmod", "apply"], &root)).assert().code(1);
    apply.stdout("").stderr(contains("not loaded").and(contains("--dry-run works without the module")));
    // A dry run needs no module.
    let text = home.text(&with_root(&["kmod", "apply", "--dry-run", "--persist"], &root), 80);
    assert_fits(&text, 80);
    assert!(text.contains("would contain: options bulkmem"), "{text}");
}

#[test]
fn apply_sets_what_the_profile_says() {
    let home = home_with(&measured());
    let root = planted(&home);
    let text = home.text(&with_root(&["kmod", "apply"], &root), 80);
    assert_fits(&text, 80);
    assert!(text.contains("Set from"), "{text}");
    assert_eq!(parameters(&root)[..3], ["prefetchw", "rep_stosq", "33554432"]);
    assert_eq!(parameter(&root, "ignore_quirks"), "N");
    assert!(!root.join("etc").exists(), "nothing is written unasked");
}

#[test]
fn a_dry_run_changes_nothing_and_shows_all() {
    let home = home_with(&measured());
    let root = planted(&home);
    let before = parameters(&root);
    let found = home.json(&with_root(&["kmod", "apply", "--dry-run", "--persist", "--json"], &root));
    assert_eq!(parameters(&root), before);
    assert!(!root.join("etc").exists());
    assert_eq!(keys(&found), ["dry_run", "parameters", "persisted", "profile"]);
    let method = found["parameters"].as_array().unwrap().iter().find(|it| it["name"] == "method").unwrap();
    assert_eq!(method["before"], "movnti");
    assert!(method["why"].as_str().unwrap().contains("20.0 GB/s at 33554432 bytes"), "{method}");
}

#[test]
fn a_refusal_changes_nothing_and_names_the_parameter() {
    let home = home_with(&measured());
    let root = planted(&home);
    let arguments = with_root(&["kmod", "apply", "--persist"], &root);
    // A number that can be read, and not even root may write to it: in its place the kernel refuses.
    let threshold = root.join("sys/module/bulkmem/parameters/threshold");
    fs::remove_file(&threshold).unwrap();
    symlink("/proc/sys/kernel/ngroups_max", &threshold).unwrap();
    let before = parameters(&root);
    let assert = home.bulkmem().args(&arguments).assert().code(1).stdout("");
    assert.stderr(contains("refused threshold=").and(contains("only root may set it; nothing was changed")));
    assert_eq!(parameters(&root), before);
    // What cannot be understood is not set either.
    fs::remove_file(&threshold).unwrap();
    fs::write(&threshold, "much\n").unwrap();
    let assert = home.bulkmem().args(&arguments).assert().code(1);
    assert.stderr(contains("parameters/threshold says `much`"));
    assert!(!root.join("etc").exists());
}

#[test]
fn a_copy_method_that_the_command_does_not_know_is_an_error() {
    let home = Home::new();
    let root = planted(&home);
    let status = with_root(&["kmod", "status"], &root);
    for (file, value) in
        [("copy_method", "rep_stosb"), ("copy_available", "stock memcpy"), ("automatic", "2")]
    {
        let path = root.join("sys/module/bulkmem/parameters").join(file);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&path, value).unwrap();
        let assert = home.bulkmem().args(&status).assert().code(1).stdout("");
        assert.stderr(contains(format!("parameters/{file} says `{value}`")));
        fs::write(&path, before).unwrap();
    }
    fs::write(root.join("sys/class/misc/bulkmem/copies/movnti_bytes"), "many\n").unwrap();
    let assert = home.bulkmem().args(&status).assert().code(1);
    assert.stderr(contains("copies/movnti_bytes says `many`"));
}

#[test]
fn persisting_writes_the_file_or_sets_everything_back() {
    let home = home_with(&measured());
    let root = planted(&home);
    let arguments = with_root(&["kmod", "apply", "--persist"], &root);
    home.text(&arguments, 80);
    let file = root.join("etc/modprobe.d/bulkmem.conf");
    let text = fs::read_to_string(&file).unwrap();
    let options: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(options.len() == 1 && options[0].starts_with("options bulkmem "), "{text}");
    assert!(options[0].contains(&format!("method={}", parameter(&root, "method"))), "{text}");
    let shown = home.json(&with_root(&["kmod", "status", "--json"], &root));
    assert_eq!(shown["persisted"], options[0]);

    let root = planted(&home);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let before = parameters(&root);
    let assert = home.bulkmem().args(&arguments).assert().code(1);
    assert.stderr(contains("bulkmem.conf").and(contains("previous parameters are restored")));
    assert_eq!(parameters(&root), before);
}

#[test]
fn other_machines_profiles_are_refused() {
    let mut foreign = measured();
    foreign.provenance.cpu.model += 1;
    let home = Home::new();
    let root = planted(&home);
    let path = home.path().join("foreign.json");
    fs::write(&path, serde_json::to_string(&foreign).unwrap()).unwrap();
    let before = parameters(&root);
    let arguments = with_root(&["kmod", "apply", "--profile", path.to_str().unwrap()], &root);
    let assert = home.bulkmem().args(&arguments).assert().code(1);
    assert.stderr(contains("was measured on").and(contains("bulkmem calibrate")));
    let missing = with_root(&["kmod", "apply", "--profile", "nowhere.json"], &root);
    home.bulkmem().args(&missing).assert().code(1).stderr(contains("cannot read nowhere.json"));
    let mut silent = measured();
    silent.module.clear();
    fs::write(&path, serde_json::to_string(&silent).unwrap()).unwrap();
    let nothing = contains("has no measurements of the module's methods").and(contains("bulkmem calibrate"));
    home.bulkmem().args(&arguments).assert().code(1).stderr(nothing);
    assert_eq!(parameters(&root), before);
}
