//! The example of LLM workers in Python, with its orchestrator: run as its users run it, with a scripted model.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::ostler::Place;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn workers_in_python_keep_every_conversation_and_the_orchestrator_gets_results_as_json() {
    let place = Place::new();
    let program = Path::new(env!("CARGO_BIN_EXE_ostler"));
    let bin = program.parent().expect("a program is in a folder").display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    let ran = Command::new("python3")
        .arg(format!("{ROOT}/examples/llm_pool.py"))
        .arg(place.folder())
        .env_clear()
        .envs([("PATH", path.as_str()), ("PYTHONDONTWRITEBYTECODE", "1")])
        .env("PYTHONPATH", format!("{ROOT}/sdk/python"))
        .output()
        .expect("python runs");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}{err}");
    let lines: Vec<&str> = out.lines().collect();
    let of = |subject: &str| *lines.iter().find(|line| line.starts_with(subject)).expect(subject);
    assert!(
        of("a lamp").starts_with("a lamp: A lamp is a thing. (") && of("a lamp").ends_with("['a-lamp.md'])"),
        "{out}"
    );
    assert!(of("a cat").starts_with("a cat: failed: the model knows no cats"), "{out}");
    assert!(
        of("a volcano").starts_with("a volcano: failed: ") && of("a volcano").contains("SIGKILL"),
        "{out}"
    );
    assert_eq!(lines[8..], ["6 completed, 2 failed, $0.0072", "A moon is a thing."], "{out}{err}");

    // Each unit is in the store with all that it said.
    let store = format!("sqlite:{}", place.folder().join("units.db").display());
    let place = Place::at(store);
    let rows = place.done(["job", "export", "descriptions"]);
    let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).expect("JSON")).collect();
    assert_eq!(rows.len(), 8);
    for row in &rows {
        let task = row["task"].as_str().expect("an id");
        assert_eq!(row["session_id"], format!("session-{task}"), "{row}");
        let shown = place.json(["show", task]);
        let subject: Value = serde_json::from_str(row["item"].as_str().expect("a text")).expect("JSON");
        let prompt = shown["attempts"][0]["prompt"].to_string();
        assert!(prompt.contains(subject["subject"].as_str().expect("a text")), "{prompt}");
        if row["state"] == "completed" {
            assert_eq!((&row["cost_usd"], &row["output_tokens"]), (&0.0012.into(), &16.into()), "{row}");
            let log = place.done(["logs", task]);
            for part in ["[prompt] Describe", "write", "written", "is a thing."] {
                assert!(log.contains(part), "{part}: {log}");
            }
        }
    }
}
