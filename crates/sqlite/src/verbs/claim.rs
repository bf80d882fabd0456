//! Claim: leases the ready tasks of lowest rank to a session.

use std::sync::Arc;

use ostler_core::{Priority, Probe, Rank, State, TaskId, Timestamp, too_late};
use ostler_sql::poll_now;
use ostler_sql::task::{moved, set_state};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed};
use ostler_store::gates::most_looked_at;
use ostler_store::views::QueueSettings;
use ostler_store::{Check, Lease, LeaseRef};
use rusqlite::{Row, params};

use crate::fault::readable;
use crate::row::{Mishaps, Phase, Uid};
use crate::shared_tx::unreadable;
use crate::tx::{Grant, Sql, Tx};
use ostler_sql::codec::extras_from;
use ostler_sql::dependents;
use ostler_sql::gates::{ClaimGate, ClaimVerdict, GateQuestion};
use ostler_sql::limit_keys::{self, Candidate};
use ostler_sql::outbox::{OutboxInput, note};

/// A candidate: a ready task that may be claimed.
struct ReadyTask {
    slot: i64,
    lane: i64,
    rank: Rank,
    limit: Option<i64>,
    cost: u32,
    /// Whether another task ever waited for this one.
    awaited: bool,
    claimed: Claimed,
}

const TAKE: &str =
    "UPDATE task SET phase = 3, why = 0, token = token + 1, session = ?2, started_at = NULL WHERE id = ?1";

pub(crate) fn run(tx: &mut Tx<'_>, claim: &Claim) -> Sql<ClaimAnswer> {
    let Some(session) = tx.live_session(claim.session, Check::ClaimSession)? else {
        return Ok(ClaimAnswer::SessionEnded);
    };
    let nothing = |next| Ok(ClaimAnswer::Tasks { tasks: Vec::new(), next });
    if tx.departure()?.is_some() {
        return nothing(None);
    }
    let Some(queue) = tx.queue(&claim.queue)? else { return nothing(None) };
    if queue.settings.paused.is_some() {
        return nothing(None);
    }
    let mut claim_gate = ClaimGate::of(queue);
    let (name, settings, mut clock) = (Arc::clone(&queue.name), queue.settings.clone(), queue.clock);
    let served = |(_, kind): &&(i64, Arc<str>)| claim.kinds.has(kind);
    let lanes: Vec<(i64, Arc<str>)> = queue.lanes.iter().filter(served).cloned().collect();
    if let Some(shut) = claim_gate.as_ref().and_then(|claim_gate| claim_gate.shut(tx)) {
        return nothing(shut.until);
    }
    let limit = match settings.concurrency {
        Some(_) => places(tx, &settings, claim)?,
        None => claim.limit,
    };
    if limit == 0 && claim.limit > 0 {
        return nothing(None);
    }
    if let Some(claim_gate) = &mut claim_gate {
        poll_now(claim_gate.settle_due(tx))?;
    }
    let lanes = Lanes { lanes: &lanes, queue: &name, settings: &settings };
    let now = tx.now;
    let mut take = tx.prepare(TAKE)?;
    let mut claimed = Vec::new();
    let mut late: Vec<(ReadyTask, State)> = Vec::new();
    let mut next = None;
    let mut look = ScanLimit { left: most_looked_at(limit), parked: true };
    // Each round examines as many tasks as may still be claimed. Another round follows if some of them were parked.
    while next.is_none() && look.parked && claimed.len() + late.len() < limit {
        let wanted = limit - claimed.len() - late.len();
        let ready = lanes.best(tx, wanted.min(look.left + 1), &late)?;
        look.parked = false;
        claimed.reserve(ready.len());
        for task in ready {
            if look.left == 0 {
                next = Some(Some(now));
                break;
            }
            look.left -= 1;
            if let Some(state) = too_late(task.claimed.not_after, task.claimed.deadline, now) {
                late.push((task, state));
                continue;
            }
            match claim_gate
                .as_mut()
                .map_or(Ok(ClaimVerdict::Yes), |claim_gate| poll_now(claim_gate.pass(tx, &task.asks())))?
            {
                ClaimVerdict::Yes => {}
                ClaimVerdict::Key(shut) => {
                    look.parked = true;
                    let Some(limit) = task.limit else { continue };
                    let candidate = Candidate { slot: task.slot, lane: task.lane, rank: task.rank.0 };
                    poll_now(limit_keys::park(tx, limit, &candidate, shut.why))?;
                    continue;
                }
                ClaimVerdict::Queue(shut) => {
                    next = Some(shut.until);
                    break;
                }
            }
            take.execute(params![task.slot, session])?;
            let (token, runs) = (task.claimed.lease.as_ref().token, task.claimed.attempt - 1);
            let grant = Grant { token, lane: task.lane, limit: task.limit, session, runs };
            tx.remember(task.slot, grant);
            poll_now(moved(tx, task.lane, task.limit, Phase::Ready, Phase::Claimed))?;
            clock = clock.advanced(task.rank, task.claimed.priority);
            claimed.push(task.claimed);
        }
    }
    tx.set_clock(&claim.queue, clock)?;
    let asked = claim_gate.map(|claim_gate| poll_now(claim_gate.keep(tx))).transpose()?;
    // Overdue tasks come last: finishing one may move other tasks of its key.
    for (task, state) in late {
        poll_now(set_state(tx, task.slot, task.lane, task.limit, Phase::Ready, &state))?;
        let rules = tx.key_rules(&name)?;
        poll_now(limit_keys::settle(tx, task.limit, &rules))?;
        let attempt = task.claimed.attempt - 1;
        let end = OutboxInput { lane: task.lane, slot: task.slot, attempt, state: &state, outcome: None };
        poll_now(note(tx, settings.outbox, &end))?;
        if task.awaited {
            poll_now(dependents::ended(tx, task.slot))?;
        }
    }
    let keys = asked.map(|asked| poll_now(asked.settle(tx))).transpose()?.flatten();
    let next = [next.flatten(), keys].into_iter().flatten().min();
    Ok(ClaimAnswer::Tasks { tasks: claimed, next })
}

/// How many tasks a claim may take from a queue with a limit on leased tasks.
fn places(tx: &mut Tx<'_>, settings: &QueueSettings, claim: &Claim) -> Sql<usize> {
    let free = settings.free_places(tx.leased(&claim.queue)?).unwrap_or(u64::MAX);
    let within = usize::try_from(free).unwrap_or(usize::MAX).min(claim.limit);
    Ok(if tx.checks.pass(Check::QueuePlaces, false) { claim.limit } else { within })
}

/// The scan limit of a claim.
struct ScanLimit {
    /// Rows that may still be examined.
    left: usize,
    /// Whether the last round parked tasks, so that there may be claimable ones behind them.
    parked: bool,
}

impl ReadyTask {
    fn asks(&self) -> GateQuestion {
        let lease = self.claimed.lease.as_ref();
        let attempt = Probe { task: lease.task, token: lease.token };
        GateQuestion { limit: self.limit, cost: self.cost, attempt }
    }
}

struct Lanes<'a> {
    lanes: &'a [(i64, Arc<str>)],
    queue: &'a Arc<str>,
    settings: &'a QueueSettings,
}

impl Lanes<'_> {
    /// The best tasks of all lanes, except those known to be overdue.
    fn best(&self, tx: &Tx<'_>, wanted: usize, late: &[(ReadyTask, State)]) -> Sql<Vec<ReadyTask>> {
        let mut ready = Vec::new();
        for (lane, kind) in self.lanes {
            look(tx, *lane, kind, self.queue, self.settings, wanted + late.len(), &mut ready)?;
        }
        if !late.is_empty() {
            ready.retain(|task| late.iter().all(|(known, _)| known.slot != task.slot));
        }
        if self.lanes.len() > 1 || !late.is_empty() {
            ready.sort_by_key(|task| (task.rank, task.slot));
            ready.truncate(wanted);
        }
        Ok(ready)
    }
}

/// The best tasks of one lane.
fn look(
    tx: &Tx<'_>,
    lane: i64,
    kind: &Arc<str>,
    queue: &Arc<str>,
    settings: &QueueSettings,
    limit: usize,
    ready: &mut Vec<ReadyTask>,
) -> Sql<()> {
    let further = settings.of_kind(kind);
    let mut statement = tx.prepare(
        "SELECT id, uid, token, rank, priority, runs, trouble, created_at, late_at, limit_id, extras, payload
         FROM task INDEXED BY ready WHERE lane = ?1 AND phase = 0 ORDER BY rank, id",
    )?;
    let read = |row: &Row<'_>| {
        let slot: i64 = row.get(0)?;
        let lease = LeaseRef {
            task: TaskId(row.get::<_, Uid>(1)?.id()),
            token: row.get::<_, u64>(2)? + 1,
            row: slot,
        };
        let extras = extras_from(row.get(10)?, row.get(8)?).map_err(unreadable)?;
        let trouble = Mishaps::from_code(row.get(6)?);
        let claimed = Claimed {
            lease: Lease::granted(lease),
            queue: Arc::clone(queue),
            kind: Arc::clone(kind),
            payload: row.get(11)?,
            attempt: row.get::<_, u32>(5)? + 1,
            priority: Priority::new(row.get(4)?).unwrap_or_default(),
            suspect: trouble.suspect,
            node_deaths: trouble.node_deaths,
            policy: extras.overrides.resolve(&further),
            folder: extras.folder,
            created_at: Timestamp::from_millis(row.get(7)?),
            not_after: extras.ends.not_after,
            deadline: extras.ends.deadline,
        };
        let (rank, limit, cost) = (Rank(row.get(3)?), row.get(9)?, extras.cost);
        Ok(ReadyTask { slot, lane, rank, limit, cost, awaited: trouble.awaited, claimed })
    };
    let mut rows = statement.query([lane])?;
    let enough = ready.len() + limit;
    while ready.len() < enough
        && let Some(row) = rows.next()?
    {
        // A task whose row cannot be decoded is not run; it stays, and `show` says why.
        ready.extend(readable(read(row))?);
    }
    Ok(())
}
