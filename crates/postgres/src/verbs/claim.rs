//! Claim: leases the ready tasks of lowest rank to a session.

use std::sync::Arc;

use ostler_core::{Charging, Rank, SessionId, State, TaskId, Timestamp, too_late};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed};
use ostler_store::{Check, Lease, LeaseRef};
use tokio_postgres::Row;

use crate::cache::{Grant, HEAD, ScanPosition, ScanStep};
use crate::conn::{get, get_u32, get_u64, most};
use crate::fault::{Sql, readable};
use crate::locks::{LockTarget, Locks, Mode};
use crate::queue::binds;
use crate::row::{Mishaps, Phase, Uid, priority};
use crate::tx::Tx;
use ostler_sql::claim::{ClaimLanes, ReadyTask, end_late};
use ostler_sql::codec::extras_from;
use ostler_sql::task::moved;

/// Undecodable rows that one claim skips; behind more of them it sees nothing.
const MAX_UNREADABLE: usize = 1_000;

/// The columns of a ready task.
const COLUMNS: &str = "t.id, t.lane, t.uid, t.token, t.rank, t.priority, t.runs, t.trouble, t.created_at, t.late_at, t.limit_id, t.extras,
    t.payload, t.failures";

/// The position of the reason after these columns, for tasks that are given back.
const WHY: usize = 14;

/// The locks needed.
pub(crate) fn locks(claim: &Claim) -> Locks {
    Locks::none().and(LockTarget::Session(claim.session), Mode::Shared).queue(&claim.queue)
}

pub(crate) async fn run(tx: &mut Tx, claim: &Claim) -> Sql<ClaimAnswer> {
    let Some(session) = tx.live_session(claim.session, Check::ClaimSession).await? else {
        return Ok(ClaimAnswer::SessionEnded);
    };
    let nothing = || Ok(ClaimAnswer::Tasks { tasks: Vec::new(), next: None });
    let Some(queue) = tx.queue(&claim.queue)? else { return nothing() };
    if queue.settings.paused.is_some() {
        return nothing();
    }
    let is_bound = binds(queue);
    let lanes = ClaimLanes::of(queue, claim);
    let who = Claimant { number: session, name: claim.session };
    if !is_bound {
        return plain(tx, &lanes, who, claim.limit).await;
    }
    let (claimed, next) = ostler_sql::claim::run(tx, claim, session, &lanes).await?;
    Ok(ClaimAnswer::Tasks { tasks: remember(tx, &lanes, who, claimed), next })
}

/// The claiming session.
#[derive(Clone, Copy)]
struct Claimant {
    number: i64,
    name: SessionId,
}

/// Claims from a queue whose tasks are independent: one statement takes the best of them, and skips rows that other
/// transactions have locked.
async fn plain(tx: &mut Tx, lanes: &ClaimLanes, who: Claimant, limit: usize) -> Sql<ClaimAnswer> {
    let numbers: Vec<i64> = lanes.lanes.iter().map(|(lane, _)| *lane).collect();
    if numbers.is_empty() || limit == 0 {
        return Ok(ClaimAnswer::Tasks { tasks: Vec::new(), next: None });
    }
    let (mut claimed, mut late): (Vec<ReadyTask>, Vec<(ReadyTask, State)>) = (Vec::new(), Vec::new());
    let mut unreadable: Vec<i64> = Vec::new();
    let mut from: Vec<ScanPosition> = numbers.iter().map(|lane| tx.cache.place(*lane)).collect();
    loop {
        let wanted = limit - claimed.len() - late.len();
        let rows = take_best(tx, &numbers, &from, wanted, who, &unreadable).await?;
        let (full, before) = (rows.len() == wanted, unreadable.len());
        let (mut others, mut whys) = (Vec::new(), Vec::new());
        for row in &rows {
            match readable(read(lanes, row, Token::Raised))? {
                // A task whose row cannot be decoded is not run; it stays, and `show` says why.
                None => {
                    unreadable.push(get(row, 0)?);
                    others.push(get(row, 0)?);
                    whys.push(get::<i16>(row, WHY)?);
                }
                Some(task) => match too_late(task.claimed.not_after, task.claimed.deadline, tx.now) {
                    Some(state) => {
                        others.push(task.slot);
                        whys.push(get(row, WHY)?);
                        late.push((task, state));
                    }
                    None => claimed.push(task),
                },
            }
        }
        if !others.is_empty() {
            give_back(tx, &others, &whys).await?;
        }
        if !full && from.iter().any(|place| *place != HEAD) {
            // Other tasks may have landed before the position.
            from.fill(HEAD);
            continue;
        }
        // There may be other tasks behind the undecodable ones.
        if unreadable.len() == before || !full || unreadable.len() > MAX_UNREADABLE {
            break;
        }
    }
    claimed.sort_by_key(|task: &ReadyTask| (task.rank, task.slot));
    late.sort_by_key(|(task, _): &(ReadyTask, State)| (task.rank, task.slot));
    for task in &claimed {
        moved(tx, task.lane, task.limit, Phase::Ready, Phase::Claimed).await?;
    }
    for (lane, from) in numbers.iter().copied().zip(from) {
        let taken = claimed.iter().filter(|task| task.lane == lane);
        if let Some(last) = taken.clone().next_back() {
            tx.step(ScanStep { lane, from, to: (last.rank.0, last.slot), taken: taken.count() });
        }
    }
    end_late(tx, lanes, late).await?;
    Ok(ClaimAnswer::Tasks { tasks: remember(tx, lanes, who, claimed), next: None })
}

/// Takes the best tasks of these lanes behind these positions, except the undecodable ones.
async fn take_best(
    tx: &Tx,
    lanes: &[i64],
    from: &[ScanPosition],
    wanted: usize,
    who: Claimant,
    but: &[i64],
) -> Sql<Vec<Row>> {
    let (ranks, slots): (Vec<i64>, Vec<i64>) = from.iter().copied().unzip();
    // Several lanes each offer as many as are wanted; the best of all are taken.
    let best = if lanes.len() == 1 {
        "SELECT id, rank, why FROM ostler.task WHERE lane = ($1::bigint[])[1] AND phase = 0
            AND (rank, id) > (($5::bigint[])[1], ($6::bigint[])[1]) AND id <> ALL($4)
         ORDER BY rank, id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED"
    } else {
        "SELECT b.id, b.rank, b.why FROM unnest($1::bigint[], $5::bigint[], $6::bigint[]) AS n(lane, rank, id) CROSS JOIN LATERAL (
            SELECT id, rank, why FROM ostler.task t WHERE t.lane = n.lane AND t.phase = 0
                AND (t.rank, t.id) > (n.rank, n.id) AND t.id <> ALL($4)
            ORDER BY t.rank, t.id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) b
         ORDER BY b.rank, b.id LIMIT $2"
    };
    let sql = format!(
        "WITH best AS MATERIALIZED ({best})
         UPDATE ostler.task t SET phase = 3, why = 0, token = t.token + 1, session = $3, started_at = NULL
         FROM best WHERE t.id = best.id RETURNING {COLUMNS}, best.why"
    );
    tx.conn.rows(&sql, &[&lanes, &most(wanted), &who.number, &but, &ranks, &slots]).await
}

/// Gives back tasks that must not be claimed after all. The claim is not visible to others yet.
async fn give_back(tx: &Tx, slots: &[i64], whys: &[i16]) -> Sql<()> {
    tx.conn
        .exec(
            "UPDATE ostler.task t SET phase = 0, why = n.why, token = t.token - 1, session = NULL
             FROM unnest($1::bigint[], $2::smallint[]) AS n(id, why) WHERE t.id = n.id",
            &[&slots, &whys],
        )
        .await?;
    Ok(())
}

/// Caches the claimed tasks, for the reports that follow.
fn remember(tx: &Tx, lanes: &ClaimLanes, who: Claimant, claimed: Vec<ReadyTask>) -> Vec<Claimed> {
    let grant = |task: &ReadyTask| {
        let token = task.claimed.lease.as_ref().token;
        let (queue, lane, limit) = (Arc::clone(&lanes.queue), task.lane, task.limit);
        (task.slot, Grant { token, queue, lane, limit, session: who.name, runs: task.claimed.attempt - 1 })
    };
    tx.cache.remember(claimed.iter().map(grant));
    claimed.into_iter().map(|task| task.claimed).collect()
}

/// Leases tasks to a session.
pub(crate) async fn take(tx: &Tx, tasks: &[ReadyTask], session: i64) -> Sql<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let slots: Vec<i64> = tasks.iter().map(|task| task.slot).collect();
    tx.conn
        .exec(
            "UPDATE ostler.task SET phase = 3, why = 0, token = token + 1, session = $2, started_at = NULL
             WHERE id = ANY($1)",
            &[&slots, &session],
        )
        .await?;
    Ok(())
}

/// Whether the row already has the token of this claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Raised,
    ToBeRaised,
}

/// The best tasks of all lanes, except those known to be overdue. The rows are locked, so that verbs which lock only
/// the row, and not the queue, do not change them in the meantime.
pub(crate) async fn best(
    tx: &Tx,
    lanes: &ClaimLanes,
    wanted: usize,
    late: &[(ReadyTask, State)],
) -> Sql<Vec<ReadyTask>> {
    let known: Vec<i64> = late.iter().map(|(task, _)| task.slot).collect();
    let mut ready = Vec::new();
    let sql = format!(
        "SELECT {COLUMNS} FROM ostler.task t WHERE t.lane = $1 AND t.phase = 0 AND t.id <> ALL($3)
         ORDER BY t.rank, t.id LIMIT $2 FOR NO KEY UPDATE"
    );
    for (lane, _) in &lanes.lanes {
        let mut offset = wanted;
        loop {
            let rows = tx.conn.rows(&sql, &[lane, &most(offset), &known]).await?;
            let mut some = Vec::with_capacity(rows.len());
            for row in &rows {
                // A task whose row cannot be decoded is not run; it stays, and `show` says why.
                some.extend(readable(read(lanes, row, Token::ToBeRaised))?);
            }
            // There may be other tasks behind the undecodable ones.
            if some.len() >= wanted || rows.len() < offset {
                ready.extend(some.into_iter().take(wanted));
                break;
            }
            offset *= 2;
        }
    }
    if lanes.lanes.len() > 1 {
        ready.sort_by_key(|task| (task.rank, task.slot));
        ready.truncate(wanted);
    }
    Ok(ready)
}

fn read(lanes: &ClaimLanes, row: &Row, token: Token) -> Sql<ReadyTask> {
    let (slot, lane): (i64, i64) = (get(row, 0)?, get(row, 1)?);
    let raise = u64::from(token == Token::ToBeRaised);
    let lease =
        LeaseRef { task: TaskId(get::<Uid>(row, 2)?.id()), token: get_u64(row, 3)? + raise, row: slot };
    let kind = lanes.lanes.iter().find(|(known, _)| *known == lane).map(|(_, kind)| Arc::clone(kind));
    let kind = kind.unwrap_or_else(|| Arc::from(""));
    let extras = extras_from(get(row, 11)?, get(row, 9)?)?;
    let trouble = Mishaps::from_code(get(row, 7)?);
    let claimed = Claimed {
        lease: Lease::granted(lease),
        queue: Arc::clone(&lanes.queue),
        payload: get(row, 12)?,
        attempt: get_u32(row, 6)? + 1,
        failures: get_u32(row, 13)?,
        priority: priority(get(row, 5)?),
        suspect: trouble.suspect,
        node_deaths: trouble.node_deaths,
        policy: extras.overrides.resolve(&lanes.settings.of_kind(&kind)),
        kind,
        folder: extras.folder,
        traceparent: extras.traceparent,
        created_at: Timestamp::from_millis(get(row, 8)?),
        not_after: extras.ends.not_after,
        deadline: extras.ends.deadline,
        // Known when its reservation is made.
        charging: Charging::Free,
    };
    let (rank, limit, cost) = (Rank(get(row, 4)?), get(row, 10)?, extras.cost);
    Ok(ReadyTask { slot, lane, rank, limit, cost, awaited: trouble.awaited, claimed })
}
