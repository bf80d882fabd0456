//! The care of the store: which version its tables have, and whether its indexes hold. Nothing here changes anything.

use std::sync::Arc;

use ostler_store::Error;

use crate::address::Address;
use crate::conn::{Conn, Names, get};
use crate::fault::{Sql, fault};
use crate::open::{Options, connector, look_at_server, version};
use crate::schema::VERSION;

/// Sentences about what is wrong, at most.
const MAX_PROBLEMS: i64 = 100;

/// Versions of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// What was found; `None`: there is no store.
    pub found: Option<i64>,
    /// What this program reads and writes.
    pub newest: i64,
}

/// How the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The version of its tables.
    pub version: i64,
    /// What is wrong with it, at most a hundred sentences.
    pub problems: Vec<String>,
}

/// Looks which version the tables have.
///
/// # Errors
/// When the server cannot be reached or read, or cannot have a store.
pub async fn versions(address: &Address) -> Result<Versions, Error> {
    let look = async {
        let (conn, schema) = look(address).await?;
        version(&conn, &schema).await
    };
    let found = look.await.map_err(fault)?;
    Ok(Versions { found: found.map(i64::from), newest: i64::from(VERSION) })
}

/// Looks whether something is wrong with what the server keeps for the store; `None`: there is no store. What is in the server's files is
/// the server's own business (`pg_amcheck`).
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

/// Indexes that the server does not use, because making them failed.
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
        .map(|row| Ok(format!("the index \"{}\" is not valid: REINDEX mends it", get::<String>(row, 0)?)))
        .collect()
}
