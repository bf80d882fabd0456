//! `ostler cancel` and `ostler retry`, pause and resume.

use std::process::Stdio;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, Outcome, Overrides, Priority, Task};
use ostler_store::calls::NewTask;
use ostler_store::unique::Unique;
use ostler_store::views::TaskRef;
use ostler_store::{Clock as _, Store as _, SystemClock};
use ostler_testkit::Ids;
use serde_json::Value;

use crate::hands::Hands;
use crate::ostler::{Place, Terminal};

fn state(place: &Place, id: &str) -> String {
    place.json(["show", id])["state"].as_str().expect("a state").to_owned()
}

#[test]
fn a_waiting_task_is_cancelled_and_a_running_one_is_asked() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let running = hands.enqueue("mail", "send", "1").to_string();
    let held = hands.begin("mail");
    let waiting = hands.enqueue("mail", "send", "2").to_string();
    let said = place.done(["cancel", &waiting, &running]);
    assert_eq!(said, format!("{waiting} cancelled\n{running} asked to stop\n"));
    assert_eq!(state(&place, &waiting), "cancelled");
    let shown = place.json(["show", &running]);
    assert_eq!(shown["state"], "running");
    assert!(shown["cancel_requested_at"].is_string(), "{shown}");
    hands.end(held, Outcome::Cancelled, None);
    assert_eq!(state(&place, &running), "cancelled");
    // Repeating it changes nothing, and is not an error.
    place.done(["cancel", &waiting]);
}

#[test]
fn what_is_done_is_not_cancelled_and_what_is_not_there_is_not_found() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.enqueue("mail", "send", "1");
    let done = hands.complete("mail", "1").to_string();
    place.refused(["cancel", &done], 2, "is completed");
    place.refused(["cancel", "01JC8Z0Q4M9T7N3V5X1B2D6F8H"], 4, "there is no task 01JC8Z0Q4M9T7N3V5X1B2D6F8H");
    place.refused(
        ["cancel", "key:missing"],
        4,
        "there is no task with the key \"missing\" in the queue \"default\"",
    );
    // If one of two tasks does not exist, the other one is cancelled anyway.
    let other = hands.enqueue("mail", "send", "2").to_string();
    place.refused(["cancel", "01JC8Z0Q4M9T7N3V5X1B2D6F8H", &other], 4, "there is no task");
    assert_eq!(state(&place, &other), "cancelled");
}

#[test]
fn a_task_is_named_by_its_key() {
    let place = Place::new();
    let id = place.done(["submit", "mail", "send", "--key", "welcome"]);
    let answer = place.json(["cancel", "key:welcome", "--queue", "mail"]);
    assert_eq!((&answer[0]["id"], &answer[0]["result"]), (&id.trim().into(), &"cancelled".into()));
}

#[test]
fn filters_ask_first_and_without_a_terminal_want_a_yes() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let mail = hands.enqueue("mail", "send", "1").to_string();
    let docs = hands.enqueue("docs", "scan", "1").to_string();
    place.refused(["cancel", "--queue", "mail"], 2, "--yes");
    assert_eq!(state(&place, &mail), "queued");
    assert_eq!(place.done(["cancel", "--queue", "mail", "--yes"]), "1 task: 1 cancelled\n");
    assert_eq!((state(&place, &mail), state(&place, &docs)), ("cancelled".into(), "queued".into()));
    assert_eq!(place.done(["cancel", "--queue", "mail", "--yes"]), "no tasks match\n");
    place.refused(["cancel"], 2, "name tasks by id or key:K, or select them with filters");
    place.refused(["cancel", &docs, "--kind", "scan"], 2, "not both");
}

#[test]
fn on_a_terminal_the_answer_decides() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    for (answer, left) in [("n", "queued"), ("", "queued"), ("y", "cancelled")] {
        let mut terminal = Terminal::open();
        let mut command = place.command(["cancel", "--kind", "send"]);
        command.stdin(terminal.end()).stderr(terminal.end()).stdout(Stdio::null());
        terminal.type_line(answer);
        let status = command.status().expect("it runs");
        drop(command);
        assert!(status.success(), "{status}");
        assert!(terminal.screen().contains("cancel 1 task? [y/N]"));
        assert_eq!(state(&place, &id), left, "after \"{answer}\"");
    }
}

#[test]
fn what_failed_gets_another_go_with_its_steps_or_without() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    let task = hands.begin("mail");
    hands.step(task.lease.as_ref(), "fetched", r#"{"n":1}"#);
    hands.end(task, Outcome::Failed(Failure::new(ErrorClass::Permanent, "no")), None);
    assert_eq!(place.done(["retry", &id]), format!("{id} queued again\n"));
    let shown = place.json(["show", &id]);
    assert_eq!((&shown["waits_for"], &shown["steps"]["fetched"]["n"]), (&"replayed".into(), &1.into()));
    hands.fail("mail", "no");
    place.done(["retry", &id, "--from-scratch", "--payload", "[2]"]);
    let shown = place.json(["show", &id]);
    assert_eq!((&shown["steps"], &shown["payload"][0]), (&serde_json::json!({}), &2.into()));
}

#[test]
fn what_waits_is_due_now_and_what_runs_is_left_alone() {
    let place = Place::new();
    let later = place.done(["submit", "mail", "send", "--in", "9h"]);
    assert_eq!(place.done(["retry", later.trim()]), format!("{} due now\n", later.trim()));
    assert_eq!(place.done(["retry", later.trim()]), format!("{} already queued\n", later.trim()));
    let hands = Hands::join(&place);
    let _held = hands.begin("mail");
    place.refused(["retry", later.trim()], 2, "is running");
}

#[test]
fn what_is_completed_is_copied_only_when_asked() {
    let place = Place::new();
    let first = place.done(["submit", "mail", "send", "--key", "k", "--payload", "[1]", "--attempts", "7"]);
    let hands = Hands::join(&place);
    hands.complete("mail", "1");
    place.refused(["retry", first.trim()], 2, "--again");
    let copy = place.done(["retry", first.trim(), "--again"]);
    let shown = place.json(["show", copy.trim()]);
    assert_ne!(copy, first);
    assert_eq!(
        (&shown["state"], &shown["payload"][0], &shown["key"]),
        (&"queued".into(), &1.into(), &Value::Null)
    );
    assert_eq!(state(&place, first.trim()), "completed");
    let answer = place.json(["retry", first.trim(), "--again", "--payload", "[3]"]);
    let second = answer[0]["copy"].as_str().expect("a copy").to_owned();
    assert_eq!(
        (&answer[0]["result"], &place.json(["show", &second])["payload"][0]),
        (&"copied".into(), &3.into())
    );
}

#[test]
fn a_copy_has_all_that_was_said_about_the_original_but_its_key_and_its_moments() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let now = SystemClock.now();
    let original = NewTask {
        priority: Priority::new(7).expect("a priority"),
        unique: Some(Unique::new("once")),
        limit_key: Some("acme".to_owned()),
        overrides: Overrides { attempts: Some(9), timeout: Some(Duration::from_secs(3)), ..Overrides::NONE },
        folder: Some("/srv/acme".to_owned()),
        not_after: Some(now.after(Duration::from_secs(900))),
        deadline: Some(now.after(Duration::from_secs(900))),
        cost: Some(40),
        ..NewTask::new(Ids::new(71).task(), "mail", "send", "[1]")
    };
    let id = original.id.to_string();
    hands.wait(hands.store.enqueue(vec![original])).expect("it is enqueued");
    hands.complete("mail", "1");
    let copy = place.done(["retry", &id, "--again"]);
    let task = |id: &str| {
        let which = TaskRef::Id(id.trim().parse().expect("an id"));
        hands.wait(hands.store.show(which)).expect("the store answers").expect("it is there").task
    };
    let (original, copy) = (task(&id), task(&copy));
    let kept =
        |task: &Task| (task.priority, task.limit_key.clone(), task.overrides, task.folder.clone(), task.cost);
    assert_eq!(kept(&copy), kept(&original));
    assert_eq!((copy.queue, copy.kind, copy.payload), (original.queue, original.kind, original.payload));
    assert_eq!((copy.unique_key, copy.not_after, copy.deadline), (None, None, None));
}

#[test]
fn retry_by_filters_takes_what_failed_or_was_cancelled() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.enqueue("mail", "send", "1");
    hands.fail("mail", "no");
    let cancelled = hands.enqueue("mail", "send", "2").to_string();
    place.done(["cancel", &cancelled]);
    hands.enqueue("mail", "send", "3");
    assert_eq!(place.done(["retry", "--queue", "mail", "--yes"]), "2 tasks: 2 queued again\n");
}

#[test]
fn a_paused_queue_says_so_until_it_is_resumed() {
    let place = Place::new();
    assert_eq!(
        place.json(["pause", "mail", "--reason", "the provider is down"])["paused"],
        "the provider is down"
    );
    place.done(["submit", "mail", "send"]);
    assert!(place.done(["stats"]).contains("paused     mail: the provider is down"));
    assert_eq!(place.done(["resume", "mail"]), "mail is resumed\n");
    assert_eq!(place.done(["resume", "mail"]), "mail was not paused\n");
    assert!(!place.done(["stats"]).contains("paused"));
}
