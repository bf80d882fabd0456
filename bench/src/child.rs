//! The other process of a measurement: this program, started again. It is told to go on through its standard input,
//! and ends when that is closed; so it cannot outlive the one who started it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_sqlite::Durability;

use crate::ceiling::{Bare, Synchronous};
use crate::load::{Keys, Shape};
use crate::ours::Ours;
use crate::{Bench, Error, node, postgres, rate};

/// Another queue than the one that is measured.
const HOT_QUEUE: &str = "hot";
/// How a hot writer works: it hardly ever pauses between two commits.
const HOT: Shape = Shape::Pipelined(128);
/// How often a hot writer looks whether it is to end.
const HOT_SPELL: Duration = Duration::from_millis(200);
/// How long plain programs wait for each other.
pub(crate) const MAX_BUSY: Duration = Duration::from_secs(30);

/// What the other process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Enqueues one task for each line it reads, and answers with the moment before.
    Enqueuer,
    /// The same on the shared store.
    SharedEnqueuer,
    /// Brings tasks through the store as fast as it can.
    HotStore,
    /// The same with bare statements.
    HotCeiling,
    /// A node with nothing to do.
    IdleNode,
    /// A node that will be killed.
    Victim,
    /// A node that shares a rate.
    RatedNode,
    /// The supervisor of a node's children.
    Supervisor,
}

impl Role {
    const ALL: [Self; 8] = [
        Self::Enqueuer,
        Self::SharedEnqueuer,
        Self::HotStore,
        Self::HotCeiling,
        Self::IdleNode,
        Self::Victim,
        Self::RatedNode,
        Self::Supervisor,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Enqueuer => "enqueuer",
            Self::SharedEnqueuer => "shared-enqueuer",
            Self::HotStore => "hot-store",
            Self::HotCeiling => "hot-ceiling",
            Self::IdleNode => "idle-node",
            Self::Victim => "victim",
            Self::RatedNode => "rated-node",
            Self::Supervisor => "supervisor",
        }
    }

    /// The role with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// `CLOCK_MONOTONIC`, which all processes share: `Instant` cannot be told to another process.
pub(crate) fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// What the started process does.
pub(crate) fn run(role: Role, path: &Path) -> Result<(), Error> {
    if role == Role::Supervisor {
        // Before anything else is started: it is a small process, and stays one.
        return Ok(ostler_process::supervisor::serve()?);
    }
    let bench = Bench::new(crate::Scale::FULL, None)?;
    match role {
        Role::Supervisor => {}
        Role::IdleNode => return node::serve_idle(&bench, path),
        Role::Victim => return node::serve_victim(&bench, path),
        Role::RatedNode => return rate::serve(&bench, path),
        Role::SharedEnqueuer => return postgres::serve_enqueuer(&bench, &path.to_string_lossy()),
        Role::Enqueuer => {
            let ours = bench.runtime.block_on(Ours::open(path, Durability::Full, Keys::Without))?;
            say("ready")?;
            for line in std::io::stdin().lines() {
                line?;
                let before = monotonic();
                bench.runtime.block_on(ours.enqueue_one())?;
                say(&before.as_nanos().to_string())?;
            }
        }
        Role::HotStore => {
            let ours = Ours::open_queue(path, Durability::Full, Keys::Without, HOT_QUEUE);
            let ours = bench.runtime.block_on(ours)?;
            let ended = ended()?;
            while !ended.load(Ordering::Relaxed) {
                bench.runtime.block_on(ours.run(HOT, HOT_SPELL))?;
            }
        }
        Role::HotCeiling => {
            let mut bare = Bare::open(path, Synchronous::Full)?;
            bare.wait_for_others(MAX_BUSY)?;
            let ended = ended()?;
            while !ended.load(Ordering::Relaxed) {
                bare.run(HOT, HOT_SPELL)?;
            }
        }
    }
    Ok(())
}

/// Says a line to whoever started this process.
pub(crate) fn say(line: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Says that it is ready; the answer turns true when the standard input is closed.
fn ended() -> Result<Arc<AtomicBool>, Error> {
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        end.store(true, Ordering::Relaxed);
    });
    say("ready")?;
    Ok(ended)
}

/// A started process, as the one who started it sees it.
pub(crate) struct Other {
    child: Child,
    /// Closed first of all when it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts one, and waits until it is ready.
    pub(crate) fn start(role: Role, path: &Path) -> Result<Self, Error> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["child", role.name()])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("the child has no output")?;
        let mut other = Self { child, input, output: BufReader::new(output) };
        other.hear()?;
        Ok(other)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with -9, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> Result<(), Error> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Tells it to go on.
    pub(crate) fn tell(&mut self) -> Result<(), Error> {
        let input = self.input.as_mut().ok_or("the child was ended")?;
        Ok(input.write_all(b"\n")?)
    }

    /// Its next line.
    pub(crate) fn hear(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("the child has ended".into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Ends it, and waits until it has ended well.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.input = None;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the child ended with {status}").into()) }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // After an error here nobody waits for it; without an input it ends by itself.
        self.input = None;
        let _ = self.child.wait();
    }
}
