//! One write transaction, as the verbs see it: the connection, the time, the cache, and what has to be
//! written once at the end (the counts of lanes, the clocks of queues).

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Gate, SessionId, StateName, Timestamp, VirtualTime};
use ostler_store::outbox::OutboxFilter;
use ostler_store::transfer::{Departure, MoveStage};
use ostler_store::views::QueueSettings;
use ostler_store::{Check, Checks, Rings};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use crate::counts::LaneChange;
use crate::liveness::LivenessFiles;
use crate::log_epoch;
use crate::move_source;
use crate::row::{Uid, ttl_from};
use crate::shared_tx::{RowRef, text};
use ostler_sql::codec::{kinds_text, overrides_text, subscribers_text};
use ostler_sql::gate_codec::{gate_from, gate_text, rules_text};
use ostler_sql::gates::ANY_SHUT;
use ostler_sql::queue::settings_from;
use ostler_sql::{KeyRules, QueueRow};

/// A map on the hot path. Its keys are our own numbers and names, so a fast hash does.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// The result of a statement.
pub(crate) type Sql<T> = rusqlite::Result<T>;

/// The cache of the writer, valid as long as no other process has written.
#[derive(Default)]
pub(crate) struct Cache {
    queues: FastMap<String, QueueRow>,
    sessions: FastMap<i64, SessionId>,
    grants: FastMap<i64, Grant>,
    /// What the ends of each lane lead to.
    ends: FastMap<i64, EndEffects>,
    /// The store is on its way to another place; unknown until it was read.
    departure: Option<Option<Departure>>,
    data_version: i64,
}

/// What the ends of a lane lead to, besides the end itself.
#[derive(Clone, Copy)]
pub(crate) struct EndEffects {
    pub(crate) tell: OutboxFilter,
    /// Whether a breaker counts them, or a place of the queue or its account becomes free.
    pub(crate) counted: bool,
    /// Whether a budget may be charged for them.
    pub(crate) charged: bool,
}

/// The most grants in the cache; over it they are forgotten, and read from the file.
const MAX_GRANTS: usize = 100_000;

/// What was true of a task when this process claimed it. It stays true for as long as the token does and the attempt
/// has not durably begun, and the statement that relies on it checks both.
#[derive(Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    pub(crate) lane: i64,
    pub(crate) limit: Option<i64>,
    pub(crate) session: i64,
    pub(crate) runs: u32,
}

/// One write transaction.
pub(crate) struct Tx<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) checks: Checks,
    pub(crate) now: Timestamp,
    liveness: &'a LivenessFiles,
    cache: &'a mut Cache,
    pub(crate) lanes: FastMap<i64, LaneChange>,
    /// Queues whose clock has moved.
    clocks: FastMap<i64, VirtualTime>,
    /// Queues whose gate has moved.
    gates: FastMap<i64, Gate>,
    rings: Rings,
    /// Whether a task that others wait for ended in this verb.
    frees: bool,
    /// How many rows this connection had ever changed before, if this transaction may begin a new log.
    begins_log: Option<u64>,
}

impl<'a> Tx<'a> {
    /// Begins to write: BEGIN IMMEDIATE, so that no later statement can find the file locked.
    pub(crate) fn begin(
        conn: &'a Connection,
        checks: Checks,
        liveness: &'a LivenessFiles,
        cache: &'a mut Cache,
        now: Timestamp,
    ) -> Sql<Self> {
        let begins_log = log_epoch::is_folded(conn)?;
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let version = conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0));
        let data_version = version.inspect_err(|_| {
            let _ = conn.execute_batch("ROLLBACK");
        })?;
        if cache.data_version != data_version {
            cache.queues.clear();
            cache.ends.clear();
            cache.sessions.clear();
            cache.departure = None;
            cache.data_version = data_version;
        }
        Ok(Self {
            conn,
            checks,
            now,
            liveness,
            cache,
            begins_log: begins_log.then(|| conn.total_changes()),
            lanes: FastMap::default(),
            clocks: FastMap::default(),
            gates: FastMap::default(),
            rings: Rings::default(),
            frees: false,
        })
    }

    /// Writes what was put off, and commits. Answers which bells to ring.
    pub(crate) fn commit(mut self) -> Sql<Rings> {
        self.flush_lanes()?;
        for (queue, clock) in std::mem::take(&mut self.clocks) {
            self.prepare("UPDATE queue SET clock = ?2 WHERE id = ?1")?.execute(params![queue, clock.0])?;
        }
        for (queue, gate) in std::mem::take(&mut self.gates) {
            self.prepare("UPDATE queue SET gate = ?2 WHERE id = ?1")?
                .execute(params![queue, gate_text(&gate)])?;
        }
        if self.begins_log.is_some_and(|before| before != self.conn.total_changes()) {
            log_epoch::advance(self.conn)?;
        }
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        Ok(self.rings)
    }

    /// Undoes everything, and forgets what it taught.
    pub(crate) fn roll_back(self) {
        *self.cache = Cache::default();
        // After a full disk SQLite has already rolled back.
        if !self.conn.is_autocommit() {
            let _ = self.conn.execute_batch("ROLLBACK");
        }
    }

    pub(crate) fn prepare(&self, sql: &str) -> Sql<CachedStatement<'a>> {
        self.conn.prepare_cached(sql)
    }

    /// Tasks became ready.
    pub(crate) fn ring(&mut self) {
        self.rings.ready = true;
    }

    /// A task that others wait for has ended.
    pub(crate) fn frees(&mut self) {
        self.frees = true;
    }

    /// Whether one has, since this was asked last.
    pub(crate) fn has_freed(&mut self) -> bool {
        std::mem::take(&mut self.frees)
    }

    /// A node should renew now.
    pub(crate) fn ring_control(&mut self) {
        self.rings.control = true;
    }

    /// A task ended, or an event was written.
    pub(crate) fn changed(&mut self) {
        self.rings.changed = true;
    }

    /// Where the store is going, if it is not here to stay.
    pub(crate) fn departure(&mut self) -> Sql<Option<&Departure>> {
        if self.cache.departure.is_none() {
            let going =
                move_source::read(self.conn)?.filter(|departure| departure.stage != MoveStage::Staying);
            self.cache.departure = Some(going);
        }
        Ok(self.cache.departure.as_ref().and_then(Option::as_ref))
    }

    /// What is kept about the departure was changed.
    pub(crate) fn forget_departure(&mut self) {
        self.cache.departure = None;
    }

    // ---- queues and lanes ----

    /// The queue of this name, if there is one.
    pub(crate) fn queue(&mut self, name: &str) -> Sql<Option<&mut QueueRow>> {
        if !self.cache.queues.contains_key(name) {
            let Some(queue) = read_queue(self.conn, name)? else { return Ok(None) };
            self.cache.queues.insert(name.to_owned(), queue);
        }
        Ok(self.cache.queues.get_mut(name))
    }

    /// The queue of this name, made if need be.
    pub(crate) fn queue_or_new(&mut self, name: &str) -> Sql<&mut QueueRow> {
        if self.queue(name)?.is_none() {
            self.prepare("INSERT INTO queue(name) VALUES(?1)")?.execute([name])?;
        }
        Ok(self.queue(name)?.expect("it was just made"))
    }

    /// The lane of a kind in this queue, made if need be.
    pub(crate) fn lane(&mut self, queue: &str, kind: &str) -> Sql<i64> {
        let found = self.queue_or_new(queue)?;
        if let Some((lane, _)) = found.lanes.iter().find(|(_, known)| **known == *kind) {
            return Ok(*lane);
        }
        let id = found.id;
        let lane = self.prepare("INSERT INTO lane(queue, kind) VALUES(?1, ?2)")?.insert(params![id, kind])?;
        let found = self.queue_or_new(queue)?;
        found.lanes.push((lane, kind.into()));
        Ok(lane)
    }

    /// A queue was removed: its number, and those of its lanes, will be those of others.
    pub(crate) fn forget_queue(&mut self, id: i64) {
        self.cache.queues.clear();
        self.cache.ends.clear();
        self.cache.grants.clear();
        self.clocks.remove(&id);
        self.gates.remove(&id);
    }

    /// What holds for the keys of a queue.
    pub(crate) fn key_rules(&mut self, queue: &str) -> Sql<KeyRules> {
        Ok(KeyRules::of(self.queue_or_new(queue)?))
    }

    /// The name of a lane's queue.
    pub(crate) fn queue_of(&mut self, lane: i64) -> Sql<Arc<str>> {
        let has_lane = |queue: &&QueueRow| queue.lanes.iter().any(|(id, _)| *id == lane);
        if let Some(queue) = self.cache.queues.values().find(has_lane) {
            return Ok(Arc::clone(&queue.name));
        }
        let name: String = self
            .prepare("SELECT q.name FROM lane l JOIN queue q ON q.id = l.queue WHERE l.id = ?1")?
            .query_row([lane], |row| row.get(0))?;
        Ok(Arc::clone(&self.queue_or_new(&name)?.name))
    }

    /// What the ends of a lane lead to. Every success asks, so the answer is cached, or costs one query.
    pub(crate) fn ends_of(&mut self, lane: i64) -> Sql<EndEffects> {
        if let Some(ends) = self.cache.ends.get(&lane) {
            return Ok(*ends);
        }
        let queue = self.queue_of(lane)?;
        let settings = &self.queue_or_new(&queue)?.settings;
        let ends = EndEffects {
            tell: settings.subscribers.any(),
            counted: settings.counts_ends(),
            charged: settings.is_charged(),
        };
        self.cache.ends.insert(lane, ends);
        Ok(ends)
    }

    /// Keeps the queue's gate.
    pub(crate) fn set_gate(&mut self, queue: &str, gate: Gate) -> Sql<()> {
        let queue = self.queue_or_new(queue)?;
        if queue.gate != gate {
            queue.gate.clone_from(&gate);
            let id = queue.id;
            self.gates.insert(id, gate);
        }
        Ok(())
    }

    /// Keeps the queue's clock.
    pub(crate) fn set_clock(&mut self, queue: &str, clock: VirtualTime) -> Sql<()> {
        let queue = self.queue_or_new(queue)?;
        if queue.clock != clock {
            queue.clock = clock;
            let id = queue.id;
            self.clocks.insert(id, clock);
        }
        Ok(())
    }

    /// Keeps the queue's settings.
    pub(crate) fn set_settings(&mut self, queue: &str, settings: &QueueSettings) -> Sql<()> {
        let queue = self.queue_or_new(queue)?;
        if queue.settings == *settings {
            return Ok(());
        }
        let id = queue.id;
        queue.settings = settings.clone();
        self.cache.ends.clear();
        self.prepare(
            "UPDATE queue SET paused = ?2, max_queued = ?3, key_cap = ?4, overrides = ?5, kinds = ?6, tell = ?7, rules = ?8,
                account = ?9, pool = ?10
             WHERE id = ?1",
        )?
        .execute(params![
            id,
            settings.paused,
            settings.limit,
            settings.key_concurrency,
            overrides_text(&settings.overrides),
            kinds_text(&settings.kinds),
            subscribers_text(&settings.subscribers),
            rules_text(settings),
            settings.account,
            settings.pool,
        ])?;
        Ok(())
    }

    /// How many tasks wait in the queue, with what this transaction has changed.
    pub(crate) fn queued(&mut self, queue: &str) -> Sql<u64> {
        let Some(found) = self.queue(queue)? else { return Ok(0) };
        let (id, lanes) = (found.id, found.lanes.clone());
        let kept: i64 = self
            .prepare("SELECT coalesce(sum(queued), 0) FROM lane WHERE queue = ?1")?
            .query_row([id], |row| row.get(0))?;
        let changes = lanes.iter().filter_map(|(lane, _)| self.lanes.get(lane));
        let changed: i64 = changes.map(|change| change.counts[StateName::Queued as usize]).sum();
        Ok(u64::try_from(kept + changed).unwrap_or(0))
    }

    /// How many tasks of the queue, and of the queues that its pool serves besides, are leased, with what this transaction has changed.
    pub(crate) fn leased(&mut self, queue: &str) -> Sql<u64> {
        self.leased_by(LEASED, queue)
    }

    /// How many tasks are leased over all queues of an account, with what this transaction has changed.
    pub(crate) fn leased_of_account(&mut self, account: &str) -> Sql<u64> {
        self.leased_by(
            "SELECT l.id, l.claimed + l.running FROM queue q INDEXED BY account_queue JOIN lane l ON l.queue = q.id
             WHERE q.account = ?1",
            account,
        )
    }

    /// The leased tasks of the lanes that this query finds by a name.
    fn leased_by(&mut self, lanes: &str, name: &str) -> Sql<u64> {
        let mut statement = self.prepare(lanes)?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let mut leased = 0;
        for lane in statement.query_map([name], read)? {
            let (lane, kept) = lane?;
            let changed = self.lanes.get(&lane).map_or(0, |change| {
                change.counts[StateName::Claimed as usize] + change.counts[StateName::Running as usize]
            });
            leased += kept + changed;
        }
        Ok(u64::try_from(leased).unwrap_or(0))
    }

    // ---- sessions ----

    /// The session's number, if it may still act.
    pub(crate) fn live_session(&mut self, session: SessionId, check: Check) -> Sql<Option<i64>> {
        let found: Option<(i64, bool, Duration)> = self
            .prepare("SELECT id, ended_at IS NULL, ttl_ms FROM session WHERE uid = ?1")?
            .query_row([Uid::of(session.0)], |row| Ok((row.get(0)?, row.get(1)?, ttl_from(row, 2)?)))
            .optional()?;
        let Some((id, open, ttl)) = found else { return Ok(None) };
        let live = self.checks.pass(check, open && !self.liveness.is_over(session, ttl));
        Ok(live.then_some(id))
    }

    /// Beats for a session that begins.
    pub(crate) fn beat(&self, session: SessionId) {
        // Its first beat was written when it took its lock; if this one cannot be, that one counts.
        let _ = self.liveness.beat(session);
    }

    /// The name of a session that is known by its number.
    pub(crate) fn session_name(&mut self, id: i64) -> Sql<SessionId> {
        if let Some(name) = self.cache.sessions.get(&id) {
            return Ok(*name);
        }
        let uid: Uid =
            self.prepare("SELECT uid FROM session WHERE id = ?1")?.query_row([id], |row| row.get(0))?;
        self.cache.sessions.insert(id, SessionId(uid.id()));
        Ok(SessionId(uid.id()))
    }

    /// Sessions were removed: their numbers will be those of others.
    pub(crate) fn forget_sessions(&mut self) {
        self.cache.sessions.clear();
    }

    /// Remembers a claim, for the report that is to come.
    pub(crate) fn remember(&mut self, slot: i64, grant: Grant) {
        if self.cache.grants.len() >= MAX_GRANTS {
            self.cache.grants.clear();
        }
        self.cache.grants.insert(slot, grant);
    }

    /// What is remembered of a claim.
    pub(crate) fn recall(&mut self, slot: i64, token: u64) -> Option<Grant> {
        self.cache.grants.remove(&slot).filter(|grant| grant.token == token)
    }

    // ---- tasks ----
}

/// The lanes of a queue, and of the queues that its pool serves besides, with their leased tasks.
pub(crate) const LEASED: &str =
    "SELECT l.id, l.claimed + l.running FROM queue q JOIN lane l ON l.queue = q.id
     WHERE q.name = ?1 OR q.pool = ?1";

/// The columns of a queue that [`ostler_sql::queue::settings_from`] reads.
pub(crate) const SETTINGS: &str = "paused, max_queued, key_cap, overrides, kinds, tell, rules, account, pool";

/// A queue from its row.
pub(crate) fn read_queue(conn: &Connection, name: &str) -> Sql<Option<QueueRow>> {
    let row = conn
        .prepare_cached(&format!("SELECT id, clock, gate, {SETTINGS} FROM queue WHERE name = ?1"))?
        .query_row([name], |row| {
            let (clock, gate) = (VirtualTime(row.get(1)?), gate_from(row.get(2)?));
            Ok((row.get(0)?, clock, gate, settings_from(&RowRef(row), 3)?))
        })
        .optional()?;
    let Some((id, clock, gate, settings)) = row else { return Ok(None) };
    let mut statement = conn.prepare_cached("SELECT id, kind FROM lane WHERE queue = ?1 ORDER BY id")?;
    let lanes = statement
        .query_map([id], |row| Ok((row.get(0)?, row.get::<_, String>(1)?.into())))?
        .collect::<Sql<Vec<(i64, Arc<str>)>>>()?;
    let any_shut = conn.prepare_cached(text(ANY_SHUT))?.exists([id])?;
    Ok(Some(QueueRow { id, name: name.into(), settings, clock, gate, any_shut, lanes }))
}
