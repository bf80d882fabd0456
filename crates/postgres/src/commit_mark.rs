//! Commit marks: our own proof that a transaction was committed.
//!
//! A connection can be lost during its commit. The transaction id proves nothing then: after a crash, or on a promoted
//! standby, the server assigns the same id to another transaction. So each writing transaction also changes a row that
//! only this process writes, its slot, in the same commit. To resolve a commit of unknown result, a process reads that
//! row over another connection, and in the same statement puts a fence there: a transaction still in flight cannot commit
//! any more.
//!
//! A slot is used by one transaction at a time. It is reused only after the commit was confirmed, so that a mark never
//! belongs to two.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::conn::{Conn, Params, get};
use crate::fault::Sql;
use crate::param::Param;

/// Marks per slot. Then another slot is taken: while a long foreign transaction keeps the server from removing old row
/// versions, a row that is updated indefinitely would become slow to find.
const MAX_USES: i64 = 1_000;
/// Free slots that are kept for reuse.
const MAX_FREE: usize = 64;
/// The mark of a slot that has no row yet.
const NEW: i64 = 0;
/// The mark of a slot whose transaction was abandoned. No transaction expects it.
const FENCE: i64 = -1;
/// How long the row of a slot is kept after its last change. A process that uses it later takes another slot.
const KEPT_MS: i64 = 60 * 60 * 1000;
/// The maximum age of a transaction when its row is looked up: beyond it, a missing row may have been removed.
const MAX_DOUBT_MS: i64 = KEPT_MS / 2;

/// The error code for a transaction whose slot is not as expected: the transaction was abandoned, or the slot was
/// removed.
pub(crate) const GIVEN_UP: &str = "OSMRK";

/// Marks the transaction if it has written anything. Returns whether it has.
pub(crate) const SET: &str = "SELECT ostler.mark_commit($1, $2, $3, $4)";

/// Puts a fence into a slot, unless the mark is there. Returns the time if it did.
const ASK: &str = "INSERT INTO ostler.commit_mark AS m(slot, mark, at)
     SELECT $1::bigint, $3::bigint, coalesce($4::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
     ON CONFLICT(slot) DO UPDATE SET mark = excluded.mark, at = excluded.at WHERE m.mark <> $2
     RETURNING at";

/// Removes slots that have not been used for long.
const SWEEP: &str = "DELETE FROM ostler.commit_mark WHERE slot IN (SELECT slot FROM ostler.commit_mark WHERE at < $1 LIMIT $2)";

/// The free slots of this process.
#[derive(Default)]
pub(crate) struct CommitMarks {
    free: Mutex<Vec<Slot>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    id: i64,
    mark: i64,
}

/// The mark of one transaction.
pub(crate) struct CommitMark {
    slot: i64,
    before: i64,
    mark: i64,
    /// The start of the transaction, by the clock of the store.
    began_ms: i64,
}

/// The result of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Committed,
    /// Not committed, and never will be.
    GivenUp,
    /// Too long ago to tell.
    Unknown,
}

impl CommitMarks {
    /// Takes a mark for a transaction that is about to commit.
    pub(crate) fn take(&self, began_ms: i64) -> CommitMark {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let slot = free.unwrap_or_else(|| Slot { id: random(), mark: NEW });
        CommitMark { slot: slot.id, before: slot.mark, mark: slot.mark + 1, began_ms }
    }

    /// Frees a slot after a confirmed commit; `mark` is its current value.
    fn put_back(&self, id: i64, mark: i64) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if mark < MAX_USES && free.len() < MAX_FREE {
            free.push(Slot { id, mark });
        }
    }

    /// The transaction committed and set its mark.
    pub(crate) fn committed(&self, mark: &CommitMark) {
        self.put_back(mark.slot, mark.mark);
    }

    /// The transaction wrote nothing: its slot is unchanged.
    pub(crate) fn unused(&self, mark: &CommitMark) {
        self.put_back(mark.slot, mark.before);
    }
}

impl CommitMark {
    /// The parameters of [`SET`].
    pub(crate) fn params(&self) -> [&(dyn Param + Sync); 4] {
        [&self.slot, &self.before, &self.mark, &self.began_ms]
    }

    /// Determines the result of the transaction, and prevents a later commit. Waits for a transaction that is still open,
    /// up to the server's lock timeout. May be repeated with the same result.
    pub(crate) async fn ask(&self, mut conn: Conn, now: Option<i64>) -> Sql<Fate> {
        conn.begins();
        let ask = conn.prepare(ASK).await?;
        let params: Params<'_> = &[&self.slot, &self.mark, &FENCE, &now];
        let (begun, asked, committed) = tokio::join!(
            biased;
            conn.begin(),
            async { conn.run(&ask, params).await },
            async { conn.batch("COMMIT").await },
        );
        begun?;
        let rows = asked?;
        committed?;
        conn.ended();
        let Some(row) = rows.first() else { return Ok(Fate::Committed) };
        let age = get::<i64>(row, 0)?.saturating_sub(self.began_ms);
        Ok(if age < MAX_DOUBT_MS { Fate::GivenUp } else { Fate::Unknown })
    }
}

/// Removes up to `most` slots of processes that are gone.
pub(crate) async fn sweep(conn: &Conn, now_ms: i64, most: i64) -> Sql<()> {
    conn.exec(SWEEP, &[&now_ms.saturating_sub(KEPT_MS), &most]).await?;
    Ok(())
}

/// A number unique to this process: each hasher has its own keys.
fn random() -> i64 {
    RandomState::new().build_hasher().finish().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_by_one_transaction_at_a_time_and_a_mark_by_one_only() {
        let marks = CommitMarks::default();
        let (one, other) = (marks.take(0), marks.take(0));
        assert_ne!(one.slot, other.slot);
        assert_eq!((one.before, one.mark), (NEW, 1));
        marks.committed(&one);
        let next = marks.take(0);
        assert_eq!((next.slot, next.before, next.mark), (one.slot, 1, 2));
        marks.unused(&next);
        assert_eq!(marks.take(0).before, 1, "its row is as it was");
        // The results of these two are unknown: their slots are not reused.
        let fresh = marks.take(0);
        assert_eq!(fresh.before, NEW);
        assert!(![one.slot, other.slot].contains(&fresh.slot));
    }

    #[test]
    fn a_slot_that_was_used_often_is_left_for_another() {
        let marks = CommitMarks::default();
        let first = marks.take(0).slot;
        for before in 0..MAX_USES {
            let mark = CommitMark { slot: first, before, mark: before + 1, began_ms: 0 };
            marks.committed(&mark);
            let next = marks.take(0);
            assert_eq!(next.slot == first, before + 1 < MAX_USES);
        }
    }
}
