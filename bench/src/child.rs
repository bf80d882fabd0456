//! Child process of a measurement: this program, started again. It receives its commands on standard input and exits when
//! that is closed, so it cannot outlive its parent.

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
use crate::{Bench, Error, isolates, node, postgres, rate};

/// A queue other than the measured one.
const HOT_QUEUE: &str = "hot";
/// The shape of a hot writer: hardly a pause between two commits.
const HOT: Shape = Shape::Pipelined(128);
/// The interval at which a hot writer checks whether to exit.
const HOT_SPELL: Duration = Duration::from_millis(200);
/// How long plain programs wait for each other's locks.
pub(crate) const MAX_BUSY: Duration = Duration::from_secs(30);

/// The role of the child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Enqueues one task for each line it reads, and answers with the time before the enqueue.
    Enqueuer,
    /// The same on the PostgreSQL store.
    SharedEnqueuer,
    /// Runs tasks through the store as fast as possible.
    HotStore,
    /// The same with bare statements.
    HotCeiling,
    /// A node without work.
    IdleNode,
    /// A node that will be killed.
    Victim,
    /// A node that shares a rate.
    RatedNode,
    /// The supervisor of a node's children.
    Supervisor,
    /// A host of functions.
    Host,
    /// Calls functions on its only thread.
    Engine,
}

impl Role {
    const ALL: [Self; 10] = [
        Self::Enqueuer,
        Self::SharedEnqueuer,
        Self::HotStore,
        Self::HotCeiling,
        Self::IdleNode,
        Self::Victim,
        Self::RatedNode,
        Self::Supervisor,
        Self::Host,
        Self::Engine,
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
            Self::Host => "host",
            Self::Engine => "engine",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// `CLOCK_MONOTONIC`, which all processes share: an `Instant` cannot be sent to another process.
pub(crate) fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Runs a role in the child process.
pub(crate) fn run(role: Role, path: &Path) -> Result<(), Error> {
    // Before anything else is started: a supervisor is small, and V8 is there before other threads.
    match role {
        Role::Supervisor => return Ok(ostler_process::supervisor::serve()?),
        Role::Host => match ostler_isolate::host_process::run()? {},
        Role::Engine => return isolates::run_alone(&path.to_string_lossy()),
        Role::Enqueuer
        | Role::SharedEnqueuer
        | Role::HotStore
        | Role::HotCeiling
        | Role::IdleNode
        | Role::Victim
        | Role::RatedNode => {}
    }
    let bench = Bench::new(crate::Scale::FULL, None)?;
    match role {
        Role::Supervisor | Role::Host | Role::Engine => {}
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

/// Sends a line to the parent.
pub(crate) fn say(line: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Reports readiness; the returned flag becomes true when standard input is closed.
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

/// A child process, as its parent sees it.
pub(crate) struct Other {
    child: Child,
    /// Closed first to end the child.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts a child, and waits until it is ready.
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

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the child with SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> Result<(), Error> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends the child its next command.
    pub(crate) fn tell(&mut self) -> Result<(), Error> {
        let input = self.input.as_mut().ok_or("the child was ended")?;
        Ok(input.write_all(b"\n")?)
    }

    /// The child's next line.
    pub(crate) fn hear(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("the child has ended".into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Ends the child, and waits for a successful exit.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.input = None;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the child ended with {status}").into()) }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // After an error the child is not waited for; it exits once its input is closed.
        self.input = None;
        let _ = self.child.wait();
    }
}
