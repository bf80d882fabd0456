//! Integrity of the store: schema version and index health. Nothing here writes.

use std::sync::Arc;

use ostler_store::Error;

use crate::address::Address;
use crate::conn::{Conn, Names, get};
use crate::fault::{Sql, fault};
use crate::open::{Options, connector, look_at_server, version};
use crate::schema::VERSION;

/// Limit on the problems listed.
const MAX_PROBLEMS: i64 = 100;

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
    /// The problems found, at most 100.
    pub problems: Vec<String>,
}

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
        Ok(Some(Health { version: i64::from(version), problems: broken_indexes(&conn, &schema).await? }))
    };
    look.await.map_err(fault)
}

async fn look(address: &Address) -> Sql<(Conn, String)> {
    let Options { schema, patience, .. } = address.options(&Options::default());
    let connector = connector(address, patience).map_err(crate::fault::Abort::Refused)?;
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
            &[&schema, &MAX_PROBLEMS],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(format!("the index \"{}\" is not valid; to rebuild it: REINDEX", get::<String>(row, 0)?))
        })
        .collect()
}
