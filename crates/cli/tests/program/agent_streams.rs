//! What agents write, however they write it: nothing is lost, a follower sees it at once, the node stays small, and no file of the store
//! has a secret.

use std::collections::BTreeSet;
use std::process::Command;

use ostler_store::{Clock as _, SystemClock};
use ostler_testkit::ProcessSignal;
use serde_json::{Value, json};

use crate::ostler::{Place, Ran, Running, ran};
use crate::secrets::files_with;
use crate::workers::until;

/// Memory of the node beyond what it needs when it is idle.
const MAX_GROWTH_KIB: u64 = 64 * 1024;

/// An agent that writes what its prompt says, and then waits for a file.
const WRITER: &str = r#"
import os, sys, time
how, gate = sys.stdin.read().split()
out = sys.stdout.buffer
if how == "long":
    for letter in (b"a", b"b", b"c", b"d"):
        out.write(letter * (4 << 20) + b"\n")
    out.write(b"e" * (9 << 20) + b"\n")
elif how == "many":
    out.write(b"".join(b"line %d\n" % number for number in range(50000)))
elif how == "bytes":
    out.write(b"\xff\xfe\x00 no text\n")
elif how == "closed":
    out.write(b"before\n")
elif how == "paced":
    for number in range(20):
        out.write(b"line at %d\n" % (time.time() * 1000))
        out.flush()
        while not os.path.exists(f"{gate}-{number}"):
            time.sleep(0.005)
out.write(b"all is written\n")
out.flush()
while not os.path.exists(gate):
    time.sleep(0.02)
if how == "closed":
    os.close(1)
    with open(gate + ".after", "w") as after:
        after.write("it works on")
    os._exit(0)
out.write(b"no line break")
out.flush()
"#;

/// A place with a pool of programs that run this script.
fn place(script: &str, lines: &str) -> Place {
    let place = Place::new();
    let script = place.write("agent.py", script);
    let config = format!(
        "[lease]\nttl = \"5s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n{lines}\ncommand = [\"python3\", \"{}\"]\n\
         executor = \"agent\"\nretry = {{ attempts = 1 }}\nconfig_folders = \"agents\"\n",
        script.display()
    );
    place.write("ostler.toml", config);
    place
}

fn up(place: &Place) -> Running {
    let mut command = place.command(["up"]);
    command.env("REAL_KEY", VALUE);
    let node = Running::start(command);
    assert!(node.line().contains("ready"));
    node
}

/// A number of kibibytes in the status of a process.
fn kib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with(field)).expect("it has the field");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

fn completed(place: &Place, id: &str) -> Value {
    until("it is done", || {
        let task = place.json(["show", id]);
        assert_ne!(task["state"], "failed", "{task}");
        (task["state"] == "completed").then_some(task)
    })
}

/// Runs the writer, follows it, and lets it end when the follower has seen that all is written.
fn follow(place: &Place, how: &str) -> (String, Vec<String>) {
    let gate = place.folder().join(format!("gate-{how}"));
    let prompt = json!(format!("{how} {}", gate.display())).to_string();
    let id = place.done(["submit", "writers", "write", "--payload", &prompt]).trim().to_owned();
    let follower = Running::start(place.command(["logs", "-f", &id]));
    let mut seen = Vec::new();
    loop {
        let line = follower.line();
        let is_last = line == "[assistant] all is written";
        seen.push(line);
        if is_last {
            break;
        }
    }
    std::fs::write(&gate, "").expect("it can be written");
    let (code, rest) = follower.end();
    assert_eq!(code, Some(0));
    seen.extend(rest);
    completed(place, &id);
    (id, seen)
}

#[test]
fn a_follower_sees_every_line_before_the_agent_ends_and_the_node_stays_small() {
    let place = place(WRITER, "[pool.writers]\nagent = \"command\"");
    let node = up(&place);
    place.done(["nodes"]);
    let idle = kib(node.pid(), "VmRSS:");

    let (_, long) = follow(&place, "long");
    for letter in ["a", "b", "c", "d"] {
        let whole = format!("[assistant] {}", letter.repeat(4 << 20));
        assert!(long.contains(&whole), "a line of 4 MiB is whole");
    }
    let mark =
        format!("a line of {} bytes was too long to be read; its first {} bytes are kept", 9 << 20, 8 << 20);
    assert!(
        long.iter().any(|line| line.contains(&mark)),
        "{:?}",
        long.iter().filter(|line| line.len() < 500).collect::<Vec<_>>()
    );

    let (_, many) = follow(&place, "many");
    let lines: BTreeSet<&str> = many.iter().map(String::as_str).collect();
    for number in 0..50_000 {
        assert!(lines.contains(format!("[assistant] line {number}").as_str()), "line {number} is lost");
    }
    assert_eq!(many.last().map(String::as_str), Some("[assistant] no line break"));

    let (_, bytes) = follow(&place, "bytes");
    assert_eq!(bytes.last().map(String::as_str), Some("[assistant] no line break"));
    let raw = "select text from event where text like '[255,%'";
    let kept = Command::new("sqlite3").arg(place.store()).arg(raw).output().expect("there is sqlite3");
    let kept = String::from_utf8(kept.stdout).expect("text");
    assert_eq!(kept.trim(), "[255,254,0,32,110,111,32,116,101,120,116]", "bytes that are no text are kept");

    let (_, closed) = follow(&place, "closed");
    assert!(closed.contains(&"[assistant] before".to_owned()), "{closed:?}");
    assert!(place.folder().join("gate-closed.after").exists(), "it worked on after it had closed its output");

    let most = kib(node.pid(), "VmHWM:");
    println!("memory of the node: {idle} KiB idle, {most} KiB at most");
    assert!(most < idle + MAX_GROWTH_KIB, "{idle} KiB idle, {most} KiB at most");
}

/// The writer waits with each line until the one before was seen: so each has the whole delay, and none is carried along by another.
#[test]
fn a_follower_sees_a_line_within_a_second() {
    const LINES: usize = 20;
    const SECOND_MS: i64 = 1_000;
    let place = place(WRITER, "[pool.writers]\nagent = \"command\"");
    let _node = up(&place);
    let gate = place.folder().join("gate");
    let prompt = json!(format!("paced {}", gate.display())).to_string();
    let id = place.done(["submit", "writers", "write", "--payload", &prompt]).trim().to_owned();
    let follower = Running::start(place.command(["logs", "-f", &id]));
    let mut delays = Vec::new();
    while delays.len() < LINES {
        let line = follower.line();
        let Some(written) = line.strip_prefix("[assistant] line at ") else { continue };
        delays.push(SystemClock.now().millis() - written.parse::<i64>().expect("a time"));
        place.write(&format!("gate-{}", delays.len() - 1), "");
    }
    delays.sort_unstable();
    println!("milliseconds from the agent to its follower: {delays:?}");
    // A busy machine may delay one or another.
    assert!(delays[LINES - 3] < SECOND_MS, "{delays:?}");
    place.write("gate", "");
    completed(&place, &id);
}

const VALUE: &str = "sk-T0pS3cret/\"q\"-l4st.w0rd";

/// A stand-in for claude, and a plain command with the same secret: each writes it in two pieces, cut at every byte, and in JSON as
/// deltas, with escapes, and inside the answer.
const TELLER: &str = r#"
import json, os, sys, time
if "--version" in sys.argv:
    print("2.1.325 (Claude Code)")
    sys.exit(0)
key = os.environ["API_KEY"]
sys.stdin.read()
out = sys.stdout.buffer
def write(data):
    out.write(data)
    out.flush()
def emit(value):
    write(json.dumps(value).encode() + b"\n")
if len(sys.argv) < 2:
    whole = key.encode()
    for at in range(len(whole) + 1):
        write(b"cut at " + whole[:at])
        time.sleep(0.003)
        write(whole[at:] + b" here\n")
        sys.stderr.buffer.write(whole[:at])
        sys.stderr.flush()
        time.sleep(0.003)
        sys.stderr.buffer.write(whole[at:] + b"\n")
        sys.stderr.flush()
    sys.exit(0)
def message(text, number):
    return {"type": "assistant", "message": {"id": f"m{number}", "model": "claude-sonnet-4-5", "content": [{"type": "text", "text": text}]}}
emit({"type": "system", "subtype": "init", "session_id": "s", "model": "m", "claude_code_version": "2.1.325", "mcp_servers": []})
for at in range(len(key) + 1):
    for piece in (key[:at], key[at:]):
        emit({"type": "stream_event", "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}})
    # The same text in two blocks, and with one character escaped.
    emit(message("first " + key[:at], f"a{at}"))
    emit(message(key[at:] + " second", f"b{at}"))
    line = json.dumps(message("escaped " + key, f"c{at}"))
    if at < len(key):
        quoted = json.dumps(key)[1:-1]
        before = json.dumps(key[:at])[1:-1]
        escaped = before + "\\u%04x" % ord(key[at]) + json.dumps(key[at + 1:])[1:-1]
        line = line.replace(quoted, escaped)
    write(line.encode() + b"\n")
emit({"type": "result", "subtype": "success", "is_error": False, "result": "It is " + key, "terminal_reason": "completed",
      "permission_denials": [], "modelUsage": {}, "model_usage_since_last_result": {}})
"#;

#[test]
fn a_secret_that_is_split_or_escaped_anywhere_is_in_no_file_of_the_store_and_in_no_answer() {
    for agent in ["claude", "command"] {
        let lines = format!(
            "[secrets]\nAPI_KEY = \"${{REAL_KEY}}\"\n[pool.tellers]\nagent = \"{agent}\"\nsecrets = [\"API_KEY\"]\nredact_output = true"
        );
        let place = place(TELLER, &lines);
        let node = up(&place);
        let id = place.done(["submit", "tellers", "tell", "--payload", "\"go\""]).trim().to_owned();
        completed(&place, &id);
        node.signal(ProcessSignal::KILL);
        drop(node);
        let run = |words: &[&str]| -> Ran { ran(place.command(words).env("REAL_KEY", VALUE)) };
        let quoted = Value::from(VALUE).to_string();
        // Of a value in two messages, each line as it was written has a half.
        let parts = if agent == "command" { vec!["T0pS3cret", "l4st.w0rd"] } else { Vec::new() };
        for part in parts.into_iter().chain([VALUE, &quoted[1..quoted.len() - 1]]) {
            assert_eq!(files_with(place.folder(), part.as_bytes()), Vec::<String>::new(), "{agent}");
            for words in
                [&["logs", "--raw", &id][..], &["logs", "--raw", "--json", &id], &["show", "--json", &id]]
            {
                let shown = run(words);
                assert_eq!(shown.code, Some(0), "{shown:?}");
                let found: Vec<&str> = shown.out.lines().filter(|line| line.contains(part)).collect();
                assert!(found.is_empty(), "{agent}: {words:?} has {part}: {found:?}");
            }
        }
        let shown = run(&["logs", &id]).out;
        assert!(shown.matches("[secret API_KEY]").count() >= 2 * VALUE.len(), "{agent}: {shown}");
    }
}
