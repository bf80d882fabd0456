//! What is done to the nodes: drawn by chance, and repeatable by its seed.

use std::path::Path;
use std::time::Duration;

use ostler_core::Seed;
use rustix::process::{Pid, Signal, kill_process};

use super::NODES;
use super::fleet::{Fleet, Shape};
use crate::Error;
use crate::child::monotonic;
use crate::postgres::bare::connect;
use crate::postgres::faults::crash;

/// A node that may open no more files than this does not start; with a few more it starts, and cannot run four children.
const FEW_DESCRIPTORS: u32 = 20;
/// How long a node is stopped, in percent of the time to live of its leases.
const STOPPED_PERCENT: u32 = 250;
/// What takes the room on the small disk.
const BALLAST: &str = "disk/ballast";

/// A sort of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Faults {
    /// Nodes, supervisors and children are killed; nodes are told to go, once or twice.
    Kills,
    /// Nodes are stopped for longer than their leases live.
    Pauses,
    /// Nodes may open hardly any file.
    Descriptors,
    /// The disk is full, and has room again.
    FullDisk,
    /// Backends are ended and killed, which restarts the server; nodes are killed.
    Server,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A node is killed with -9.
    Node,
    /// The supervisor of a node's children is.
    Supervisor,
    /// A child is.
    Child,
    /// A node is told to go.
    Term,
    /// A node is told to go twice.
    TermTwice,
    /// A node is stopped past its lease, and goes on.
    Stop,
    /// The disk is filled, and has room again.
    Full,
    /// The server ends a connection.
    Terminate,
    /// A process of the server's is killed with -9: all of it starts anew.
    Crash,
}

impl Faults {
    /// How often something happens.
    pub(super) const fn rounds(self, wanted: u64) -> u64 {
        match self {
            Self::Kills | Self::Server => wanted,
            // Each takes seconds.
            Self::Pauses | Self::FullDisk => wanted.div_ceil(10),
            Self::Descriptors => wanted.div_ceil(4),
        }
    }

    /// The time between two of them.
    pub(super) fn pause(self, seed: &mut Seed) -> Duration {
        match self {
            Self::Kills => Duration::from_millis(100 + seed.below(400)),
            Self::Pauses | Self::Descriptors | Self::FullDisk | Self::Server => {
                Duration::from_millis(500 + seed.below(1_000))
            }
        }
    }

    /// The next one.
    pub(super) fn draw(self, seed: &mut Seed) -> Fault {
        let of = |faults: &[Fault], seed: &mut Seed| {
            let at = usize::try_from(seed.below(faults.len() as u64)).unwrap_or(0);
            faults.get(at).copied().unwrap_or(Fault::Node)
        };
        match self {
            Self::Kills => of(
                &[Fault::Node, Fault::Node, Fault::Supervisor, Fault::Child, Fault::Term, Fault::TermTwice],
                seed,
            ),
            Self::Pauses => Fault::Stop,
            Self::Descriptors => Fault::Term,
            Self::FullDisk => Fault::Full,
            Self::Server => of(&[Fault::Terminate, Fault::Terminate, Fault::Crash, Fault::Node], seed),
        }
    }

    /// The least that nodes may open, where that is bounded.
    pub(super) const fn descriptors(self) -> Option<u32> {
        match self {
            Self::Descriptors => Some(FEW_DESCRIPTORS),
            Self::Kills | Self::Pauses | Self::FullDisk | Self::Server => None,
        }
    }
}

impl Fault {
    /// Makes it happen, to a node drawn by chance. Answers when it did, if it did.
    pub(super) async fn happen(
        self,
        fleet: &mut Fleet,
        seed: &mut Seed,
        shape: &Shape,
        folder: &Path,
    ) -> Result<Option<Duration>, Error> {
        let at = usize::try_from(seed.below(NODES as u64))?;
        let node = fleet.pid(at)?;
        let now = monotonic();
        let hit = match self {
            Self::Node => signal(Some(node), Signal::KILL),
            Self::Supervisor => signal(fleet.supervisor(at), Signal::KILL),
            Self::Child => signal(fleet.child(at), Signal::KILL),
            Self::Term => signal(Some(node), Signal::TERM),
            Self::TermTwice => {
                signal(Some(node), Signal::TERM);
                tokio::time::sleep(Duration::from_millis(20)).await;
                signal(Some(node), Signal::TERM)
            }
            Self::Stop => {
                let stopped = signal(Some(node), Signal::STOP);
                tokio::time::sleep(shape.ttl * STOPPED_PERCENT / 100).await;
                stopped && signal(Some(node), Signal::CONT)
            }
            Self::Full => {
                fill(folder);
                tokio::time::sleep(Duration::from_millis(1_500 + seed.below(2_000))).await;
                Self::over(folder)?;
                true
            }
            Self::Terminate => terminate(&shape.store).await.is_ok(),
            Self::Crash => {
                crash(&shape.store).await?;
                true
            }
        };
        Ok(hit.then_some(now))
    }

    /// There is room on the disk again.
    pub(super) fn over(folder: &Path) -> Result<(), Error> {
        match std::fs::remove_file(folder.join(BALLAST)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Takes all the room there is.
fn fill(folder: &Path) {
    // It ends with an error: the disk is full.
    let _ = std::fs::File::create(folder.join(BALLAST))
        .and_then(|mut file| std::io::copy(&mut std::io::repeat(0), &mut file));
}

fn signal(whom: Option<Pid>, signal: Signal) -> bool {
    whom.is_some_and(|whom| kill_process(whom, signal).is_ok())
}

/// Ends a connection of somebody else's, by chance of the server's.
async fn terminate(url: &str) -> Result<(), Error> {
    let client = connect(url).await?;
    let ended = "select pg_terminate_backend(pid) from pg_stat_activity \
                 where datname = current_database() and pid <> pg_backend_pid() order by random() limit 1";
    client.query(ended, &[]).await?;
    Ok(())
}
