//! The heartbeat, on an OS thread of its own with a runtime of its own: no handler, and no full or busy pool, can keep it
//! from beating.
//!
//! It is also the fence. A renewal counts from the moment it was *sent*; when none has come through for so long that the
//! lease may soon end elsewhere, the node stops its work by itself. The same happens when the thread wakes up and finds
//! that it was asleep for too long, as after a SIGSTOP. While it sleeps, the guard ends the work: it is told of every renewal.
//!
//! And it makes the node and the store agree on what the node holds: what the node has not, the store takes from it; what it does not know of
//! (see `orphans.rs`), the node hands back.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ostler_core::SessionId;
use ostler_exec::LivenessHolder;
use ostler_store::calls::{Renewed, Report};
use ostler_store::node_commands::{NodeCommand, NumberedCommand};
use ostler_store::{Clock, Lease, LeaseRef, Store, Wakeups};
use tokio::sync::mpsc;

use crate::config::LeaseTimes;
use crate::finisher::Finisher;
use crate::leases::StopReason;
use crate::lifecycle::{NodeLifecycle, NodeState};
use crate::orphans::Orphans;
use crate::recycler::RecycleRequest;
use crate::sizes::Sizes;

/// How soon a node hears of a cancel or an order at the latest, whatever its heartbeat is: the store rings when there is one, but
/// a ring may be lost.
const NEWS: Duration = Duration::from_secs(1);
/// The shortest time between two renewals, however often it rings.
const SHORTEST: Duration = Duration::from_millis(20);
/// The part of the TTL after which a node that could not renew stops its work: the rest is for stopping.
const FENCE_PERCENT: u32 = 75;
/// The part of the TTL after which the guard ends the work of a node that did not: later than the node itself would, and early
/// enough to be done when the lease ends.
const GUARD_PERCENT: u32 = 87;

/// Beats for one session.
pub(crate) struct LeaseKeeper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) session: SessionId,
    pub(crate) times: LeaseTimes,
    pub(crate) lifecycle: NodeLifecycle,
    pub(crate) sizes: Sizes,
    /// Where hand-backs go.
    pub(crate) finisher: Finisher,
    /// Who ends the work if this thread does not get to it.
    pub(crate) guard: Option<Arc<dyn LivenessHolder>>,
    /// Where orders about workers go.
    pub(crate) recycles: mpsc::Sender<RecycleRequest>,
}

impl LeaseKeeper {
    /// Starts to beat. It goes on through a drain, and ends when the node has ended.
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
                // Fenced or over: no answer is waited for.
                changed = watching.changed() => if changed.is_err() { return } else { continue },
            };
            match renewed {
                Ok(Ok(Renewed::Held { cancelled, lost, unnamed, commands: orders })) => {
                    renewed_at = sent_at;
                    let end = sent_at + self.times.ttl * GUARD_PERCENT / 100;
                    self.guard.iter().for_each(|guard| guard.live_until(end));
                    self.lifecycle.held.stop(&cancelled, &leases, StopReason::Cancelled);
                    self.lifecycle.held.stop(&lost, &leases, StopReason::Lost);
                    for orphan in orphans.see(&unnamed, &self.lifecycle.held) {
                        self.hand_back(orphan);
                    }
                    // They are told with every renewal: what was heard before is not done again.
                    for NumberedCommand { number, command: order } in orders {
                        if number > obeyed {
                            obeyed = number;
                            self.obey(number, order);
                        }
                    }
                }
                Ok(Ok(Renewed::Ended)) => return self.lifecycle.fence(),
                // Unknown is not lost: another try comes before the patience ends.
                Ok(Err(_)) | Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = rung(&mut news) => {}
                changed = watching.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Hands back a task that the store has for this node, and the node has not. Nobody waits here: if there are too many reports, the
    /// next renewal tells of it again.
    fn hand_back(&self, orphan: LeaseRef) {
        self.lifecycle.held.report(orphan);
        if !self.finisher.try_report(Report::hand_back(Lease::granted(orphan))) {
            self.lifecycle.held.reported(&[orphan]);
        }
    }

    fn obey(&self, number: u64, order: NodeCommand) {
        match order {
            // Whoever owns the node sees that it drains, and gives it the time to.
            NodeCommand::Drain => self.lifecycle.drain(),
            NodeCommand::Resize { pool, min, max } => self.sizes.resize(&pool, min, max),
            // There is room for all orders that a node can have. Nobody waits here: the beat goes on.
            NodeCommand::Recycle { pool, who } => {
                drop(self.recycles.try_send(RecycleRequest { number, pool, who }))
            }
        }
    }
}

/// Waits for news, and then for more of it that comes at the same time.
async fn rung(news: &mut Wakeups) {
    news.wait().await;
    tokio::time::sleep(SHORTEST).await;
}
