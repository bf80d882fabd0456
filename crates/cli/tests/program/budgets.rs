//! Budgets and costs: with real nodes and workers that report what they spend, and by hand.

use std::io::Write as _;

use ostler_core::{Cost, EventBody, JobId, Outcome, Usage};
use ostler_store::Store as _;
use ostler_store::jobs::{NewJob, queue_of};
use ostler_testkit::ProcessSignal;
use serde_json::{Value, json};

use crate::hands::Hands;
use crate::json::has_exactly;
use crate::ostler::{Place, Running};
use crate::up::up;
use crate::workers::until;

const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python");
const COST: [&str; 11] = [
    "by",
    "key",
    "attempt",
    "runs",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
    "estimated_usd",
];
const BUDGET: [&str; 9] = [
    "total_usd",
    "per_day_usd",
    "reserve_usd",
    "spent_usd",
    "spent_today_usd",
    "reserved_usd",
    "in_flight",
    "expected_usd",
    "over_usd",
];

/// A worker that pays the amount of its payload and records it in a file, as a provider would bill it. It reports tokens, which the node
/// prices: a dollar for a million. Tasks that run together wait for each other first; the first attempt of a task that hangs does not end.
const WORKER: &str = r#"
import os, time
from ostler import worker

@worker.task("ask")
def ask(payload, ctx):
    bills = os.open(os.environ["BILLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(bills, b"%d\n" % payload["cents"])
    while len(open(os.environ["BILLS"]).readlines()) < payload.get("together", 0):
        time.sleep(0.01)
    ctx.usage(model="m", input_tokens=payload["cents"] * 10000)
    while payload.get("hangs") and ctx.attempt == 1:
        time.sleep(0.01)

worker.run()
"#;

/// A node's folder with workers that note their bills in that of `bills`.
fn configure(place: &Place, bills: &Place, workers: u32, lines: &str) {
    let worker = place.write("worker.py", WORKER);
    let config = format!(
        "[lease]\nttl = \"20s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[prices.m]\ninput = \"$1\"\noutput = \"$1\"\n\
         [pool.asks]\nexecutor = \"process\"\ncommand = [\"python3\", \"{}\"]\nmin_workers = {workers}\n\
         max_workers = {workers}\nenv = {{ PYTHONPATH = \"{SDK}\", PYTHONDONTWRITEBYTECODE = \"1\", BILLS = \"{}\" }}\n{lines}\n",
        worker.display(),
        bills.folder().join("bills").display(),
    );
    place.write("ostler.toml", config);
}

/// What was billed, in cents.
fn billed(place: &Place) -> Vec<u64> {
    let bills = std::fs::read_to_string(place.folder().join("bills")).unwrap_or_default();
    bills.lines().map(|line| line.parse().expect("a number")).collect()
}

fn submit(place: &Place, payloads: impl Iterator<Item = Value>) {
    let mut lines = Vec::new();
    for payload in payloads {
        writeln!(lines, "{}", json!({ "payload": payload })).expect("memory takes it");
    }
    let ran = place.run_with(["submit", "--jsonl", "-", "asks", "ask"], &lines);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

fn queue(place: &Place) -> Value {
    place.json(["queue", "show", "asks"])
}

/// Waits until a reached budget has paused the queue, and returns the queue.
fn paused(place: &Place) -> Value {
    until("the budget is reached", || {
        let queue = queue(place);
        queue["paused"].as_str().is_some_and(|reason| reason.contains("is reached")).then_some(queue)
    })
}

#[test]
fn eight_workers_spend_a_dollar_and_no_more_and_a_larger_budget_goes_on() {
    let place = Place::new();
    configure(&place, &place, 8, "budget = { total = \"$1\" }");
    submit(&place, (0..50).map(|_| json!({"cents": 10})));
    let _node = up(&place, &[]);
    let reached = paused(&place);
    let reason = "its budget of $1.00 is reached: $1.00 spent, and one task is expected to cost $0.10";
    assert_eq!(reached["paused"], reason);
    assert_eq!(billed(&place), [10; 10]);
    has_exactly(&reached["budget"], &BUDGET);
    assert_eq!((&reached["budget"]["spent_usd"], &reached["budget"]["over_usd"]), (&json!(1.0), &json!(0.0)));
    place.done(["queue", "set", "asks", "--budget", "2"]);
    until("it goes on", || (billed(&place).len() == 20).then_some(()));
    assert_eq!(paused(&place)["budget"]["spent_usd"], 2.0);
    assert_eq!(billed(&place).len(), 20);
    let costs = place.json(["cost", "--by", "model"]);
    assert_eq!((&costs["costs"][0]["key"], &costs["total"]["cost_usd"]), (&json!("m"), &json!(2.0)));
}

#[test]
fn unequal_tasks_pass_a_budget_by_the_excess_of_those_in_flight_and_it_is_shown() {
    let place = Place::new();
    configure(&place, &place, 4, "budget = { total = \"$1\", reserve = \"$0.25\" }");
    let payload = |cents| json!({"cents": cents, "together": 4});
    submit(&place, [40, 20, 30, 25, 10, 10].into_iter().map(payload));
    let _node = up(&place, &[]);
    let reached = paused(&place);
    // Four quarters are reserved when all four are in flight; what one of them leaves over is too little for a fifth.
    let (spent, over) =
        (billed(&place).iter().sum::<u64>(), reached["budget"]["over_usd"].as_f64().expect("a number"));
    assert_eq!((spent, (over * 100.0).round()), (115, 15.0));
    let text = place.done(["queue", "show", "asks"]);
    assert!(text.contains("$1.15, $0.15 over the budget; $0.00 reserved for 0 in flight"), "{text}");
}

#[test]
fn what_a_killed_node_had_in_flight_is_counted() {
    let place = Place::new();
    configure(&place, &place, 1, "budget = { total = \"$1\", reserve = \"$0.10\" }");
    submit(&place, std::iter::once(json!({"cents": 30, "hangs": true})));
    let node: Running = up(&place, &["--name", "anna"]);
    until("it has spent", || (queue(&place)["budget"]["spent_usd"] == 0.3).then_some(()));
    assert_eq!((&queue(&place)["budget"]["in_flight"], billed(&place).len()), (&json!(1), 1));
    node.signal(ProcessSignal::KILL);
    drop(node);
    let _next = up(&place, &["--name", "bert"]);
    until("the task is done", || (place.json(["stats"])["tasks"]["completed"] == 1).then_some(()));
    let budget = queue(&place)["budget"].clone();
    let spent = |name: &str| budget[name].clone();
    assert_eq!(
        (spent("spent_usd"), spent("reserved_usd"), spent("in_flight")),
        (json!(0.6), json!(0.0), json!(0))
    );
    let id = place.json(["ls"])[0]["id"].as_str().expect("an id").to_owned();
    let attempts = place.json(["show", &id])["attempts"].clone();
    let shown = |at: usize| (attempts[at]["cost_usd"].clone(), attempts[at]["cost_estimated"].clone());
    assert_eq!((shown(0), shown(1)), ((json!(0.3), json!(true)), (json!(0.3), json!(false))));
}

#[test]
fn two_nodes_on_a_server_do_not_pass_a_budget_together() {
    let here = Place::on_server();
    let there = here.elsewhere();
    for place in [&here, &there] {
        configure(place, &here, 4, "budget = { total = \"$1\" }");
    }
    submit(&here, (0..40).map(|_| json!({"cents": 10})));
    let _nodes = [up(&here, &["--name", "anna"]), up(&there, &["--name", "bert"])];
    assert_eq!(paused(&there)["budget"]["spent_usd"], 1.0);
    assert_eq!(billed(&here), [10; 10]);
}

// ---- by hand ------------------------------------------------------------------------------------------

fn spend(hands: &Hands, queue: &str, model: &str, cents: u64) {
    let task = hands.begin(queue);
    let cost = Some(Cost::from_nanos(cents * 10_000_000));
    let usage =
        Usage { model: Some(model.to_owned()), input_tokens: 7, output_tokens: 2, cost, ..Usage::default() };
    let event = EventBody::Usage(usage);
    hands.wait(hands.store.append(task.lease.as_ref(), vec![event])).expect("it is appended");
    hands.end(task, Outcome::Success, None);
}

#[test]
fn costs_are_shown_by_every_dimension() {
    let place = Place::new();
    place.refused(["cost"], 3, "there is no store");
    let hands = Hands::join(&place);
    assert_eq!(place.done(["cost"]), "nothing was spent\n");
    let mail = hands.enqueue("mail", "send", "{}");
    spend(&hands, "mail", "big", 50);
    let job = JobId(mail.0);
    let new = NewJob { id: job, name: "j".into(), fingerprint: "f".into(), spec: "{}".into(), items: 1 };
    hands.wait(hands.store.put_job(new)).expect("the job is made");
    hands.enqueue(&queue_of(job), "send", "{}");
    spend(&hands, &queue_of(job), "small", 25);
    let costs = |words: &[&str]| place.json([&["cost"], words].concat());
    let rows = |words: &[&str]| -> Vec<(Value, f64)> {
        let report = costs(words);
        let rows = report["costs"].as_array().expect("a list");
        rows.iter().map(|row| (row["key"].clone(), row["cost_usd"].as_f64().expect("a number"))).collect()
    };
    let report = costs(&["--by", "day"]);
    has_exactly(&report, &["costs", "total"]);
    has_exactly(&report["total"], &COST);
    assert_eq!((&report["total"]["by"], &report["total"]["cost_usd"]), (&json!("total"), &json!(0.75)));
    let day = report["costs"][0]["key"].as_str().expect("a date").to_owned();
    assert_eq!(day.len(), "2026-11-01".len(), "{day}");
    assert_eq!(rows(&["--by", "model"]), [(json!("big"), 0.5), (json!("small"), 0.25)]);
    assert_eq!(rows(&["--by", "job"]), [(json!(job.to_string()), 0.25)]);
    assert_eq!(rows(&["--by", "queue", "--queue", "mail"]), [(json!("mail"), 0.5)]);
    assert_eq!(rows(&["--by", "pool"]), [(Value::Null, 0.25), (json!("mail"), 0.5)]);
    assert_eq!(rows(&["--by", "account"]), [(Value::Null, 0.75)]);
    assert_eq!(rows(&["--by", "task"])[1], (json!(mail.to_string()), 0.5));
    assert_eq!(costs(&["--by", "attempt"])["costs"][1]["attempt"], 1);
    assert_eq!(rows(&["--since", &day]).len(), 1);
    assert_eq!(rows(&["--until", "2d"]), []);
    let text = place.done(["cost", "--by", "model"]);
    assert!(text.starts_with("MODEL  COST   ESTIMATED  RUNS  INPUT  OUTPUT"), "{text}");
    assert!(text.contains("\nbig    $0.50             1     7      2"), "{text}");
    assert!(text.contains("\ntotal  $0.75             2     14     4"), "{text}");
}

#[test]
fn budgets_are_set_in_parts_shown_and_removed() {
    let place = Place::new();
    for (words, sentence) in [
        (&["--reserve", "1"][..], "--reserve goes with --budget"),
        (&["--budget", "much"], "expected an amount in US dollars"),
        (&["--budget", "0"], "must be more than $0"),
        (&["--budget", "-5"], ""),
    ] {
        place.refused([&["queue", "set", "mail"], words].concat(), 2, sentence);
    }
    assert!(!place.store().exists(), "a refused change creates no store");
    place.refused(["cost", "--by", "colour"], 2, "expected one of task, attempt, job");
    place.refused(["cost", "--since", "yesterday"], 2, "a date such as 2026-11-01");
    let set = |words: &[&str]| place.json([&["queue", "set", "mail"], words].concat())["budget"].clone();
    let limits = |budget: &Value| {
        ["total_usd", "per_day_usd", "reserve_usd"].map(|name| budget[name].as_f64().map(|usd| usd * 100.0))
    };
    assert_eq!(limits(&set(&["--budget", "$5", "--reserve", "0.5"])), [Some(500.0), None, Some(50.0)]);
    assert_eq!(limits(&set(&["--budget-per-day", "1"])), [Some(500.0), Some(100.0), Some(50.0)]);
    assert_eq!(limits(&set(&["--budget", "none"])), [None, Some(100.0), Some(50.0)]);
    let text = place.done(["queue", "show", "mail"]);
    assert!(text.contains("budget       $1.00 a day; a task is expected to cost $0.50\n"), "{text}");
    assert!(text.contains("  spent      $0.00, $0.00 today; $0.00 reserved for 0 in flight\n"), "{text}");
    assert_eq!(set(&["--budget-per-day", "none"]), Value::Null);
}
