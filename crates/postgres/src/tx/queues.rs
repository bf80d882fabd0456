//! The queues and lanes of a transaction, as they are after what it has changed.

use ostler_core::{Gate, StateName, VirtualTime};
use ostler_store::views::QueueSettings;

use super::Tx;
use crate::conn::get;
use crate::fault::Sql;
use crate::queue::QueueRow;
use ostler_sql::KeyRules;
use ostler_sql::codec::{kinds_text, overrides_text, subscribers_text};
use ostler_sql::gate_codec::rules_text;

/// The lanes of a queue, and of the queues that its pool serves besides, with their leased tasks.
pub(crate) const LEASED: &str = "SELECT l.id, (l.claimed + l.running
        + coalesce((SELECT sum(d.claimed + d.running) FROM ostler.lane_delta d WHERE d.lane = l.id), 0))::bigint
     FROM ostler.queue q JOIN ostler.lane l ON l.queue = q.id WHERE q.name = $1 OR q.pool = $1";

impl Tx {
    /// The queue of this name, if there is one.
    pub(crate) fn queue(&mut self, name: &str) -> Sql<Option<&mut QueueRow>> {
        self.locked(name)?;
        Ok(self.queues.get_mut(name))
    }

    /// The queue of this name, made if need be.
    pub(crate) async fn queue_or_new(&mut self, name: &str) -> Sql<&mut QueueRow> {
        self.locked(name)?;
        if !self.queues.contains_key(name) {
            self.conn
                .exec("INSERT INTO ostler.queue(name) VALUES($1) ON CONFLICT(name) DO NOTHING", &[&name])
                .await?;
            // Another transaction may have made it at the same time.
            let row = self.conn.one("SELECT id FROM ostler.queue WHERE name = $1", &[&name]).await?;
            self.queues.insert(name.to_owned(), QueueRow::new(get(&row, 0)?, name));
        }
        Ok(self.queues.get_mut(name).expect("it is there, or was just made"))
    }

    /// The lane of a kind in this queue, made if need be.
    pub(crate) async fn lane(&mut self, queue: &str, kind: &str) -> Sql<i64> {
        let found = self.queue_or_new(queue).await?;
        if let Some(lane) = found.lane(kind) {
            return Ok(lane);
        }
        let id = found.id;
        self.conn
            .exec(
                "INSERT INTO ostler.lane(queue, kind) VALUES($1, $2) ON CONFLICT(queue, kind) DO NOTHING",
                &[&id, &kind],
            )
            .await?;
        let row =
            self.conn.one("SELECT id FROM ostler.lane WHERE queue = $1 AND kind = $2", &[&id, &kind]).await?;
        let lane = get(&row, 0)?;
        self.queue_or_new(queue).await?.lanes.push((lane, kind.into()));
        Ok(lane)
    }

    /// A queue was removed.
    pub(crate) fn forget_queue(&mut self, name: &str) {
        if let Some(queue) = self.queues.remove(name) {
            self.clocks.remove(&queue.id);
            self.gates.remove(&queue.id);
            for (lane, _) in &queue.lanes {
                self.lanes.forget(*lane);
            }
        }
    }

    /// What holds for the keys of a queue.
    pub(crate) fn key_rules(&mut self, queue: &str) -> Sql<KeyRules> {
        Ok(self.queue(queue)?.map_or_else(|| KeyRules::none(queue), |queue| KeyRules::of(queue)))
    }

    /// The settings of a queue.
    pub(crate) fn settings(&mut self, queue: &str) -> Sql<QueueSettings> {
        Ok(self.queue(queue)?.map(|queue| queue.settings.clone()).unwrap_or_default())
    }

    /// Keeps the queue's gate.
    pub(crate) async fn set_gate(&mut self, name: &str, gate: Gate) -> Sql<()> {
        let queue = self.queue_or_new(name).await?;
        if queue.gate != gate {
            queue.gate.clone_from(&gate);
            let id = queue.id;
            self.exclusive(name)?;
            self.gates.insert(id, gate);
        }
        Ok(())
    }

    /// Keeps the queue's clock.
    pub(crate) async fn set_clock(&mut self, name: &str, clock: VirtualTime) -> Sql<()> {
        let queue = self.queue_or_new(name).await?;
        if queue.clock != clock {
            queue.clock = clock;
            let id = queue.id;
            self.exclusive(name)?;
            self.clocks.insert(id, clock);
        }
        Ok(())
    }

    /// Keeps the queue's settings.
    pub(crate) async fn set_settings(&mut self, name: &str, settings: &QueueSettings) -> Sql<()> {
        let queue = self.queue_or_new(name).await?;
        if queue.settings == *settings {
            return Ok(());
        }
        let id = queue.id;
        queue.settings = settings.clone();
        self.exclusive(name)?;
        self.conn
            .exec(
                "UPDATE ostler.queue SET paused = $2, max_queued = $3, key_cap = $4, overrides = $5, kinds = $6, tell = $7, rules = $8,
                    account = $9, pool = $10
                 WHERE id = $1",
                &[
                    &id,
                    &settings.paused,
                    &settings.limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)),
                    &settings.key_concurrency.map(i64::from),
                    &overrides_text(&settings.overrides),
                    &kinds_text(&settings.kinds),
                    &subscribers_text(&settings.subscribers),
                    &rules_text(settings),
                    &settings.account,
                    &settings.pool,
                ],
            )
            .await?;
        Ok(())
    }

    /// How many tasks wait in the queue, with what this transaction has changed. Exact where the queue is held alone.
    pub(crate) async fn queued(&mut self, queue: &str) -> Sql<u64> {
        let Some(found) = self.queue(queue)? else { return Ok(0) };
        let lanes: Vec<i64> = found.lanes.iter().map(|(lane, _)| *lane).collect();
        let sql = "SELECT (coalesce((SELECT sum(queued) FROM ostler.lane WHERE id = ANY($1)), 0)
                + coalesce((SELECT sum(queued) FROM ostler.lane_delta WHERE lane = ANY($1)), 0))::bigint";
        let kept: i64 = get(&self.conn.one(sql, &[&lanes]).await?, 0)?;
        Ok(u64::try_from(kept + self.lanes.sum(&lanes, &[StateName::Queued])).unwrap_or(0))
    }

    /// How many tasks of the queue, and of the queues that its pool serves besides, are leased, with what this transaction has changed.
    pub(crate) async fn leased(&mut self, queue: &str) -> Sql<u64> {
        self.leased_by(LEASED, queue).await
    }

    /// How many tasks are leased over all queues of an account, with what this transaction has changed.
    pub(crate) async fn leased_of_account(&mut self, account: &str) -> Sql<u64> {
        self.leased_by(
            "SELECT l.id, (l.claimed + l.running
                + coalesce((SELECT sum(d.claimed + d.running) FROM ostler.lane_delta d WHERE d.lane = l.id), 0))::bigint
             FROM ostler.queue q JOIN ostler.lane l ON l.queue = q.id WHERE q.account = $1",
            account,
        )
        .await
    }

    /// The leased tasks of the lanes that this query finds by a name.
    async fn leased_by(&mut self, lanes: &str, name: &str) -> Sql<u64> {
        let rows = self.conn.rows(lanes, &[&name]).await?;
        let mut leased = 0;
        for row in &rows {
            let changed = self.lanes.sum(&[get(row, 0)?], &[StateName::Claimed, StateName::Running]);
            leased += get::<i64>(row, 1)? + changed;
        }
        Ok(u64::try_from(leased).unwrap_or(0))
    }
}
