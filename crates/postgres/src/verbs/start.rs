//! Start: begins attempts. A row lock suffices: the position of a task among others of its queue does not change.

use std::collections::HashMap;

use ostler_core::Timestamp;
use ostler_store::calls::{Fenced, Start};
use ostler_store::{Check, LeaseRef};
use tokio_postgres::Row;

use crate::conn::{big, get, get_u32, get_u64, int};
use crate::fault::Sql;
use crate::row::{Mishaps, Phase, Uid};
use crate::tx::Tx;

/// The leased task behind a lease.
pub(crate) struct Leased {
    pub(crate) slot: i64,
    pub(crate) lane: i64,
    pub(crate) phase: Phase,
    pub(crate) session: i64,
    pub(crate) token: u64,
    pub(crate) runs: u32,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) limit: Option<i64>,
    /// Whether another task ever waited for this one.
    pub(crate) awaited: bool,
}

/// The columns of a [`Leased`].
const COLUMNS: &str = "id, uid, lane, phase, session, token, runs, started_at, limit_id, trouble";

/// Locks and returns the rows of these tasks, by their row ids.
async fn hold(tx: &Tx, slots: &[i64]) -> Sql<HashMap<i64, (Uid, Leased)>> {
    let sql = format!("SELECT {COLUMNS} FROM ostler.task WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE");
    let rows = tx.conn.rows(&sql, &[&slots]).await?;
    rows.iter().map(|row| Ok((get(row, 0)?, (get(row, 1)?, leased(row)?)))).collect()
}

fn leased(row: &Row) -> Sql<Leased> {
    Ok(Leased {
        slot: get(row, 0)?,
        lane: get(row, 2)?,
        phase: Phase::from_code(get(row, 3)?)?,
        session: get::<Option<i64>>(row, 4)?.unwrap_or_default(),
        token: get_u64(row, 5)?,
        runs: get_u32(row, 6)?,
        started_at: get::<Option<i64>>(row, 7)?.map(Timestamp::from_millis),
        limit: get(row, 8)?,
        awaited: Mishaps::from_code(get(row, 9)?).awaited,
    })
}

/// Whether the lease is still valid for the task.
fn speaks(tx: &Tx, lease: LeaseRef, (uid, held): &(Uid, Leased), check: Check) -> bool {
    *uid == Uid::of(lease.task.0)
        && tx.checks.pass(check, held.token == lease.token)
        && tx.checks.pass(Check::LeasedState, held.phase.state().is_leased())
}

/// Returns the task of a lease, if the lease is still valid, and locks its row.
pub(crate) async fn fenced(tx: &Tx, lease: LeaseRef, check: Check) -> Sql<Option<Leased>> {
    let held = hold(tx, &[lease.row]).await?.remove(&lease.row);
    Ok(held.filter(|held| speaks(tx, lease, held, check)).map(|(_, held)| held))
}

/// The rows to write for started attempts.
#[derive(Default)]
struct Begun {
    slots: Vec<i64>,
    numbers: Vec<i32>,
    tokens: Vec<i64>,
    sessions: Vec<Uid>,
    workers: Vec<Uid>,
}

pub(crate) async fn run(tx: &mut Tx, starts: &[Start]) -> Sql<Vec<Fenced>> {
    let slots: Vec<i64> = starts.iter().map(|start| start.lease.row).collect();
    let mut rows = hold(tx, &slots).await?;
    let mut begun = Begun::default();
    let mut answers = Vec::with_capacity(starts.len());
    for start in starts {
        let row = rows.get_mut(&start.lease.row);
        let Some(row) = row.filter(|row| speaks(tx, start.lease, row, Check::StartToken)) else {
            answers.push(Fenced::Lost);
            continue;
        };
        let held = &mut row.1;
        if held.phase == Phase::Claimed {
            // The second start of the same attempt finds it running.
            held.phase = Phase::Running;
            let session = tx.session_name(held.session).await?;
            begun.slots.push(held.slot);
            begun.numbers.push(int(held.runs + 1));
            begun.tokens.push(big(held.token));
            begun.sessions.push(Uid::of(session.0));
            begun.workers.push(Uid::of(start.worker.0));
            tx.count(held.lane, Some(Phase::Claimed.state()), Some(Phase::Running.state()));
            tx.tally(held.lane).attempts += 1;
        }
        answers.push(Fenced::Recorded);
    }
    if !begun.slots.is_empty() {
        write(tx, &begun).await?;
    }
    Ok(answers)
}

async fn write(tx: &Tx, begun: &Begun) -> Sql<()> {
    tx.conn.rows(
        "WITH n AS (SELECT * FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::uuid[], $5::uuid[])
                AS n(task, number, token, session, worker)),
         begun AS (UPDATE ostler.task t SET phase = 4, runs = n.number, started_at = $6 FROM n WHERE t.id = n.task)
         INSERT INTO ostler.attempt(task, number, token, session, worker, started_at)
         SELECT task, number, token, session, worker, $6 FROM n",
        &[
            &begun.slots,
            &begun.numbers,
            &begun.tokens,
            &begun.sessions,
            &begun.workers,
            &tx.now.millis(),
        ],
    )
    .await?;
    Ok(())
}
