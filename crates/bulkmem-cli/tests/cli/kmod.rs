//! `bulkmem kmod`, on planted files in place of a loaded module's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bulkmem_measure::calibration::{Profile, Rule};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::home::{Home, assert_fits, keys, profile};

const PARAMETERS: [(&str, &str); 7] = [
    ("method", "movnti"),
    ("cached_method", "rep_stosb"),
    ("threshold", "33554432"),
    ("chunk", "2097152"),
    ("prefetch_distance", "4096"),
    ("ignore_quirks", "N"),
    ("available", "stock rep_stosb movnti clzero prefetchw"),
];

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
    write(root.join("lib/modules/6.1.0-56-amd64/modules.dep"), "updates/dkms/bulkmem.ko:\n");
    let misc = root.join("sys/class/misc/bulkmem");
    for (name, value) in [("faults", 4096), ("skipped", 7), ("hints", 1)] {
        write(misc.join(name), &format!("{value}\n"));
    }
    for (at, method) in ["stock", "rep_stosb", "movnti", "clzero", "prefetchw"].iter().enumerate() {
        for (name, value) in [("extents", 1), ("pages", 512), ("bytes", 2 << 20), ("hinted", 2)] {
            write(misc.join(method).join(name), &format!("{}\n", value * at as u64));
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

/// A profile that clears by `portable` from 1 MiB and, where the machine has it, by `movnti` from 64 MiB on.
fn measured() -> Profile {
    let mut profile = profile();
    if cfg!(target_arch = "x86_64") {
        let rule = profile.rules[1].clone();
        profile.rules[1].method = "rep_stosb".to_owned();
        profile.rules.push(Rule { from: 64 << 20, method: "movnti".to_owned(), ..rule });
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
            "/dev/bulkmem",
            "OE of the module",
            "33554432",
            "prefetch_distance",
            "8388608",
            "4096 huge pages were cleared for page faults, 7 of them below",
            "1 hint is active",
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
        "counters",
        "device",
        "installed",
        "kernel",
        "kernel_taint",
        "livepatch",
        "loaded",
        "parameters",
        "persisted",
        "state",
        "taint",
    ];
    assert_eq!(keys(&found), expected);
    assert_eq!(
        (&found["state"], &found["loaded"], &found["device"]),
        (&json!("enabled"), &json!(true), &json!(true))
    );
    assert_eq!(found["parameters"]["threshold"], 33_554_432);
    assert_eq!(found["parameters"]["ignore_quirks"], false);
    let movnti = &found["counters"]["methods"][2];
    assert_eq!(
        *movnti,
        json!({ "method": "movnti", "extents": 2, "pages": 1024, "bytes": 4 << 20, "hinted": 4 })
    );
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
        assert_eq!(home.json(&with_root(&["kmod", "status", "--json"], &root))["state"], state);
        let text = home.text(&with_root(&["kmod", "status"], &root), 80);
        assert!(text.contains(words), "{words}\n{text}");
    }
    let root = planted(&home);
    fs::remove_dir_all(root.join("sys/kernel/livepatch")).unwrap();
    assert_eq!(home.json(&with_root(&["kmod", "status", "--json"], &root))["state"], "unpatched");
}

#[test]
fn without_the_module_it_says_how_to_get_it() {
    let home = Home::with_profile();
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
    if cfg!(target_arch = "x86_64") {
        let now = parameters(&root);
        assert_eq!(now[..3], ["movnti", "rep_stosb", "67108864"]);
        assert_eq!(parameter(&root, "ignore_quirks"), "1");
    } else {
        assert_eq!(parameter(&root, "method"), "stock");
    }
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
    assert!(method["why"].as_str().unwrap().contains("the profile chooses"), "{method}");
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
    silent.rules.clear();
    fs::write(&path, serde_json::to_string(&silent).unwrap()).unwrap();
    home.bulkmem().args(&arguments).assert().code(1).stderr(contains("no rules for clearing"));
    assert_eq!(parameters(&root), before);
}
