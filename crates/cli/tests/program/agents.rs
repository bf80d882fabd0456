//! Pools of agents, with the real program and a stand-in for claude.

use std::os::unix::fs::PermissionsExt as _;

use ostler_testkit::ProcessSignal;
use serde_json::{Value, json};

use crate::ostler::{Place, Running, ran};
use crate::workers::until;

const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/tools/stand_in_claude.py");

/// A place whose node has a pool "reviews" of agents, with these lines.
fn place(lines: &str) -> Place {
    let place = Place::new();
    let log = place.folder().join("log");
    let config = format!(
        "[lease]\nttl = \"5s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[pool.reviews]\nexecutor = \"agent\"\nagent = \"claude\"\n\
         command = [\"python3\", \"{STAND_IN}\"]\nconfig_folders = \"agents\"\nenv = {{ STAND_IN_LOG = \"{}\", ANTHROPIC_API_KEY = \"of the pool\" }}\n\
         retry = {{ base = \"10ms\" }}\n{lines}\n",
        log.display()
    );
    place.write("ostler.toml", config);
    place
}

fn up(place: &Place) -> Running {
    let mut command = place.command(["up"]);
    command.env("HOME", place.folder()).env("OPENAI_API_KEY", "of another agent");
    let node = Running::start(command);
    assert!(node.line().contains("ready"));
    node
}

fn submit(place: &Place, prompt: &str, words: &[&str]) -> String {
    let payload = json!(prompt).to_string();
    place.done([&["submit", "reviews", "review", "--payload", &payload], words].concat()).trim().to_owned()
}

/// The lines of the stand-in's log.
fn log(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.folder().join("log")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn logged(place: &Place, field: &str) -> Value {
    until(field, || log(place).into_iter().find(|line| line.get(field).is_some()))
}

fn is_gone(pid: &Value) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn an_agent_answers_and_its_transcript_and_its_cost_are_kept() {
    let place = place("");
    let _node = up(&place);
    let id = submit(&place, "[[text]] please", &["--key", "one"]);
    let task = until("it is done", || {
        let task = place.json(["show", &id]);
        (task["state"] == "completed").then_some(task)
    });
    assert_eq!(task["output"], "Hello.");
    let attempt = &task["attempts"][0];
    assert_eq!(attempt["session_id"], log(&place)[0]["session"]);
    assert!(attempt["cost_usd"].as_f64().is_some_and(|usd| usd > 0.0), "{attempt}");
    let text = place.done(["show", &id]);
    let session = attempt["session_id"].as_str().expect("an id");
    assert!(text.contains(&format!("session       {session}")), "{text}");
    assert!(text.contains("prompt        [[text]] please"), "{text}");
    let shown = place.done(["logs", &id]);
    assert!(shown.contains("[[text]] please") && shown.contains("Hello."), "{shown}");
    let env = submit(&place, "[[who]]", &["--wait"]);
    assert!(!env.contains("of another agent") && !env.contains("OPENAI_API_KEY"), "{env}");
}

#[test]
fn the_conversation_goes_on_after_the_death_of_the_node() {
    let place = place("max_workers = 1");
    let node = up(&place);
    let gate = place.folder().join("gate");
    let id = submit(&place, &format!("[[gate {}]]", gate.display()), &[]);
    let first = logged(&place, "waits");
    until("what it said is stored", || place.done(["logs", &id]).contains("It begins.").then_some(()));
    node.signal(ProcessSignal::KILL);
    drop(node);
    until("the agent died with its node", || is_gone(&first["pid"]).then_some(()));
    let _node = up(&place);
    let task = until("it is done", || {
        let task = place.json(["show", &id]);
        (task["state"] == "completed").then_some(task)
    });
    assert_eq!(task["output"], "Prompts: 2, last: Go on.");
    let sessions: Vec<&Value> =
        task["attempts"].as_array().expect("a list").iter().map(|one| &one["session_id"]).collect();
    assert_eq!(sessions, [&first["session"], &first["session"]], "{task}");
    let requests = log(&place).into_iter().filter(|line| line.get("prompt").is_some()).count();
    assert_eq!(requests, 2, "the one in flight at the death, and the one that goes on");
    let shown = place.done(["logs", &id]);
    assert!(shown.contains("resumes the conversation") && shown.contains("It begins."), "{shown}");
}

#[test]
fn a_finished_conversation_is_continued_with_another_prompt() {
    let place = place("");
    let _node = up(&place);
    let gate = place.folder().join("gate");
    place.write("gate", "");
    let id = submit(&place, &format!("[[gate {}]]", gate.display()), &["--key", "one"]);
    until("it is done", || (place.json(["show", &id])["state"] == "completed").then_some(()));
    let answer =
        place.done(["continue", "key:one", "--queue", "reviews", "--prompt", "Now fix it.", "--wait"]);
    assert_eq!(answer.trim(), r#""Prompts: 2, last: Now fix it.""#);
    let sessions: Vec<Value> = log(&place).into_iter().filter(|line| line.get("prompt").is_some()).collect();
    assert!(sessions.iter().all(|line| line["session"] == sessions[0]["session"]), "{sessions:?}");

    let plain = place.done(["submit", "other", "x"]).trim().to_owned();
    place.refused(["continue", &plain, "--prompt", "x"], 2, "only the conversation of a finished task");
    place.done(["cancel", &plain]);
    place.refused(["continue", &plain, "--prompt", "x"], 2, "has no conversation to continue");
    place.refused(["continue", &id, "--prompt", " "], 2, "the prompt is empty");
}

#[test]
fn a_retry_from_scratch_begins_a_new_conversation_with_the_whole_prompt() {
    let place = place("max_iterations = 4");
    let _node = up(&place);
    let gate = place.folder().join("gate");
    let prompt = format!("[[gate {}]]", gate.display());
    let id = submit(&place, &prompt, &[]);
    let first = logged(&place, "waits");
    place.done(["cancel", &id]);
    let ended = |state: &str| {
        until(state, || {
            let task = place.json(["show", &id]);
            (task["state"] == state).then_some(task)
        })
    };
    ended("cancelled");
    place.write("gate", "");
    place.done(["retry", &id, "--from-scratch"]);
    let task = ended("completed");
    assert_eq!(task["output"], format!("Prompts: 1, last: {prompt}"));
    let attempts = task["attempts"].as_array().expect("a list");
    assert_eq!(attempts[0]["session_id"], first["session"]);
    assert_ne!(attempts[1]["session_id"], first["session"]);
    let costs: Vec<f64> = attempts.iter().filter_map(|one| one["cost_usd"].as_f64()).collect();
    assert_eq!(costs.len(), 2, "what was spent is kept: {task}");
    let shown = place.done(["logs", &id]);
    assert!(!shown.contains("resumes the conversation"), "{shown}");
}

#[test]
fn a_conversation_goes_with_the_last_task_that_used_it() {
    let place = place("");
    let _node = up(&place);
    let failed = |id: &str| {
        until("it has failed", || (place.json(["show", id])["state"] == "failed").then_some(()));
    };
    let first = submit(&place, "[[crash]]", &["--attempts", "1"]);
    failed(&first);
    let second = place.done(["continue", &first, "--prompt", "Again."]).trim().to_owned();
    failed(&second);
    let home = place.folder().join("agents/reviews").join(&first);
    assert!(home.join("config").exists());
    assert!(!place.folder().join("agents/reviews").join(&second).exists(), "both use one home");
    place.done(["dead", "drop", &first]);
    place.done(["db", "prune"]);
    assert!(home.exists(), "the other task can be continued");
    place.done(["dead", "drop", &second]);
    let pruned = place.run(["db", "prune"]);
    assert!(pruned.err.contains("removed 1 conversation or worktree of tasks that are gone"), "{pruned:?}");
    assert!(!home.exists());
}

#[test]
fn a_new_prompt_of_a_retry_is_sent_to_the_same_conversation() {
    let place = place("");
    let _node = up(&place);
    let gate = place.folder().join("gate");
    let id = submit(&place, &format!("[[gate {}]]", gate.display()), &[]);
    logged(&place, "waits");
    place.done(["cancel", &id]);
    let ended = |state: &str| {
        until(state, || {
            let task = place.json(["show", &id]);
            (task["state"] == state).then_some(task)
        })
    };
    ended("cancelled");
    place.write("gate", "");
    place.done(["retry", &id, "--payload", "\"Do it otherwise.\""]);
    assert_eq!(ended("completed")["output"], "Prompts: 2, last: Do it otherwise.");
}

#[test]
fn a_job_of_agents_has_output_cost_time_session_and_files_of_each_item_in_its_results() {
    let place = place("files = [\"*.md\"]\nmax_workers = 1");
    let items = ["[[nothing]]", "[[file a.md]]"];
    let words = [
        "map",
        "-qk",
        "--retries",
        "0",
        "--pool",
        "reviews",
        "--kind",
        "review",
        "--prompt",
        "{{ item }}",
        ":::",
    ];
    let ran = place.run([&words[..], &items].concat());
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), "It wrote a file.\n"), "{ran:?}");
    let rows = place.done(["job", "export", "reviews"]);
    let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).expect("JSON")).collect();
    let [bad, good] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&good["item"], &good["state"]), (&items[1].into(), &"completed".into()));
    assert_eq!((&good["output"], &good["files"]), (&"It wrote a file.".into(), &json!(["a.md"])), "{good}");
    assert_eq!((&good["cost_usd"], &good["runs"]), (&0.01.into(), &1.into()), "{good}");
    assert!(good["duration_ms"].is_u64() && good["input_tokens"].is_u64(), "{good}");
    assert_eq!(
        (&good["session_id"], &bad["session_id"]),
        (&log(&place)[1]["session"], &log(&place)[0]["session"])
    );
    assert!(bad["error"].is_string() && bad["files"] == json!([]), "{bad}");
    let table = place.done(["job", "export", "--csv", "reviews"]);
    let row = table.lines().nth(2).expect("a row");
    for part in
        ["[[file a.md]]", "It wrote a file.", "0.01", good["session_id"].as_str().expect("an id"), "a.md"]
    {
        assert!(row.contains(part), "{part} is not in {row}");
    }
    let job = place.json(["job", "show", "reviews"]);
    assert_eq!((&job["tasks"]["completed"], &job["tasks"]["failed"]), (&1.into(), &1.into()));
    assert_eq!(job["cost_usd"], 0.01);
    assert!(job["duration_ms"].is_u64(), "{job}");
}

#[test]
fn a_job_of_agents_says_by_how_much_it_passed_its_budget() {
    let place = place("max_workers = 1");
    let words = ["map", "--pool", "reviews", "--kind", "review", "--prompt", "[[many 3]] {{ item }}"];
    let budget = ["--max-cost", "0.02", "--reserve", "0.01", ":::", "a", "b", "c"];
    let ran = place.run([&words[..], &budget].concat());
    assert_eq!(ran.code, Some(6), "{ran:?}");
    let shown = place.done(["job", "show", "reviews"]);
    assert!(shown.contains("cost      $0.03\n"), "{shown}");
    assert!(shown.contains("budget    $0.02: $0.03 spent, $0.01 over\n"), "{shown}");
    assert_eq!(place.json(["job", "show", "reviews"])["budget"]["over_usd"], 0.01);
}

#[test]
fn a_job_of_agents_that_do_not_say_what_they_cost_needs_a_price_for_its_budget() {
    let place = Place::new();
    let words = ["map", "--agent", "codex", "--prompt", "Review", "--max-cost", "1"];
    let why = "a budget cannot be kept: codex does not say what it costs: set \"model\"";
    place.refused([&words[..], &[":::", "a"]].concat(), 2, why);
    let why = "a budget cannot be kept: the price of the model \"unheard\" is not known";
    place.refused([&words[..], &["--model", "unheard", ":::", "a"]].concat(), 2, why);
    assert!(!place.store().exists());
}

#[test]
fn a_cancelled_task_ends_its_agent() {
    let place = place("");
    let _node = up(&place);
    let id = submit(&place, "[[stop]]", &[]);
    let agent = logged(&place, "waits");
    place.done(["cancel", &id]);
    until("it is cancelled", || (place.json(["show", &id])["state"] == "cancelled").then_some(()));
    assert!(is_gone(&agent["pid"]));
}

#[test]
fn a_job_says_once_that_the_usage_limit_of_its_account_is_near() {
    let place = place("max_workers = 1");
    let words =
        ["map", "--pool", "reviews", "--kind", "review", "--prompt", "[[near]] {{ item }}", ":::", "a", "b"];
    let ran = place.run(words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.err.matches("has used 92 % of its allowance \"five_hour\", which resets in").count(),
        1,
        "{ran:?}"
    );
}

#[test]
fn a_missing_agent_is_named_by_the_doctor_and_stops_its_queue() {
    let place = Place::new();
    let config = "[pool.reviews]\nexecutor = \"agent\"\nagent = \"codex\"\ncommand = [\"no-such-codex\"]\nconfig_folders = \"agents\"\n";
    place.write("ostler.toml", config);
    let sentence =
        "`no-such-codex` is not installed, or not on the PATH: install Codex (the package @openai/codex)";
    let _node = up(&place);
    let id = submit(&place, "hello", &[]);
    let queue = until("the queue is paused", || {
        let ran = place.run(["doctor"]);
        ran.out.contains(sentence).then_some(ran.out)
    });
    assert!(queue.contains("reviews"), "{queue}");
    let task = until("it waits", || {
        let task = place.json(["show", &id]);
        task.to_string().contains("no-such-codex").then_some(task)
    });
    assert_eq!(task["state"], "queued", "no attempt was spent: {task}");
}

#[test]
fn a_plain_command_is_started_once_for_a_task_and_not_for_its_version() {
    let place = Place::new();
    let config = "[pool.notes]\nexecutor = \"agent\"\nagent = \"command\"\ncommand = [\"sh\", \"-c\", \"echo x >> starts; cat\"]\n";
    place.write("ostler.toml", config);
    let _node = up(&place);
    assert_eq!(place.done(["submit", "notes", "note", "--payload", "\"hello\"", "--wait"]), "\"hello\"\n");
    assert_eq!(std::fs::read_to_string(place.folder().join("starts")).expect("it ran"), "x\n");
}

#[test]
fn a_job_of_an_agent_that_is_missing_old_or_another_program_is_refused_in_a_sentence() {
    let place = Place::new();
    let folder = place.folder().join("bin");
    std::fs::create_dir(&folder).expect("a folder");
    let map = |agent: &str| {
        let words = ["map", "--agent", agent, "--prompt", "Say {{ item }}", ":::", "a", "b"];
        ran(place
            .command(words)
            .env("PATH", &folder)
            .env("HOME", place.folder())
            .env("ANTHROPIC_API_KEY", "sk-0000000"))
    };
    map("claude").is_refused(2, "`claude` is not installed, or not on the PATH: install Claude Code");
    map("codex").is_refused(2, "`codex` is not installed, or not on the PATH: install Codex");
    for (script, sentence) in [
        (
            "echo '1.0.3 (Claude Code)'",
            "`claude` is Claude Code 1.0.3, and 2.1.197 or newer is needed: update it",
        ),
        (
            "echo ' \u{7}garbage'; echo more",
            "`claude --version` printed \"\\u{7}garbage\": that is not Claude Code",
        ),
        ("exit 3", "`claude --version` printed \"\": that is not Claude Code"),
    ] {
        let program = place.write("bin/claude", format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        let refused = map("claude");
        refused.is_refused(2, sentence);
        assert_eq!(refused.err.trim().lines().count(), 1, "{refused:?}");
    }
    assert!(!place.store().exists(), "nothing was enqueued");
}

#[test]
fn a_config_of_agents_is_checked_key_by_key() {
    let place = Place::new();
    for (lines, sentence) in [
        (
            "",
            "pool.reviews.agent is missing: \"claude\", \"codex\", \"gemini\", \"opencode\", \"acp\" or \"command\"",
        ),
        ("agent = \"clod\"", "pool.reviews.agent is \"clod\", but must be"),
        ("agent = \"command\"", "pool.reviews.command is missing: the program that reads a prompt"),
        (
            "agent = \"claude\"\nprompt = \"{{ x\"",
            "pool.reviews.prompt is not a template: line 1 of the prompt",
        ),
        (
            "agent = \"claude\"\nbudget.per_task = \"much\"",
            "pool.reviews.budget.per_task is much: expected an amount",
        ),
        ("agent = \"claude\"\nschema = { type = \"nonsense\" }", "pool.reviews.schema is not a JSON schema"),
        ("agent = \"claude\"\nkey_variable = \"MY_KEY\"", "pool.reviews.key_variable is not read by claude"),
        (
            "agent = \"claude\"\nmax_iteration = 3",
            "pool.reviews.max_iteration: unknown key; did you mean max_iterations?",
        ),
    ] {
        place.write("ostler.toml", format!("[pool.reviews]\nexecutor = \"agent\"\n{lines}\n"));
        place.refused(["config", "--check"], 2, sentence);
    }
}

#[test]
fn another_content_of_a_schema_file_makes_another_job() {
    let place = Place::new();
    let schema = ["--prompt", "Rate {{ item }}", "--schema", "score.json", ":::", "a"];
    let map = || place.done([&["map", "--agent", "claude", "--detach"], &schema[..]].concat());
    let jobs = || place.json(["job", "ls"]).as_array().map(Vec::len);
    place.write("score.json", r#"{"type": "number"}"#);
    map();
    map();
    assert_eq!(jobs(), Some(1), "the same again is the same job");
    place.write("score.json", r#"{"type": "string"}"#);
    map();
    assert_eq!(jobs(), Some(2));
}
