//! Expire: takes tasks from dead nodes.

use ostler_core::SessionId;
use ostler_store::calls::Expired;
use ostler_store::{Check, Checks};

use super::finish::queues_of;
use super::sessions::leave_locks;
use crate::conn::{Conn, get, most};
use crate::fault::Sql;
use crate::liveness::GoneSession;
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::Uid;
use crate::tx::{NOW, Tx};
use ostler_sql::sessions::Dead;

/// Sessions that one call ends at most; the next call continues.
const MAX_SESSIONS: usize = 1_000;

/// The pending work: dead sessions, and whether ended ones still have tasks.
pub(crate) struct ExpiryWork {
    pub(crate) dead: Vec<DeadSession>,
    pub(crate) unswept: bool,
    pub(crate) locks: Locks,
}

/// A session to be ended.
pub(crate) struct DeadSession {
    session: SessionId,
    /// The renewal count when its death was detected; `None`: its lease has expired.
    renewals: Option<i64>,
}

pub(crate) struct ExpiryQuery {
    pub(crate) checks: Checks,
    pub(crate) now: Option<i64>,
    pub(crate) batch: usize,
    /// Sessions known to be dead, whatever their lease.
    pub(crate) known: Vec<GoneSession>,
}

/// Returns the sessions whose connection is gone, under the server's present start. Of another user's process only the
/// pid may be visible: if that is in use, nothing is concluded.
pub(crate) async fn gone(conn: &Conn) -> Sql<Vec<GoneSession>> {
    let rows = conn
        .rows(
            "SELECT s.uid, s.renewals FROM ostler.session s
             WHERE s.ended_at IS NULL
                AND s.heart_server = (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
                AND NOT EXISTS(SELECT 1 FROM pg_stat_activity a WHERE a.pid = s.heart_pid
                    AND coalesce((extract(epoch FROM a.backend_start) * 1000000)::bigint = s.heart_since, true))
             ORDER BY s.id LIMIT $1",
            &[&most(MAX_SESSIONS)],
        )
        .await?;
    let gone = |row| Ok(GoneSession { session: SessionId(get::<Uid>(row, 0)?.id()), renewals: get(row, 1)? });
    rows.iter().map(gone).collect()
}

/// Determines the pending work.
pub(crate) async fn work(conn: &Conn, asked: &ExpiryQuery) -> Sql<ExpiryWork> {
    let ExpiryQuery { checks, now, batch, known } = asked;
    let now: i64 = get(&conn.one(NOW, &[now]).await?, 0)?;
    let uids: Vec<Uid> = known.iter().map(|gone| Uid::of(gone.session.0)).collect();
    let renewals: Vec<i64> = known.iter().map(|gone| gone.renewals).collect();
    let any_session = checks.pass(Check::ExpireDead, false);
    let rows = conn
        .rows(
            "SELECT uid, id, CASE WHEN $2 OR expires_at < $1 THEN NULL ELSE renewals END, departed FROM ostler.session
             WHERE ended_at IS NULL AND ($2 OR expires_at < $1
                OR (uid, renewals) IN (SELECT known.uid, known.renewals FROM unnest($4::uuid[], $5::bigint[]) AS known(uid, renewals)))
             ORDER BY id LIMIT $3",
            &[&now, &any_session, &most(MAX_SESSIONS), &uids, &renewals],
        )
        .await?;
    let mut locks = Locks::none();
    let (mut dead, mut numbers) = (Vec::new(), Vec::new());
    for row in &rows {
        let session = SessionId(get::<Uid>(row, 0)?.id());
        locks.add(LockTarget::Session(session), Mode::Exclusive);
        if get(row, 3)? {
            // The session hands back all its tasks, whatever the batch size.
            locks = locks.with(leave_locks(conn, session).await?);
        }
        dead.push(DeadSession { session, renewals: get(row, 2)? });
        numbers.push(get::<i64>(row, 1)?);
    }
    let unswept = unswept(conn).await?;
    numbers.extend(&unswept);
    if !numbers.is_empty() {
        let rows = conn
            .rows(
                "SELECT id FROM ostler.task WHERE session = ANY($1) AND phase IN (3, 4) ORDER BY id LIMIT $2",
                &[&numbers, &most(*batch)],
            )
            .await?;
        let slots = rows.iter().map(|row| get(row, 0)).collect::<Sql<Vec<i64>>>()?;
        if !slots.is_empty() {
            locks = locks.with(queues_of(conn, &slots).await?);
        }
    }
    Ok(ExpiryWork { dead, unswept: !unswept.is_empty(), locks })
}

async fn unswept(conn: &Conn) -> Sql<Vec<i64>> {
    let rows = conn
        .rows("SELECT id FROM ostler.session WHERE ended_at IS NOT NULL AND NOT swept ORDER BY id", &[])
        .await?;
    rows.iter().map(|row| get(row, 0)).collect()
}

pub(crate) async fn run(tx: &mut Tx, dead: &[DeadSession], batch: usize) -> Sql<Expired> {
    let any_session = tx.checks.pass(Check::ExpireDead, false);
    let mut found = Vec::new();
    for DeadSession { session, renewals } in dead {
        // Another node may have been first, or the node itself renewed in the meantime.
        let row = tx
            .conn
            .row(
                "SELECT id, departed FROM ostler.session
                 WHERE uid = $1 AND ended_at IS NULL AND ($3 OR expires_at < $2 OR renewals = $4) FOR UPDATE",
                &[&Uid::of(session.0), &tx.now.millis(), &any_session, renewals],
            )
            .await?;
        if let Some(row) = row {
            found.push(Dead { number: get(&row, 0)?, session: *session, departed: get(&row, 1)? });
        }
    }
    ostler_sql::sessions::expire(tx, &found, batch).await
}
