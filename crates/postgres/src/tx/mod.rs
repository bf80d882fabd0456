//! One write transaction, as the verbs see it: the connection, the time, the queues that are locked, and what has to be written
//! once at the end (the counts of lanes, the clocks and gates of queues, what is to be told). `queues.rs`: its queues and lanes.

mod queues;
mod shared;

pub(crate) use queues::LEASED;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ostler_core::{Gate, SessionId, StateName, TaskId, Timestamp, VirtualTime};
use ostler_store::views::LaneTotals;
use ostler_store::{Check, Checks, Rings};

use crate::cache::{Cache, ScanStep};
use crate::commit_mark::CommitMark;
use crate::conn::{Conn, get};
use crate::counts::{CommittedCounts, LaneChanges};
use crate::fault::{Abort, Sql};
use crate::locks::{LockTarget, Locks, Mode};
use crate::notifier::{Notification, Notifier};
use crate::queue::{COLUMNS, QUEUES, QueueRow, binds, read_queues};
use crate::row::{BY_ROW, FoundTask, Uid, found_from};
use crate::verbs::outbox;
use ostler_sql::gate_codec::gate_text;
use ostler_sql::outbox::NewEntry;

const LOCK: &str = "SELECT CASE WHEN alone THEN pg_advisory_xact_lock(hashtextextended(name, 0)) IS NULL
        ELSE pg_advisory_xact_lock_shared(hashtextextended(name, 0)) IS NULL END
     FROM unnest($1::text[], $2::boolean[]) AS wanted(name, alone)";

/// Holds rows of tasks.
const HOLD: &str = "SELECT 1 FROM ostler.task WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE";

/// The time: the caller's, if it has one, else the server's; and whether the inbox has something in it.
pub(crate) const NOW: &str =
    "SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        EXISTS(SELECT 1 FROM ostler.inbox WHERE NOT waits) AS came";

/// What a transaction does about tasks that came with users' transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InboxMode {
    /// They have to be taken in first.
    First,
    /// It takes them in itself, or has waited for them long enough.
    Passed,
}

/// One write transaction.
pub(crate) struct Tx {
    pub(crate) conn: Conn,
    pub(crate) checks: Checks,
    pub(crate) now: Timestamp,
    pub(crate) cache: Arc<Cache>,
    held: Locks,
    /// The queues that are locked, as far as there are any of these names.
    queues: BTreeMap<String, QueueRow>,
    lanes: LaneChanges,
    /// Queues whose clock has moved.
    clocks: HashMap<i64, VirtualTime>,
    /// Queues whose gate has moved.
    gates: HashMap<i64, Gate>,
    /// What is to be told. It is numbered when it is written, and a transaction that begins anew uses up no number.
    told: Vec<NewEntry>,
    rings: Rings,
    /// The session that acts, as it was under its lock.
    acting: Option<Acting>,
    /// What is known better when this is committed.
    learned: CacheUpdates,
    /// Whether a task that others wait for ended in this verb.
    frees: bool,
}

/// A transaction that has written all it has to but the counts, and has to be committed.
pub(crate) struct Committable {
    conn: Conn,
    pub(crate) rings: Rings,
    lanes: LaneChanges,
    pub(crate) learned: CacheUpdates,
    /// When it began, by the clock of the store.
    pub(crate) began: Timestamp,
}

impl Committable {
    /// What is to be told with the commit, as the notifier says. It goes with the counts.
    pub(crate) fn notice(&self, notifier: &Notifier) -> Option<Notification> {
        if self.lanes.is_empty() { None } else { notifier.with_commit(self.rings) }
    }

    /// Commits, and leaves the mark that proves it.
    pub(crate) async fn commit(
        mut self,
        notice: Option<&Notification>,
        mark: &CommitMark,
    ) -> Sql<(Conn, CommittedCounts)> {
        let written = self.lanes.write_with_commit(&mut self.conn, notice, mark).await?;
        Ok((self.conn, written))
    }
}

/// What a process knows better when a transaction is committed.
#[derive(Default)]
pub(crate) struct CacheUpdates {
    /// How claims moved on.
    steps: Vec<ScanStep>,
    /// The lowest rank of those that became ready.
    lowest: Option<i64>,
}

impl CacheUpdates {
    pub(crate) fn keep(self, cache: &Cache) {
        if let Some(rank) = self.lowest {
            cache.came(rank);
        }
        self.steps.into_iter().for_each(|step| cache.step(step));
    }
}

/// A session that acts.
struct Acting {
    name: SessionId,
    id: i64,
    open: bool,
    expires_at: i64,
}

impl Tx {
    /// Begins to write: first the locks, then the time and the queues, as they are under the locks. Gives the connection back if
    /// that cannot be.
    pub(crate) async fn begin(
        mut conn: Conn,
        locks: Locks,
        cache: &Arc<Cache>,
        checks: Checks,
        now: Option<i64>,
        inbox: InboxMode,
    ) -> Result<Self, (Conn, Abort)> {
        conn.begins();
        let TxStart { now, queues, acting } = match lock(&conn, &locks, &cache.schema, now, inbox).await {
            Ok(opened) => opened,
            Err(stop) => return Err((conn, stop)),
        };
        let tx = Self {
            now,
            conn,
            checks,
            cache: Arc::clone(cache),
            held: locks,
            queues,
            lanes: LaneChanges::default(),
            clocks: HashMap::new(),
            gates: HashMap::new(),
            told: Vec::new(),
            rings: Rings::default(),
            acting,
            learned: CacheUpdates::default(),
            frees: false,
        };
        match tx.check_modes() {
            Ok(()) => Ok(tx),
            Err(stop) => Err((tx.conn, stop)),
        }
    }

    /// Where tasks of a queue are bound to each other, the queue has to be held alone, and so does its account.
    fn check_modes(&self) -> Sql<()> {
        let mut needs = Locks::none();
        for queue in self.queues.values() {
            self.cache.note(queue);
            self.cache.note_budget(&queue.name, &queue.settings);
            if !binds(queue) {
                continue;
            }
            let account = queue.settings.account.clone().map(LockTarget::Account);
            for what in [LockTarget::Queue(queue.name.to_string())].into_iter().chain(account) {
                if self.held.mode(&what) != Some(Mode::Exclusive) {
                    needs.add(what, Mode::Exclusive);
                }
            }
        }
        if needs.is_empty() { Ok(()) } else { Err(Abort::Needs(needs)) }
    }

    /// Writes what was put off.
    pub(crate) async fn close(mut self) -> Sql<Committable> {
        for (queue, clock) in std::mem::take(&mut self.clocks) {
            self.conn.exec("UPDATE ostler.queue SET clock = $2 WHERE id = $1", &[&queue, &clock.0]).await?;
        }
        for (queue, gate) in std::mem::take(&mut self.gates) {
            self.conn
                .exec("UPDATE ostler.queue SET gate = $2 WHERE id = $1", &[&queue, &gate_text(&gate)])
                .await?;
        }
        outbox::write(&self.conn, &self.told).await?;
        let (conn, rings, lanes, learned) = (self.conn, self.rings, self.lanes, self.learned);
        Ok(Committable { conn, rings, lanes, learned, began: self.now })
    }

    /// The connection of a transaction that is not to be.
    pub(crate) fn give_up(self) -> Conn {
        self.conn
    }

    /// Tasks became ready, whatever their ranks are.
    pub(crate) fn ring(&mut self) {
        self.ring_at(i64::MIN);
    }

    /// A task of this rank became ready.
    pub(crate) fn ring_at(&mut self, rank: i64) {
        self.rings.ready = true;
        self.learned.lowest = Some(self.learned.lowest.map_or(rank, |lowest| lowest.min(rank)));
    }

    /// A claim moved on.
    pub(crate) fn step(&mut self, step: ScanStep) {
        self.learned.steps.push(step);
    }

    /// A node should renew now.
    pub(crate) fn ring_control(&mut self) {
        self.rings.control = true;
    }

    /// A task ended, or an event was written.
    pub(crate) fn changed(&mut self) {
        self.rings.changed = true;
    }

    /// A task that others wait for has ended.
    pub(crate) fn frees(&mut self) {
        self.frees = true;
    }

    /// Whether one has, since this was asked last.
    pub(crate) fn has_freed(&mut self) -> bool {
        std::mem::take(&mut self.frees)
    }

    /// Keeps an end, to be told.
    pub(crate) fn add_entry(&mut self, noted: NewEntry) {
        self.told.push(noted);
        self.rings.ready = true;
    }

    // ---- locks ----

    /// Begins anew, unless the queue is locked.
    pub(crate) fn locked(&self, queue: &str) -> Sql<()> {
        let what = LockTarget::Queue(queue.to_owned());
        if self.held.mode(&what).is_some() {
            return Ok(());
        }
        Err(Abort::Needs(Locks::none().and(what, Mode::Shared)))
    }

    /// Begins anew, unless the queue is locked alone.
    pub(crate) fn exclusive(&self, queue: &str) -> Sql<()> {
        let what = LockTarget::Queue(queue.to_owned());
        if self.held.mode(&what) == Some(Mode::Exclusive) {
            return Ok(());
        }
        Err(Abort::Needs(Locks::none().and(what, Mode::Exclusive)))
    }

    // ---- sessions ----

    /// The session's number, if it may still act. The verb holds the session's lock, so that it does not end meanwhile.
    pub(crate) async fn live_session(&self, session: SessionId, check: Check) -> Sql<Option<i64>> {
        if let Some(acting) = self.acting.as_ref().filter(|acting| acting.name == session) {
            let live = self.checks.pass(check, acting.open && acting.expires_at >= self.now.millis());
            return Ok(live.then_some(acting.id));
        }
        let row = self
            .conn
            .row(
                "SELECT id, ended_at IS NULL AND expires_at >= $2 FROM ostler.session WHERE uid = $1",
                &[&Uid::of(session.0), &self.now.millis()],
            )
            .await?;
        let Some(row) = row else { return Ok(None) };
        let live = self.checks.pass(check, get(&row, 1)?);
        Ok(if live { Some(get(&row, 0)?) } else { None })
    }

    /// The name of a session that is known by its number.
    pub(crate) async fn session_name(&self, id: i64) -> Sql<SessionId> {
        if let Some(name) = self.cache.session(id) {
            return Ok(name);
        }
        let row = self.conn.one("SELECT uid FROM ostler.session WHERE id = $1", &[&id]).await?;
        let name = SessionId(get::<Uid>(&row, 0)?.id());
        self.cache.remember_session(id, name);
        Ok(name)
    }

    // ---- the counts of lanes ----

    /// Counts a task that moved from one state to another; `None` is outside of the store.
    pub(crate) fn count(&mut self, lane: i64, from: Option<StateName>, to: Option<StateName>) {
        if to.is_some_and(StateName::is_terminal) {
            self.changed();
        }
        self.lanes.count(lane, from, to);
    }

    /// Counts a task that was removed; what has ended stays counted.
    pub(crate) fn count_pruned(&mut self, lane: i64, state: StateName) {
        self.lanes.count_pruned(lane, state);
    }

    /// What has happened in a lane during this transaction.
    pub(crate) fn tally(&mut self, lane: i64) -> &mut LaneTotals {
        self.lanes.tally(lane)
    }

    /// Keeps how long a run took.
    pub(crate) fn count_run(&mut self, lane: i64, took: Duration) {
        self.lanes.count_run(lane, took);
    }

    /// Writes what was counted so far.
    pub(crate) async fn flush_lanes(&mut self) -> Sql<()> {
        if !self.lanes.is_empty() {
            self.lanes.write(&self.conn).await?;
        }
        Ok(())
    }

    // ---- tasks ----

    /// Holds the rows of tasks, the oldest first, and answers which of them there are. From here on no other transaction moves them.
    pub(crate) async fn hold(&self, ids: &[TaskId]) -> Sql<HashMap<TaskId, i64>> {
        let uids: Vec<Uid> = ids.iter().map(|id| Uid::of(id.0)).collect();
        let rows = self
            .conn
            .rows(
                "SELECT uid, id FROM ostler.task WHERE uid = ANY($1) ORDER BY id FOR NO KEY UPDATE",
                &[&uids],
            )
            .await?;
        rows.iter().map(|row| Ok((TaskId(get::<Uid>(row, 0)?.id()), get(row, 1)?))).collect()
    }

    /// The same for rows that are known by their numbers.
    pub(crate) async fn hold_slots(&self, slots: &[i64]) -> Sql<()> {
        self.conn.exec(HOLD, &[&slots]).await?;
        Ok(())
    }

    /// Holds a task and reads it, as it is then. Begins anew, unless its queue is locked.
    pub(crate) async fn take(&self, slot: i64) -> Sql<Option<FoundTask>> {
        let (hold, find) = (self.conn.prepare(HOLD).await?, self.conn.prepare(BY_ROW).await?);
        let slots = [slot];
        let (held, found) = tokio::join!(
            biased;
            async { self.conn.run(&hold, &[&slots.as_slice()]).await },
            async { self.conn.run(&find, &[&slot]).await },
        );
        held?;
        let found = found?.first().map(found_from).transpose()?;
        if let Some(found) = &found {
            self.locked(&found.task.queue)?;
        }
        Ok(found)
    }
}

/// What a transaction begins with, once it has its locks: the queues, the time, whether the inbox has something in it, and the session that
/// acts. It has a row for each queue, and one without a queue where there are none.
fn opening() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        format!(
            "SELECT q.*, n.now, n.came, s.id, s.ended_at IS NULL, s.expires_at
             FROM ({NOW}) AS n LEFT JOIN ostler.session s ON s.uid = $3 LEFT JOIN ({QUEUES}) AS q ON true"
        )
    })
}

/// Begins, locks, and reads the time and the queues.
async fn lock(conn: &Conn, locks: &Locks, schema: &str, now: Option<i64>, inbox: InboxMode) -> Sql<TxStart> {
    let names = locks.queues();
    let (wanted, alone) = locks.columns(schema);
    let session = locks.session();
    let uid = session.map(|session| Uid::of(session.0));
    let (lock, read) = (conn.prepare(LOCK).await?, conn.prepare(opening()).await?);
    // Sent at once, and carried out one after the other.
    let (begun, locked, found) = tokio::join!(
        biased;
        conn.begin(),
        async { conn.run(&lock, &[&wanted, &alone]).await },
        async { conn.run(&read, &[&now, &names, &uid]).await },
    );
    begun?;
    locked?;
    let found = found?;
    let Some(row) = found.first() else { return Err(Abort::Foreign("no time".to_owned())) };
    if inbox == InboxMode::First && get(row, COLUMNS + 1)? {
        return Err(Abort::Inbox);
    }
    let acting = match (session, get(row, COLUMNS + 2)?) {
        (Some(name), Some(id)) => {
            let (open, expires_at) = (get(row, COLUMNS + 3)?, get(row, COLUMNS + 4)?);
            Some(Acting { name, id, open, expires_at })
        }
        (Some(_) | None, _) => None,
    };
    let queues = read_queues(&found)?.into_iter().map(|queue| (queue.name.to_string(), queue)).collect();
    Ok(TxStart { now: Timestamp::from_millis(get(row, COLUMNS)?), queues, acting })
}

/// What a transaction begins with.
struct TxStart {
    now: Timestamp,
    queues: BTreeMap<String, QueueRow>,
    acting: Option<Acting>,
}
