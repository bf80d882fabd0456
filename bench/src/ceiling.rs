//! The SQLite ceiling: the bare statements of enqueue, claim, fenced finish and attempt record, with one writer. It has no
//! callers to answer, policies, limits, counts, sessions to check, or workers to wake.
//!
//! Its settings are those of a plain program: WAL, `synchronous=FULL`, and SQLite's defaults.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::Error;
use crate::load::{PAYLOAD, Shape, Tally};

const TABLES: &str = "
create table task(
    id integer primary key, uid blob not null, queue integer not null, kind text not null, payload text not null,
    priority integer not null, run_at integer not null, state integer not null, token integer not null default 0,
    session integer, attempts integer not null default 0, created_at integer not null, started_at integer,
    finished_at integer, error text, output text) strict;
create unique index task_uid on task(uid);
create index ready on task(queue, priority desc, run_at, id) where state=0;
create index leased on task(session) where state in (1,2);
create table attempt(
    task integer not null, number integer not null, worker text, started_at integer, finished_at integer,
    outcome integer, error text, primary key(task, number)) without rowid, strict;
";
const ENQUEUE: &str = "insert into task(uid,queue,kind,payload,priority,run_at,state,created_at)
    values(?1,?2,'noop',?3,?4,1000,?5,1000)";
const CLAIM: &str = "update task set state=2, token=token+1, session=7, attempts=attempts+1, started_at=?2
    where id in (select id from task where queue=1 and state=0 and run_at<=?2
        order by priority desc, run_at, id limit ?1)
    returning id, token, payload";
const FINISH: &str =
    "update task set state=3, session=null, finished_at=?3, output=?4 where id=?1 and token=?2";
const RECORD: &str =
    "insert into attempt(task,number,worker,started_at,finished_at,outcome) values(?1,1,'w1',?2,?2,0)";

const READY: i64 = 0;
const WAITING: i64 = 4;
const MEASURED_QUEUE: i64 = 1;
const OTHER_QUEUE: i64 = 2;
/// Rows per commit while a backlog is created.
const FILL_BATCH: usize = 10_000;
/// Tasks per commit while finished rows are created.
const FINISH_BATCH: usize = 1_000;

/// The durability of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Synchronous {
    /// Survives a power loss.
    Full,
    /// Survives the death of the process: for creating backlogs.
    Normal,
}

/// Backlog rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    Finished,
    /// Ready, in another lane.
    Elsewhere,
    /// Ready, in the same lane, behind the measured ones.
    Behind,
    /// Not claimable now, for any reason: outside the index of ready rows.
    Waiting,
}

/// One connection and its state.
pub(crate) struct Bare {
    conn: Connection,
    uid: u128,
    /// Claimed and unfinished tasks, while pipelined.
    held: Vec<Held>,
}

struct Held {
    id: i64,
    token: i64,
    /// Read because a real claim reads it.
    _payload: String,
}

impl Bare {
    /// Opens the file, created if missing.
    pub(crate) fn open(path: &Path, synchronous: Synchronous) -> Result<Self, Error> {
        let conn = Connection::open(path)?;
        // Without this SQLite replans the claim each time its LIMIT is bound, which would lower the ceiling.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        let synchronous = match synchronous {
            Synchronous::Full => "full",
            Synchronous::Normal => "normal",
        };
        conn.execute_batch(&format!("pragma journal_mode=wal; pragma synchronous={synchronous};"))?;
        conn.set_prepared_statement_cache_capacity(64);
        let is_new = !conn.table_exists(None, "task")?;
        if is_new {
            conn.execute_batch(TABLES)?;
        }
        let last: i64 = conn.query_row("select coalesce(max(id), 0) from task", [], |row| row.get(0))?;
        // Ids rise by a constant step, so that a reopened file continues the sequence.
        let uid = (0x0190 << 112) + u128::from(last.unsigned_abs()) * UID_STEP;
        Ok(Self { conn, uid, held: Vec::new() })
    }

    /// The settings that the connection reports.
    pub(crate) fn settings(&self) -> Result<String, Error> {
        let pragma = |name: &str| {
            let text = |row: &rusqlite::Row<'_>| {
                let value = row.get_ref(0)?;
                Ok(value
                    .as_i64()
                    .map_or_else(|_| value.as_str().map(String::from), |number| Ok(number.to_string())))
            };
            let value = self.conn.pragma_query_value(None, name, text)??;
            Ok(format!("{name}={value}"))
        };
        let names = ["journal_mode", "synchronous", "wal_autocheckpoint", "journal_size_limit", "cache_size"];
        Ok(names.into_iter().map(pragma).collect::<Result<Vec<_>, Error>>()?.join(", "))
    }

    /// Waits up to `most` for another process that writes.
    pub(crate) fn wait_for_others(&self, most: Duration) -> Result<(), Error> {
        Ok(self.conn.busy_timeout(most)?)
    }

    /// Runs tasks outside the measurement.
    pub(crate) fn warm_up(&mut self, tasks: usize) -> Result<(), Error> {
        self.fill(Rows::Finished, tasks)
    }

    /// Works for about this long.
    pub(crate) fn run(&mut self, shape: Shape, about: Duration) -> Result<Tally, Error> {
        let begun = Instant::now();
        let mut done = 0;
        while done == 0 || begun.elapsed() < about {
            done += match shape {
                Shape::Batch(size) | Shape::Callers(size) => self.cycle(size)?,
                Shape::Pipelined(size) => self.stage(size)?,
            };
        }
        let took = begun.elapsed();
        let tx = begin(&mut self.conn)?;
        finish(&tx, &self.held)?;
        tx.commit()?;
        self.held.clear();
        Ok(Tally { done, took })
    }

    /// Three commits: enqueue, claim, finish.
    pub(crate) fn cycle(&mut self, size: usize) -> Result<usize, Error> {
        self.enqueue(size)?;
        let tx = begin(&mut self.conn)?;
        let held = claim(&tx, size)?;
        tx.commit()?;
        let tx = begin(&mut self.conn)?;
        finish(&tx, &held)?;
        tx.commit()?;
        if held.len() != size {
            return Err(format!("the ceiling claimed {} of {size}", held.len()).into());
        }
        Ok(held.len())
    }

    /// Enqueues measured tasks in one commit.
    pub(crate) fn enqueue(&mut self, size: usize) -> Result<(), Error> {
        let tx = begin(&mut self.conn)?;
        insert(&tx, &mut self.uid, size, MEASURED_QUEUE, 0, READY)?;
        Ok(tx.commit()?)
    }

    /// Enqueues one task outside the measured lane in one commit, safe beside another process that makes ids.
    pub(crate) fn enqueue_elsewhere(&mut self) -> Result<(), Error> {
        const APART: u128 = 1 << 127;
        self.uid |= APART;
        let tx = begin(&mut self.conn)?;
        insert(&tx, &mut self.uid, 1, OTHER_QUEUE, 0, READY)?;
        Ok(tx.commit()?)
    }

    /// One commit: finishes one batch, claims the next, and enqueues the one after that.
    fn stage(&mut self, size: usize) -> Result<usize, Error> {
        let tx = begin(&mut self.conn)?;
        finish(&tx, &self.held)?;
        let done = self.held.len();
        self.held = claim(&tx, size)?;
        insert(&tx, &mut self.uid, size, MEASURED_QUEUE, 0, READY)?;
        tx.commit()?;
        Ok(done)
    }

    /// Creates backlog rows.
    pub(crate) fn fill(&mut self, rows: Rows, count: usize) -> Result<(), Error> {
        let (queue, priority, state) = match rows {
            Rows::Finished => {
                for size in batches(count, FINISH_BATCH) {
                    self.cycle(size)?;
                }
                return Ok(());
            }
            Rows::Elsewhere => (OTHER_QUEUE, 0, READY),
            Rows::Behind => (MEASURED_QUEUE, -100, READY),
            Rows::Waiting => (MEASURED_QUEUE, 100, WAITING),
        };
        for size in batches(count, FILL_BATCH) {
            let tx = begin(&mut self.conn)?;
            insert(&tx, &mut self.uid, size, queue, priority, state)?;
            tx.commit()?;
        }
        Ok(())
    }

    /// Completed rows with an attempt.
    #[cfg(test)]
    fn completed(&self) -> usize {
        let sql =
            "select count(*) from task join attempt on attempt.task = task.id where state = 3 and number = 1";
        self.conn.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

const UID_STEP: u128 = 0x1_0000_0001;

/// `count`, in batches of at most `most`.
pub(crate) fn batches(count: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..count.div_ceil(most)).map(move |batch| most.min(count - batch * most))
}

fn begin(conn: &mut Connection) -> Result<Transaction<'_>, Error> {
    Ok(conn.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

fn insert(
    tx: &Transaction<'_>,
    uid: &mut u128,
    size: usize,
    queue: i64,
    priority: i64,
    state: i64,
) -> Result<(), Error> {
    let mut insert = tx.prepare_cached(ENQUEUE)?;
    for _ in 0..size {
        *uid += UID_STEP;
        insert.execute(params![uid.to_be_bytes(), queue, PAYLOAD, priority, state])?;
    }
    Ok(())
}

fn claim(tx: &Transaction<'_>, size: usize) -> Result<Vec<Held>, Error> {
    let mut claim = tx.prepare_cached(CLAIM)?;
    let held = claim.query_map(params![i64::try_from(size)?, 2000], |row| {
        Ok(Held { id: row.get(0)?, token: row.get(1)?, _payload: row.get(2)? })
    })?;
    Ok(held.collect::<rusqlite::Result<_>>()?)
}

fn finish(tx: &Transaction<'_>, held: &[Held]) -> Result<(), Error> {
    let mut finish = tx.prepare_cached(FINISH)?;
    let mut record = tx.prepare_cached(RECORD)?;
    for task in held {
        if finish.execute(params![task.id, task.token, 3000, "null"])? != 1 {
            return Err("the ceiling lost a lease".into());
        }
        record.execute(params![task.id, 2000])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_counted_is_done_and_recorded_in_every_shape() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bare.db");
        let mut done = 5;
        Bare::open(&path, Synchronous::Normal).unwrap().fill(Rows::Finished, done).unwrap();
        let mut bare = Bare::open(&path, Synchronous::Full).unwrap();
        for shape in [Shape::Batch(3), Shape::Callers(2), Shape::Pipelined(4)] {
            let tally = bare.run(shape, Duration::from_millis(5)).unwrap();
            done += tally.done;
            if let Shape::Pipelined(size) = shape {
                // The batch that was still held at the end is finished, but outside the measured time.
                done += size.min(bare.completed() - done);
            }
            assert_eq!(bare.completed(), done, "{shape:?}");
        }
    }

    #[test]
    fn what_is_in_the_way_is_not_claimed_before_what_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        let mut bare = Bare::open(&dir.path().join("bare.db"), Synchronous::Normal).unwrap();
        for rows in [Rows::Finished, Rows::Elsewhere, Rows::Behind, Rows::Waiting] {
            bare.fill(rows, 10).unwrap();
        }
        assert_eq!(bare.cycle(7).unwrap(), 7);
        let behind: i64 = bare
            .conn
            .query_row("select count(*) from task where state = 0 and priority = -100", [], |row| row.get(0))
            .unwrap();
        assert_eq!((bare.completed(), behind), (17, 10));
    }

    #[test]
    fn bites_add_up() {
        assert_eq!(batches(25, 10).collect::<Vec<_>>(), [10, 10, 5]);
        assert_eq!(batches(20, 10).collect::<Vec<_>>(), [10, 10]);
        assert_eq!(batches(0, 10).count(), 0);
    }
}
