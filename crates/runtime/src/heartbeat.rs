//! Heartbeat and self-fencing, on a dedicated OS thread with its own runtime: neither handlers nor busy pools can delay it.
//!
//! A renewal counts from the time it was *sent*. When none has succeeded for so long that the lease may soon expire
//! elsewhere, the node fences itself and stops its work. The same happens when the thread wakes up and finds that it was
//! suspended for too long, as after a SIGSTOP. While it is suspended, the guard ends the work: each renewal extends the
//! guard's deadline.
//!
//! Renewals also reconcile held leases between node and store: the store drops leases that the node no longer holds, and
//! the node hands back leases that it does not know (see `orphans.rs`).

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ostler_core::SessionId;
use ostler_exec::LivenessHolder;
use ostler_store::calls::Renewed;
use ostler_store::node_commands::{NodeAnswer, NodeCommand, NumberedCommand, Reply};
use ostler_store::{Clock, Lease, LeaseRef, Store, Wakeups};
use tokio::sync::mpsc;

use crate::config::LeaseTimes;
use crate::finisher::Finisher;
use crate::leases::StopReason;
use crate::lifecycle::{NodeLifecycle, NodeState};
use crate::orphans::Orphans;
use crate::recycler::CommandRequest;
use crate::sizes::Sizes;

/// Upper bound on how late a node receives a cancel or node command, whatever its heartbeat: the store sends a control
/// signal, but a signal may be lost.
const NEWS: Duration = Duration::from_secs(1);
/// The shortest time between two renewals, however many signals arrive.
const SHORTEST: Duration = Duration::from_millis(20);
/// The part of the TTL after which a node that could not renew stops its work; the rest is left for stopping.
const FENCE_PERCENT: u32 = 75;
/// The part of the TTL after which the guard ends the work of a node that did not: later than the node itself would, and
/// early enough to be done when the lease expires.
const GUARD_PERCENT: u32 = 87;

/// The heartbeat of one session.
pub(crate) struct LeaseKeeper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) session: SessionId,
    pub(crate) times: LeaseTimes,
    pub(crate) lifecycle: NodeLifecycle,
    pub(crate) sizes: Sizes,
    /// Receives hand-backs.
    pub(crate) finisher: Finisher,
    /// Ends the work if this thread cannot.
    pub(crate) guard: Option<Arc<dyn LivenessHolder>>,
    /// Receives recycle commands, and replies.
    pub(crate) requests: mpsc::Sender<CommandRequest>,
}

impl LeaseKeeper {
    /// Starts the thread. It keeps running during a drain and stops when the node is fenced or has ended.
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("ostler-beat".into()).spawn(move || runtime.block_on(self.beat()))
    }

    async fn beat(self) {
        let mut watching = self.lifecycle.watch();
        let mut news = self.store.control();
        let mut obeyed = 0;
        let mut orphans = Orphans::default();
        let pause = self.times.heartbeat.min(NEWS);
        let patience = self.times.ttl * FENCE_PERCENT / 100;
        let mut renewed_at = self.clock.uptime();
        loop {
            if matches!(*watching.borrow_and_update(), NodeState::Ended | NodeState::Fenced) {
                return;
            }
            news.arm();
            let sent_at = self.clock.uptime();
            if sent_at.saturating_sub(renewed_at) > patience {
                return self.lifecycle.fence();
            }
            let left = patience.saturating_sub(sent_at.saturating_sub(renewed_at));
            let leases = self.lifecycle.held.leases();
            let renewal = tokio::time::timeout(left, self.store.renew(self.session, &leases));
            let renewed = tokio::select! {
                renewed = renewal => renewed,
                // Fenced or over: the answer is not awaited.
                changed = watching.changed() => if changed.is_err() { return } else { continue },
            };
            match renewed {
                Ok(Ok(Renewed::Held { cancelled, lost, unnamed, commands })) => {
                    renewed_at = sent_at;
                    let end = sent_at + self.times.ttl * GUARD_PERCENT / 100;
                    self.guard.iter().for_each(|guard| guard.live_until(end));
                    self.lifecycle.held.stop(&cancelled, &leases, StopReason::Cancelled);
                    self.lifecycle.held.stop(&lost, &leases, StopReason::Lost);
                    for orphan in orphans.see(&unnamed, &self.lifecycle.held) {
                        self.hand_back(orphan);
                    }
                    // Every renewal lists all pending commands; skip those already executed.
                    for NumberedCommand { number, command } in commands {
                        if number > obeyed {
                            obeyed = number;
                            self.obey(number, command);
                        }
                    }
                }
                Ok(Ok(Renewed::Ended)) => return self.lifecycle.fence(),
                // An unknown result is not a lost lease: another attempt follows before the patience ends.
                Ok(Err(_)) | Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = rung(&mut news) => {}
                changed = watching.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Hands back a task that the store has leased to this node, but the node does not know. Never blocks: if the report
    /// queue is full, the next renewal lists the lease again.
    fn hand_back(&self, orphan: LeaseRef) {
        self.lifecycle.held.report(orphan);
        if !self.finisher.try_hand_back(Lease::granted(orphan)) {
            self.lifecycle.held.reported(&[orphan]);
        }
    }

    fn obey(&self, number: u64, command: NodeCommand) {
        match command {
            // The node's owner observes the state and drains it with a timeout of its choice.
            NodeCommand::Drain => self.lifecycle.drain(),
            NodeCommand::Resume => {
                let answer = NodeAnswer::Resume(self.lifecycle.resume());
                self.request(CommandRequest::Reply(Reply { number, answer }));
            }
            NodeCommand::Resize { pool, min, max } => self.sizes.resize(&pool, min, max),
            NodeCommand::Recycle { pool, who } => {
                self.request(CommandRequest::Recycle { number, pool, who });
            }
        }
    }

    /// The channel has room for all commands that a node can have. Never blocks: the heartbeat must go on.
    fn request(&self, request: CommandRequest) {
        drop(self.requests.try_send(request));
    }
}

/// Waits for a control signal, then briefly for others that arrive at the same time.
async fn rung(news: &mut Wakeups) {
    news.wait().await;
    tokio::time::sleep(SHORTEST).await;
}
