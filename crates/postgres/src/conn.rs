//! Connection wrapper for the verbs: statements are prepared once, and every wait has a timeout.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object, PoolError};
use tokio::time::timeout;
use tokio_postgres::types::{FromSqlOwned, ToSql, Type};
use tokio_postgres::{Row, Statement};

use crate::commit_mark::{CommitMark, SET};
use crate::fault::{Abort, Sql, with_source};
use crate::param::Param;
use crate::pools::Pools;
use crate::session_settings::{BEGIN, SessionSettings, begin_untaught, look, look_untaught};

/// The parameters of a statement.
pub(crate) type Params<'a> = &'a [&'a (dyn Param + Sync)];

/// The name of the schema in the statements of this crate.
pub(crate) const SCHEMA: &str = "ostler";

/// The schema of the tables, and the timeout of statements.
#[derive(Debug)]
pub(crate) struct Names {
    schema: String,
    /// The timeout of one statement, including waits for locks.
    patience: Duration,
    begin: String,
    begin_look: String,
    /// The same on a connection whose [`SessionSettings`] hold.
    begin_look_taught: String,
}

impl Names {
    pub(crate) fn new(schema: &str, patience: Duration) -> Self {
        Self {
            schema: schema.to_owned(),
            patience,
            begin: begin_untaught(patience),
            begin_look: look_untaught(patience),
            begin_look_taught: look(),
        }
    }

    /// The schema of the tables.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// The timeout of one statement.
    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Replaces the schema name in the statement.
    pub(crate) fn text<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        if self.schema == SCHEMA {
            return Cow::Borrowed(sql);
        }
        Cow::Owned(sql.replace("ostler.", &format!("{}.", quoted(&self.schema))))
    }
}

/// Quotes an SQL identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A pooled connection. One that is dropped during a transaction is not returned to the pool: its state is unknown.
pub(crate) struct Conn {
    link: Option<Link>,
    names: Arc<Names>,
    session_settings: Arc<SessionSettings>,
    in_transaction: bool,
}

enum Link {
    Pooled(Object),
    Own(ClientWrapper),
}

/// A statement that can be sent.
pub(crate) enum Prepared {
    /// Named at the server, which keeps its plan.
    Named(Statement),
    /// Sent with its text: behind a pooler, the next transaction may get another server connection, without the prepared
    /// statement.
    Unnamed(String),
}

impl Conn {
    pub(crate) async fn get(pools: &Pools, names: &Arc<Names>) -> Sql<Self> {
        let place = || pools.connector().place();
        let object = pools.here()?.get().await.map_err(|error| match error {
            PoolError::Backend(error) => Abort::unconnected(error, &place()),
            PoolError::Timeout(_) => {
                Abort::Away(format!("{}: no connection was free, or could be opened, in time", place()))
            }
            PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
                Abort::Away(error.to_string())
            }
        })?;
        Ok(Self::of(Link::Pooled(object), pools.session_settings(), names))
    }

    /// Wraps a dedicated connection.
    pub(crate) fn own(
        client: ClientWrapper,
        session_settings: &Arc<SessionSettings>,
        names: &Arc<Names>,
    ) -> Self {
        Self::of(Link::Own(client), session_settings, names)
    }

    fn of(link: Link, session_settings: &Arc<SessionSettings>, names: &Arc<Names>) -> Self {
        let (session_settings, names) = (Arc::clone(session_settings), Arc::clone(names));
        Self { link: Some(link), names, session_settings, in_transaction: false }
    }

    /// Whether the connection is known to be lost.
    pub(crate) fn is_closed(&self) -> bool {
        self.client().is_closed()
    }

    fn client(&self) -> &ClientWrapper {
        match &self.link {
            Some(Link::Pooled(object)) => object,
            Some(Link::Own(client)) => client,
            None => unreachable!("a connection is only given up when it is dropped"),
        }
    }

    /// Prepares the statement. Statements to be pipelined must be prepared in advance: otherwise one that is prepared
    /// first is overtaken by the next.
    pub(crate) async fn prepare(&self, sql: &str) -> Sql<Prepared> {
        let text = self.names.text(sql);
        if !self.session_settings.hold() {
            return Ok(Prepared::Unnamed(text.into_owned()));
        }
        let named = self.in_time(async { Ok(self.client().prepare_cached(&text).await?) }).await?;
        Ok(Prepared::Named(named))
    }

    /// Runs a prepared statement. It is sent on the first poll.
    pub(crate) async fn run(&self, statement: &Prepared, params: Params<'_>) -> Sql<Vec<Row>> {
        let client = self.client();
        self.in_time(async {
            Ok(match statement {
                Prepared::Named(named) => client.query(named, &values(params)).await?,
                Prepared::Unnamed(text) => client.query_typed(text, &typed(params)).await?,
            })
        })
        .await
    }

    /// Returns the rows of the statement.
    pub(crate) async fn rows(&self, sql: &str, params: Params<'_>) -> Sql<Vec<Row>> {
        let statement = self.prepare(sql).await?;
        self.run(&statement, params).await
    }

    /// Returns the first row, if there is one.
    pub(crate) async fn row(&self, sql: &str, params: Params<'_>) -> Sql<Option<Row>> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// Returns the only row of a statement that always has one.
    pub(crate) async fn one(&self, sql: &str, params: Params<'_>) -> Sql<Row> {
        self.row(sql, params).await?.ok_or_else(|| Abort::Foreign(format!("no row from: {sql}")))
    }

    /// Whether the statement finds any row.
    pub(crate) async fn exists(&self, sql: &str, params: Params<'_>) -> Sql<bool> {
        Ok(!self.rows(sql, params).await?.is_empty())
    }

    /// Executes a statement, and returns the number of affected rows.
    pub(crate) async fn exec(&self, sql: &str, params: Params<'_>) -> Sql<u64> {
        let (statement, client) = (self.prepare(sql).await?, self.client());
        self.in_time(async {
            Ok(match &statement {
                Prepared::Named(named) => client.execute(named, &values(params)).await?,
                Prepared::Unnamed(text) => client.execute_typed(text, &typed(params)).await?,
            })
        })
        .await
    }

    /// Executes several statements without parameters, in one message.
    pub(crate) async fn batch(&self, sql: &str) -> Sql<()> {
        let text = self.names.text(sql);
        self.in_time(async { Ok(self.client().batch_execute(&text).await?) }).await
    }

    async fn in_time<T>(&self, work: impl Future<Output = Sql<T>>) -> Sql<T> {
        timeout(self.names.patience, work).await.unwrap_or(Err(Abort::Silent))
    }

    // ---- transactions ----

    pub(crate) fn begins(&mut self) {
        self.in_transaction = true;
    }

    /// Records that the server has confirmed the end of the transaction.
    pub(crate) fn ended(&mut self) {
        self.in_transaction = false;
    }

    /// Sends the start of a writing transaction. Polled together with the next statements, all of them are sent at once.
    pub(crate) async fn begin(&self) -> Sql<()> {
        self.batch(if self.is_taught() { BEGIN } else { &self.names.begin }).await
    }

    /// Sends the start of a read transaction on one snapshot.
    pub(crate) async fn begin_look(&self) -> Sql<()> {
        self.batch(if self.is_taught() { &self.names.begin_look_taught } else { &self.names.begin_look })
            .await
    }

    /// Whether the session settings were applied in advance.
    fn is_taught(&self) -> bool {
        match &self.link {
            Some(Link::Pooled(_)) => self.session_settings.hold(),
            Some(Link::Own(_)) | None => false,
        }
    }

    /// Sends the last statement of a transaction, if there is one, its mark and its commit at once. If one of them fails,
    /// all of it is rolled back. Returns the rows of the statement, and whether the transaction has written anything.
    pub(crate) async fn commit_marked(
        &mut self,
        mark: &CommitMark,
        last: Option<(&str, Params<'_>)>,
    ) -> Sql<(Vec<Row>, bool)> {
        let writes = match last {
            Some((sql, params)) => Some((self.prepare(sql).await?, params)),
            None => None,
        };
        let marks = self.prepare(SET).await?;
        let (written, marked, committed) = tokio::join!(
            biased;
            async {
                match &writes {
                    Some((statement, params)) => self.run(statement, params).await,
                    None => Ok(Vec::new()),
                }
            },
            async { self.run(&marks, &mark.params()).await },
            async { self.batch("COMMIT").await },
        );
        let (rows, marked) = (written?, marked?);
        committed?;
        self.ended();
        let marked = marked.first().map_or(Ok(false), |row| get(row, 0))?;
        Ok((rows, marked))
    }

    pub(crate) async fn commit(&mut self) -> Sql<()> {
        self.batch("COMMIT").await?;
        self.ended();
        Ok(())
    }

    pub(crate) async fn roll_back(&mut self) -> Sql<()> {
        self.batch("ROLLBACK").await?;
        self.ended();
        Ok(())
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if self.in_transaction
            && let Some(Link::Pooled(object)) = self.link.take()
        {
            drop(Object::take(object));
        }
    }
}

/// The parameters of a statement whose types the server has reported.
fn values<'a>(params: Params<'a>) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(|param| *param as &(dyn ToSql + Sync)).collect()
}

/// The parameters of a statement, with the types to send to the server.
fn typed<'a>(params: Params<'a>) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    params.iter().map(|param| (*param as &(dyn ToSql + Sync), param.sql_type())).collect()
}

/// Reads a column. A value of another type was not written by Ostler.
pub(crate) fn get<T: FromSqlOwned>(row: &Row, at: usize) -> Sql<T> {
    row.try_get(at).map_err(|error| Abort::Foreign(with_source(&error)))
}

/// Reads a non-negative number.
pub(crate) fn get_u64(row: &Row, at: usize) -> Sql<u64> {
    let number: i64 = get(row, at)?;
    u64::try_from(number).map_err(|error| Abort::Foreign(error.to_string()))
}

/// Reads a nullable, non-negative number.
pub(crate) fn get_u64_opt(row: &Row, at: usize) -> Sql<Option<u64>> {
    let number: Option<i64> = get(row, at)?;
    number.map(u64::try_from).transpose().map_err(|error| Abort::Foreign(error.to_string()))
}

/// Reads a small non-negative number.
pub(crate) fn get_u32(row: &Row, at: usize) -> Sql<u32> {
    let number: i32 = get(row, at)?;
    u32::try_from(number).map_err(|error| Abort::Foreign(error.to_string()))
}

/// Converts a number for a `bigint` column.
pub(crate) fn big(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number for an `integer` column.
pub(crate) fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Converts a row limit.
pub(crate) fn most(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
