//! Jobs over pools: `ostler map` with the workers of a pool, prompt templates, and pilots.

use std::time::Instant;

use ostler_testkit::MAX_WAIT;
use serde_json::{Value, json};

use crate::map::{jobs, times};
use crate::ostler::{Place, Running};

const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python");

/// Writes a line for each run, spends a cent, and answers with what it got. An item "bad" fails until there is a file "go".
const WORKER: &str = r#"
import os
from ostler import Permanent, worker

@worker.task("review")
def review(payload, ctx):
    with open("runs", "a") as runs:
        runs.write(str(payload["item"]) + "\n")
    ctx.session("s-" + str(payload["number"]))
    ctx.usage(model="m", cost_usd=0.01, output_tokens=5)
    if payload["item"] == "bad" and not os.path.exists("go"):
        raise Permanent("it is bad")
    return payload.get("prompt") or {"got": payload["item"], "token": os.environ.get("TOKEN")}

worker.run()
"#;

/// A place with a pool "docs" of such workers.
pub(crate) fn place() -> Place {
    let place = Place::new();
    place.write("worker.py", WORKER);
    let script = place.folder().join("worker.py");
    let config = format!(
        "[lease]\nttl = \"20s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[pool.docs]\nexecutor = \"process\"\n\
         command = [\"python3\", \"{}\"]\ngrace = \"1s\"\nmin_workers = 1\nmax_workers = 2\n\
         env = {{ PYTHONPATH = \"{SDK}\", PYTHONDONTWRITEBYTECODE = \"1\", TOKEN = \"t\" }}\n",
        script.display()
    );
    place.write("ostler.toml", config);
    place
}

/// The words of a job over that pool, on these items.
fn over<'a>(options: &[&'a str], items: &[&'a str]) -> Vec<&'a str> {
    [&["map", "--pool", "docs", "--kind", "review"], options, &[":::"], items].concat()
}

fn runs(place: &Place) -> Vec<String> {
    times(&place.folder().join("runs"))
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + MAX_WAIT;
    while !is_so() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::yield_now();
    }
}

// ---- pools ----

#[test]
fn the_workers_of_a_pool_run_the_items_of_a_job_with_the_settings_of_the_pool() {
    let place = place();
    assert_eq!(
        place.done(over(&["-qk"], &["a b", "-x", "{{ 7 * 6 }}"])),
        "{\"got\":\"a b\",\"token\":\"t\"}\n{\"got\":\"-x\",\"token\":\"t\"}\n{\"got\":\"{{ 7 * 6 }}\",\"token\":\"t\"}\n"
    );
    let job = &jobs(&place)[0];
    assert_eq!((&job["name"], &job["state"]), (&"docs".into(), &"completed".into()));
    assert_eq!(job["command"], json!(["docs", "review"]));
    let task = &place.json(["ls", "--queue", job["queue"].as_str().expect("a queue")])[0];
    assert_eq!(task["kind"], "review");
    // A complete job without prompts runs anew.
    place.done(over(&["-qk"], &["a b", "-x", "{{ 7 * 6 }}"]));
    assert_eq!(runs(&place).len(), 6);
}

#[test]
fn rows_are_objects_in_the_payload_of_an_item() {
    let place = place();
    place.write("rows.jsonl", "{\"name\":\"Anna\",\"age\":7}\n\"text\"\n");
    let out = place.done(["map", "-qk", "--pool", "docs", "--kind", "review", "--jsonl", "rows.jsonl"]);
    assert_eq!(
        out,
        "{\"got\":{\"age\":7,\"name\":\"Anna\"},\"token\":\"t\"}\n{\"got\":\"text\",\"token\":\"t\"}\n"
    );
    let results = place.done(["job", "export", "docs"]);
    let first: Value = serde_json::from_str(results.lines().next().expect("a row")).expect("JSON");
    assert_eq!(first["item"], "{\"age\":7,\"name\":\"Anna\"}");
    assert_eq!((&first["session_id"], &first["cost_usd"]), (&"s-1".into(), &0.01.into()));
    let job = place.json(["job", "show", "docs"]);
    assert_eq!(job["cost_usd"], 0.02);
    assert!(job["duration_ms"].is_u64(), "{job}");
}

#[test]
fn a_failed_item_of_a_pool_runs_again_and_the_others_do_not() {
    let place = place();
    let words = over(&["-j1"], &["good", "bad"]);
    let ran = place.run(&words);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("bad: it is bad") && ran.err.contains("good: completed, "), "{ran:?}");
    assert!(ran.err.contains("2 items: 1 completed, 1 failed; ") && ran.err.contains("; $0.02"), "{ran:?}");
    place.write("go", "");
    assert_eq!(place.run(&words).code, Some(0));
    assert_eq!(runs(&place), ["bad", "bad", "good"]);
}

#[test]
fn a_node_that_has_the_pool_runs_a_detached_job_of_it() {
    let place = place();
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    let id = place.done(over(&["--detach"], &["a", "b"]));
    until("the node runs it", || place.json(["job", "show", id.trim()])["state"] == "completed");
    assert_eq!(runs(&place), ["a", "b"]);
    // The node runs no commands of others.
    let other = place.done(["map", "--detach", "echo {} >> ran", ":::", "x"]);
    let more = place.done(over(&["--detach"], &["c"]));
    until("the node runs the next one", || place.json(["job", "show", more.trim()])["state"] == "completed");
    assert_eq!(place.json(["job", "show", other.trim()])["state"], "unfinished");
    assert!(!place.folder().join("ran").exists());
}

#[test]
fn what_cannot_be_run_is_refused_and_makes_no_store() {
    let place = place();
    place.write("long.txt", "x".repeat(200 * 1024));
    let cases: [(&[&str], &str); 8] = [
        (&["--pool", "dcs", "--kind", "k", ":::", "a"], "no pool \"dcs\"; its pools: docs"),
        (&["--pool", "docs", ":::", "a"], "--kind"),
        (&["--pool", "docs", "--kind", "k", "echo", ":::", "a"], "there is no command"),
        (&["--agent", "claude", ":::", "a"], "--prompt"),
        (&["--prompt", "x {{ item }}", "echo", ":::", "a"], "a prompt needs --agent or --pool"),
        (&["--agent", "nonsense", "--prompt", "x", ":::", "a"], "agent"),
        (&["--pool", "docs", "--kind", "k", "--items-from", "echo a; exit 3"], "exit status: 3"),
        (&["--pool", "docs", "--kind", "k", "--prompt-file", "long.txt", ":::", "a"], "larger than"),
    ];
    for (words, sentence) in cases {
        place.refused(["map"].iter().chain(words), 2, sentence);
    }
    let elsewhere = Place::new();
    elsewhere.refused(["map", "--pool", "docs", "--kind", "k", ":::", "a"], 2, "no ostler.toml here");
    assert!(!place.store().exists() && !elsewhere.store().exists());
}

#[test]
fn items_come_from_the_output_of_a_command() {
    let place = Place::new();
    assert_eq!(
        place.done(["map", "-qk", "--items-from", "printf 'a b\\n\\n-x\\n'", "echo", "<{}>"]),
        "<a b>\n<-x>\n"
    );
    place.refused(["map", "--items-from", "echo a; false", "echo"], 2, "nothing was enqueued");
    assert_eq!(jobs(&place).len(), 1);
}

#[test]
fn a_kind_that_no_worker_serves_is_named_at_once_with_those_that_are_served() {
    let place = place();
    let sentence = "no worker of pool \"docs\" serves the kind \"reveiw\", so the items wait; its kinds: review; did you mean review?";
    let words = ["map", "--pool", "docs", "--kind", "reveiw", ":::", "a"];
    let mapping = Running::start(place.command(words));
    // It says other things too, again and again.
    until("the line is printed", || mapping.says("").contains(sentence));
    drop(mapping);
    assert!(runs(&place).is_empty());
    // A node says it of a detached job, too.
    let node = Running::start(place.command(["up"]));
    place.done(["map", "--detach", "--pool", "docs", "--kind", "reveiw", ":::", "b"]);
    until("the node says it", || node.says("").contains("did you mean review?"));
}

#[test]
fn a_job_of_thousands_of_items_has_its_cost() {
    let place = place();
    let worker = "from ostler import worker\n\
                  @worker.task(\"review\")\n\
                  def review(payload, ctx):\n\
                  \x20   ctx.usage(model=\"m\", cost_usd=0.01)\n\
                  worker.run()\n";
    place.write("worker.py", worker);
    let words = ["map", "-q", "--pool", "docs", "--kind", "review", "--items-from", "seq 2001"];
    place.done([&words[..], &["--max-cost", "100", "--reserve", "0.01"]].concat());
    let job = place.json(["job", "show", "docs"]);
    assert_eq!((&job["tasks"]["completed"], &job["cost_usd"]), (&2_001.into(), &20.01.into()), "{job}");
    assert!(place.done(["job", "show", "docs"]).contains("cost      $20.01\n"));
}

// ---- prompts ----

#[test]
fn a_prompt_is_rendered_for_each_item_and_items_are_data() {
    let place = place();
    place.write("people.csv", "name,city\nAnna,Wien\n{{ city }},--model\n");
    let prompt = ["--prompt", "{{ index }}/{{ total }}: {{ name }} in {{ city }}"];
    let words = [&["map", "--pool", "docs", "--kind", "review", "--csv", "people.csv"], &prompt[..]].concat();
    let rendered = "1/2: Anna in Wien\n2/2: {{ city }} in --model\n";
    assert_eq!(place.done([&words[..], &["--dry-run"]].concat()), rendered);
    assert!(!place.store().exists(), "a dry run makes no store");
    assert_eq!(place.done([&words[..], &["-qk"]].concat()), rendered);
    assert_eq!(runs(&place).len(), 2);
    // What was paid for is not paid for again, unless the user asks for it or changes a word.
    let again = place.run(&words);
    assert!(again.code == Some(0) && again.err.contains("all 2 items are already done"), "{again:?}");
    assert_eq!(runs(&place).len(), 2);
    place.done([&words[..], &["-q", "--model", "m2"]].concat());
    assert_eq!(runs(&place).len(), 4, "another model");
    place.done([&words[..], &["-q", "--fresh"]].concat());
    assert_eq!(runs(&place).len(), 6);
}

#[test]
fn a_missing_variable_is_an_error_with_its_line_before_anything_runs() {
    let place = place();
    place.write("prompt.txt", "Review\n{{ item }}\nby {{ author }}\n");
    let words = over(&["--prompt-file", "prompt.txt"], &["a"]);
    place.refused(&words, 2, "item 1: line 3 of the prompt: `author` is not defined for this item");
    place.refused(over(&["--prompt", "a\n{{ item"], &["a"]), 2, "line 2 of the prompt");
    assert!(!place.store().exists() && runs(&place).is_empty());
    // A template without a variable gets the item, and equal items run each once.
    let out = place.done(over(&["-qk", "--prompt", "Say it:"], &["a", "a"]));
    assert_eq!(out, "Say it:\n\na\nSay it:\n\na\n");
}

#[test]
fn a_synthesis_is_one_last_task_over_all_results() {
    let place = place();
    let template = "{% for r in results %}{{ r.item }}={{ r.output }};{% endfor %} of {{ total }}";
    let words = over(&["-qk", "--prompt", "see {{ item }}", "--synthesis", template], &["a", "b"]);
    assert_eq!(place.done(&words), "see a\nsee b\na=see a;b=see b; of 2\n");
    let job = place.json(["job", "show", "docs"]);
    assert_eq!((&job["state"], &job["items"]), (&"completed".into(), &3.into()));
    assert_eq!(place.run(&words).code, Some(0));
    assert_eq!(runs(&place), ["(synthesis)", "a", "b"], "nothing runs again");
    let wrong = over(&["--prompt", "see {{ item }}", "--synthesis", "{{ result }}"], &["a"]);
    place.refused(wrong, 2, "the synthesis: line 1 of the prompt: `result` is not defined");
    // A node does the same for a detached job, also after a failure.
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    let template = "{% for r in results %}{{ r.item }} {{ r.state }};{% endfor %}";
    let detached = over(&["--detach", "--prompt", "{{ item }}", "--synthesis", template], &["bad", "c"]);
    let id = place.done(detached).trim().to_owned();
    until("the synthesis has ended", || place.json(["job", "show", &id])["tasks"]["completed"] == 2);
    let results = place.done(["job", "export", &id]);
    assert!(results.lines().last().is_some_and(|row| row.contains("bad failed;c completed;")), "{results}");
}

// ---- pilots ----

#[test]
fn a_pilot_runs_the_first_item_and_the_others_wait_for_an_approval_over_restarts() {
    let place = place();
    let words = over(&["--pilot", "--prompt", "see {{ item }}"], &["1", "2", "3", "4"]);
    let ran = place.run(&words);
    assert_eq!((ran.code, ran.out.as_str()), (Some(6), "see 1\n"), "{ran:?}");
    let id = jobs(&place)[0]["id"].as_str().expect("an id").to_owned();
    assert!(ran.err.contains("pilot: 1 item") && ran.err.contains("about $0.03"), "{ran:?}");
    assert!(ran.err.contains(&format!("ostler job approve {id}")), "{ran:?}");
    let job = place.json(["job", "show", &id]);
    assert_eq!((&job["state"], &job["pilot"]), (&"paused".into(), &1.into()));
    assert_eq!(job["paused"], "its pilot waits for approval");
    assert!(place.done(["doctor"]).contains(&format!("ostler job approve {id}")));
    // Neither the same command nor a resume is an approval.
    assert_eq!(place.run(&words).code, Some(6));
    place.done(["job", "resume", &id]);
    assert_eq!(place.run(&words).code, Some(6));
    assert_eq!(runs(&place), ["1"]);
    let approved = place.run(["job", "approve", &id, "--json"]).json();
    assert_eq!((&approved["done"], &approved["tasks"]), (&"approved".into(), &3.into()));
    assert_eq!(place.run(&words).code, Some(0));
    assert_eq!(runs(&place), ["1", "2", "3", "4"]);
    assert_eq!(place.json(["job", "show", &id])["state"], "completed");
    place.refused(["job", "reject", &id], 2, "no pilot that waits");
}

#[test]
fn a_rejected_pilot_runs_nothing_more_and_the_totals_say_so() {
    let place = Place::new();
    let words = ["map", "--pilot=2", "echo {} >> runs", ":::", "1", "2", "3", "4", "5"];
    let ran = place.run(words);
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert_eq!(runs(&place), ["1", "2"]);
    let rejected = place.run(["job", "reject", "echo", "--json"]).json();
    assert_eq!((&rejected["done"], &rejected["tasks"]), (&"rejected".into(), &3.into()));
    let job = place.json(["job", "show", "echo"]);
    assert_eq!(job["state"], "cancelled");
    assert_eq!((&job["tasks"]["completed"], &job["tasks"]["cancelled"]), (&2.into(), &3.into()));
    assert_eq!(runs(&place), ["1", "2"]);
    place.refused(["job", "approve", "echo"], 2, "no pilot that waits");
    // The same command begins again, with a pilot.
    assert_eq!(place.run(words).code, Some(6));
    assert_eq!(runs(&place), ["1", "1", "2", "2"]);
    place.done(["job", "rm", "echo"]);
    assert_eq!(place.json(["ls", "--queue", "approvals", "--state", "queued"]), json!([]));
}

#[test]
fn a_failed_pilot_is_repeated_and_the_others_wait_on() {
    let place = place();
    let words = over(&["--pilot"], &["bad", "good"]);
    assert_eq!(place.run(&words).code, Some(6));
    place.write("go", "");
    let again = place.run(&words);
    assert_eq!(again.code, Some(6), "{again:?}");
    assert_eq!(runs(&place), ["bad", "bad"]);
    place.done(["job", "approve", "docs"]);
    assert_eq!(place.run(&words).code, Some(0));
    assert_eq!(runs(&place), ["bad", "bad", "good"]);
}

#[test]
fn a_node_pauses_a_detached_job_after_its_pilot_and_goes_on_when_it_is_approved() {
    let place = place();
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    let id = place.done(over(&["--detach", "--pilot"], &["1", "2", "3"])).trim().to_owned();
    until("the pilot has ended", || place.json(["job", "show", &id])["state"] == "paused");
    assert_eq!(runs(&place), ["1"]);
    place.done(["job", "approve", &id]);
    until("the others have ended", || place.json(["job", "show", &id])["state"] == "completed");
    assert_eq!(runs(&place), ["1", "2", "3"]);
}

// ---- limits ----

#[test]
fn the_rate_of_a_pool_is_for_all_its_jobs_together_whether_a_node_is_up_or_not() {
    let place = place();
    let config = std::fs::read_to_string(place.folder().join("ostler.toml")).expect("the config");
    place.write("ostler.toml", config + "rate = { per_day = 2, burst = 2 }\n");
    place.done(over(&["-q"], &["a", "b"]));
    let is_throttled = |job: &Value| {
        let queue = place.json(["queue", "show", job["queue"].as_str().expect("a queue")]);
        queue["held"]["waits_for"] == "rate_limited"
    };
    let throttled =
        || jobs(&place).iter().filter(|job| job["state"] != "completed" && is_throttled(job)).count();
    let waiting = Running::start(place.command(over(&["-q"], &["c"])));
    until("the job waits for the rate of its pool", || throttled() == 1);
    drop(waiting);
    let _node = Running::start(place.command(["up"]));
    place.done(over(&["--detach"], &["d"]));
    until("the other job waits, too", || throttled() == 2);
    assert_eq!(runs(&place).len(), 2);
    let held = place.json(["stats"])["held"].clone();
    assert_eq!(
        held.as_array().map(Vec::len),
        Some(3),
        "the pool and its jobs, but not the completed one: {held}"
    );
}

// ---- budgets ----

#[test]
fn a_job_stops_at_its_budget_and_a_larger_one_goes_on() {
    let place = place();
    let items: Vec<String> = (1..=12).map(|item| item.to_string()).collect();
    let items: Vec<&str> = items.iter().map(String::as_str).collect();
    let words = |most| over(&["-j2", "--prompt", "{{ item }}", "--max-cost", most], &items);
    let ran = place.run(words("0.05"));
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.err.contains("ostler job resume") && ran.err.contains("--max-cost"), "{ran:?}");
    let spent = runs(&place).len();
    assert!((1..=6).contains(&spent), "{spent} items ran");
    let job = place.json(["job", "show", "docs"]);
    assert_eq!((&job["state"], &job["budget"]["total_usd"]), (&"paused".into(), &0.05.into()));
    assert!(place.done(["job", "show", "docs"]).contains("budget    $0.05: "));
    assert_eq!(place.run(words("0.05")).code, Some(6), "nothing was added");
    assert_eq!(runs(&place).len(), spent);
    place.done(["job", "resume", "docs", "--max-cost", "0.08"]);
    assert_eq!(place.run(words("1")).code, Some(0), "the same job");
    assert_eq!((runs(&place).len(), jobs(&place).len()), (12, 1));
}

// ---- lists ----

#[test]
fn queues_of_jobs_are_listed_only_if_asked_for() {
    let place = Place::new();
    place.done(["map", "-q", "true", ":::", "a"]);
    place.done(["submit", "mail", "send"]);
    let queues = |words: &[&str]| {
        let list = place.json(words);
        list.as_array().expect("a list").iter().map(|queue| queue["queue"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(queues(&["queue", "ls"]), ["\"mail\""]);
    assert_eq!(queues(&["queue", "ls", "--all"]).len(), 2);
    place.done(["job", "pause", "true"]);
    assert!(!place.done(["stats"]).contains("paused"));
    assert!(place.done(["stats", "--all"]).contains("paused     job "));
}
