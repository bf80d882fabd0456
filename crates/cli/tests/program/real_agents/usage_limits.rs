//! Usage limits of the real agents: one refusal holds both jobs of an account until it resets, and nothing is asked meanwhile.

use std::collections::BTreeSet;

use ostler_store::{Clock as _, SystemClock};
use serde_json::{Value, json};

use super::llm::LlmRequest;
use super::site::{Agent, Site, items, seconds};
use super::{in_time, rounds};

/// The workers of both jobs.
const WORKERS: usize = 4;
/// Requests that are answered before the limit is reached.
const ALLOWED: usize = 3;
/// Added to the reset, because clocks differ.
const MARGIN_SECONDS: i64 = 60;
/// How far from it a hold may end: agents write times of day in minutes.
const MINUTE: i64 = 60;
const PROMPT: &str = "[[item {{ item }}]] Say some words.";
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// Seconds since 1970.
fn now() -> i64 {
    SystemClock.now().millis() / 1_000
}

fn account(site: &Site) -> Value {
    site.place.json(["account", "show", "shared"])
}

/// Two jobs of an account, of which the server answers a few requests. `zone` is that of the node.
fn hold_both_jobs(agent: Agent, count: u64, zone: &str, resets_at: i64) {
    let lines = "account = \"shared\"\nretry = { attempts = 1 }";
    let Some(site) = Site::new(&[(agent, lines)]) else { return };
    // In the long form the limit resets by itself.
    let resets_at = if rounds().is_some() && zone == "UTC" { now() + 45 } else { resets_at };
    site.llm.set(
        &json!({"subscription": true, "refuse": "usage_limit", "after": ALLOWED, "resets_at": resets_at}),
    );
    let _node = site.up_with(&[("TZ", zone)]);
    let jobs = ["a", "b"]
        .map(|prefix| site.detach(agent, &["-j2", "--name", prefix], PROMPT, &items(prefix, count)));
    let queues = jobs.clone().map(|job| site.place.json(["job", "show", &job])["queue"].clone());
    let held = in_time("the account of both jobs is held, and nothing of it runs", || {
        let account = account(&site);
        let of = account["queues"].as_array().expect("a list");
        let has_both = queues.iter().all(|queue| of.contains(queue));
        (has_both && account["held"].is_object() && account["running"] == 0).then_some(account)
    });
    if agent != Agent::CodexExec {
        assert_eq!(held["usage"]["used"], 1.0, "the allowance that is used up is shown: {held}");
    }
    for job in &jobs {
        let shown = site.place.json(["job", "show", job]);
        let waiting =
            site.place.json(["ls", "--queue", shown["queue"].as_str().expect("a name"), "--state", "queued"]);
        let waiting = waiting.as_array().expect("a list");
        assert!(!waiting.is_empty(), "{shown}");
        let one = site.place.json(["show", waiting[0]["id"].as_str().expect("an id")]);
        assert_eq!(one["held"]["waits_for"], "usage_limit", "{one}");
    }
    let until = seconds(&held["held"]["until"]) as i64;
    assert!(
        (until - resets_at - MARGIN_SECONDS).abs() <= MINUTE,
        "held until {until}, and it resets at {resets_at}"
    );

    let (answered, refused) = (site.llm.answered(200).len(), site.llm.answered(429).len());
    assert_eq!(answered, ALLOWED);
    assert!((1..=WORKERS).contains(&refused), "{refused} were refused: those in flight at the first refusal");
    // A task of another pool completes, so the node had every opportunity.
    site.place.done(["submit", "other", "run", "--wait"]);
    assert_eq!(site.llm.requests().len(), answered + refused, "nothing is asked during the hold");
    site.llm.set(&json!({"subscription": true}));
    if resets_at - now() > 60 {
        site.place.done(["account", "release", "shared"]);
    }
    for job in &jobs {
        site.all_done(job);
    }
    let after = &site.llm.requests()[answered + refused..];
    let first = after.iter().map(|request| request.at).fold(f64::INFINITY, f64::min);
    if rounds().is_some() && zone == "UTC" {
        assert!(first >= resets_at as f64, "the first one after the hold came at {first}");
        println!(
            "{}: {answered} answered, {refused} refused, 0 until {resets_at}, then at {first}",
            agent.name()
        );
    }
    no_attempt_was_used(&site, &jobs, refused);
}

/// Each item was answered once, those that were refused in the session that they had before, and no failure was counted.
fn no_attempt_was_used(site: &Site, jobs: &[String], refused: usize) {
    let mut resumed = 0;
    for result in jobs.iter().flat_map(|job| site.results(job)) {
        let requests = site.llm.of(result["item"].as_str().expect("a text"));
        let of = |status| {
            requests.iter().filter(|one| one.answer.is_some_and(|answer| answer.status == status)).count()
        };
        assert_eq!(of(200), 1, "{requests:?}");
        let sessions: BTreeSet<&str> =
            requests.iter().map(|request: &LlmRequest| request.session.as_str()).collect();
        assert_eq!(sessions, BTreeSet::from([result["session_id"].as_str().expect("an id")]), "{requests:?}");
        resumed += of(429);
        let task = site.place.json(["show", result["task"].as_str().expect("an id")]);
        assert_eq!((&task["failures"], &task["state"]), (&json!(0), &json!("completed")), "{task}");
        assert_eq!(task["attempts"].as_array().map(Vec::len), Some(1 + of(429)), "{task}");
    }
    assert_eq!(resumed, refused);
}

#[test]
fn a_usage_limit_of_claude_holds_both_jobs_and_they_go_on_in_their_sessions() {
    hold_both_jobs(Agent::Claude, 10, "UTC", now() + HOUR);
}

#[test]
fn a_usage_limit_of_codex_holds_both_jobs_and_they_go_on_in_their_sessions() {
    hold_both_jobs(Agent::Codex, 10, "UTC", now() + HOUR);
}

/// `codex exec` says when it resets in a sentence, in local time.
#[test]
fn a_usage_limit_that_resets_after_midnight_of_another_zone_is_read_from_a_sentence() {
    const KOLKATA: i64 = 5 * HOUR + HOUR / 2;
    let midnight = (now() + KOLKATA) / DAY * DAY + DAY - KOLKATA;
    hold_both_jobs(Agent::CodexExec, 5, "Asia/Kolkata", midnight + 10 * MINUTE);
}
