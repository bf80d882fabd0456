//! Integrity of the store: schema version, index health, counts, and rows that belong to no task. Nothing here writes.

use std::sync::Arc;

use ostler_sql::integrity::MAX_PROBLEMS;
pub use ostler_sql::integrity::{Health, Versions};
use ostler_sql::wrong_counts;
use ostler_store::Error;

use crate::address::Address;
use crate::conn::{Conn, Names, get, most};
use crate::fault::{Sql, fault};
use crate::open::{Options, connector, look_at_server, version};
use crate::schema::VERSION;

/// The lanes with their counts, which are those of their rows and of all that was not folded into them yet.
const WRONG_COUNTS: &str = wrong_counts!(
    "(SELECT a.id, a.queue, a.kind, sum(c.queued) AS queued, sum(c.claimed) AS claimed, sum(c.running) AS running,
        sum(c.completed) AS completed, sum(c.failed) AS failed, sum(c.cancelled) AS cancelled, sum(c.pruned_completed) AS pruned_completed,
        sum(c.pruned_failed) AS pruned_failed, sum(c.pruned_cancelled) AS pruned_cancelled
     FROM ostler.lane a JOIN (SELECT id, queued, claimed, running, completed, failed, cancelled, pruned_completed, pruned_failed,
            pruned_cancelled FROM ostler.lane
        UNION ALL SELECT lane, queued, claimed, running, completed, failed, cancelled, pruned_completed, pruned_failed,
            pruned_cancelled FROM ostler.lane_delta) c ON c.id = a.id
     GROUP BY a.id, a.queue, a.kind)"
);

/// Returns the schema version.
///
/// # Errors
/// If the server cannot be reached or read, or is not supported.
pub async fn versions(address: &Address) -> Result<Versions, Error> {
    let look = async {
        let (conn, schema) = look(address).await?;
        version(&conn, &schema).await
    };
    let found = look.await.map_err(fault)?;
    Ok(Versions { found: found.map(i64::from), newest: i64::from(VERSION) })
}

/// Checks the store's objects in the server; `None`: there is no store. Checking the server's files is left to the
/// server's own tools (`pg_amcheck`).
///
/// # Errors
/// As for [`versions`].
pub async fn check(address: &Address) -> Result<Option<Health>, Error> {
    let look = async {
        let (conn, schema) = look(address).await?;
        let Some(version) = version(&conn, &schema).await? else { return Ok(None) };
        let mut problems = broken_indexes(&conn, &schema).await?;
        problems.extend(ostler_sql::integrity::counts(&conn, WRONG_COUNTS).await?);
        problems.extend(ostler_sql::integrity::orphans(&conn).await?);
        problems.truncate(MAX_PROBLEMS);
        Ok(Some(Health { version: i64::from(version), problems }))
    };
    look.await.map_err(fault)
}

async fn look(address: &Address) -> Sql<(Conn, String)> {
    let Options { schema, patience, .. } = address.options(&Options::default());
    let connector = connector(address, patience, None).map_err(crate::fault::Abort::Refused)?;
    let conn = Conn::own(
        connector.client().await?,
        connector.session_settings(),
        &Arc::new(Names::new(&schema, patience)),
    );
    look_at_server(&conn).await?;
    Ok((conn, schema))
}

/// Lists indexes that the server does not use because creating them failed.
async fn broken_indexes(conn: &Conn, schema: &str) -> Sql<Vec<String>> {
    let rows = conn
        .rows(
            "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = $1 AND NOT (i.indisvalid AND i.indisready) ORDER BY 1 LIMIT $2",
            &[&schema, &most(MAX_PROBLEMS)],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(format!("the index \"{}\" is not valid; to rebuild it: REINDEX", get::<String>(row, 0)?))
        })
        .collect()
}
