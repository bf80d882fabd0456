//! The HTTP API and the pages in front of a million tasks: the time to the first byte of lists, of the overview and of a task, a search that goes
//! on page by page, and what readers of the overview cost.
//!
//! The store has ten failed tasks that are the oldest, then one with a word in its payload, many that are completed, and five that run. A
//! node of the real program serves it, in a process of its own. Each path is also asked for once of a process that has just begun, while
//! nothing of the store is in memory (`cold.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_sqlite::Durability;

use crate::load::{Keys, Shape};
use crate::ours::Ours;
use crate::postgres::server::Server;
use crate::serving::ServingNode;
use crate::stats::Samples;
use crate::{Error, Place, cold, machine, map, postgres, readers};

const FAILED: usize = 10;
const RUNNING: usize = 5;
/// The word that only one payload has.
const NEEDLE: &str = "needle";
/// Bytes of a small payload, and of a large one.
const SMALL_BYTES: usize = 200;
const LARGE_BYTES: usize = 10_000;
/// How long tasks are run, alone and beside a search.
const SLICE: Duration = Duration::from_secs(5);
const BATCH: usize = 128;

/// What is asked for.
const PATHS: [(&str, Must); 12] = [
    ("/api/v1/tasks", Must::List(100)),
    ("/api/v1/tasks?state=failed", Must::List(FAILED)),
    ("/api/v1/tasks?state=running", Must::List(RUNNING)),
    ("/api/v1/tasks?queue=absent", Must::List(0)),
    ("/api/v1/stats", Must::Answer),
    ("/metrics", Must::Answer),
    ("/", Must::BePage),
    ("/tasks", Must::BePage),
    ("/tasks?state=failed", Must::BePage),
    ("/tasks?state=running", Must::BePage),
    ("/tasks?queue=absent", Must::BePage),
    ("/dead", Must::BePage),
];

/// The requested run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Completed tasks with small payloads; a tenth as many have large ones.
    pub(crate) rows: u32,
    /// Requests of each path.
    pub(crate) requests: u32,
    /// The `ostler` program; by default the one beside this program.
    pub(crate) ostler: Option<PathBuf>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { rows: 1_000_000, requests: 100, ostler: None }
    }
}

/// What an answer must have, to be one that counts.
#[derive(Clone, Copy)]
enum Must {
    /// JSON with this many tasks.
    List(usize),
    /// A page of the dashboard.
    BePage,
    Answer,
}

/// Measures both stores with both sizes, and prints a table.
pub(crate) fn run(wanted: &Wanted, dir: Option<PathBuf>) -> Result<(), Error> {
    let place = Place::new(&dir.unwrap_or_else(machine::default_dir))?;
    let ostler = match &wanted.ostler {
        Some(path) => std::fs::canonicalize(path)?,
        None => map::beside_this()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("| time to the first byte, ms | rows | cold | first | p50 | p99 | max |");
    println!("| -------------------------- | ---: | ---: | ----: | --: | --: | --: |");
    for (bytes, rows) in [(SMALL_BYTES, wanted.rows), (LARGE_BYTES, (wanted.rows / 10).max(1))] {
        let file = place.path().join(format!("{bytes}.db"));
        let open = || runtime.block_on(Ours::open(&file, Durability::Relaxed, Keys::Without));
        let about = Filled { store: "SQLite", url: file.display().to_string(), rows, bytes };
        about.fill(&runtime, &open()?)?;
        let cold = about.cold((&ostler, place.path()), || cold::forget(place.path()))?;
        about.measure(&runtime, &open()?, (&ostler, place.path()), (wanted.requests, &cold))?;
        std::fs::remove_file(&file)?;
        let mut server = Server::start(place.path())?;
        let url = format!("{}?schema=filled", server.url());
        let about = Filled { store: "PostgreSQL", url, rows, bytes };
        let address = server.url();
        let open = || runtime.block_on(postgres::open_empty(&address, "filled"));
        about.fill(&runtime, &open()?)?;
        let cold = about.cold((&ostler, place.path()), || server.restart_after(cold::forget))?;
        about.measure(&runtime, &open()?, (&ostler, place.path()), (wanted.requests, &cold))?;
    }
    Ok(())
}

/// A store with tasks in it.
struct Filled {
    store: &'static str,
    url: String,
    rows: u32,
    bytes: usize,
}

impl Filled {
    /// What is there before a node begins.
    fn fill(&self, runtime: &tokio::runtime::Runtime, ours: &Arc<Ours>) -> Result<(), Error> {
        eprintln!("bench: {} with {} rows of {} bytes", self.store, self.rows, self.bytes);
        runtime.block_on(async {
            ours.fail(FAILED).await?;
            ours.warm_up_with(1, &format!("{{\"word\":\"{NEEDLE}\"}}")).await?;
            let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(self.bytes));
            ours.warm_up_with(self.rows as usize, &payload).await
        })
    }

    /// The first answer of a process for each path, after this has emptied the caches of the store. No task runs yet.
    fn cold(
        &self,
        (ostler, folder): (&Path, &Path),
        mut forget: impl FnMut() -> Result<(), Error>,
    ) -> Result<Vec<Duration>, Error> {
        let mut all = Vec::new();
        for (path, _) in PATHS {
            forget()?;
            let node = ServingNode::start(ostler, &self.url, folder)?;
            all.push(node.connect()?.get(path)?.0);
        }
        Ok(all)
    }

    fn measure(
        &self,
        runtime: &tokio::runtime::Runtime,
        ours: &Arc<Ours>,
        (ostler, folder): (&Path, &Path),
        (requests, cold): (u32, &[Duration]),
    ) -> Result<(), Error> {
        runtime.block_on(ours.start(RUNNING))?;
        let node = ServingNode::start(ostler, &self.url, folder)?;
        for ((path, must), cold) in PATHS.into_iter().zip(cold) {
            self.row(&node, (path, path), must, Some(*cold), requests)?;
        }
        let (_, oldest) = node.connect()?.get("/api/v1/tasks?state=failed&limit=1")?;
        let oldest: serde_json::Value = serde_json::from_str(&oldest)?;
        let id = oldest["tasks"][0]["id"].as_str().ok_or("there is a failed task")?;
        self.row(&node, ("/tasks/ID", &format!("/tasks/{id}")), Must::BePage, None, requests)?;
        self.needle(&node)?;
        self.beside_a_search(runtime, ours, &node)?;
        runtime.block_on(readers::measure(self.store, ours, &node))
    }

    /// One path, in a connection that is kept. The first request is apart: it is the first of its kind in this process.
    fn row(
        &self,
        node: &ServingNode,
        (name, path): (&str, &str),
        must: Must,
        cold: Option<Duration>,
        requests: u32,
    ) -> Result<(), Error> {
        let (mut connection, mut samples) = (node.connect()?, Samples::default());
        let (first, body) = connection.get(path)?;
        match must {
            Must::List(found) => {
                let page: serde_json::Value = serde_json::from_str(&body)?;
                let listed = page["tasks"].as_array().map_or(0, Vec::len);
                if listed != found {
                    return Err(format!("{path}: {listed} tasks, not {found}").into());
                }
            }
            Must::BePage if !body.contains("id=\"main\"") => return Err(format!("{path}: no page").into()),
            Must::BePage | Must::Answer => {}
        }
        for _ in 0..requests {
            samples.add(connection.get(path)?.0);
        }
        println!(
            "| {}, {} bytes each: `{name}` | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} |",
            self.store,
            self.bytes,
            self.rows,
            cold.map(|cold| format!("{:.1}", millis(cold))).unwrap_or_default(),
            millis(first),
            millis(samples.percentile(50)),
            millis(samples.percentile(99)),
            millis(samples.max()),
        );
        Ok(())
    }

    /// Goes on from page to page until the needle is found.
    fn needle(&self, node: &ServingNode) -> Result<(), Error> {
        let pages = search(node, &AtomicBool::new(false))?;
        println!(
            "| {}, {} bytes each: `/api/v1/tasks?text={NEEDLE}`, {} pages | {} | | | {:.1} | {:.1} | {:.1} |",
            self.store,
            self.bytes,
            pages.len(),
            self.rows,
            millis(pages.percentile(50)),
            millis(pages.percentile(99)),
            millis(pages.max()),
        );
        Ok(())
    }

    /// What the searches of a reader cost those that work.
    fn beside_a_search(
        &self,
        runtime: &tokio::runtime::Runtime,
        ours: &Arc<Ours>,
        node: &ServingNode,
    ) -> Result<(), Error> {
        let alone = runtime.block_on(ours.run(Shape::Batch(BATCH), SLICE))?;
        let over = AtomicBool::new(false);
        let (beside, searches) = std::thread::scope(|scope| {
            let searching = scope.spawn(|| {
                let mut pages = 0;
                while !over.load(Ordering::Relaxed) {
                    pages += search(node, &over)?.len();
                }
                Ok::<_, Error>(pages)
            });
            let beside = runtime.block_on(ours.run(Shape::Batch(BATCH), SLICE));
            over.store(true, Ordering::Relaxed);
            (beside, searching.join())
        });
        let (beside, pages) = (beside?, searches.map_err(|_| "the search has panicked")??);
        let rate = |done: usize, took: Duration| done as f64 / took.as_secs_f64();
        let (alone, beside) = (rate(alone.done, alone.took), rate(beside.done, beside.took));
        println!(
            "\n{}, {} rows: {alone:.0} tasks/s alone, {beside:.0} beside a search of {pages} pages: {:.2}\n",
            self.store,
            self.rows,
            beside / alone
        );
        Ok(())
    }
}

fn search(node: &ServingNode, over: &AtomicBool) -> Result<Samples, Error> {
    let (mut connection, mut pages) = (node.connect()?, Samples::default());
    let first = format!("/api/v1/tasks?text={NEEDLE}");
    let mut path = first.clone();
    while !over.load(Ordering::Relaxed) {
        let (took, body) = connection.get(&path)?;
        pages.add(took);
        let page: serde_json::Value = serde_json::from_str(&body)?;
        if page["tasks"].as_array().is_some_and(|tasks| !tasks.is_empty()) {
            break;
        }
        let cursor = page["cursor"].as_str().ok_or("the needle is not found")?;
        path = format!("{first}&cursor={cursor}");
    }
    Ok(pages)
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1_000.0
}
