//! Metrics: who may read them, what nodes export together, how many series there are, and what a scrape costs the store.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, JobId, Outcome};
use ostler_ops::figures::{JOBS, MAX_NAMES, OTHER};
use ostler_server::{Durations, LaneCounts, MetricsAccess, PoolCounts};
use ostler_store::calls::{Fenced, QueueChange};
use ostler_store::jobs::queue_of;
use ostler_testkit::MAX_WAIT;
use serde_json::Value;
use tokio::time::Instant;

use crate::openmetrics::Scrape;
use crate::world::{QUEUE, READ, Reply, StorePlace, World, on_each_store};

on_each_store!(
    what_several_nodes_export_adds_up,
    ten_thousand_limit_keys_make_no_series,
    the_number_of_series_is_bounded_and_no_label_is_an_id,
);

/// What a Prometheus server accepts.
const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";

/// What the settings of a node say that serves metrics.
const SERVES: &str = r#"{"":{"metrics":"served"}}"#;

impl World {
    /// The node of the server joins the store, and serves metrics.
    async fn join(&self) {
        let mut node = self.ids.new_session("serving", Duration::from_secs(60));
        node.id = self.counts.0.lock().expect("it is free").session;
        node.settings = SERVES.to_owned();
        assert_eq!(self.store.join(node).await, Ok(Fenced::Recorded));
    }

    /// The node of the server has run two tasks of this queue.
    fn ran(&self, queue: &str) {
        let second = Some(Duration::from_secs(1));
        let durations =
            Durations { buckets: vec![(second, 1), (None, 1)], sum: Duration::from_millis(2_500) };
        let lane = LaneCounts {
            queue: queue.to_owned(),
            submitted: 3,
            started: 2,
            ended: vec![("completed", 1), ("failed", 1)],
            waited: durations.clone(),
            took: durations,
        };
        let pool =
            PoolCounts { pool: queue.to_owned(), claimed: 2, workers_started: 1, ..PoolCounts::default() };
        let mut counts = self.counts.0.lock().expect("it is free");
        counts.lanes.push(lane);
        counts.pools.push(pool);
    }

    /// What a reader gets that accepts these media types.
    async fn metrics(&self, accepted: &str) -> Reply {
        let bearer = format!("Bearer {READ}");
        let headers = [("authorization", bearer.as_str()), ("accept", accepted)];
        self.client().await.ask("GET", "/metrics", &headers, "").await
    }

    async fn scrape(&self) -> Scrape {
        let reply = self.metrics(PROMETHEUS).await;
        Scrape::read(&reply.is(200).body).unwrap_or_else(|error| panic!("{error}\n{}", reply.body))
    }

    /// Scrapes until it is as expected.
    async fn scrape_until(&self, expected: impl Fn(&Scrape) -> bool) -> Scrape {
        let ended = Instant::now() + MAX_WAIT;
        loop {
            let found = self.scrape().await;
            if expected(&found) {
                return found;
            }
            assert!(Instant::now() < ended, "{found:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_need_a_token_unless_the_config_opens_them() {
    let closed = World::new().await;
    let open = World::serving(Arc::clone(&closed.place), MetricsAccess::Open).await;
    closed.client().await.ask("GET", "/metrics", &[], "").await.is(401);
    for (accepted, media) in [
        (PROMETHEUS, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let reply = closed.metrics(accepted).await;
        assert_eq!(reply.is(200).header("content-type"), Some(media), "{accepted}");
    }
    open.client().await.ask("GET", "/metrics", &[], "").await.is(200);
    open.client().await.ask("GET", "/api/v1/stats", &[], "").await.is(401);
    let site = [("sec-fetch-site", "cross-site")];
    open.client().await.ask("GET", "/metrics", &site, "").await.is(403);
}

async fn what_several_nodes_export_adds_up(one: World) {
    let (other, third) = (one.beside().await, one.beside().await);
    // A node without an API may be the oldest.
    let session = one.node().await;
    for node in [&one, &other, &third] {
        node.join().await;
        node.ran(QUEUE);
    }
    one.enqueue(5).await;
    let claimed = one.claim(session, 2).await;
    let found = [one.scrape().await, other.scrape().await, third.scrape().await];
    let sum = |name: &str, labels: &[(&str, &str)]| {
        found.iter().filter_map(|scrape| scrape.sum(name, labels)).sum::<f64>()
    };
    assert_eq!(sum("ostler_store_exporter", &[]), 1.0);
    assert_eq!(sum("ostler_store_up", &[]), 3.0);
    assert_eq!(sum("ostler_tasks", &[("queue", QUEUE), ("state", "queued")]), 3.0);
    assert_eq!(sum("ostler_tasks", &[("queue", QUEUE), ("state", "claimed")]), 2.0);
    assert_eq!(sum("ostler_total_submitted", &[]), 5.0);
    assert_eq!(sum("ostler_tasks_submitted_total", &[("queue", QUEUE)]), 9.0);
    let node = one.counts.0.lock().expect("it is free").node.clone();
    assert_eq!(found[0].sum("ostler_tasks_submitted_total", &[("node", &node)]), Some(3.0));
    assert_eq!(sum("ostler_nodes", &[]), 4.0);
    // The one that exports leaves: another one does.
    let mut nodes = vec![&one, &other, &third];
    let exports = |scrape: &Scrape| scrape.sum("ostler_store_exporter", &[]) == Some(1.0);
    let first = nodes.remove(found.iter().position(exports).expect("one of them exports"));
    let leaving = first.counts.0.lock().expect("it is free").session;
    one.store.leave(leaving).await.expect("it leaves");
    let gone = first.scrape_until(|scrape| !exports(scrape)).await;
    assert_eq!(gone.sum("ostler_tasks", &[]), None);
    let ended = Instant::now() + MAX_WAIT;
    loop {
        let after = [nodes[0].scrape().await, nodes[1].scrape().await];
        let queued = |scrape: &Scrape| scrape.sum("ostler_tasks", &[("queue", QUEUE), ("state", "queued")]);
        if after.iter().any(exports) {
            let sum: f64 = after.iter().filter_map(queued).sum();
            assert_eq!((after.iter().filter(|scrape| exports(scrape)).count(), sum), (1, 3.0));
            break;
        }
        assert!(Instant::now() < ended, "no other node exports");
    }
    one.finish(claimed, &Outcome::Success).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_scrapes_share_a_reading_of_the_store() {
    let world = World::new().await;
    let began = Instant::now();
    let mut scrapes = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut client = world.client().await;
        let token = format!("Bearer {READ}");
        scrapes.spawn(
            async move { client.ask("GET", "/metrics", &[("authorization", &token)], "").await.status },
        );
    }
    assert!(scrapes.join_all().await.iter().all(|status| *status == 200));
    let reads = world.scrape().await.sum("ostler_store_figure_reads_total", &[]).expect("they are counted");
    let most = 1.0 + began.elapsed().as_secs_f64();
    assert!((1.0..=most).contains(&reads), "{reads} readings in {:?}", began.elapsed());
}

async fn ten_thousand_limit_keys_make_no_series(one: World) {
    /// All series of three nodes with a few queues.
    const MAX_SERIES: usize = 2_000;
    const KEYS: usize = 10_000;
    let others = [one.beside().await, one.beside().await];
    let all = [&one, &others[0], &others[1]];
    // Each key waits for its place, and has a rate and a breaker of its own.
    let rules = [
        QueueChange::KeyConcurrency(Some(1)),
        QueueChange::KeyRate(vec![ostler_core::Rate::even(1, Duration::from_secs(3_600))]),
    ];
    for queue in ["mail", "parcels", "letters", "cards", "news"] {
        one.store.configure(queue, rules.to_vec()).await.expect("it is configured");
        for node in all {
            node.ran(queue);
        }
    }
    let mut tasks = one.ids.new_tasks(KEYS, QUEUE, "send");
    for (number, task) in tasks.iter_mut().enumerate() {
        task.limit_key = Some(format!("tenant-{number}"));
    }
    for some in tasks.chunks(ostler_store::MAX_BATCH) {
        one.store.enqueue(some.to_vec()).await.expect("they are accepted");
    }
    let (mut series, mut queued, mut text) = (0, 0.0, String::new());
    for node in all {
        node.join().await;
        let found = node.scrape().await;
        series += found.series();
        queued += found.sum("ostler_tasks", &[("state", "queued")]).unwrap_or(0.0);
        text += &node.metrics("*/*").await.body;
    }
    assert!(series <= MAX_SERIES, "{series} series of three nodes");
    assert_eq!(queued, KEYS as f64, "one of them exports what the store holds");
    assert!(text.contains("ostler_tasks{") && !text.contains("tenant-"), "no key is a label");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_text_format_has_the_same_samples_under_the_names_of_that_format() {
    let world = full().await;
    let plain = world.metrics("*/*").await.is(200).body.clone();
    let found = Scrape::read_plain(&plain).unwrap_or_else(|error| panic!("{error}\n{plain}"));
    // Readings of the store are counted, and the oldest ready task gets older.
    let steady = |scrape: &Scrape| -> Vec<String> {
        let changes = |line: &String| line.contains("figure_reads") || line.contains("oldest_ready_age");
        scrape.lines().into_iter().filter(|line| !changes(line)).collect()
    };
    assert_eq!(steady(&found), steady(&world.scrape().await));
    for (name, kind) in [
        ("ostler_attempts_ended", "counter"),
        ("ostler_attempt_duration_seconds", "histogram"),
        ("ostler_node_info", "gauge"),
        ("ostler_tasks", "gauge"),
    ] {
        let family = found.families.iter().find(|family| family["name"] == name);
        assert_eq!(family.map(|family| &family["type"]), Some(&Value::from(kind)), "{name}");
        assert!(family.is_some_and(|family| family["help"] != ""), "{name}");
    }
    assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"), "{plain}");
}

async fn the_number_of_series_is_bounded_and_no_label_is_an_id(world: World) {
    /// All series of a node with more queues than have a name of their own.
    const MAX_SERIES: usize = 8_000;
    world.join().await;
    let queues: Vec<String> = (0..MAX_NAMES + 50).map(|number| format!("queue-{number:03}")).collect();
    let jobs: Vec<String> = (0..30).map(|_| queue_of(JobId(world.ids.task().0))).collect();
    for queue in queues.iter().chain(&jobs) {
        world.store.enqueue(world.ids.new_tasks(1, queue, "send")).await.expect("it is accepted");
        world.ran(queue);
    }
    let found = world.scrape().await;
    let names = found.labels("queue");
    assert_eq!(names.len(), MAX_NAMES + 2, "{names:?}");
    assert_eq!(found.labels("pool").len(), MAX_NAMES + 2);
    assert!(found.series() <= MAX_SERIES, "{} series", found.series());
    let queued = |queue: &str| found.sum("ostler_tasks", &[("queue", queue), ("state", "queued")]);
    assert_eq!((queued(JOBS), queued(OTHER), queued("queue-000")), (Some(30.0), Some(50.0), Some(1.0)));
    assert_eq!(found.sum("ostler_tasks", &[("state", "queued")]), Some((MAX_NAMES + 80) as f64));
    let claimed = |pool: &str| found.sum("ostler_tasks_claimed_total", &[("pool", pool)]);
    assert_eq!((claimed(JOBS), claimed(OTHER)), (Some(60.0), Some(100.0)));
    assert_eq!(found.sum("ostler_attempt_duration_seconds_count", &[("queue", JOBS)]), Some(60.0));
    let text = world.get("/metrics").await.body;
    assert!(!jobs.iter().any(|job| text.contains(job.trim_start_matches("job "))), "no id");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_while_the_store_is_away_tells_what_the_node_did() {
    let world = World::new().await;
    world.join().await;
    world.ran(QUEUE);
    let before = world.scrape().await;
    assert_eq!(before.sum("ostler_store_up", &[]), Some(1.0));
    rename(&world.place, "lane", "elsewhere");
    let away = world.scrape_until(|scrape| scrape.sum("ostler_store_up", &[]) == Some(0.0)).await;
    assert_eq!(away.sum("ostler_tasks_submitted_total", &[("queue", QUEUE)]), Some(3.0));
    assert_eq!((away.sum("ostler_tasks", &[]), away.sum("ostler_nodes", &[])), (None, None));
    assert_eq!(away.sum("ostler_store_exporter", &[]), Some(0.0));
    rename(&world.place, "elsewhere", "lane");
    world.scrape_until(|scrape| scrape.sum("ostler_nodes", &[]) == Some(1.0)).await;
}

/// Renames a table, so that no survey succeeds.
fn rename(place: &StorePlace, from: &str, to: &str) {
    let StorePlace::File(files) = place else { panic!("this test has a file") };
    let statement = format!("PRAGMA legacy_alter_table = ON; ALTER TABLE {from} RENAME TO {to};");
    let done = Command::new("sqlite3").arg(files.path()).arg(statement).output().expect("sqlite3 runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A node that exports something of everything.
async fn full() -> World {
    let world = World::new().await;
    world.join().await;
    world.ran(QUEUE);
    world.ran("strange \"queue\" \\ of ours");
    world.enqueue(4).await;
    let session = world.node().await;
    let worker = ostler_core::Worker { pool: QUEUE.to_owned(), ..worker(&world) };
    world.store.report(session, vec![worker], Vec::new()).await.expect("it is reported");
    let claimed = world.claim(session, 1).await;
    world.finish(claimed, &Outcome::Success).await;
    let claimed = world.claim(session, 1).await;
    world.finish(claimed, &Outcome::Failed(Failure::new(ErrorClass::Permanent, "no such host"))).await;
    world.store.configure(QUEUE, vec![QueueChange::Pause("lunch".to_owned())]).await.expect("it is paused");
    world
}

fn worker(world: &World) -> ostler_core::Worker {
    ostler_core::Worker {
        id: world.ids.worker(),
        name: "worker-1".to_owned(),
        pool: QUEUE.to_owned(),
        pid: None,
        state: ostler_core::WorkerState::Idle,
        memory_bytes: None,
        started_at: ostler_core::Timestamp::from_millis(1),
        done: 0,
        failed: 0,
        task: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parser_of_prometheus_accepts_it_with_types_units_and_help() {
    let found = full().await.scrape().await;
    for family in &found.families {
        let [name, help, unit] =
            ["name", "help", "unit"].map(|field| family[field].as_str().expect("a text"));
        assert!(name.starts_with("ostler_") && !help.is_empty() && !help.ends_with('.'), "{family}");
        assert!(unit.is_empty() || name.ends_with(unit), "{family}");
        let is_in_seconds = name.ends_with("_seconds");
        assert_eq!(is_in_seconds, unit == "seconds", "{family}");
        assert!(!family["samples"].as_array().expect("a list").is_empty(), "{family}");
    }
    let kind = |name: &str| {
        let family = found.families.iter().find(|family| family["name"] == name);
        family.and_then(|family| family["type"].as_str()).unwrap_or_default()
    };
    for (name, expected) in [
        ("ostler_node", "info"),
        ("ostler_attempts_ended", "counter"),
        ("ostler_attempt_duration_seconds", "histogram"),
        ("ostler_tasks", "gauge"),
        ("ostler_cost_today_dollars", "gauge"),
        ("ostler_oldest_ready_age_seconds", "gauge"),
    ] {
        assert_eq!(kind(name), expected, "{name}");
    }
    assert!(found.labels("queue").contains("strange \"queue\" \\ of ours"));
    assert_eq!(found.sum("ostler_attempt_duration_seconds_sum", &[("queue", QUEUE)]), Some(2.5));
    assert_eq!(
        found.sum("ostler_attempt_duration_seconds_bucket", &[("queue", QUEUE), ("le", "+Inf")]),
        Some(2.0)
    );
    assert_eq!(found.sum("ostler_queue_paused", &[("queue", QUEUE)]), Some(1.0));
    assert_eq!(found.sum("ostler_workers", &[("pool", QUEUE), ("state", "idle")]), Some(1.0));
    // The figures of source design 001.
    for (name, value) in [
        ("ostler_total_submitted", 4.0),
        ("ostler_total_completed", 1.0),
        ("ostler_total_failed", 1.0),
        ("ostler_queue_high_water", 4.0),
    ] {
        assert_eq!(found.sum(name, &[("queue", QUEUE)]), Some(value), "{name}");
    }
}

#[test]
fn the_parser_notices_what_is_wrong() {
    let good = "# TYPE a gauge\na 1\n# EOF\n";
    assert!(Scrape::read(good).is_ok());
    for wrong in [
        "# TYPE a counter\na 1\n# EOF\n",
        "# TYPE a gauge\na 1\n",
        "# TYPE a gauge\n# UNIT a seconds\na 1\n# EOF\n",
    ] {
        assert!(Scrape::read(wrong).is_err(), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_the_dashboard_exists() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/grafana/ostler.json");
    let text = std::fs::read_to_string(path).expect("the dashboard is there");
    let dashboard: Value = serde_json::from_str(&text).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().expect("a query")).collect();
    assert!(queries.len() >= 10, "{queries:?}");
    let found = full().await.scrape().await;
    let known = found.names();
    for query in queries {
        let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let named: Vec<&str> = words.filter(|word| word.starts_with("ostler_")).collect();
        assert!(!named.is_empty(), "{query} names a metric");
        for name in named {
            assert!(known.contains(name), "{query}: there is no {name}");
        }
    }
}
