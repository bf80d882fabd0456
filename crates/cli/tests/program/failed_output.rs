//! Standard output of failed commands is kept and shown, and truncated if it is too long.

use serde_json::{Value, json};

use crate::ostler::{Place, Running};

/// Test runners and compilers print the reason of a failure to standard output.
const FAILS: &str = "echo FAILED {}: expected 200, got 500; test {} != b";

fn up(place: &Place) -> Running {
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    node
}

#[test]
fn map_prints_the_stdout_of_failures_in_the_order_of_the_items() {
    let place = Place::new();
    let ran = place.run(["map", "-k", FAILS, ":::", "a", "b", "c"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let lines: Vec<String> =
        ["a", "b", "c"].map(|item| format!("FAILED {item}: expected 200, got 500\n")).to_vec();
    assert_eq!(ran.out, lines.concat());
    assert!(ran.err.contains("ostler: b: exit code 1\n"), "{ran:?}");
    // The retry of the failed item is printed; earlier output is not printed again.
    let again = place.run(["map", "-k", FAILS, ":::", "a", "b", "c"]);
    assert_eq!((again.code, again.out), (Some(1), lines[1].clone()));
}

#[test]
fn results_and_exports_have_the_stdout_and_the_exit_code_of_failures() {
    let place = Place::new();
    place.run(["map", "-q", "--results", "r.jsonl", "echo got {}; exit {}", ":::", "0", "3"]);
    place.run(["map", "-q", "--results", "folder", "echo got {}; kill -KILL $$", ":::", "x"]);
    let text = std::fs::read_to_string(place.folder().join("r.jsonl")).expect("the results");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (row, output, code) in [(&rows[0], "got 0\n", 0), (&rows[1], "got 3\n", 3)] {
        assert_eq!((&row["output"], &row["exit_code"]), (&json!(output), &json!(code)), "{row}");
    }
    let out = std::fs::read_to_string(place.folder().join("folder").join("x.out")).expect("a file");
    assert_eq!(out, "got x\n");
    let exported = place.done(["job", "export", "echo"]);
    let row: Value = serde_json::from_str(exported.trim()).expect("JSON");
    assert_eq!((&row["output"], &row["exit_code"]), (&json!("got x\n"), &Value::Null), "a signal is no code");
    let job = place.json(["job", "ls"])[1]["id"].as_str().expect("an id").to_owned();
    let csv = place.done(["job", "export", &job, "--csv"]);
    assert!(csv.lines().next().is_some_and(|head| head.contains(",task,exit_code,")), "{csv}");
    assert!(csv.contains("got 3") && csv.contains(",3,,,,,,,2"), "{csv}");
    assert!(csv.trim_end().ends_with(",,sh -c 'echo got 3; exit 3'"), "{csv}");
}

#[test]
fn show_and_logs_have_the_stdout_of_a_failed_command_of_a_pool() {
    let place = Place::new();
    place.write(
        "ostler.toml",
        "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\n\
         retry = { base = \"10ms\" }\n",
    );
    let _node = up(&place);
    let script = "\"seq 30; printf 'no end, attempt ?'; exit 7\"";
    let ran =
        place.run(["submit", "shell", "run", "--payload", script, "--attempts", "2", "--wait", "--json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let waited = ran.json();
    assert_eq!(waited["error"]["exit_code"], 7, "{waited}");
    let id = waited["id"].as_str().expect("an id");
    let shown = place.json(["show", id]);
    let written: String =
        (1..=30).map(|number| format!("{number}\n")).collect::<String>() + "no end, attempt ?";
    let attempts = shown["attempts"].as_array().expect("a list");
    assert_eq!(attempts.len(), 2);
    for attempt in attempts {
        assert_eq!((&attempt["stdout"], &attempt["error"]["exit_code"]), (&json!(written), &json!(7)));
    }
    assert_eq!(shown["output"], Value::Null, "it has come to nothing");
    assert_eq!(place.json(["dead", "show", id])["attempts"][1]["stdout"], json!(written));
    let text = place.done(["show", id]);
    assert!(text.contains("of attempt 2; 11 lines before these: ostler logs"), "{text}");
    assert!(text.contains("  | 30\n  | no end, attempt ?\n") && !text.contains("  | 11\n"), "{text}");
    let events: Vec<Value> = place
        .done(["logs", id, "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let [first, retry, second, end] = events.as_slice() else { panic!("{events:?}") };
    for output in [first, second] {
        assert_eq!((&output["kind"], &output["data"]), (&json!("stdout"), &json!(written)));
    }
    assert_eq!(
        (&retry["kind"], &retry["state"], &retry["why"]),
        (&json!("transition"), &json!("queued"), &json!("transient"))
    );
    let next = retry["run_at"].as_str().expect("a time");
    assert_eq!(
        (&end["state"], &end["why"], &end["run_at"]),
        (&json!("failed"), &json!("exhausted"), &Value::Null)
    );
    let lines = format!(
        "{written}\n[transition] queued: transient, next attempt at {next}\n{written}\n[transition] failed: exhausted\n"
    );
    assert_eq!(place.done(["logs", id]), lines);
}

#[test]
fn an_item_that_timed_out_shows_what_it_wrote() {
    let place = Place::new();
    let ran = place.run(["map", "--timeout", "300ms", "echo began; exec sleep", ":::", "600"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), "began\n"), "{ran:?}");
}

#[test]
fn output_that_is_too_much_is_cut_with_a_warning_and_fails_nothing() {
    let place = Place::new();
    // 20,488,896 bytes, and more as JSON.
    let ran = place.run(["map", "seq 2700000; : {}", ":::", "x"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.starts_with("1\n2\n3\n") && ran.out.ends_with("\n2699999\n2700000\n"));
    assert!(ran.out.contains(" bytes left out …\n") && ran.out.len() > 10 << 20, "{}", ran.out.len());
    assert!(ran.err.contains("ostler: x: its output was truncated: it wrote 20488896 bytes"), "{}", ran.err);
    assert!(ran.err.contains("1 completed"), "{}", ran.err);
}
