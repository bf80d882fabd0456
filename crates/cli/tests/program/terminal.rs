//! On a terminal, nothing that a task wrote or a user typed has an effect: a real pseudo-terminal receives the output.

use std::process::Stdio;

use ostler_core::{ErrorClass, EventBody, Failure, Outcome, Usage, Worker, WorkerState};
use ostler_store::{Clock as _, Store as _, SystemClock};
use ostler_testkit::Ids;
use ostler_testkit::one_of_each;

use crate::hands::Hands;
use crate::ostler::Place;

/// Runs its arguments on a new terminal, and copies its output.
const ON_TERMINAL: &str = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";

/// Clears the screen and sets the clipboard, with C0 and C1 controls, and reverses text.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}\u{2066}";
/// The part of it that names may contain.
const TURNED: &str = "m\u{202e}\u{2066}";

/// Separates the output of two commands.
const NEXT: &str = "---- next ----";

/// The output of each of these commands on a terminal.
fn on_terminal(place: &Place, commands: &[Vec<&str>]) -> Vec<String> {
    // One terminal and one shell for all of them: each command is a line of `$@`, its words ended by a unit separator.
    const SCRIPT: &str = "program=$1; shift; for line; do IFS=$(printf '\\037'); set -f; \"$program\" $line; echo \"$next\"; done";
    let told = place.command([""; 0]);
    let mut command = std::process::Command::new("python3");
    command.args(["-c", ON_TERMINAL, "sh", "-c", SCRIPT, "sh"]).arg(told.get_program());
    command.args(commands.iter().map(|words| words.join("\u{1f}")));
    command
        .env_clear()
        .env("next", NEXT)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("NO_COLOR", "1");
    command.envs(told.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(place.folder()).stdin(Stdio::null());
    let output = command.output().expect("python3 runs");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let shown: Vec<String> = shown.split(NEXT).map(str::to_owned).collect();
    assert_eq!(shown.len(), commands.len() + 1, "{shown:?}");
    shown[..commands.len()].to_vec()
}

fn is_inert(text: &str, what: &[&str]) {
    assert!(!text.is_empty(), "{what:?} shows something");
    let acts =
        |c: &char| c.is_control() && !matches!(c, '\n' | '\r' | '\t') || "\u{202e}\u{2066}".contains(*c);
    assert_eq!(text.chars().find(acts), None, "{what:?}: {text:?}");
}

/// A failed task with hostile text in every field.
fn hostile(hands: &Hands) -> String {
    let payload = serde_json::to_string(HOSTILE).expect("JSON");
    hands.enqueue(TURNED, TURNED, &payload);
    hands.complete(TURNED, &payload);
    let id = hands.enqueue(TURNED, TURNED, &payload).to_string();
    let task = hands.begin(TURNED);
    hands.log(task.lease.as_ref(), &format!("info {HOSTILE}"));
    hands.step(task.lease.as_ref(), TURNED, &payload);
    let text = || HOSTILE.to_owned();
    let mut events = one_of_each(HOSTILE);
    events.extend([
        EventBody::File { path: text(), size: 1, sha256: text() },
        EventBody::ToolCall { call: text(), tool: text(), input: text() },
        EventBody::Session { id: text() },
        EventBody::Usage(Usage { model: Some(text()), ..Usage::default() }),
        EventBody::Stdout { text: payload },
    ]);
    hands.wait(hands.store.append(task.lease.as_ref(), events)).expect("they are appended");
    let text = || Some(HOSTILE.to_owned());
    let failure = Failure {
        details: text(),
        step: text(),
        hint: text(),
        ..Failure::new(ErrorClass::Permanent, HOSTILE)
    };
    hands.end(task, Outcome::Failed(failure), None);
    id
}

#[test]
fn no_command_lets_a_terminal_act_on_what_a_task_wrote() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hostile(&hands);
    let busy = Worker {
        id: Ids::new(98).worker(),
        name: TURNED.into(),
        pool: TURNED.into(),
        pid: None,
        state: WorkerState::Idle,
        memory_bytes: None,
        started_at: SystemClock.now(),
        done: 1,
        failed: 1,
        task: None,
    };
    hands.wait(hands.store.report(hands.session, vec![busy], Vec::new())).expect("it is reported");
    let job = ["map", "-q", "printf '\\033[2J%s' {}; exit 1", ":::", HOSTILE];
    place.run(job);
    let commands: [&[&str]; 20] = [
        &["logs", &id],
        &["logs", &id, "--json"],
        &["show", &id],
        &["show", &id, "--json"],
        &["ls", "--items"],
        &["ls", "--items", "--json"],
        &["dead", "ls"],
        &["dead", "show", &id],
        &["dead", "show", &id, "--json"],
        &["stats"],
        &["nodes"],
        &["workers"],
        &["queue", "ls"],
        &["queue", "show", TURNED],
        &["doctor"],
        &["job", "ls"],
        &["job", "show", "printf"],
        &["job", "export", "printf"],
        &["job", "export", "printf", "--csv"],
        &["map", "--dry-run", "echo", ":::", HOSTILE],
    ];
    let commands = commands.map(<[&str]>::to_vec);
    let shown = on_terminal(&place, &commands);
    for (text, words) in shown.iter().zip(&commands) {
        is_inert(text, words);
    }
    assert!(shown[0].contains("\\u{1b}[2J") && shown[0].contains("\\u{202e}"), "{}", shown[0]);
    for json in [&shown[3], &shown[5], &shown[8]] {
        assert!(serde_json::from_str::<serde_json::Value>(json).is_ok(), "{json}");
    }
    // Without a terminal, text is unchanged.
    assert!(place.done(["logs", &id]).contains(HOSTILE));
}

#[test]
fn errors_show_what_was_typed_and_do_nothing_with_it() {
    let place = Place::new();
    let store = format!("nowhere/{HOSTILE}/x.db");
    let cases: [&[&str]; 5] = [
        &["ls", "--store", &store],
        &["show", HOSTILE],
        &["show", &format!("key:{HOSTILE}")],
        &["submit", "mail", "send", "--attempts", HOSTILE],
        &["map", "--results", HOSTILE, "-a", HOSTILE, "true"],
    ];
    place.done(["submit", "mail", "send"]);
    for words in cases {
        let ran = place.run(words);
        assert_ne!(ran.code, Some(0), "{words:?}");
        is_inert(&ran.err, words);
    }
}
