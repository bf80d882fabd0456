//! Random faults: drawn from a seed, so that a run is repeatable.

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

/// Below this many file descriptors a node does not start; with a few more it starts, but cannot run four children.
const FEW_DESCRIPTORS: u32 = 20;
/// How long a node is stopped, in percent of its lease TTL.
const STOPPED_PERCENT: u32 = 250;
/// The file that fills the small disk.
const BALLAST: &str = "disk/ballast";

/// A class of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Faults {
    /// Kills nodes, supervisors and children; asks nodes to shut down, once or twice.
    Kills,
    /// Stops nodes for longer than their leases last.
    Pauses,
    /// Gives nodes hardly any file descriptors.
    Descriptors,
    /// Fills the disk, and frees it again.
    FullDisk,
    /// Ends and kills backends, which restarts the server; kills nodes.
    Server,
}

/// A single fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Kills a node with SIGKILL.
    Node,
    /// Kills the supervisor of a node's children with SIGKILL.
    Supervisor,
    /// Kills a child with SIGKILL.
    Child,
    /// Asks a node to shut down.
    Term,
    /// Asks a node to shut down, twice.
    TermTwice,
    /// Stops a node past its lease, and continues it.
    Stop,
    /// Fills the disk, and frees it again.
    Full,
    /// Ends a connection on the server.
    Terminate,
    /// Kills a process of the server with SIGKILL, which restarts all of it.
    Crash,
}

impl Faults {
    /// The number of faults.
    pub(super) const fn rounds(self, wanted: u64) -> u64 {
        match self {
            Self::Kills | Self::Server => wanted,
            // Each takes seconds.
            Self::Pauses | Self::FullDisk => wanted.div_ceil(10),
            Self::Descriptors => wanted.div_ceil(4),
        }
    }

    /// The time between two faults.
    pub(super) fn pause(self, seed: &mut Seed) -> Duration {
        match self {
            Self::Kills => Duration::from_millis(100 + seed.below(400)),
            Self::Pauses | Self::Descriptors | Self::FullDisk | Self::Server => {
                Duration::from_millis(500 + seed.below(1_000))
            }
        }
    }

    /// The next fault.
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

    /// The lowest descriptor limit of nodes, where there is one.
    pub(super) const fn descriptors(self) -> Option<u32> {
        match self {
            Self::Descriptors => Some(FEW_DESCRIPTORS),
            Self::Kills | Self::Pauses | Self::FullDisk | Self::Server => None,
        }
    }
}

impl Fault {
    /// Injects the fault into a random node. Returns the time of the fault, if it took effect.
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

    /// Frees the disk.
    pub(super) fn over(folder: &Path) -> Result<(), Error> {
        match std::fs::remove_file(folder.join(BALLAST)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Fills the disk.
fn fill(folder: &Path) {
    // Ends with an error when the disk is full.
    let _ = std::fs::File::create(folder.join(BALLAST))
        .and_then(|mut file| std::io::copy(&mut std::io::repeat(0), &mut file));
}

fn signal(whom: Option<Pid>, signal: Signal) -> bool {
    whom.is_some_and(|whom| kill_process(whom, signal).is_ok())
}

/// Ends a random connection other than this one.
async fn terminate(url: &str) -> Result<(), Error> {
    let client = connect(url).await?;
    let ended = "select pg_terminate_backend(pid) from pg_stat_activity \
                 where datname = current_database() and pid <> pg_backend_pid() order by random() limit 1";
    client.query(ended, &[]).await?;
    Ok(())
}
