//! Pools of models: the real program against a scripted server, which counts what is asked of it.

use std::time::{Duration, Instant};

use ostler_testkit::{LlmReply, LlmServer, MAX_WAIT, ProcessSignal, ReplyEnd, chat_events};
use serde_json::{Value, json};

use crate::ostler::{Place, Running};
use crate::up::up;

/// A place with a pool "labels" of this server, and more keys of it.
fn place(server: &LlmServer, keys: &str) -> Place {
    let place = Place::new();
    let config = format!(
        "[lease]\nttl = \"20s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n\
         [prices.m]\ninput = \"$1\"\noutput = \"$10\"\n\
         [pool.labels]\nexecutor = \"llm\"\napi = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\n{keys}",
        server.url()
    );
    place.write("ostler.toml", config);
    place
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let (end, (_never, nothing)) = (Instant::now() + MAX_WAIT, std::sync::mpsc::channel::<()>());
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        let _ = nothing.recv_timeout(Duration::from_millis(10));
    }
}

fn task(place: &Place, id: &str) -> Value {
    place.json(["show", id.trim()])
}

/// Answers that cost ten cents.
fn ten_cents(text: &str) -> LlmReply {
    LlmReply::stream(chat_events(text, 100_000, 0))
}

#[test]
fn a_job_over_a_model_has_a_dry_run_a_pilot_and_a_budget_that_holds() {
    let server = LlmServer::start(|_| ten_cents("fine"));
    let place = place(&server, "max_workers = 8\n");
    let items: Vec<String> = (0..12).map(|number| format!("item {number}")).collect();
    let words = |options: &[&str]| {
        let head = ["map", "--pool", "labels", "--prompt", "Label {{ item }}", "-j8"];
        let words = head.iter().chain(options).map(|word| (*word).to_owned());
        words.chain([":::".to_owned()]).chain(items.clone()).collect::<Vec<String>>()
    };
    assert!(place.done(words(&["--dry-run"])).starts_with("Label item 0\n"));
    assert_eq!(server.requests().len(), 0);
    let piloted = place.run(words(&["--pilot", "--max-cost", "0.5"]));
    assert!(piloted.err.contains("pilot: 1 item") && piloted.err.contains("about $1.10"), "{piloted:?}");
    assert_eq!(server.requests().len(), 1);
    let job = place.json(["job", "ls"])[0]["id"].as_str().expect("an id").to_owned();
    place.done(["job", "approve", &job]);
    let paused = place.run(words(&["--pilot", "--max-cost", "0.5"]));
    assert_ne!(paused.code, Some(0), "{paused:?}");
    assert_eq!(server.requests().len(), 5, "five requests at ten cents: {paused:?}");
    place.done(words(&["-q", "--pilot", "--max-cost", "2"]));
    assert_eq!(server.requests().len(), 12, "each item is asked once");
    let cost = place.json(["job", "show", &job])["cost_usd"].as_f64().expect("a cost");
    assert!((cost - 1.2).abs() < 1e-9, "{cost}");
}

const NO_PRICE: &str = "the price of the model \"unheard\" is not known";

#[test]
fn a_budget_is_refused_wherever_it_is_set_if_a_price_is_not_known() {
    let server = LlmServer::start(|_| ten_cents("fine"));
    let place = place(
        &server,
        "[pool.cheap]\nexecutor = \"llm\"\napi = \"openai\"\nmodel = \"unheard\"\nmax_workers = 1\n",
    );
    let job = ["map", "--pool", "cheap", "--prompt", "Label {{ item }}"];
    let budget = ["--max-cost", "1", ":::", "a"];
    let refused = |words: &[&str]| place.refused(words, 2, NO_PRICE);
    refused(&[&job[..], &budget].concat());
    let own = ["map", "--pool", "labels", "--prompt", "Label {{ item }}", "--model", "unheard"];
    refused(&[&own[..], &budget].concat());

    let node = up(&place, &[]);
    for option in ["--budget", "--budget-per-day"] {
        refused(&["queue", "set", "cheap", option, "5"]);
    }
    refused(&[&job[..], &["--detach"], &budget].concat());
    assert_eq!(place.json(["job", "ls"]), json!([]), "nothing was stored");
    place.done(["queue", "set", "labels", "--budget", "5"]);
    place.done(["pause", "cheap"]);
    drop(node);
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn under_a_budget_nothing_is_asked_of_a_model_without_a_price() {
    let server = LlmServer::start(|_| ten_cents("fine"));
    let cheap = format!(
        "budget = {{ total = \"$5\" }}\n[pool.cheap]\nexecutor = \"llm\"\napi = \"openai\"\nmodel = \"unheard\"\n\
         base_url = \"{}\"\n",
        server.url()
    );
    let place = place(&server, &cheap);
    // Where no node is up, it is not known what the work of a queue costs.
    place.done(["queue", "set", "cheap", "--budget", "5"]);
    let waits = place.done(["submit", "cheap", "ask", "--payload", "\"x\""]);
    let _node = up(&place, &[]);
    until("the queue is paused", || place.json(["queue", "show", "cheap"])["paused"] != Value::Null);
    let paused = place.json(["queue", "show", "cheap"])["paused"].clone();
    assert!(paused.as_str().is_some_and(|why| why.contains(NO_PRICE)), "{paused}");
    assert_eq!(task(&place, &waits)["state"], "queued");
    let payload = json!({"prompt": "x", "model": "unheard"}).to_string();
    let failed = place.done(["submit", "labels", "ask", "--payload", &payload]);
    until("it fails", || task(&place, &failed)["state"] == "failed");
    assert!(task(&place, &failed)["error"].to_string().contains("is not known"), "{}", task(&place, &failed));
    place.done(["submit", "labels", "ask", "--payload", "\"x\"", "--wait"]);
    assert_eq!(server.requests().len(), 1, "the model with a price was asked");
}

#[test]
fn a_hundred_workers_obey_what_the_provider_lets_through_within_a_second() {
    let server = LlmServer::start(|_| {
        LlmReply::stream(chat_events("x", 1, 1))
            .with_header("x-ratelimit-limit-requests", "100")
            .with_header("x-ratelimit-remaining-requests", "5")
            .with_header("x-ratelimit-reset-requests", "1m0s")
            .working(Duration::from_millis(50))
    });
    let place = place(&server, "min_workers = 100\nmax_workers = 100\n");
    let lines: String =
        (0..250).map(|number| format!("{}\n", json!({"payload": format!("p{number}")}))).collect();
    place.write("tasks.jsonl", lines);
    place.done(["submit", "labels", "ask", "--jsonl", "tasks.jsonl"]);
    let _node = up(&place, &[]);
    until("all are done", || place.json(["stats"])["tasks"]["completed"] == 250);
    let arrivals = server.arrivals();
    let first = arrivals[0].0;
    let later: Vec<usize> = arrivals
        .iter()
        .filter(|(at, _)| at.duration_since(first) > Duration::from_secs(1))
        .map(|(_, in_flight)| *in_flight)
        .collect();
    assert!(later.len() > 50, "most of them came after the first second: {} of 250", later.len());
    assert!(later.iter().all(|in_flight| *in_flight <= 5), "{later:?}");
    assert_eq!(server.requests().len(), 250, "each task is asked once");
    let account = &place.json(["account", "ls"])[0];
    assert_eq!(account["most"], 5, "{account}");
}

#[test]
fn a_complete_job_over_a_model_with_a_prompt_in_the_config_is_not_paid_again() {
    let server = LlmServer::start(|_| ten_cents("fine"));
    let place = place(&server, "prompt = \"Label {{ item }}\"\n");
    let words = ["map", "--pool", "labels", "--kind", "ask", ":::", "a", "b"];
    for _ in 0..2 {
        place.done(words);
        assert_eq!(server.requests().len(), 2);
    }
    assert!(place.run(words).err.contains("all 2 items are already done"));
    // Left to a node, it is the same job.
    place.done(["map", "--detach", "--pool", "labels", "--kind", "ask", ":::", "a", "b"]);
    assert_eq!(place.json(["job", "ls"]).as_array().map(Vec::len), Some(1));
    let config = std::fs::read_to_string(place.folder().join("ostler.toml")).expect("a config");
    place.write("ostler.toml", config.replace("Label {{", "Name {{"));
    place.done(words);
    assert_eq!(server.requests().len(), 4, "another prompt is another job");
    place.done(["map", "--fresh", "--pool", "labels", "--kind", "ask", ":::", "a", "b"]);
    assert_eq!(server.requests().len(), 6);
}

/// A pool of agents on the account of the models.
const AGENTS: &str = "account = \"team\"\nretry = { base = \"10ms\" }\n\
    [pool.shout]\nexecutor = \"agent\"\nagent = \"command\"\ncommand = [\"tr\", \"a-z\", \"A-Z\"]\naccount = \"team\"\n\
    [pool.other]\nexecutor = \"command\"\ncommand = [\"true\"]\n";

#[test]
fn a_limit_of_a_model_holds_the_agents_of_its_account_and_a_hold_holds_both() {
    let server = LlmServer::start(|request| match request.number {
        1 => LlmReply::json(429, r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#)
            .with_header("retry-after", "3600"),
        _ => LlmReply::stream(chat_events("fine", 1, 1)),
    });
    let place = place(&server, AGENTS);
    let _node = up(&place, &[]);
    let asked = place.done(["submit", "labels", "ask", "--payload", "\"x\""]);
    until("the limit is known", || place.json(["account", "show", "team"])["held"] != Value::Null);
    let agent = place.done(["submit", "shout", "say", "--payload", "\"hello\""]);
    // A task of another pool of the node completes first, so the node had every opportunity.
    place.done(["submit", "other", "run", "--wait"]);
    for id in [&asked, &agent] {
        let task = task(&place, id);
        assert_eq!((&task["state"], &task["failures"]), (&json!("queued"), &json!(0)), "{task}");
    }
    assert_eq!(task(&place, &agent)["held"]["waits_for"], "usage_limit");
    assert_eq!(server.requests().len(), 1);
    let held = place.done(["account", "show", "team"]);
    assert!(held.contains("the provider of openai limits its rate"), "{held}");
    place.done(["account", "release", "team"]);
    until("the agent runs", || task(&place, &agent)["state"] == "completed");
    // The task of the model itself waits as long as the provider asked for.
    place.done(["retry", asked.trim()]);
    place.done(["resume", "labels"]);

    // By hand: neither starts.
    place.done(["account", "hold", "team"]);
    let before = server.requests().len();
    let both = ["labels", "shout"].map(|queue| place.done(["submit", queue, "x", "--payload", "\"hi\""]));
    place.done(["submit", "other", "run", "--wait"]);
    assert!(both.iter().all(|id| task(&place, id)["state"] == "queued"));
    assert_eq!(server.requests().len(), before);
    place.done(["account", "release", "team"]);
    until("the agent runs again", || task(&place, &both[1])["state"] == "completed");
}

#[test]
fn bad_credentials_and_quota_stop_the_queue_after_one_request_for_each_worker() {
    for (status, error, words) in [
        (401, r#"{"error":{"code":"invalid_api_key","message":"Incorrect API key"}}"#, "Incorrect API key"),
        (402, r#"{"error":{"type":"billing_error","message":"No credit is left"}}"#, "No credit is left"),
        (
            429,
            r#"{"error":{"code":"insufficient_quota","message":"You exceeded your quota"}}"#,
            "You exceeded your quota",
        ),
    ] {
        stops_the_queue(status, error, words);
    }
}

fn stops_the_queue(status: u16, error: &'static str, words: &str) {
    let server = LlmServer::start(move |_| LlmReply::json(status, error));
    let place = place(&server, "max_workers = 2\n");
    let lines: String =
        (0..20).map(|number| format!("{}\n", json!({"payload": format!("p{number}")}))).collect();
    place.write("tasks.jsonl", lines);
    place.done(["submit", "labels", "ask", "--jsonl", "tasks.jsonl"]);
    let _node = up(&place, &[]);
    until("the queue is paused", || place.json(["queue", "show", "labels"])["paused"] != Value::Null);
    assert!(place.done(["queue", "show", "labels"]).contains(words), "{words}");
    assert!((1..=2).contains(&server.requests().len()), "{}", server.requests().len());
    assert_eq!(place.json(["stats"])["tasks"]["queued"], 20, "none has failed");
}

#[test]
fn a_broken_answer_is_in_the_costs_as_an_estimate() {
    let server = LlmServer::start(|request| {
        let events = chat_events("one two three", 1_000, 100);
        match request.number {
            1 => LlmReply::stream(events[..2].to_vec()).ending(ReplyEnd::Cut),
            _ => LlmReply::stream(events),
        }
    });
    let place = place(&server, "retry = { base = \"10ms\" }\n");
    let _node = up(&place, &[]);
    let out = place.run(["submit", "labels", "ask", "--payload", "\"count\"", "--key", "k", "--wait"]);
    assert_eq!(out.out.trim(), "\"one two three\"", "{out:?}");
    assert_eq!(server.requests().len(), 2);
    let log = place.done(["logs", "key:k", "--queue", "labels"]);
    assert!(
        log.contains("its cost is estimated") && log.contains("this request is paid for besides"),
        "{log}"
    );
    let cost = &place.json(["cost", "--by", "model"])["costs"][0];
    assert!(cost["estimated_usd"].as_f64().is_some_and(|usd| usd > 0.0), "{cost}");
    assert!(cost["cost_usd"].as_f64().is_some_and(|usd| usd > 0.002), "{cost}");
}

/// Starts a node that has a state folder of its own.
fn up_with_state(place: &Place) -> Running {
    let mut command = place.command(["up"]);
    command.env("XDG_STATE_HOME", place.folder().join("state"));
    let node = Running::start(command);
    node.line();
    node
}

#[test]
fn a_node_killed_while_an_answer_arrives_has_its_cost_counted_as_an_estimate_and_against_the_budget() {
    // A prompt of ten thousand tokens, about, at a dollar for a million.
    const PROMPT_USD: f64 = 0.01;
    let prompt = "word ".repeat(8_000);
    // A model that streams one word at a time and does not end its answer.
    let server = LlmServer::start(|_| {
        let events = chat_events(&"answer ".repeat(20), 10_000, 20);
        LlmReply::stream(events[..10].to_vec()).ending(ReplyEnd::Drip(Duration::from_millis(200)))
    });
    let place = place(&server, "retry = { base = \"10ms\" }\nbudget = { per_task = \"$0.016\" }\n");
    let node = up_with_state(&place);
    let id = place.done(["submit", "labels", "ask", "--payload", &json!(prompt).to_string()]);
    until("the answer arrives", || place.done(["logs", id.trim()]).contains("[assistant] answer"));
    node.signal(ProcessSignal::KILL);
    let costs = |by: &str| place.json(["cost", "--by", by])["costs"].clone();
    assert_eq!(costs("model"), json!([]), "its usage was not reported");

    let _again = up_with_state(&place);
    until("the budget is reached", || task(&place, &id)["state"] == "failed");
    let failed = task(&place, &id);
    assert!(failed.to_string().contains("its budget is $0.02"), "{failed}");
    assert_eq!(server.requests().len(), 2, "one alone does not reach the budget");
    let log = place.done(["logs", id.trim()]);
    assert!(log.contains("counts what the attempt before it had used when it was lost"), "{log}");
    assert!(log.contains("this request is paid for besides"), "{log}");
    let of_model = &costs("model")[0];
    let (cost, estimated) = (of_model["cost_usd"].as_f64(), of_model["estimated_usd"].as_f64());
    assert!(
        cost.is_some_and(|usd| usd > 2.0 * PROMPT_USD && usd < 3.0 * PROMPT_USD),
        "two prompts: {of_model}"
    );
    assert_eq!(cost, estimated, "{of_model}");
    assert_eq!(std::fs::read_dir(place.folder().join("state/ostler/llm")).expect("a folder").count(), 0);
}

#[test]
fn a_missing_key_and_a_plain_connection_are_found() {
    let place = Place::new();
    place.write(
        "ostler.toml",
        "[pool.a]\nexecutor = \"llm\"\napi = \"anthropic\"\nmodel = \"m\"\nkey_variable = \"NO_SUCH_KEY\"\n\
         [pool.b]\nexecutor = \"llm\"\napi = \"openai\"\nbase_url = \"http://192.0.2.1:8000\"\n",
    );
    let checked = place.run(["config", "--check"]);
    let said = format!("{}{}", checked.out, checked.err);
    assert!(said.contains("go to 192.0.2.1 without encryption"), "{said}");
    let doctor = place.run(["doctor"]);
    assert!(doctor.out.contains("the variable NO_SUCH_KEY is not set"), "{doctor:?}");
    let refused = place.run(["map", "--pool", "a", "--prompt", "x {{ item }}", ":::", "1"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("NO_SUCH_KEY is not set"), "{refused:?}");
    assert!(!place.store().exists());
}
