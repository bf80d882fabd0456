//! Each view answers its user's question from the page alone: dead letters in bounds, rates and ages, jobs with their pilot, nodes and
//! workers with their lease, schedules, cost, and a text in a long transcript.

use std::time::Duration;

use ostler_core::{
    Cost, ErrorClass, EventBody, Failure, JobId, Outcome, SessionId, Usage, UsageSource, Worker, WorkerState,
};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Kinds, NewStep, Start};
use ostler_store::jobs::queue_of;
use ostler_testkit::MAX_WAIT;

use crate::forms::press_button;
use crate::world::{QUEUE, World, line, on_each_store};

on_each_store!(
    dead_letters_are_looked_at_in_bounds_and_a_link_goes_on,
    the_overview_has_rate_age_failures_and_their_course,
    a_job_shows_its_pilot_cost_and_failures_with_what_decides,
    the_buttons_of_a_job_and_of_a_group_of_dead_letters_do_what_they_say,
    attempts_stand_side_by_side_with_steps_output_files_and_history,
    a_worker_shows_its_task_and_a_task_its_lease_with_its_end,
    schedules_say_when_they_run_and_cost_says_who_spent_it,
    a_text_is_found_anywhere_in_a_transcript,
);

async fn page(world: &World, path: &str) -> String {
    world.get(path).await.is(200).body.clone()
}

fn must(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "the page has no {part}: {page}");
    }
}

async fn claim(world: &World, node: SessionId, queue: &str, limit: usize) -> Vec<Claimed> {
    let claim = Claim { session: node, queue: queue.to_owned(), kinds: Kinds::Any, limit };
    match world.store.claim(claim).await.expect("a claim is answered") {
        ClaimAnswer::Tasks { tasks, .. } => tasks,
        other @ ClaimAnswer::SessionEnded => panic!("{other:?}"),
    }
}

/// What an attempt asked of a model.
async fn spend(world: &World, claimed: &[Claimed], usd: f64) {
    let spent = Usage {
        model: Some("large".to_owned()),
        input_tokens: 1_234,
        output_tokens: 56,
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        reasoning_tokens: 0,
        cost: Cost::from_usd(usd),
        source: UsageSource::Reported,
    };
    let said = vec![EventBody::Usage(spent)];
    world.store.append(claimed[0].lease.as_ref(), said).await.expect("it is written");
}

async fn dead_letters_are_looked_at_in_bounds_and_a_link_goes_on(world: World) {
    world.enqueue(1).await;
    world.fail(1).await;
    must(&page(&world, "/dead").await, &["1 task has failed for good, by 1 cause."]);
    world.enqueue(2_001).await;
    world.fail(2_001).await;
    let first = page(&world, "/dead").await;
    must(&first, &["2000 or more tasks have failed for good, by 1 cause.", "Older dead letters"]);
    let next = first.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next());
    let next = next.expect("a link").replace("&amp;", "&");
    let rest = page(&world, &format!("/{next}")).await;
    must(&rest, &["2 tasks have failed for good, by 1 cause. Newer ones are left out."]);
    must(
        &page(&world, "/dead?text=absent").await,
        &["0 tasks have failed for good, by 0 causes.", "There is none"],
    );
}

async fn the_overview_has_rate_age_failures_and_their_course(world: World) {
    let node = world.node().await;
    world.enqueue(12).await;
    let work = async |count, outcome: &Outcome| world.finish(world.claim(node, count).await, outcome).await;
    let row = async || {
        let body = page(&world, "/").await;
        let (_, queues) = body.split_once("<section id=\"queues\"").expect("the queues");
        let (_, row) = queues.split_once(&format!("<tr data-key=\"{QUEUE}\"")).expect("a row");
        row.split("</tr>").next().expect("a row").to_owned()
    };
    let first = row().await;
    must(&first, &["data-label=\"Waiting\">12", "It is counted while a page is open"]);
    for (count, outcome) in [
        (5, Outcome::Success),
        (2, Outcome::Failed(Failure::new(ErrorClass::Permanent, "no"))),
        (1, Outcome::Success),
    ] {
        work(count, &outcome).await;
        world.clock.advance(Duration::from_secs(6));
        row().await;
    }
    let last = row().await;
    // Eight in some twenty seconds: 60 in the first six, then 20 and 10 a minute.
    must(&last, &["data-label=\"Waiting\">4", "+2", "<polyline points=\"", "role=\"img\"", "at most"]);
    let rate = last.split("data-label=\"Ended / min\">").nth(1).and_then(|rest| rest.split(' ').next());
    let rate: f64 = rate.and_then(|rate| rate.parse().ok()).expect("a rate");
    assert!((10.0..=27.0).contains(&rate), "{rate}");
    let points = last.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("points");
    assert_eq!(points.split(' ').count(), 3, "{points}");
    let age = last.split("data-label=\"Oldest waits\">").nth(1).and_then(|rest| rest.split(" s").next());
    let age: u64 = age.and_then(|age| age.parse().ok()).expect("seconds");
    assert!(age >= 18, "{age}");
    assert!(!last.contains("style="));
}

async fn a_job_shows_its_pilot_cost_and_failures_with_what_decides(world: World) {
    let job = r#"{"pool":"agents","name":"reviews","items":["a.rs","b.rs","c.rs","d.rs"],"pilot":2,"max_cost":"$5"}"#;
    let id = world.post("/api/v1/jobs", job).await.is(201).json()["id"].as_str().expect("an id").to_owned();
    let queue = queue_of(JobId(id.parse().expect("an id")));
    let node = world.node().await;
    // What an item costs is not known before the first one has ended: it runs alone.
    let wrong = Outcome::Failed(Failure::new(ErrorClass::Permanent, "no such file"));
    for outcome in [Outcome::Success, wrong] {
        let item = claim(&world, node, &queue, 2).await;
        assert_eq!(item.len(), 1, "one of the pilot runs");
        spend(&world, &item, 0.5).await;
        world.finish(item, &outcome).await;
    }
    let address = format!("/jobs/{id}");
    let shown = page(&world, &address).await;
    must(
        &shown,
        &[
            "The pilot of 2 items has ended: 1 failed, at a cost of $1.00.",
            "2 more items wait for your decision",
            "they will cost about $1.00",
            &format!("ostler job approve {id}"),
            &format!("ostler job reject {id}"),
            "$1.00 of $5.00",
            "a.rs",
            "no such file",
            &format!("ostler job retry-failed {id}"),
            &format!("ostler job export {id} --jsonl"),
            &format!("api/v1/jobs/{id}/results"),
        ],
    );
    must(&page(&world, "/jobs").await, &["reviews", "2 of 4"]);
    // An item that waits says for what.
    let waiting = world.get("/api/v1/tasks?state=queued").await.json();
    let item =
        waiting["tasks"].as_array().expect("tasks").iter().find(|task| task["queue"] == queue.as_str());
    let item = item.and_then(|task| task["id"].as_str()).expect("an item").to_owned();
    must(&page(&world, &format!("/tasks/{item}")).await, &["approval of the pilot of its"]);
    world.post(&format!("/api/v1/jobs/{id}/approve"), "").await.is(200);
    let approved = page(&world, &address).await;
    assert!(!approved.contains("has ended:") && !approved.contains("jobs.approve"), "{approved}");
}

async fn the_buttons_of_a_job_and_of_a_group_of_dead_letters_do_what_they_say(world: World) {
    let job = r#"{"pool":"agents","name":"reviews","items":["a","b","c"],"pilot":1}"#;
    let id = world.post("/api/v1/jobs", job).await.is(201).json()["id"].as_str().expect("an id").to_owned();
    let (queue, node) = (queue_of(JobId(id.parse().expect("an id"))), world.node().await);
    let wrong = Outcome::Failed(Failure::new(ErrorClass::Permanent, "no such file"));
    world.finish(claim(&world, node, &queue, 1).await, &wrong).await;
    let stored = JobId(id.parse().expect("an id"));
    ostler_ops::jobs::pilot::wait_for_approval(world.store.as_ref(), stored).await.expect("it waits");
    let address = format!("/jobs/{id}");
    let state = async || world.get(&format!("/api/v1/jobs/{id}")).await.json()["state"].clone();
    assert_eq!(state().await, "paused", "its pilot waits");
    press_button(&world, &address, "jobs.approve", &format!("ostler job approve {id}")).await;
    assert_ne!(state().await, "paused");
    press_button(&world, &address, "jobs.pause", &format!("ostler job pause {id}")).await;
    assert_eq!(state().await, "paused");
    press_button(&world, &address, "jobs.resume", &format!("ostler job resume {id}")).await;
    assert_ne!(state().await, "paused");
    let failed = async || world.get(&format!("/api/v1/jobs/{id}")).await.json()["tasks"]["failed"].clone();
    assert_eq!(failed().await, 1);
    press_button(&world, &address, "jobs.retry_failed", &format!("ostler job retry-failed {id}")).await;
    assert_eq!(failed().await, 0);
    press_button(&world, &address, "jobs.cancel", &format!("ostler job cancel {id}")).await;
    assert_eq!(state().await, "cancelled");

    // Two causes; the button of one group touches no other.
    world.enqueue(3).await;
    let letters = world.claim(node, 3).await;
    for (letter, why) in
        letters.into_iter().zip(["refused by 10.0.0.1", "refused by 10.0.0.2", "no such host"])
    {
        world.finish(vec![letter], &Outcome::Failed(Failure::new(ErrorClass::Permanent, why))).await;
    }
    let dead = async || {
        let page = world.get("/api/v1/tasks?state=failed").await.json();
        page["tasks"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(dead().await, 3);
    let done = press_button(
        &world,
        "/dead",
        "tasks.act",
        "ostler dead replay --queue mail --kind send --class permanent --text 'refused by'",
    )
    .await;
    assert!(done.contains("has begun"), "{done}");
    let reached = async |left: usize| {
        while dead().await != left {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, reached(1)).await.expect("the group is replayed");
    assert_eq!(world.get("/api/v1/stats").await.json()["tasks"]["queued"], 2);
    press_button(
        &world,
        "/dead",
        "tasks.act",
        "ostler dead drop --queue mail --kind send --class permanent --text 'no such host'",
    )
    .await;
    tokio::time::timeout(MAX_WAIT, reached(0)).await.expect("the other one is dropped");
    must(&page(&world, "/dead").await, &["There is none"]);
}

/// The cells of the row of a table that begins with this word.
fn cells(page: &str, heading: &str) -> Vec<String> {
    let start = format!("<th scope=\"row\">{heading}</th>");
    let (_, row) = page.split_once(&start).unwrap_or_else(|| panic!("no row {heading}: {page}"));
    let row = row.split("</tr>").next().expect("a row");
    let text = |cell: &str| {
        let parts = cell.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
        parts.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    row.split("<td>").skip(1).map(text).collect()
}

async fn attempts_stand_side_by_side_with_steps_output_files_and_history(world: World) {
    let node = world.node().await;
    let id = world.enqueue(1).await[0];
    let address = format!("/tasks/{id}");
    let first = world.claim(node, 1).await;
    let lease = first[0].lease.as_ref();
    let workers = [world.ids.worker(), world.ids.worker()];
    world.store.start(vec![Start { lease, worker: workers[0] }]).await.expect("it starts");
    let step = NewStep { name: "fetched".to_owned(), value: r#"{"pages":7}"#.to_owned() };
    world.store.save_step(lease, step).await.expect("it is saved");
    let busy = Failure::new(ErrorClass::Transient, "the mirror is <busy>");
    world.finish(first, &Outcome::Failed(busy)).await;
    press_button(&world, &address, "tasks.retry", &format!("ostler retry {id}")).await;
    let second = world.claim(node, 1).await;
    let lease = second[0].lease.as_ref();
    world.store.start(vec![Start { lease, worker: workers[1] }]).await.expect("it starts");
    let file = EventBody::File { path: "out/report.txt".to_owned(), size: 2_048, sha256: "ab".repeat(32) };
    world.store.append(lease, vec![file]).await.expect("it is written");
    spend(&world, &second, 0.25).await;
    world.finish(second, &Outcome::Success).await;
    let shown = page(&world, &address).await;
    must(
        &shown,
        &[
            "Attempt 1",
            "Attempt 2",
            "<h2>Steps</h2>",
            "fetched",
            "<h2>Output</h2>",
            "done",
            "<h2>History</h2>",
        ],
    );
    assert_eq!(cells(&shown, "State"), ["✕ failed", "✓ completed"]);
    assert_eq!(cells(&shown, "Error"), ["transient the mirror is &lt;busy&gt;", "–"]);
    let tail = |at: usize| workers[at].to_string()[18..].to_owned();
    assert_eq!(cells(&shown, "Worker"), [tail(0), tail(1)]);
    assert_eq!(cells(&shown, "Lease token"), ["1", "2"]);
    assert_eq!(cells(&shown, "Cost"), ["", "$0.25"]);
    assert_eq!(cells(&shown, "Files"), ["", "out/report.txt 2.0 KiB"]);
    must(&shown, &[&format!("api/v1/tasks/{id}/files/out/report.txt"), "{&quot;pages&quot;:7}"]);
}

async fn a_worker_shows_its_task_and_a_task_its_lease_with_its_end(world: World) {
    let node = world.node().await;
    let id = world.enqueue(1).await[0];
    let claimed = world.claim(node, 1).await;
    let worker = world.ids.worker();
    let start = Start { lease: claimed[0].lease.as_ref(), worker };
    world.store.start(vec![start]).await.expect("it starts");
    let now = world.store.now().await.expect("a time");
    let record = Worker {
        id: worker,
        name: "mail-1".to_owned(),
        pool: QUEUE.to_owned(),
        pid: Some(4_242),
        state: WorkerState::Busy,
        memory_bytes: Some(3 << 20),
        started_at: now.before(Duration::from_secs(600)),
        done: 17,
        failed: 3,
        task: Some((id, now.before(Duration::from_secs(90)))),
    };
    world.store.report(node, vec![record], Vec::new()).await.expect("it is reported");
    let task = page(&world, &format!("/tasks/{id}")).await;
    must(
        &task,
        &[
            "runner",
            "token 1",
            "Last heard of at",
            "if nothing more is heard, the lease runs out at",
            "pid 4242",
            "3.0 MiB",
            "on this task for 1 min",
        ],
    );
    let below = |text: &str| task.find(text).unwrap_or_else(|| panic!("{text} is shown"));
    let places = ["pid 4242", "pid 4243", "pid 4244", "pid 4245", "4.0 MiB"].map(below);
    assert!(places.is_sorted(), "each process stands below its parent: {places:?}");
    let nodes = page(&world, "/nodes").await;
    must(&nodes, &["runner", "stable-1", &format!("ostler drain {node}")]);
    std::mem::forget(claimed);
}

async fn schedules_say_when_they_run_and_cost_says_who_spent_it(world: World) {
    let nightly = r#"{"queue":"reports","kind":"nightly","cron":"0 3 * * *","timezone":"Asia/Kolkata"}"#;
    world.ask("PUT", "/api/v1/schedules/nightly", nightly).await.is(200);
    must(
        &page(&world, "/schedules").await,
        &["nightly", "0 3 * * *", "Asia/Kolkata", "T21:30:00", "reports", "ostler schedule pause nightly"],
    );
    must(&page(&world, "/cost").await, &["Nothing was spent yet."]);
    let node = world.node().await;
    world.enqueue(1).await;
    let claimed = world.claim(node, 1).await;
    spend(&world, &claimed, 0.25).await;
    world.finish(claimed, &Outcome::Success).await;
    must(&page(&world, "/cost?by=model").await, &["$0.25", "large", "1234", "ostler cost --by model"]);
    must(&page(&world, "/cost?by=queue").await, &["$0.25", QUEUE]);
}

async fn a_text_is_found_anywhere_in_a_transcript(world: World) {
    let node = world.node().await;
    world.enqueue(1).await;
    let claimed = world.claim(node, 1).await;
    let id = claimed[0].lease.task();
    for part in 0..3 {
        let said = (1..=1_000).map(|at| line(format!("line {}", part * 1_000 + at))).collect();
        world.store.append(claimed[0].lease.as_ref(), said).await.expect("they are written");
    }
    let long = format!("{}the Needle <b>{}", "hay ".repeat(5_000), " more hay".repeat(1_000));
    world.store.append(claimed[0].lease.as_ref(), vec![line(long)]).await.expect("it is written");
    let at = format!("/tasks/{id}/transcript");
    let found = page(&world, &format!("{at}?text=needle")).await;
    must(&found, &["1 event has this text", "<mark>Needle</mark>", "the ", "?after=2990#e3001", "&lt;b&gt;"]);
    assert!(found.len() < 20 * 1024, "only the words around it are shown: {} bytes", found.len());
    let many = page(&world, &format!("{at}?text=line")).await;
    must(&many, &["100 events have this text, up to event 100.", "Go on"]);
    let rest = page(&world, &format!("{at}?text=line&after=2950")).await;
    must(&rest, &["50 events have this text behind event 2950."]);
    must(&page(&world, &format!("{at}?text=absent")).await, &["0 events have this text."]);
    // The address of an event is a plain link too.
    let place = page(&world, &format!("/tasks/{id}?after=811")).await;
    must(&place, &["id=\"e812\"", "data-transcript=\"../tasks/", "name=\"text\""]);
    assert!(!place.contains("id=\"e3001\""));
    std::mem::forget(claimed);
}
