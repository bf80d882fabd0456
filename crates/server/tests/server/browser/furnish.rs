//! What there is to see: something in every table of every view; a transcript of 20 MB; and texts of a hostile submitter.

use std::time::Duration;

use ostler_core::{
    AccountReading, Budget, Cost, ErrorClass, EventBody, Failure, JobId, Outcome, Role, SessionId, TaskId,
    ToolStatus, Usage, Worker, WorkerState,
};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Kinds, NewTask, QueueChange, Ran, Report};
use ostler_store::jobs::queue_of;
use ostler_store::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::world::World;

/// Events of the long transcript, and the bytes of each.
const LONG_EVENTS: usize = 10_000;
const LONG_TEXT: usize = 2_000;
const EVENTS_AT_ONCE: usize = 500;

/// What a scenario needs to know of the furniture.
pub(super) struct Furniture {
    /// A running task with a conversation.
    pub(super) talk: String,
    /// A dead letter.
    pub(super) letter: String,
    /// A job whose pilot waits for approval.
    pub(super) job: String,
    /// A task that waits for its next attempt.
    pub(super) retry: String,
    /// A task that a paused queue holds back.
    pub(super) ready: String,
}

/// Claims tasks of a queue.
pub(super) async fn claim(world: &World, session: SessionId, queue: &str, limit: usize) -> Vec<Claimed> {
    let claim = Claim { session, queue: queue.to_owned(), kinds: Kinds::Any, limit };
    match world.store.claim(claim).await.expect("it is answered") {
        ClaimAnswer::Tasks { tasks, .. } => tasks,
        ClaimAnswer::SessionEnded => panic!("the session is over"),
    }
}

async fn submit(world: &World, count: usize, queue: &str, kind: &str) -> Vec<TaskId> {
    let tasks = world.ids.new_tasks(count, queue, kind);
    let ids = tasks.iter().map(|task| task.id).collect();
    world.store.enqueue(tasks).await.expect("they are accepted");
    ids
}

async fn set(world: &World, queue: &str, change: QueueChange) {
    world.store.configure(queue, vec![change]).await.expect("it is set");
}

fn dollars(cents: u64) -> Cost {
    Cost::from_nanos(cents * 10_000_000)
}

fn spent(cents: u64) -> EventBody {
    let model = Some("opus".to_owned());
    EventBody::Usage(Usage {
        model,
        input_tokens: 1_200,
        output_tokens: 340,
        cost: Some(dollars(cents)),
        ..Usage::default()
    })
}

/// Furnishes a node.
pub(super) async fn furnish(world: &World) -> Furniture {
    let node = world.node().await;
    let waits = submit(world, 2, "reports", "render").await;
    set(world, "reports", QueueChange::Pause("the database is moved tonight".to_owned())).await;
    submit(world, 40, "thumbnails", "resize").await;
    world.finish(claim(world, node, "thumbnails", 30).await, &Outcome::Success).await;
    let letter = dead_letters(world, node).await;
    let retry = waiting_for_retry(world, node).await;
    let talk = conversation(world, node).await;
    let job = job_with_pilot(world, node).await;
    workers(world, node, talk).await;
    world
        .put(
            "/api/v1/schedules/nightly",
            &json!({"queue": "reports", "kind": "render", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}),
        )
        .await;
    world
        .put("/api/v1/schedules/ping", &json!({"queue": "thumbnails", "kind": "resize", "every": "10m"}))
        .await;
    world.post("/api/v1/schedules/ping/pause", "").await.is(200);
    world.post("/api/v1/queues/webhooks/breaker/open", r#"{"for":"1h"}"#).await.is(200);
    Furniture {
        talk: talk.to_string(),
        letter: letter.to_string(),
        job,
        retry: retry.to_string(),
        ready: waits[0].to_string(),
    }
}

/// Two causes: one with twelve letters, whose messages differ in a number, and one with three.
async fn dead_letters(world: &World, node: SessionId) -> TaskId {
    submit(world, 15, "webhooks", "deliver").await;
    let mut letters = claim(world, node, "webhooks", 15).await;
    let first = letters[0].lease.task();
    for (at, letter) in letters.drain(..).enumerate() {
        let why = if at < 12 {
            format!("connection refused by 10.0.0.{at}")
        } else {
            "no such customer".to_owned()
        };
        let class = ErrorClass::Permanent;
        world.finish(vec![letter], &Outcome::Failed(Failure::new(class, why))).await;
    }
    first
}

async fn waiting_for_retry(world: &World, node: SessionId) -> TaskId {
    let id = submit(world, 1, "mirrors", "fetch").await[0];
    let claimed = claim(world, node, "mirrors", 1).await;
    let hour = Some(Duration::from_secs(3_600));
    let failure = Failure { retry_after: hour, ..Failure::new(ErrorClass::Transient, "the mirror is busy") };
    world.finish(claimed, &Outcome::Failed(failure)).await;
    id
}

/// A conversation with a folded tool call, in a queue with a budget and an account.
async fn conversation(world: &World, node: SessionId) -> TaskId {
    let budget = Budget { total: Some(dollars(100)), ..Budget::default() };
    set(world, "review", QueueChange::Budget(Some(budget))).await;
    set(world, "review", QueueChange::Account(Some("anthropic".to_owned()))).await;
    submit(world, 1, "review", "agent").await;
    let reading =
        AccountReading { window: "five_hour".to_owned(), utilization_permille: 930, resets_at: None };
    let ran = Some(Ran { worker: world.ids.worker(), took: Duration::from_millis(7) });
    for claimed in claim(world, node, "review", 1).await {
        world.store.append(claimed.lease.as_ref(), vec![spent(42)]).await.expect("they are written");
        let report = Report {
            lease: claimed.lease,
            ran,
            outcome: Outcome::Success,
            output: None,
            reading: Some(reading.clone()),
        };
        world.store.finish(vec![report]).await.expect("it is reported");
    }
    let id = submit(world, 1, "review", "agent").await[0];
    let claimed = claim(world, node, "review", 1).await;
    let call = "c1".to_owned();
    let said = vec![
        EventBody::Message { role: Role::User, text: "Review the change of the parser.".to_owned() },
        EventBody::ToolCall {
            call: call.clone(),
            tool: "Read".to_owned(),
            input: r#"{"file":"src/parse.rs"}"#.to_owned(),
        },
        EventBody::ToolResult {
            call,
            tool: None,
            status: ToolStatus::Ok,
            output: "fn parse() {\n}\n".repeat(20),
        },
        EventBody::Message { role: Role::Assistant, text: "The parser accepts an empty line.".to_owned() },
    ];
    world.store.append(claimed[0].lease.as_ref(), said).await.expect("they are written");
    std::mem::forget(claimed);
    id
}

/// A job of five items. Its pilot of two has ended, and the rest waits for approval.
async fn job_with_pilot(world: &World, node: SessionId) -> String {
    let items = ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt"];
    let body = json!({"pool": "review", "name": "letters", "items": items, "pilot": 2, "max_cost": "$2"});
    let made = world.post("/api/v1/jobs", &body.to_string()).await.is(201).json();
    let id = made["id"].as_str().expect("an id").to_owned();
    let queue = queue_of(JobId(id.parse().expect("an id")));
    // Before a cost is known, the first task of a budget runs alone.
    for _ in 0..2 {
        let claimed = claim(world, node, &queue, 1).await;
        world.store.append(claimed[0].lease.as_ref(), vec![spent(10)]).await.expect("they are written");
        world.finish(claimed, &Outcome::Success).await;
    }
    ostler_ops::jobs::pilot::wait_for_approval(world.store.as_ref(), JobId(id.parse().expect("an id")))
        .await
        .expect("it waits");
    id
}

async fn workers(world: &World, node: SessionId, talk: TaskId) {
    let now = SystemClock.now();
    let worker = |name: &str, pool: &str, state, task| Worker {
        id: world.ids.worker(),
        name: name.to_owned(),
        pool: pool.to_owned(),
        pid: Some(4_211),
        state,
        memory_bytes: Some(85 << 20),
        started_at: now,
        done: 17,
        failed: 2,
        task,
    };
    let all = vec![
        worker("review-1", "review", WorkerState::Busy, Some((talk, now))),
        worker("thumbnails-1", "thumbnails", WorkerState::Idle, None),
    ];
    world.store.report(node, all, Vec::new()).await.expect("they are reported");
}

/// A running task with a transcript that no page can show at once.
pub(super) async fn long_transcript(world: &World) -> String {
    let node = world.node().await;
    let id = submit(world, 1, "long", "agent").await[0];
    let claimed = claim(world, node, "long", 1).await;
    for from in (1..=LONG_EVENTS).step_by(EVENTS_AT_ONCE) {
        let one = |number: usize| EventBody::Message {
            role: Role::Assistant,
            text: format!("message {number} {}", "x".repeat(LONG_TEXT)),
        };
        let some = (from..from + EVENTS_AT_ONCE).map(one).collect();
        world.store.append(claimed[0].lease.as_ref(), some).await.expect("they are written");
    }
    std::mem::forget(claimed);
    id.to_string()
}

/// A running task of this queue.
pub(super) async fn start(world: &World, node: SessionId, queue: &str) -> Claimed {
    submit(world, 1, queue, "agent").await;
    claim(world, node, queue, 1).await.remove(0)
}

/// A call of a tool and lines of a running task, all of them at once.
pub(super) async fn say(world: &World, running: &Claimed, lines: usize) {
    let call = EventBody::ToolCall { call: "c".to_owned(), tool: "Read".to_owned(), input: "{}".to_owned() };
    let said = (1..=lines).map(|number| crate::world::line(format!("line {number}")));
    let said = std::iter::once(call).chain(said).collect();
    world.store.append(running.lease.as_ref(), said).await.expect("they are written");
}

// ---- hostile texts ----

/// Markup, script, addresses, marks that turn the direction, sequences of terminals, and what ends a context of HTML.
const HOSTILE: [&str; 20] = [
    "<script>hit()</script>",
    "\"><img src=x onerror=hit()>",
    "'><svg onload=hit()>",
    "</textarea></template></title></pre></code><b id=hit>",
    "<!--<script>",
    "]]><iframe srcdoc='<script>parent.hit()</script>'>",
    "javascript:hit()",
    "data:text/html,<script>hit()</script>",
    "\" onfocus=hit() autofocus x=\"",
    "' style='position:fixed;inset:0'",
    "{{constructor.constructor('hit()')()}}",
    "&lt;script&gt;hit()&lt;/script&gt;&#0;&#x202e;",
    "a\u{202e}b\u{2066}c\u{200f}",
    "\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{9b}2J",
    "\u{1}\u{8}\u{7f}",
    "a/b.c?d#e",
    "../../do/prune?confirmed=yes",
    "//evil.test/x",
    "<base href=//evil.test><meta http-equiv=refresh content=0;url=//evil.test>",
    "<form action=//evil.test id=list><input name=confirmed value=yes>",
];
/// Tasks with such texts: each has one of them in every field that may have it.
const HOSTILE_TASKS: usize = 300;
/// A line that is longer than any screen.
const HOSTILE_LINE: usize = 1 << 20;

/// The text in another place and shape, so that no two are equal.
fn hostile_text(at: usize) -> String {
    let text = HOSTILE[at % HOSTILE.len()];
    match at / HOSTILE.len() {
        0 => text.to_owned(),
        round @ 1..=7 => format!("{}{text}", "\"'>`)} ".chars().take(round).collect::<String>()),
        round => format!("{}{round}", text.to_uppercase()),
    }
}

/// A name as the store accepts it.
fn hostile_name(at: usize) -> String {
    let text = hostile_text(at);
    format!("n{}", text.chars().filter(|c| !c.is_control()).take(40).collect::<String>().trim_end())
}

/// Fills a store with such texts: names, payloads, keys, errors, events, reasons and schedules. Returns a task for each way to be shown.
pub(super) async fn hostile(world: &World) -> Vec<String> {
    let node = world.node().await;
    let mut shown = Vec::new();
    for at in 0..HOSTILE_TASKS {
        // Few queues and many kinds: an overview of three hundred queues is no page that a person reads.
        let queue = if at % 3 == 0 { "a/b.c?d".to_owned() } else { hostile_name(at % HOSTILE.len()) };
        let mut task = NewTask::new(
            world.ids.task(),
            &queue,
            hostile_name(at),
            json!({ "text": hostile_text(at), hostile_text(at): "\u{0}" }).to_string(),
        );
        task.limit_key = Some(hostile_name(at + 1));
        let id = task.id;
        if at == 0 {
            task.payload = Value::from("<b>".repeat((HOSTILE_LINE - 16) / 3)).to_string();
        }
        world.store.enqueue(vec![task]).await.expect("it is accepted");
        let Some(claimed) = claim(world, node, &queue, 1).await.pop() else { continue };
        let lease = claimed.lease.as_ref();
        let text = if at == 1 { "<i>".repeat(HOSTILE_LINE / 3) } else { hostile_text(at) };
        let said = vec![
            EventBody::line(format!("info {text}")),
            EventBody::Message { role: Role::Assistant, text: text.clone() },
            EventBody::ToolCall {
                call: hostile_name(at),
                tool: hostile_name(at),
                input: Value::from(text.as_str()).to_string(),
            },
            EventBody::ToolResult {
                call: hostile_name(at),
                tool: None,
                status: ToolStatus::Error,
                output: text.clone(),
            },
            EventBody::Usage(Usage {
                model: Some(hostile_name(at)),
                cost: Some(dollars(1)),
                ..Usage::default()
            }),
        ];
        world.store.append(lease, said).await.expect("they are written");
        let failure = Failure {
            details: Some(text.clone()),
            hint: Some(hostile_text(at)),
            step: Some(hostile_name(at)),
            ..Failure::new(ErrorClass::Permanent, hostile_text(at))
        };
        let outcome = if at % 2 == 0 { Outcome::Failed(failure) } else { Outcome::Success };
        let report = Report {
            lease: claimed.lease,
            ran: None,
            outcome,
            output: (at % 2 == 1).then(|| Value::from(text).to_string()),
            reading: None,
        };
        world.store.finish(vec![report]).await.expect("it is reported");
        if at < HOSTILE.len() * 2 {
            shown.push(id.to_string());
        }
    }
    for at in 0..HOSTILE.len() {
        let name = hostile_name(at);
        set(world, &name, QueueChange::Pause(hostile_text(at))).await;
        let schedule = json!({"queue": name, "kind": name, "every": "10m", "payload": hostile_text(at)});
        let place: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        world.put(&format!("/api/v1/schedules/{place}"), &schedule).await;
    }
    let items: Vec<String> = (0..HOSTILE.len()).map(hostile_text).collect();
    let job = json!({"pool": hostile_name(0), "name": hostile_name(1), "items": items});
    let made = world.post("/api/v1/jobs", &job.to_string()).await.is(201).json();
    shown.push(format!("job:{}", made["id"].as_str().expect("an id")));
    shown
}
