//! Claim from a queue with limits: ready tasks pass the gates one by one, the lowest rank first.

use std::sync::Arc;

use ostler_core::{ChargeVerdict, Charging, Probe, Rank, State, Timestamp, too_late};
use ostler_store::Check;
use ostler_store::accounts::places_for;
use ostler_store::calls::{Claim, Claimed};
use ostler_store::gates::most_looked_at;
use ostler_store::views::QueueSettings;

use crate::accounts;
use crate::budgets::ClaimBudgets;
use crate::dependents;
use crate::gates::{ClaimGate, ClaimVerdict, GateQuestion};
use crate::limit_keys::{self, Candidate};
use crate::outbox::{OutboxInput, note};
use crate::phase::Phase;
use crate::queue::QueueRow;
use crate::task::{moved, set_state};
use crate::tx::{Tx, key_rules};

/// A candidate: a ready task that may be claimed.
#[derive(Debug)]
pub struct ReadyTask {
    pub slot: i64,
    pub lane: i64,
    pub rank: Rank,
    pub limit: Option<i64>,
    pub cost: u32,
    /// Whether another task ever waited for this one.
    pub awaited: bool,
    pub claimed: Claimed,
}

impl ReadyTask {
    fn question(&self) -> GateQuestion {
        let lease = self.claimed.lease.as_ref();
        let attempt = Probe { task: lease.task, token: lease.token };
        GateQuestion { limit: self.limit, cost: self.cost, attempt }
    }
}

/// The lanes of a queue that a claim serves.
#[derive(Debug)]
pub struct ClaimLanes {
    /// Their numbers and kinds.
    pub lanes: Vec<(i64, Arc<str>)>,
    pub queue: Arc<str>,
    pub settings: QueueSettings,
}

impl ClaimLanes {
    pub fn of(queue: &QueueRow, claim: &Claim) -> Self {
        let served = |(_, kind): &&(i64, Arc<str>)| claim.kinds.has(kind);
        let lanes = queue.lanes.iter().filter(served).cloned().collect();
        Self { lanes, queue: Arc::clone(&queue.name), settings: queue.settings.clone() }
    }
}

/// What a claim needs of a transaction. Each store reads and writes claims in its own way: they are the hot path.
pub trait ClaimTx: Tx {
    /// The number of leased tasks of a queue and of the queues that its pool serves besides, with what this transaction has changed.
    fn leased(&mut self, queue: &str) -> impl Future<Output = Result<u64, Self::Error>> + Send;

    /// The best ready tasks of these lanes, the lowest rank first, except those known to be late.
    fn best(
        &self,
        lanes: &ClaimLanes,
        wanted: usize,
        late: &[(ReadyTask, State)],
    ) -> impl Future<Output = Result<Vec<ReadyTask>, Self::Error>> + Send;

    /// Leases tasks to a session.
    fn take_ready(
        &self,
        tasks: &[ReadyTask],
        session: i64,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// The scan limit of a claim.
struct ScanLimit {
    /// Rows that may still be examined.
    left: usize,
    /// Whether the last round parked tasks, so that there may be claimable ones behind them.
    parked: bool,
}

/// Claims tasks of a queue that is not paused. Returns them, and when there may be more.
///
/// # Errors
/// When a statement fails.
pub async fn run<T: ClaimTx>(
    tx: &mut T,
    claim: &Claim,
    session: i64,
    lanes: &ClaimLanes,
) -> Result<(Vec<ReadyTask>, Option<Timestamp>), T::Error> {
    let pool = match lanes.settings.serving_queue(&claim.queue) {
        Some(pool) => tx.queue(pool).await?.cloned(),
        None => None,
    };
    let Some(queue) = tx.queue(&claim.queue).await? else { return Ok((Vec::new(), None)) };
    let (mut gate, mut clock) = (ClaimGate::of(queue, pool.as_ref()), queue.clock);
    if let Some(shut) = gate.as_ref().and_then(|gate| gate.shut(tx)) {
        return Ok((Vec::new(), shut.until));
    }
    let mut budgets = ClaimBudgets::of(tx, &claim.queue, &lanes.settings).await?;
    if let Some(ChargeVerdict::Wait(until)) = budgets.as_ref().map(|budgets| budgets.ask(tx)) {
        return Ok((Vec::new(), until));
    }
    let account = match &lanes.settings.account {
        Some(name) => AccountPlaces::of(tx, name, claim.limit).await?,
        None => AccountPlaces::all(claim.limit),
    };
    let mut limit = account.places;
    let pool = pool.as_ref().map(|pool| (&*pool.name, &pool.settings));
    for (queue, settings) in [(&*claim.queue, &lanes.settings)].into_iter().chain(pool) {
        if settings.concurrency.is_some() {
            limit = limit.min(places(tx, queue, settings, claim.limit).await?);
        }
    }
    if limit == 0 && claim.limit > 0 {
        return Ok((Vec::new(), account.until));
    }
    if let Some(gate) = &mut gate {
        gate.settle_due(tx).await?;
    }
    let now = tx.now();
    let mut claimed: Vec<ReadyTask> = Vec::new();
    let mut late: Vec<(ReadyTask, State)> = Vec::new();
    let mut next = None;
    let mut look = ScanLimit { left: most_looked_at(limit), parked: true };
    // Each round examines as many tasks as may still be claimed. Another round follows if some of them were parked.
    while next.is_none() && look.parked && claimed.len() + late.len() < limit {
        let wanted = limit - claimed.len() - late.len();
        let ready = tx.best(lanes, wanted.min(look.left + 1), &late).await?;
        look.parked = false;
        let first = claimed.len();
        claimed.reserve(ready.len());
        for mut task in ready {
            if look.left == 0 {
                next = Some(Some(now));
                break;
            }
            look.left -= 1;
            if let Some(state) = too_late(task.claimed.not_after, task.claimed.deadline, now) {
                late.push((task, state));
                continue;
            }
            let amounts = match budgets.as_ref().map(|budgets| budgets.ask(tx)) {
                None => Vec::new(),
                Some(ChargeVerdict::Start(amounts)) => amounts,
                Some(ChargeVerdict::Wait(until)) => {
                    next = Some(until);
                    break;
                }
                Some(ChargeVerdict::Reached(at)) => {
                    if let Some(budgets) = &mut budgets {
                        budgets.reached(at);
                    }
                    next = Some(None);
                    break;
                }
            };
            let verdict = match &mut gate {
                Some(gate) => gate.pass(tx, &task.question()).await?,
                None => ClaimVerdict::Yes,
            };
            match verdict {
                ClaimVerdict::Yes => {}
                ClaimVerdict::Key(shut) => {
                    look.parked = true;
                    let Some(limit) = task.limit else { continue };
                    let candidate = Candidate { slot: task.slot, lane: task.lane, rank: task.rank.0 };
                    limit_keys::park(tx, limit, &candidate, shut.why).await?;
                    continue;
                }
                ClaimVerdict::Queue(shut) => {
                    next = Some(shut.until);
                    break;
                }
            }
            if let Some(budgets) = &mut budgets {
                budgets.reserve(tx, &task, &amounts).await?;
                task.claimed.charging = Charging::Charged;
            }
            clock = clock.advanced(task.rank, task.claimed.priority);
            claimed.push(task);
        }
        // Before the next round looks for others.
        tx.take_ready(&claimed[first..], session).await?;
        for task in &claimed[first..] {
            moved(tx, task.lane, task.limit, Phase::Ready, Phase::Claimed).await?;
        }
    }
    tx.set_clock(&claim.queue, clock).await?;
    if let Some(budgets) = budgets {
        budgets.keep(tx).await?;
    }
    let asked = match gate {
        Some(gate) => Some(gate.keep(tx).await?),
        None => None,
    };
    end_late(tx, lanes, late).await?;
    let keys = match asked {
        Some(asked) => asked.settle(tx).await?,
        None => None,
    };
    let next = [next.flatten(), keys].into_iter().flatten().min();
    Ok((claimed, next))
}

/// How many of `limit` tasks a claim may take within a queue's limit on leased tasks.
async fn places<T: ClaimTx>(
    tx: &mut T,
    queue: &str,
    settings: &QueueSettings,
    limit: usize,
) -> Result<usize, T::Error> {
    let free = settings.free_places(tx.leased(queue).await?).unwrap_or(u64::MAX);
    let within = usize::try_from(free).unwrap_or(usize::MAX).min(limit);
    Ok(if tx.checks().pass(Check::QueuePlaces, false) { limit } else { within })
}

/// What the account of a queue allows a claim to take.
struct AccountPlaces {
    /// The most tasks that it may take.
    places: usize,
    /// When the hold of the account ends.
    until: Option<Timestamp>,
}

impl AccountPlaces {
    const fn all(limit: usize) -> Self {
        Self { places: limit, until: None }
    }

    async fn of<T: ClaimTx>(tx: &mut T, name: &str, limit: usize) -> Result<Self, T::Error> {
        if tx.checks().pass(Check::AccountPlaces, false) {
            return Ok(Self::all(limit));
        }
        let (account, now) = (accounts::read(tx, name).await?, tx.now());
        if let Some(hold) = account.held(now) {
            return Ok(Self { places: 0, until: hold.until });
        }
        let leased = match account.most() {
            Some(_) => tx.leased_of_account(name).await?,
            None => 0,
        };
        Ok(Self { places: places_for(&account, leased, limit, now), until: None })
    }
}

/// Finishes overdue tasks. They come last: finishing one may move other tasks of its key.
///
/// # Errors
/// When a statement fails.
pub async fn end_late<T: Tx>(
    tx: &mut T,
    lanes: &ClaimLanes,
    late: Vec<(ReadyTask, State)>,
) -> Result<(), T::Error> {
    for (task, state) in late {
        set_state(tx, task.slot, task.lane, task.limit, Phase::Ready, &state).await?;
        let rules = key_rules(tx, &lanes.queue).await?;
        limit_keys::settle(tx, task.limit, &rules).await?;
        let attempt = task.claimed.attempt - 1;
        let end = OutboxInput { lane: task.lane, slot: task.slot, attempt, state: &state, outcome: None };
        note(tx, &lanes.settings.subscribers, &end).await?;
        if task.awaited {
            dependents::ended(tx, task.slot).await?;
        }
    }
    Ok(())
}
