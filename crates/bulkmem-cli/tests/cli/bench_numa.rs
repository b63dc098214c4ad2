//! `bulkmem bench numa`, and `--cpu` and `--node` of other measurements. kmod/tests/numa-guest.sh tests them on two nodes.

use bulkmem::machine::Machine;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{Home, assert_fits};

const SMALL: [&str; 8] = ["bench", "numa", "--size", "1M", "--page-size", "4K", "--method", "c_library"];
const CLEAR: [&str; 8] = ["bench", "clear", "--size", "64K", "--method", "portable", "--runs", "1"];

/// The last processor that tests may run on.
fn last_processor() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().rsplit([',', '-']).next().unwrap().to_owned()
}

#[test]
fn the_tables_fit_and_name_the_nodes() {
    for columns in [80, 160] {
        let text = Home::new().text(&SMALL, columns);
        assert_fits(&text, columns as usize);
        for word in ["numa: clear of 1 MiB by processors of node ", "numa: copy", "c_library", " to "] {
            assert!(text.contains(word), "{word}\n{text}");
        }
        let finding = if Machine::current().nodes < 2 {
            "There is no remote memory: this machine has one NUMA node."
        } else {
            "to remote memory"
        };
        assert!(text.contains(finding), "{text}");
    }
}

#[test]
fn json_has_the_nodes_of_processors_and_memory() {
    let found = Home::new().json(&[&SMALL[..], &["--op", "fill,copy", "--json"]].concat());
    let rows = found["rows"].as_array().unwrap();
    assert!(rows.len() >= 4, "{rows:?}");
    for row in rows {
        let config = &row["config"];
        assert_eq!(row["measurement"], "numa");
        assert!(config["processor_node"].is_u64() && config["memory_node"].is_u64(), "{row}");
        assert_eq!(config["source_node"].is_u64(), config["operation"] == "copy", "{row}");
    }
}

#[test]
fn results_record_where_they_were_measured() {
    let last = last_processor();
    let found = Home::new().json(&[&CLEAR[..], &["--cpu", &last, "--json"]].concat());
    let provenance = &found["provenance"];
    assert_eq!(provenance["processors"], 1);
    if std::thread::available_parallelism().unwrap().get() > 1 {
        assert_eq!(provenance["processor_list"], last);
        assert!(found["notes"].to_string().contains(&format!("processors: only {last}")), "{found}");
    }
    // The background and the command share it.
    let home = Home::new();
    let mut corun = home.bulkmem();
    corun.args(["bench", "--cpu", &last, "corun", "--builtin", "--method", "portable", "--runs", "1"]);
    corun.args(["--rate", "0.1", "--size", "1M", "--chunk", "64K"]);
    corun.assert().success().stdout(contains("there is only one processor"));
}

#[test]
fn a_list_that_cannot_be_used_is_refused_with_what_can_be() {
    let cases: [(&[&str], &str); 7] = [
        (&["--cpu", "1000"], "error: --cpu: there is no processor 1000; name some of "),
        (&["--node", "1000"], "error: --node: there is no NUMA node 1000; name some of "),
        (&["--cpu", "all"], "`all` is not a list of numbers: write 0, 0-3 or 0-3,8"),
        (&["--cpu", "3-1"], "`3-1` is not a list of numbers"),
        (&["--node", ""], "`` is not a list of numbers"),
        (&["--cpu", "0,70000"], "`0,70000` is not a list of numbers"),
        (&["--node", "0-4294967295"], "is not a list of numbers"),
    ];
    for (arguments, says) in cases {
        Home::new().bulkmem().args(CLEAR).args(arguments).assert().code(2).stdout("").stderr(contains(says));
    }
    for command in [&["calibrate", "--dry-run"][..], &["tunables"], &["reproduce"], &["bench", "all"]] {
        let assert = Home::new().bulkmem().args(command).args(["--node", "1000"]).assert();
        assert.code(2).stderr(contains("there is no NUMA node 1000"));
    }
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    for (arguments, message) in [
        (&["--op", "persist"][..], "--op: persist is not measured here; name clear, fill or copy"),
        (&["--threads", "2000"], "--threads: 2000 is not from 1 to 1024 threads"),
        (&["--size", "64T"], "this needs 1"),
        (&["--threads", "2", "--counters"], "only one thread is counted"),
    ] {
        let assert = Home::new().bulkmem().args(["bench", "numa"]).args(arguments).assert().failure();
        assert.stderr(contains(message)).stdout("");
    }
}

#[test]
fn help_explains_the_table_and_every_measurement_has_the_options() {
    let assert = Home::new().bulkmem().args(["bench", "numa", "--help"]).assert().success();
    assert.stdout(contains("×0.60").and(contains("published no figures of remote")));
    for command in [&["bench", "log"][..], &["bench", "all"], &["bench", "targets"], &["calibrate"]] {
        let assert = Home::new().bulkmem().args(command).arg("--help").assert().success();
        assert.stdout(contains("--cpu <LIST>").and(contains("--node <LIST>")));
    }
}
