//! Move target: a store that is being moved into this database. Access is refused until the move is complete.
//!
//! During the move, a trigger on every table refuses all writes that are not part of it, including those of processes
//! that opened the store before, whatever their version. Without a move there is no trigger, and no cost.

mod rows;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_store::transfer::{Arriving, MoveId, MoveSide, MoveTarget, Record, RecordKey, Table};
use ostler_store::{Error, ErrorKind};
use tokio::sync::Mutex;
use tokio_postgres::Row;

use crate::address::Address;
use crate::conn::{Conn, Names, get, get_u32, quoted};
use crate::fault::{Abort, Sql, fault};
use crate::open::{Options, connector, look_at_server, migrate};
use crate::row::Uid;
use crate::transactor::VerbFuture;

/// The timeout of a statement of the move: a batch is large, and its rows have many indexes.
const MAX_STEP: Duration = Duration::from_secs(120);

/// The triggers' error code for writes that are not part of the move.
pub(crate) const REFUSES_WHILE_ARRIVING: &str = "OSMOV";

/// The setting that marks a transaction of the move. (Not in our schema: the name belongs to the server.)
const COMES_WITH_THE_MOVE: &str = "SELECT set_config('ostler_move.arriving', 'yes', true)";

/// The record of the move. `stage` is 0 while the store is being copied, and 1 once it is in use.
const MARK: &str = "CREATE TABLE IF NOT EXISTS ostler.arrival(
    uid uuid NOT NULL, round integer NOT NULL, stage smallint NOT NULL, source text NOT NULL
)";

const GUARD: &str = "CREATE OR REPLACE FUNCTION ostler.refuse_while_arriving() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('ostler_move.arriving', true) IS DISTINCT FROM 'yes' THEN
        RAISE EXCEPTION 'a store is being moved here, and cannot be used before the move is done: wait for \"ostler db move\", or run it again'
            USING ERRCODE = 'OSMOV';
    END IF;
    RETURN NULL;
END
$$";

/// Our tables that hold data of a store. (A commit mark belongs to a writing process, not to its data.)
const TABLES: &str = "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT IN ('meta', 'arrival', 'commit_mark')
     ORDER BY c.relname";

/// Identity columns.
const IDENTITIES: &str = "SELECT table_name::text, column_name::text FROM information_schema.columns
     WHERE table_schema = $1 AND is_identity = 'YES' ORDER BY table_name, column_name";

/// The database that a store moves into, for the code that moves it.
pub struct PostgresTarget {
    conn: Mutex<Conn>,
    schema: String,
}

/// The record of a store that is being copied, or has been.
struct Mark {
    id: MoveId,
    open: bool,
    source: String,
}

impl PostgresTarget {
    /// Opens the database at `url`, such as `postgres://user@host/database?schema=jobs`; creates the tables if there are
    /// none.
    ///
    /// # Errors
    /// If the server cannot be reached or is not writable, or the schema is foreign.
    pub async fn reach(url: &str) -> Result<Self, Error> {
        let address = Address::parse(url)?;
        let schema = address.options(&Options::default()).schema;
        let names = Arc::new(Names::new(&schema, MAX_STEP));
        let connector = connector(&address, MAX_STEP, None)?;
        let client = connector.client().await.map_err(fault)?;
        let mut conn = Conn::own(client, connector.session_settings(), &names);
        look_at_server(&conn).await.map_err(fault)?;
        migrate(&mut conn, &schema).await.map_err(fault)?;
        Ok(Self { conn: Mutex::new(conn), schema })
    }

    /// Executes a step as one transaction.
    async fn step<A, W>(&self, input: &A, work: W) -> Result<(), Error>
    where
        A: Sync + ?Sized,
        W: for<'t> Fn(&'t Conn, &'t A) -> VerbFuture<'t, ()> + Sync,
    {
        let mut conn = self.conn.lock().await;
        conn.begins();
        let worked = match start(&conn).await {
            Ok(()) => work(&conn, input).await,
            Err(stop) => Err(stop),
        };
        let ended = match worked {
            Ok(()) => conn.commit().await,
            Err(stop) => {
                let _ = conn.roll_back().await;
                Err(stop)
            }
        };
        ended.map_err(fault)
    }
}

async fn start(conn: &Conn) -> Sql<()> {
    conn.batch("BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '10s'; SET LOCAL client_min_messages = warning").await?;
    conn.rows(COMES_WITH_THE_MOVE, &[]).await?;
    Ok(())
}

/// Refuses a store whose move is not complete.
pub(crate) async fn refuse_half(conn: &Conn, schema: &str) -> Sql<()> {
    match mark(conn, schema).await? {
        Some(mark) if !mark.open => {
            let sentence = format!(
                "the store {} is being moved here, and cannot be used before the move is done: wait for \"ostler db move\", or run it again",
                mark.source
            );
            Err(Abort::Refused(Error::new(ErrorKind::Moving, sentence)))
        }
        Some(_) | None => Ok(()),
    }
}

async fn mark(conn: &Conn, schema: &str) -> Sql<Option<Mark>> {
    let known = conn
        .exists(
            "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = $1 AND c.relname = 'arrival'",
            &[&schema],
        )
        .await?;
    if !known {
        return Ok(None);
    }
    let row = conn.row("SELECT uid, round, stage, source FROM ostler.arrival", &[]).await?;
    let read = |row: Row| {
        let id = MoveId { id: get::<Uid>(&row, 0)?.id(), round: get_u32(&row, 1)? };
        Ok(Mark { id, open: get::<i16>(&row, 2)? == 1, source: get(&row, 3)? })
    };
    row.map(read).transpose()
}

/// Determines the state of the database with regard to this move.
async fn look(conn: &Conn, schema: &str, id: MoveId) -> Sql<Arriving> {
    let refused = |sentence: String| Err(Abort::Refused(Error::invalid(sentence)));
    match mark(conn, schema).await? {
        Some(mark) if mark.id == id => Ok(if mark.open { Arriving::Open } else { Arriving::Half }),
        Some(mark) if mark.id.id == id.id && !mark.open => Ok(Arriving::Stale),
        Some(mark) if !mark.open => refused(format!(
            "the database contains part of another store, {}, which is being moved here: finish that move, or abandon it with --abandon",
            mark.source
        )),
        Some(_) | None => match first_filled(conn, schema).await? {
            None => Ok(Arriving::Empty),
            Some(table) => refused(format!(
                "the database is not empty: there are rows in \"{schema}\".\"{table}\". A store can only move to an empty one; name another \
                 database, or drop the schema if it is not needed"
            )),
        },
    }
}

async fn tables(conn: &Conn, schema: &str) -> Sql<Vec<String>> {
    conn.rows(TABLES, &[&schema]).await?.iter().map(|row| get(row, 0)).collect()
}

/// Returns a table that has rows.
async fn first_filled(conn: &Conn, schema: &str) -> Sql<Option<String>> {
    let one = |table: &String| format!("(SELECT '{table}'::text FROM ostler.{} LIMIT 1)", quoted(table));
    let each: Vec<String> = tables(conn, schema).await?.iter().map(one).collect();
    conn.row(&each.join(" UNION ALL "), &[]).await?.map(|row| get(&row, 0)).transpose()
}

async fn begin(conn: &Conn, schema: &str, id: MoveId, from: &str) -> Sql<()> {
    conn.batch(MARK).await?;
    let all = tables(conn, schema).await?;
    let lock = "LOCK TABLE ostler.arrival IN ACCESS EXCLUSIVE MODE".to_owned();
    let locks =
        all.iter().map(|table| format!("LOCK TABLE ostler.{} IN ACCESS EXCLUSIVE MODE", quoted(table)));
    conn.batch(&[lock].into_iter().chain(locks).collect::<Vec<_>>().join("; ")).await?;
    match look(conn, schema, id).await? {
        Arriving::Half | Arriving::Open => return Ok(()),
        Arriving::Stale => empty(conn, &all).await?,
        Arriving::Empty => {}
    }
    let guard = |table: &String| {
        format!(
            "DROP TRIGGER IF EXISTS arriving ON ostler.{table};
             CREATE TRIGGER arriving BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON ostler.{table}
             FOR EACH STATEMENT EXECUTE FUNCTION ostler.refuse_while_arriving()",
            table = quoted(table)
        )
    };
    conn.batch(GUARD).await?;
    conn.batch(&all.iter().map(guard).collect::<Vec<_>>().join("; ")).await?;
    conn.exec("DELETE FROM ostler.arrival", &[]).await?;
    let round = i32::try_from(id.round).unwrap_or(i32::MAX);
    conn.exec(
        "INSERT INTO ostler.arrival(uid, round, stage, source) VALUES($1, $2, 0, $3)",
        &[&Uid::of(id.id), &round, &from],
    )
    .await?;
    Ok(())
}

async fn empty(conn: &Conn, tables: &[String]) -> Sql<()> {
    let names: Vec<String> = tables.iter().map(|table| format!("ostler.{}", quoted(table))).collect();
    conn.batch(&format!("TRUNCATE {} RESTART IDENTITY", names.join(", "))).await
}

async fn unguard(conn: &Conn, tables: &[String]) -> Sql<()> {
    let drop = |table: &String| format!("DROP TRIGGER IF EXISTS arriving ON ostler.{}", quoted(table));
    conn.batch(&tables.iter().map(drop).collect::<Vec<_>>().join("; ")).await?;
    conn.batch("DROP FUNCTION IF EXISTS ostler.refuse_while_arriving()").await
}

async fn open(conn: &Conn, schema: &str, last_telling: i64) -> Sql<()> {
    for row in conn.rows(IDENTITIES, &[&schema]).await? {
        let (table, column): (String, String) = (get(&row, 0)?, get(&row, 1)?);
        let least = if table == Table::Outbox.name() { last_telling } else { 0 };
        let sequence = format!("pg_get_serial_sequence('ostler.{}', '{column}')", quoted(&table));
        // The next number follows the highest one used; if none was used, it is the first.
        let sql = format!(
            "SELECT setval({sequence}, greatest(used, 1), used > 0)
             FROM (SELECT greatest(coalesce(max({}), 0), $1) AS used FROM ostler.{}) AS counted",
            quoted(&column),
            quoted(&table)
        );
        conn.rows(&sql, &[&least]).await?;
    }
    unguard(conn, &tables(conn, schema).await?).await?;
    conn.batch("UPDATE ostler.arrival SET stage = 1").await
}

async fn forget(conn: &Conn, schema: &str) -> Sql<()> {
    let all = tables(conn, schema).await?;
    empty(conn, &all).await?;
    unguard(conn, &all).await?;
    conn.batch("DELETE FROM ostler.arrival").await
}

#[async_trait]
impl MoveTarget for PostgresTarget {
    async fn look(&self, id: MoveId) -> Result<Arriving, Error> {
        let conn = self.conn.lock().await;
        look(&conn, &self.schema, id).await.map_err(fault)
    }

    async fn begin(&self, id: MoveId, from: &str) -> Result<(), Error> {
        let input = (self.schema.as_str(), id, from);
        self.step(&input, |conn, (schema, id, from)| Box::pin(begin(conn, schema, *id, from))).await
    }

    async fn reached(&self, table: Table) -> Result<Option<RecordKey>, Error> {
        rows::last(&*self.conn.lock().await, table).await.map_err(fault)
    }

    async fn put(&self, table: Table, records: &[Record]) -> Result<(), Error> {
        let input = (table, records);
        self.step(&input, |conn, (table, records)| Box::pin(rows::put(conn, *table, records))).await
    }

    async fn open(&self, last_telling: i64) -> Result<(), Error> {
        let input = (self.schema.as_str(), last_telling);
        self.step(&input, |conn, (schema, last)| Box::pin(open(conn, schema, *last))).await
    }

    async fn forget(&self) -> Result<(), Error> {
        self.step(self.schema.as_str(), |conn, schema| Box::pin(forget(conn, schema))).await
    }
}

#[async_trait]
impl MoveSide for PostgresTarget {
    async fn read(
        &self,
        table: Table,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<Record>, Error> {
        rows::read(&*self.conn.lock().await, table, after, limit).await.map_err(fault)
    }
}
