//! "Why does it wait?": for each reason and each end there is a sentence with the next moment and a command, and that command frees it.

use std::time::Duration;

use ostler_core::{
    Budget, Cost, ErrorClass, EventBody, Failure, Missed, Outcome, Overlap, Overrides, Priority, Rate,
    SessionId, TaskId, Timestamp, Usage, UsageSource,
};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Kinds, NewTask, QueueChange, Start};
use ostler_store::schedules::{Firing, Schedule, TaskTemplate};
use ostler_store::views::TaskRef;

use crate::forms::press_button;
use crate::world::{FULL, READ, World, on_each_store};

on_each_store!(
    each_reason_and_each_end_has_a_sentence_and_a_command,
    deaths_crashes_and_other_tasks_are_named_as_the_cause,
    commands_that_raise_a_limit_free_the_task
);

const HOUR: Duration = Duration::from_secs(3_600);
/// The lease of a node that says nothing more: long enough for its claims on a busy machine.
const LEASE_TTL: Duration = Duration::from_secs(5);

/// A task in a queue of its own.
async fn put(world: &World, queue: &str, change: impl FnOnce(&mut NewTask)) -> String {
    let mut task = world.ids.new_task(queue, "send");
    change(&mut task);
    let id = task.id.to_string();
    world.store.enqueue(vec![task]).await.expect("it is accepted");
    id
}

async fn claim(world: &World, node: SessionId, queue: &str) -> Vec<Claimed> {
    let claim = Claim { session: node, queue: queue.to_owned(), kinds: Kinds::Any, limit: 1 };
    match world.store.claim(claim).await.expect("a claim is answered") {
        ClaimAnswer::Tasks { tasks, .. } => tasks,
        other @ ClaimAnswer::SessionEnded => panic!("{other:?}"),
    }
}

/// A task whose attempt ended like this.
async fn tried(
    world: &World,
    node: SessionId,
    queue: &str,
    outcome: &Outcome,
    change: impl FnOnce(&mut NewTask),
) -> String {
    let id = put(world, queue, change).await;
    let claimed = claim(world, node, queue).await;
    assert_eq!(claimed.len(), 1, "{queue}");
    world.finish(claimed, outcome).await;
    id
}

fn failed(class: ErrorClass, message: &str) -> Outcome {
    Outcome::Failed(Failure { retry_after: Some(HOUR), ..Failure::new(class, message) })
}

async fn configure(world: &World, queue: &str, change: QueueChange) {
    world.store.configure(queue, vec![change]).await.expect("it is set");
}

/// The text of a page, as a reader sees it.
fn text(page: &str) -> String {
    let mut text = String::new();
    for part in page.split('<') {
        text.push_str(part.split_once('>').map_or("", |(_, text)| text));
        text.push(' ');
    }
    // Marks stand between words here, and sentences have one space.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace(" .", ".")
        .replace(" )", ")")
        .replace(" ,", ",")
        .replace("( ", "(")
        .replace("&quot;", "\"")
        .replace("&amp;", "&")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
}

async fn page(world: &World, path: &str, token: &str) -> String {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("accept", "text/html")];
    world.client().await.ask("GET", path, &headers, "").await.is(200).body.clone()
}

/// The first part of the page of a task: why it is where it is.
async fn why(world: &World, id: &str, token: &str) -> String {
    let page = page(world, &format!("/tasks/{id}"), token).await;
    let (_, rest) = page.split_once("<section id=\"why\"").expect("why");
    text(rest.split("<dl id=\"facts\"").next().expect("a part"))
}

async fn each_reason_and_each_end_has_a_sentence_and_a_command(world: World) {
    let (node, now) = (world.node().await, world.store.now().await.expect("a time"));
    let nothing = |_: &mut NewTask| {};
    let mut cases: Vec<(String, &str, String)> = Vec::new();
    let mut case =
        |id: &str, sentence: &'static str, command: String| cases.push((id.to_owned(), sentence, command));

    let id = put(&world, "scheduled", |task| task.run_at = Some(now.after(HOUR))).await;
    case(&id, "It waits until it is due, at ", format!("ostler retry {id}"));
    let transient = failed(ErrorClass::Transient, "no route to host");
    let id = tried(&world, node, "retry", &transient, nothing).await;
    case(&id, "no route to host). The next attempt may start at ", format!("ostler retry {id}"));
    let id = tried(&world, node, "asked", &failed(ErrorClass::RateLimited, "slow down"), nothing).await;
    case(&id, "A service asked for a pause. It goes on at ", format!("ostler retry {id}"));
    case(&id, "It goes on by itself at ", "ostler queue release asked".to_owned());
    configure(&world, "used", QueueChange::Account(Some("team".to_owned()))).await;
    let id = tried(&world, node, "used", &failed(ErrorClass::UsageLimit, "used up"), nothing).await;
    case(&id, "The allowance of the account of the queue used", "ostler account release team".to_owned());
    let id = tried(&world, node, "alone", &failed(ErrorClass::UsageLimit, "used up"), nothing).await;
    case(&id, "It goes on", format!("ostler retry {id}"));
    let id = tried(&world, node, "stopped", &failed(ErrorClass::QueueStop, "bad key"), nothing).await;
    case(&id, "The queue stopped is paused (bad key", "ostler resume stopped".to_owned());
    let id = put(&world, "broken", nothing).await;
    configure(&world, "broken", QueueChange::OpenBreaker(Some(now.after(HOUR)))).await;
    case(&id, "The breaker of the queue broken is open", "ostler breaker reset broken".to_owned());
    let id = tried(&world, node, "handed", &Outcome::HandedBack, nothing).await;
    case(&id, "A node handed it back.", "ostler up".to_owned());
    let other = put(&world, "first", nothing).await;
    let id = put(&world, "after", |task| task.after = vec![other.parse().map(TaskId).expect("an id")]).await;
    case(&id, "It waits for 1 task to complete:", format!("ostler show {other}"));
    let id = put(&world, "new", nothing).await;
    case(&id, "No running node serves the queue new.", "ostler up".to_owned());

    let id = put(&world, "running", nothing).await;
    let claimed = claim(&world, node, "running").await;
    let start = Start { lease: claimed[0].lease.as_ref(), worker: world.ids.worker() };
    world.store.start(vec![start]).await.expect("it starts");
    case(&id, "It runs since ", format!("ostler logs -f {id}"));
    let claimed_id = put(&world, "claimed", nothing).await;
    let held = claim(&world, node, "claimed").await;
    case(&claimed_id, "A node has claimed it", "ostler workers".to_owned());

    let id = tried(&world, node, "done", &Outcome::Success, nothing).await;
    case(&id, "It completed at ", format!("ostler retry {id} --again"));
    let once = |task: &mut NewTask| task.overrides = Overrides { attempts: Some(1), ..Overrides::default() };
    let permanent = failed(ErrorClass::Permanent, "no such user");
    for (queue, outcome, sentence) in [
        ("permanent", &permanent, "the error was permanent, so it is not retried."),
        ("exhausted", &transient, "no attempts are left."),
    ] {
        let id = tried(&world, node, queue, outcome, once).await;
        case(&id, sentence, format!("ostler dead replay {id}"));
    }
    let late = put(&world, "late", |task| task.deadline = Some(now.after(Duration::from_millis(1)))).await;
    case(&late, "its deadline has passed.", format!("ostler dead replay {late}"));
    let expired =
        put(&world, "expired", |task| task.not_after = Some(now.after(Duration::from_millis(1)))).await;
    case(&expired, "it did not start before its not_after.", format!("ostler retry {expired}"));
    let over = async |id: &str| {
        let id = id.parse().map(TaskId).expect("an id");
        let found = world.store.show(TaskRef::Id(id)).await.expect("it is read").expect("it is there");
        found.task.state.name().is_terminal()
    };
    let passed = async {
        while !(over(&late).await && over(&expired).await) {
            world.store.make_ready(100).await.expect("it is done");
        }
    };
    tokio::time::timeout(ostler_testkit::MAX_WAIT, passed).await.expect("their time passes");
    let id = put(&world, "cancelled", nothing).await;
    world.post(&format!("/api/v1/tasks/{id}/cancel"), "").await.is(200);
    case(&id, "by hand.", format!("ostler retry {id}"));
    let id = tried(&world, node, "again", &permanent, once).await;
    world.post(&format!("/api/v1/dead/{id}/replay"), "").await.is(200);
    case(&id, "It was replayed.", "ostler up".to_owned());

    for (id, sentence, command) in &cases {
        for token in [FULL, READ] {
            let why = why(&world, id, token).await;
            assert!(
                why.contains(sentence) && why.contains(command),
                "{sentence} {command}, as {token}: {why}"
            );
        }
    }
    // The commands of tasks that have ended run them again.
    for (id, _, command) in &cases {
        let operation = match command.split_whitespace().nth(1) {
            Some("dead") => "dead.replay",
            Some("retry") => "tasks.retry",
            Some(_) | None => continue,
        };
        let state = world.get(&format!("/api/v1/tasks/{id}")).await.json()["state"].clone();
        if ["completed", "failed", "cancelled"].contains(&state.as_str().expect("a state")) {
            runs_again(&world, id, operation, command).await;
        }
    }
    std::mem::forget((claimed, held));
}

/// Presses the button with this command on the page of an ended task, and looks what became of it.
async fn runs_again(world: &World, id: &str, operation: &str, command: &str) {
    let notice = press_button(world, &format!("/tasks/{id}"), operation, command).await;
    assert!(notice.contains("equeued") || notice.contains("copy was enqueued"), "{command}: {notice}");
    let state = world.get(&format!("/api/v1/tasks/{id}")).await.json()["state"].clone();
    let expected = if command.ends_with("--again") { "completed" } else { "queued" };
    assert_eq!(state, expected, "{command}");
}

async fn deaths_crashes_and_other_tasks_are_named_as_the_cause(world: World) {
    let (node, now) = (world.node().await, world.store.now().await.expect("a time"));
    // A node that says nothing any more has one task that may be tried again and one that may not.
    let brief = world.ids.new_session("brief", LEASE_TTL);
    let silent = brief.id;
    world.store.join(brief).await.expect("it joins");
    let lost = put(&world, "lost", |_| {}).await;
    let deadly = put(&world, "deadly", |task| {
        task.overrides = Overrides { max_node_deaths: Some(1), ..Overrides::default() };
    })
    .await;
    let mut held = Vec::new();
    for queue in ["lost", "deadly"] {
        held.extend(claim(&world, silent, queue).await);
        let lease = held.last().expect("it is claimed").lease.as_ref();
        world.store.start(vec![Start { lease, worker: world.ids.worker() }]).await.expect("it starts");
    }
    let state = async |id: &str| world.get(&format!("/api/v1/tasks/{id}")).await.json()["state"].clone();
    let died = async {
        while state(&lost).await != "queued" || state(&deadly).await != "failed" {
            world.store.expire(100).await.expect("it is done");
        }
    };
    tokio::time::timeout(ostler_testkit::MAX_WAIT, died).await.expect("its lease runs out");
    let fragile = |task: &mut NewTask| {
        task.overrides = Overrides { max_crashes: Some(1), ..Overrides::default() };
    };
    let crash = failed(ErrorClass::Crash, "killed by a signal");
    let crashed = tried(&world, node, "crashed", &crash, fragile).await;
    // A task that needs another one, which fails.
    let first = put(&world, "first", |_| {}).await;
    let needs = first.parse().map(TaskId).expect("an id");
    let second = put(&world, "second", |task| task.after = vec![needs]).await;
    world.finish(claim(&world, node, "first").await, &failed(ErrorClass::Permanent, "no such user")).await;
    let cancelled = async {
        while state(&second).await != "cancelled" {
            world.store.make_ready(100).await.expect("it is done");
        }
    };
    tokio::time::timeout(ostler_testkit::MAX_WAIT, cancelled).await.expect("it is cancelled");
    // A run of a schedule that the next one replaces.
    let hours_ago = |hours: i64| Timestamp::from_millis(now.millis() - hours * 3_600_000);
    let template = TaskTemplate {
        queue: "replaced".to_owned(),
        kind: "send".to_owned(),
        payload: "{}".to_owned(),
        priority: Priority::NORMAL,
        overrides: Overrides::NONE,
    };
    let schedule = Schedule {
        name: "hourly".to_owned(),
        spec: "every 1h".to_owned(),
        overlap: Overlap::Replace,
        missed: Missed::One,
        task: template,
        next_at: Some(hours_ago(2)),
    };
    world.store.put_schedule(schedule).await.expect("it is stored");
    let mut runs = Vec::new();
    for hours in [2, 1] {
        let task = world.ids.new_task("replaced", "send");
        runs.push(task.id.to_string());
        let (expected, next) = (hours_ago(hours), Some(hours_ago(hours - 1)));
        let firing = Firing { schedule: "hourly".to_owned(), expected, next, task: Some(task) };
        world.store.fire(firing).await.expect("it fires");
    }
    for (id, sentence, operation, command) in [
        (&lost, "Its node died, and it was queued again.", "", "ostler up".to_owned()),
        (
            &deadly,
            "too many nodes died while they ran it.",
            "dead.replay",
            format!("ostler dead replay {deadly}"),
        ),
        (&crashed, "it killed its worker too often.", "dead.replay", format!("ostler dead replay {crashed}")),
        (
            &second,
            "a task that it depends on did not complete.",
            "tasks.retry",
            format!("ostler retry {second}"),
        ),
        (
            &runs[0],
            "the next run of its schedule replaced it.",
            "tasks.retry",
            format!("ostler retry {}", runs[0]),
        ),
    ] {
        for token in [FULL, READ] {
            let why = why(&world, id, token).await;
            assert!(
                why.contains(sentence) && why.contains(&command),
                "{sentence} {command}, as {token}: {why}"
            );
        }
        if !operation.is_empty() && *id != second {
            runs_again(&world, id, operation, &command).await;
        }
    }
    // The second one waits again if the first does.
    runs_again(&world, &first, "dead.replay", &format!("ostler dead replay {first}")).await;
    runs_again(&world, &second, "tasks.retry", &format!("ostler retry {second}")).await;
    std::mem::forget(held);
}

async fn commands_that_raise_a_limit_free_the_task(world: World) {
    let node = world.node().await;
    let one = |task: &mut NewTask| task.limit_key = Some("acme".to_owned());
    for (queue, change, sentence) in [
        (
            "narrow",
            QueueChange::Concurrency(Some(1)),
            "As many tasks of the queue narrow run as may run at once.",
        ),
        ("keyed", QueueChange::KeyConcurrency(Some(1)), "Of the limit key acme, 1 task may run at once"),
        (
            "bursts",
            QueueChange::Rate(vec![
                Rate { amount: 10, per: HOUR, burst: 1 },
                Rate { amount: 90, per: 24 * HOUR, burst: 80 },
            ]),
            "The rate limit of the queue bursts is reached. It goes on by itself at ",
        ),
        (
            "slow",
            QueueChange::Rate(vec![Rate { amount: 1, per: HOUR, burst: 1 }]),
            "The rate limit of the queue slow is reached. It goes on by itself at ",
        ),
    ] {
        configure(&world, queue, change).await;
        put(&world, queue, one).await;
        let id = put(&world, queue, one).await;
        let first = claim(&world, node, queue).await;
        assert_eq!(first.len(), 1);
        assert!(claim(&world, node, queue).await.is_empty(), "{queue}: the second one waits");
        let found = why(&world, &id, READ).await;
        assert!(found.contains(sentence), "{found}");
        let overview = page(&world, "/", FULL).await;
        assert!(!overview.contains("ostler queue release"), "there is no hold to end: {overview}");
        let command = format!("ostler queue set {queue} --");
        assert!(found.contains(&command), "{found}");
        press_button(&world, &format!("/tasks/{id}"), "queues.set", &command).await;
        let second = claim(&world, node, queue).await;
        assert_eq!(second.first().map(|one| one.lease.task().to_string()), Some(id), "{queue}");
        std::mem::forget((first, second));
    }
    // A budget that is spent pauses its queue; a larger one resumes it.
    let budget = Budget { total: Cost::from_usd(1.0), ..Budget::default() };
    configure(&world, "dear", QueueChange::Budget(Some(budget))).await;
    put(&world, "dear", one).await;
    let id = put(&world, "dear", one).await;
    let first = claim(&world, node, "dear").await;
    let spent = Usage {
        model: None,
        input_tokens: 0,
        output_tokens: 1,
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        reasoning_tokens: 0,
        cost: Cost::from_usd(1.0),
        source: UsageSource::Reported,
    };
    world.store.append(first[0].lease.as_ref(), vec![EventBody::Usage(spent)]).await.expect("it is written");
    world.finish(first, &Outcome::Success).await;
    assert!(claim(&world, node, "dear").await.is_empty(), "the budget is spent");
    let found = why(&world, &id, READ).await;
    assert!(found.contains("budget") && found.contains("To go on with twice of it"), "{found}");
    press_button(&world, &format!("/tasks/{id}"), "queues.set", "ostler queue set dear --budget 2").await;
    let second = claim(&world, node, "dear").await;
    assert_eq!(second.first().map(|one| one.lease.task().to_string()), Some(id));
    std::mem::forget(second);
}
