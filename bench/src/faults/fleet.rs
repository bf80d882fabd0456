//! A fleet of nodes of the real program, which are killed, stopped and restarted.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::effect;
use crate::Error;

/// How long a node may take to shut down.
const MAX_END: Duration = Duration::from_secs(60);
/// The step and the span of the descriptor limits that successive nodes start with.
const DESCRIPTOR_STEP: usize = 3;
const DESCRIPTOR_SPAN: usize = 25;
/// The polling interval.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The settings of a node.
pub(super) struct Shape {
    /// The store, as in the config.
    pub(super) store: String,
    /// The TTL of leases.
    pub(super) ttl: Duration,
    /// How long a task runs.
    pub(super) run: Duration,
    /// The lowest descriptor limit of nodes, if there is one; each node has another.
    pub(super) descriptors: Option<u32>,
}

/// Several nodes of one store.
pub(super) struct Fleet {
    ostler: PathBuf,
    folder: PathBuf,
    descriptors: Option<u32>,
    nodes: Vec<Child>,
    started: usize,
}

impl Fleet {
    /// Starts `nodes` nodes.
    pub(super) fn start(ostler: &Path, folder: &Path, shape: &Shape, nodes: usize) -> Result<Self, Error> {
        let this = std::env::current_exe()?;
        let command = serde_json::to_string(&[
            &this.display().to_string(),
            effect::WORD,
            &folder.display().to_string(),
            "{{ id }}",
            &shape.run.as_millis().to_string(),
        ])?;
        let heartbeat = shape.ttl / 4;
        let config = format!(
            "store = {:?}\nshutdown_timeout = \"10s\"\nlease = {{ ttl = \"{}ms\", heartbeat = \"{}ms\", poll = \"200ms\" }}\n\
             [pool.work]\nexecutor = \"command\"\ncommand = {command}\nmax_workers = 4\ntimeout = \"1m\"\n\
             retry = {{ attempts = 100, backoff = \"fixed\", base = \"100ms\", max = \"1s\", jitter = false, max_crashes = 100, max_node_deaths = 100 }}\n",
            shape.store,
            shape.ttl.as_millis(),
            heartbeat.as_millis(),
        );
        std::fs::write(folder.join("ostler.toml"), config)?;
        let (ostler, folder) = (ostler.to_owned(), folder.to_owned());
        let mut fleet =
            Self { ostler, folder, descriptors: shape.descriptors, nodes: Vec::new(), started: 0 };
        for _ in 0..nodes {
            let node = fleet.node()?;
            fleet.nodes.push(node);
        }
        Ok(fleet)
    }

    fn node(&mut self) -> Result<Child, Error> {
        self.started += 1;
        let log = OpenOptions::new().append(true).create(true).open(self.folder.join("nodes.log"))?;
        let limit = self.descriptors.map_or(String::new(), |least| {
            let most = usize::try_from(least).unwrap_or(0) + self.started * DESCRIPTOR_STEP % DESCRIPTOR_SPAN;
            format!("ulimit -n {most}; ")
        });
        let mut node = Command::new("sh");
        node.args(["-c", &format!("{limit}exec \"$0\" up --name \"$1\"")]).arg(&self.ostler);
        node.arg(format!("node-{}", self.started)).current_dir(&self.folder);
        node.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(node.spawn()?)
    }

    /// The process id of a node.
    pub(super) fn pid(&self, at: usize) -> Result<Pid, Error> {
        let id = self.nodes.get(at).ok_or("there is no such node")?.id();
        Ok(Pid::from_raw(i32::try_from(id)?).ok_or("a process without a number")?)
    }

    /// The supervisor of a node's children, if it is running.
    pub(super) fn supervisor(&self, at: usize) -> Option<Pid> {
        children(self.pid(at).ok()?).into_iter().next()
    }

    /// A child of a node, if one is running.
    pub(super) fn child(&self, at: usize) -> Option<Pid> {
        children(self.supervisor(at)?).into_iter().next()
    }

    /// Restarts nodes that have exited; returns their number.
    pub(super) fn mend(&mut self) -> Result<usize, Error> {
        let mut mended = 0;
        for at in 0..self.nodes.len() {
            if self.nodes[at].try_wait()?.is_some() {
                self.nodes[at] = self.node()?;
                mended += 1;
            }
        }
        Ok(mended)
    }

    /// Lifts the descriptor limit: restarts all nodes without one.
    pub(super) async fn lift_descriptor_limit(&mut self) -> Result<(), Error> {
        if self.descriptors.take().is_some() {
            self.end().await?;
            self.mend()?;
        }
        Ok(())
    }

    /// Asks all nodes to shut down, and waits for them.
    pub(super) async fn end(&mut self) -> Result<(), Error> {
        for at in 0..self.nodes.len() {
            if self.nodes[at].try_wait()?.is_none() {
                let _ = kill_process(self.pid(at)?, Signal::TERM);
            }
        }
        let begun = Instant::now();
        for node in &mut self.nodes {
            while node.try_wait()?.is_none() {
                if begun.elapsed() > MAX_END {
                    return Err("a node does not end after SIGTERM".into());
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        Ok(())
    }

    /// The number of task processes still running.
    pub(super) fn left(&self) -> usize {
        let folder = self.folder.display().to_string();
        let lines = std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines
            .filter(|line| String::from_utf8_lossy(line).contains(&format!("{}\0{folder}", effect::WORD)))
            .count()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if matches!(node.try_wait(), Ok(None)) {
                let _ = node.kill();
                let _ = node.wait();
            }
        }
    }
}

/// The children of a process.
fn children(of: Pid) -> Vec<Pid> {
    let pid = of.as_raw_nonzero();
    // Each of its threads has its own children.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .filter_map(Pid::from_raw)
        .collect()
}
