//! The HTTP API and the pages in front of a million tasks: the time to the first byte of lists, of the overview and of a task, a search that goes
//! on page by page, and what readers of the overview cost.
//!
//! The store has ten failed tasks that are the oldest, then one with a word in its payload, many that are completed, and five that run. A
//! node of the real program serves it, in a process of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ostler_sqlite::Durability;

use crate::load::{Keys, Shape};
use crate::ours::Ours;
use crate::postgres::server::Server;
use crate::stats::Samples;
use crate::{Error, Place, machine, map, postgres, readers};

const FAILED: usize = 10;
const RUNNING: usize = 5;
/// The word that only one payload has.
const NEEDLE: &str = "needle";
pub(crate) const TOKEN: &str = "the-token-of-a-benchmark";
/// Bytes of a small payload, and of a large one.
const SMALL_BYTES: usize = 200;
const LARGE_BYTES: usize = 10_000;
/// How long tasks are run, alone and beside a search.
const SLICE: Duration = Duration::from_secs(5);
const BATCH: usize = 128;
/// The longest wait for an answer.
const MAX_ANSWER: Duration = Duration::from_secs(60);

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
    println!("| time to the first byte, ms | rows | first | p50 | p99 | max |");
    println!("| -------------------------- | ---: | ----: | --: | --: | --: |");
    for (bytes, rows) in [(SMALL_BYTES, wanted.rows), (LARGE_BYTES, (wanted.rows / 10).max(1))] {
        let file = place.path().join(format!("{bytes}.db"));
        let ours = runtime.block_on(Ours::open(&file, Durability::Relaxed, Keys::Without))?;
        let about = Filled { store: "SQLite", url: file.display().to_string(), rows, bytes };
        about.measure(&runtime, &ours, (&ostler, place.path()), wanted.requests)?;
        drop(ours);
        std::fs::remove_file(&file)?;
        let server = Server::start(place.path())?;
        let ours = runtime.block_on(postgres::open_empty(&server.url(), "filled"))?;
        let url = format!("{}?schema=filled", server.url());
        let about = Filled { store: "PostgreSQL", url, rows, bytes };
        about.measure(&runtime, &ours, (&ostler, place.path()), wanted.requests)?;
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
    fn measure(
        &self,
        runtime: &tokio::runtime::Runtime,
        ours: &Arc<Ours>,
        (ostler, folder): (&Path, &Path),
        requests: u32,
    ) -> Result<(), Error> {
        eprintln!("bench: {} with {} rows of {} bytes", self.store, self.rows, self.bytes);
        runtime.block_on(async {
            ours.fail(FAILED).await?;
            ours.warm_up_with(1, &format!("{{\"word\":\"{NEEDLE}\"}}")).await?;
            let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(self.bytes));
            ours.warm_up_with(self.rows as usize, &payload).await?;
            ours.start(RUNNING).await
        })?;
        let node = ServingNode::start(ostler, &self.url, folder)?;
        for (path, must) in [
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
        ] {
            self.row(&node, path, path, must, requests)?;
        }
        let (_, oldest) = node.connect()?.get("/api/v1/tasks?state=failed&limit=1")?;
        let oldest: serde_json::Value = serde_json::from_str(&oldest)?;
        let id = oldest["tasks"][0]["id"].as_str().ok_or("there is a failed task")?;
        self.row(&node, "/tasks/ID", &format!("/tasks/{id}"), Must::BePage, requests)?;
        self.needle(&node)?;
        self.beside_a_search(runtime, ours, &node)?;
        runtime.block_on(readers::measure(self.store, ours, &node))
    }

    /// One path, in a connection that is kept. The first request is apart: it is the first of its kind in this process.
    fn row(
        &self,
        node: &ServingNode,
        name: &str,
        path: &str,
        must: Must,
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
            "| {}, {} bytes each: `{name}` | {} | {:.1} | {:.1} | {:.1} | {:.1} |",
            self.store,
            self.bytes,
            self.rows,
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
            "| {}, {} bytes each: `/api/v1/tasks?text={NEEDLE}`, {} pages | {} | | {:.1} | {:.1} | {:.1} |",
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

/// How often the node renews, as its config says.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// The config of the node: a pool whose queue is empty.
const CONFIG: &str = r#"
lease = { ttl = "10s", heartbeat = "1s" }
[pool.idle]
executor = "command"
command = ["true"]
"#;

/// A node with an API and no work. Killed on drop.
pub(crate) struct ServingNode {
    child: Child,
    address: String,
}

impl ServingNode {
    fn start(ostler: &Path, store: &str, folder: &Path) -> Result<Self, Error> {
        std::fs::write(folder.join("ostler.toml"), CONFIG)?;
        let mut child = Command::new(ostler)
            .args(["up", "--listen", "127.0.0.1:0", "--store", store])
            .current_dir(folder)
            .env("OSTLER_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("it has an output")?).read_line(&mut line)?;
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        let address = ready["listen"].as_str().ok_or("it listens")?.to_owned();
        Ok(Self { child, address })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn connect(&self) -> Result<Connection, Error> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(MAX_ANSWER))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(stream), host: self.address.clone() })
    }
}

impl Drop for ServingNode {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that is kept.
struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
}

impl Connection {
    /// The time to the first byte of an answer, and its body.
    fn get(&mut self, path: &str) -> Result<(Duration, String), Error> {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n\r\n", self.host);
        let begun = Instant::now();
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.stream.fill_buf()?;
        let took = begun.elapsed();
        let (mut length, mut status) = (0, String::new());
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.parse()?;
            }
            if status.is_empty() {
                status = line;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        if !status.contains(" 200") {
            return Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body)).into());
        }
        Ok((took, String::from_utf8(body)?))
    }
}
