//! Smoke test: runs the whole program once at the smallest scale. No time is asserted: the program itself fails if the store
//! has not completed what it counted.

use std::process::Command;

use serde_json::Value;

/// A run at the smallest scale: its folder, its tables, its JSON.
fn tiny(benchmark: &str) -> (tempfile::TempDir, String, Value) {
    tiny_with(benchmark, &[])
}

fn tiny_with(benchmark: &str, words: &[&str]) -> (tempfile::TempDir, String, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.json");
    let run = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args([benchmark, "--tiny", "--markdown", "--dir"])
        .arg(dir.path())
        .arg("--json")
        .arg(&file)
        .args(words)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    (dir, String::from_utf8(run.stdout).unwrap(), report)
}

#[test]
fn a_tiny_run_measures_every_row_and_writes_its_json() {
    let (dir, tables, report) = tiny("sqlite");
    assert!(tables.contains("| batch 128 "), "{tables}");
    for fact in ["date", "commit_when_it_ran", "cores", "kernel", "SQLite", "file_system", "load_at_the_end"]
    {
        assert!(report["machine"][fact].is_string(), "{fact}");
    }
    let rows = |part: &str| report[part].as_array().unwrap().clone();
    let on_disk = rows("throughput").iter().filter(|row| row["place"] == "disk").count();
    assert_eq!((on_disk, rows("latency").len(), rows("backlog").len()), (9, 14, 10));
    for (part, figures) in [
        ("throughput", &["store", "ceiling", "ratio", "fdatasync"][..]),
        ("latency", &["samples", "p50_us", "p99_us", "max_us", "fdatasync"]),
        (
            "backlog",
            &[
                "store_empty",
                "store",
                "ceiling_empty",
                "ceiling",
                "store_keeps",
                "ceiling_keeps",
                "against_ceiling",
            ],
        ),
    ] {
        for row in rows(part) {
            assert!(row["what"].is_string(), "{row}");
            for figure in figures {
                assert!(
                    (row[figure]["median"].as_f64().or(row[figure].as_f64()))
                        .is_some_and(|value| value > 0.0),
                    "{figure} of {row}"
                );
            }
        }
    }
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["out.json"], "the measured files are gone");
}

#[test]
fn a_tiny_run_of_the_node_measures_every_row() {
    let (_dir, _, report) = tiny("node");
    let rows = |part: &str| report[part].as_array().unwrap().clone();
    let on_disk = rows("node").iter().filter(|row| row["place"] == "disk").count();
    assert_eq!((on_disk, rows("latency").len()), (3, 3));
    assert!(!rows("commands").is_empty());
    for row in rows("node") {
        for figure in ["node", "store", "ceiling"] {
            assert!(row[figure].as_f64().is_some_and(|rate| rate > 0.0), "{figure} of {row}");
        }
    }
    assert!(report["idle"]["resident_kib"].as_u64().is_some_and(|size| size > 0));
}

#[test]
fn a_tiny_run_on_a_server_of_its_own_measures_the_shared_store_and_leaves_nothing_behind() {
    // Everything but the peers, which would have to be installed.
    for (only, part, count) in [
        ("batch", "throughput", 10),
        ("latency", "latency", 11),
        ("backlog", "backlog", 2),
        ("idle", "backlog", 1),
    ] {
        let (dir, tables, report) = tiny_with("postgres", &["--only", only]);
        let rows = report[part].as_array().unwrap();
        assert_eq!(rows.len(), count, "{tables}");
        assert!(report["machine"]["PostgreSQL"].is_string());
        for row in rows.iter().filter(|row| row["store"].is_number()) {
            for figure in ["store", "ceiling"] {
                assert!(row[figure].as_f64().is_some_and(|rate| rate > 0.0), "{figure} of {row}");
            }
        }
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["out.json"], "the server is gone");
    }
}

#[test]
fn two_nodes_begin_tasks_at_one_rate_and_it_is_said_how_many() {
    let dir = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["rate", "--seconds", "1", "--per-second", "200", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(
        said.contains(" tasks in ") && said.contains("on 2 nodes") && said.trim_end().ends_with(" %"),
        "{said}"
    );
}

#[test]
fn workers_in_both_languages_run_what_they_are_sent() {
    let dir = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["workers", "--ours", "--calls", "20", "--rounds", "1", "--workers", "2", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let said = String::from_utf8(run.stdout).unwrap();
    for side in ["Python worker |", "JavaScript worker |", "each task on disk |"] {
        assert!(said.contains(side), "{said}");
    }
}

#[test]
fn functions_run_in_every_engine_and_isolation() {
    let dir = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["isolates", "--ours", "--millis", "20", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let said = String::from_utf8(run.stdout).unwrap();
    for side in [
        "ostler, quickjs, fresh |",
        "| quickjs, warm |",
        " KiB |",
        "quickjs, process, warm | noop",
        "quickjs, thread, fresh | fib",
        "worker process",
        // As much shorter as the rows are: a hundredth of the thousand.
        "calls of 10 functions in rotation",
    ] {
        assert!(said.contains(side), "{said}");
    }
}

#[test]
fn anything_else_is_answered_with_the_usage() {
    let run = Command::new(env!("CARGO_BIN_EXE_bench")).arg("redis").output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.stderr).contains("Usage: bench sqlite"));
}

#[test]
fn nodes_that_are_killed_lose_nothing_and_it_is_said() {
    let bench = std::path::Path::new(env!("CARGO_BIN_EXE_bench"));
    let ostler = bench.with_file_name("ostler");
    if !ostler.exists() {
        // A test run of the whole workspace has built it already.
        let built = Command::new(env!("CARGO")).args(["build", "--locked", "-p", "ostler-cli"]).status();
        assert!(built.unwrap().success());
    }
    let dir = tempfile::tempdir().unwrap();
    let run = Command::new(bench)
        .args(["faults", "--only", "kills", "--faults", "6", "--tasks", "60", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    let row = said.lines().find(|line| line.starts_with("| kills | ")).expect("it prints its row");
    let cells: Vec<&str> = row.split(" | ").collect();
    assert_eq!((cells[2], cells[5], cells[7]), ("60", "0", "0"), "{said}");
    assert!(cells[1].parse::<u32>().unwrap() > 0, "something was killed: {said}");
}

#[test]
fn two_builds_work_in_turns_on_every_row() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_bench");
    for (only, rows) in [("batch 32", 2), ("postgres: cycle 32", 1)] {
        let run = Command::new(program)
            .args(["turns", "--before", program, "--slices", "2", "--millis", "2", "--only", only, "--dir"])
            .arg(if only.starts_with("postgres") { std::env::temp_dir() } else { dir.path().to_owned() })
            .output()
            .unwrap();
        let table = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        assert_eq!(table.lines().filter(|line| line.contains(" % to ")).count(), rows, "{table}");
    }
}

#[test]
fn a_short_run_of_the_threads_measures_every_row() {
    let run = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["threads", "--calls", "100", "--rounds", "1"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let tables = String::from_utf8(run.stdout).unwrap();
    let rows = tables.lines().filter(|line| line.starts_with("| 1 |") || line.starts_with("| 2 |"));
    assert_eq!(rows.count(), 8, "{tables}");
}
