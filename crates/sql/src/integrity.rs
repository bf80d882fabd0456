//! Integrity: the schema version of a store, and what a check finds in its rows.

use crate::params;
use crate::tx::{Snapshot, one};
use crate::value::Row;

/// The most problems that a check lists.
pub const MAX_PROBLEMS: usize = 100;

/// The schema version of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The version found; `None`: there is no store.
    pub found: Option<i64>,
    /// The version that this program reads and writes.
    pub newest: i64,
}

/// The result of an integrity check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The schema version.
    pub version: i64,
    /// The problems found, at most [`MAX_PROBLEMS`].
    pub problems: Vec<String>,
}

/// A query for the lanes whose counts are not those of their tasks; the argument is the table of all counts.
#[macro_export]
macro_rules! wrong_counts {
    ($lanes:literal) => {
        concat!(
            "SELECT q.name, l.kind FROM ",
            $lanes,
            " l JOIN ostler.queue q ON q.id = l.queue
             LEFT JOIN (
                SELECT lane, count(*) FILTER (WHERE phase < 3) AS queued, count(*) FILTER (WHERE phase = 3) AS claimed,
                    count(*) FILTER (WHERE phase = 4) AS running, count(*) FILTER (WHERE phase = 5) AS completed,
                    count(*) FILTER (WHERE phase = 6) AS failed, count(*) FILTER (WHERE phase = 7) AS cancelled
                FROM ostler.task GROUP BY lane
             ) t ON t.lane = l.id
             WHERE l.queued <> coalesce(t.queued, 0) OR l.claimed <> coalesce(t.claimed, 0)
                OR l.running <> coalesce(t.running, 0)
                OR l.completed - l.pruned_completed <> coalesce(t.completed, 0)
                OR l.failed - l.pruned_failed <> coalesce(t.failed, 0)
                OR l.cancelled - l.pruned_cancelled <> coalesce(t.cancelled, 0)
             ORDER BY q.name, l.kind LIMIT $1"
        )
    };
}

/// Compares each lane's counts with the tasks counted one by one.
///
/// # Errors
/// When the statement fails.
pub async fn counts<S: Snapshot>(snapshot: &S, wrong_counts: &'static str) -> Result<Vec<String>, S::Error> {
    let read = |row: &S::Row| {
        let (queue, kind): (String, String) = (row.get(0)?, row.get(1)?);
        Ok(format!("the counts of queue \"{queue}\", kind \"{kind}\" are not those of its tasks"))
    };
    snapshot.rows(wrong_counts, params![MAX_PROBLEMS]).await?.iter().map(read).collect()
}

/// Finds rows that belong to no other.
///
/// # Errors
/// When a statement fails.
pub async fn orphans<S: Snapshot>(snapshot: &S) -> Result<Vec<String>, S::Error> {
    let mut found = Vec::new();
    for (what, sql) in [
        (
            "tasks without a lane",
            "SELECT count(*) FROM ostler.task t WHERE NOT EXISTS (SELECT 1 FROM ostler.lane WHERE id = t.lane)",
        ),
        (
            "leased tasks without a session",
            "SELECT count(*) FROM ostler.task t
             WHERE t.phase IN (3, 4) AND NOT EXISTS (SELECT 1 FROM ostler.session WHERE id = t.session)",
        ),
        (
            "attempts without a task",
            "SELECT count(*) FROM ostler.attempt a WHERE NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = a.task)",
        ),
        (
            "steps without a task",
            "SELECT count(*) FROM ostler.step s WHERE NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = s.task)",
        ),
        (
            "events without a task",
            "SELECT count(*) FROM ostler.event e WHERE NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = e.task)",
        ),
        (
            "parts of long texts without a task",
            "SELECT count(*) FROM ostler.chunk c WHERE NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = c.task)",
        ),
        (
            "conversations without a task",
            "SELECT count(*) FROM ostler.conversation c WHERE NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = c.task)",
        ),
        (
            "reservations of money without a leased task",
            "SELECT count(*) FROM ostler.reservation r
             WHERE NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = r.task AND token = r.token AND phase IN (3, 4))",
        ),
        (
            "unique keys without a task",
            "SELECT count(*) FROM ostler.unique_key u WHERE NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = u.task)",
        ),
    ] {
        let count: i64 = one(snapshot, sql, params![]).await?.get(0)?;
        if count > 0 {
            found.push(format!("{count} {what}"));
        }
    }
    Ok(found)
}
