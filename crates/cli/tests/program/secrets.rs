//! Secrets of a config: programs have them, and no file of the store, no answer and no message has their values.

use std::path::Path;

use ostler_testkit::ProcessSignal;
use serde_json::{Value, json};

use crate::ostler::{Place, Ran, Running, ran};

const VALUE: &str = "sk-T0pS3cret/\"é\"-l4st.w0rd";
const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../process/tests/process/worker.py");

/// A place with a pool of commands and a pool of workers that have a secret.
fn place() -> Place {
    let place = Place::new();
    let config = format!(
        "[lease]\nttl = \"5s\"\nheartbeat = \"100ms\"\npoll = \"100ms\"\n[secrets]\nAPI_KEY = \"${{REAL_KEY}}\"\nPIN = \"${{REAL_PIN}}\"\n\
         [pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{{{ payload }}}}\"]\nsecrets = [\"API_KEY\", \"PIN\"]\n\
         redact_output = true\nretry = {{ attempts = 2, base = \"10ms\" }}\n\
         on_failed = {{ command = [\"sh\", \"-c\", \"cat > hooked\"] }}\n\
         [pool.docs]\nexecutor = \"process\"\ncommand = [\"python3\", \"{WORKER}\", \"well\"]\nmin_workers = 1\nmax_workers = 1\n\
         secrets = [\"API_KEY\"]\nretry = {{ attempts = 2, base = \"10ms\" }}\n"
    );
    place.write("ostler.toml", config);
    place
}

fn run(place: &Place, words: &[&str]) -> Ran {
    ran(place.command(words).env("REAL_KEY", VALUE).env("REAL_PIN", "1234"))
}

fn up(place: &Place) -> Running {
    let mut command = place.command(["up"]);
    command.env("REAL_KEY", VALUE).env("REAL_PIN", "1234");
    let node = Running::start(command);
    assert!(node.line().contains("ready"));
    node
}

/// The files below a folder that contain this text.
pub(crate) fn files_with(folder: &Path, text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there").filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if std::fs::read(&path).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text)) {
            found.push(path.display().to_string());
        }
    }
    found
}

fn nothing_has_the_value(place: &Place) {
    for part in
        [VALUE.as_bytes(), b"T0pS3cret", b"l4st.w0rd", &serde_json::to_vec(VALUE).expect("a text")[1..20]]
    {
        assert_eq!(files_with(place.folder(), part), Vec::<String>::new());
    }
}

#[test]
fn no_file_of_the_store_has_a_value_whatever_becomes_of_the_tasks() {
    let place = place();
    let node = up(&place);
    node.says("secrets.PIN: its value has fewer than 8 bytes");
    let script = |text: &str| json!(text).to_string();
    let fails = script("env; echo \"$API_KEY\"; echo \"no: $API_KEY\" >&2; exit 3");
    let failed = run(&place, &["submit", "shell", "run", "--wait", "--key", "dead", "--payload", &fails]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let prints = script("printf %s \"$API_KEY\"; echo \"$PIN\" >&2");
    let printed = run(&place, &["submit", "shell", "run", "--wait", "--payload", &prints]);
    assert_eq!(printed.out.trim(), "\"[secret API_KEY]\"", "{printed:?}");
    let tells = json!({"do": "tell-secret", "how": "API_KEY"}).to_string();
    let told = run(&place, &["submit", "docs", "k", "--wait", "--key", "told", "--payload", &tells]);
    assert_eq!(told.code, Some(1), "{told:?}");
    let dies = json!({"do": "leak-secret", "how": "die"}).to_string();
    let died = run(&place, &["submit", "docs", "k", "--wait", "--key", "died", "--payload", &dies]);
    assert_eq!(died.code, Some(1), "{died:?}");
    for answer in [&failed, &told, &died] {
        assert!(answer.err.contains("[secret API_KEY]") && !answer.err.contains("l4st.w0rd"), "{answer:?}");
    }
    for (key, queue) in [("dead", "shell"), ("told", "docs"), ("died", "docs")] {
        let key = format!("key:{key}");
        for command in ["show", "logs"] {
            let shown = run(&place, &[command, &key, "--queue", queue]);
            assert!(shown.out.contains("[secret API_KEY]") && !shown.out.contains("l4st.w0rd"), "{shown:?}");
        }
    }
    nothing_has_the_value(&place);
    // The write-ahead log is what it was when the node died.
    node.signal(ProcessSignal::KILL);
    drop(node);
    nothing_has_the_value(&place);
}

#[test]
fn a_check_a_doctor_and_an_error_name_secrets_and_have_no_values() {
    let place = place();
    let checked = run(&place, &["config", "--check", "--json"]);
    let warnings = checked.json()["warnings"].as_array().cloned().expect("a list");
    assert_eq!(warnings.len(), 1, "{checked:?}");
    assert!(warnings[0].as_str().is_some_and(|warning| warning.starts_with("secrets.PIN: ")), "{warnings:?}");
    place.write(
        "more.toml",
        "[secrets]\nLEFT = \"${REAL_KEY}\"\n[pool.a]\nexecutor = \"command\"\ncommand = [\"true\"]\n",
    );
    let examined = run(&place, &["doctor", "--config", "more.toml", "--json"]);
    let findings: Vec<Value> = examined.json().as_array().cloned().expect("a list");
    let unused = findings.iter().find(|finding| finding["code"] == "secret-unused");
    assert!(
        unused.is_some_and(|finding| finding["sentence"] == "secrets.LEFT: no pool has it"),
        "{examined:?}"
    );
    let unset = ran(&mut place.command(["up"]));
    unset.is_refused(2, "secrets.API_KEY cannot be read: the variable REAL_KEY is not set");
    // What runs no work needs no secrets.
    let id = place.done(["submit", "shell", "run"]);
    assert_eq!(place.json(["show", id.trim()])["state"], "queued");
    for answer in [checked, examined, unset] {
        assert!(!answer.out.contains("l4st.w0rd") && !answer.err.contains("l4st.w0rd"), "{answer:?}");
    }
}
