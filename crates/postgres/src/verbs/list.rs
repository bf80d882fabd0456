//! List: which sessions are alive decides which leases are stale.

use std::collections::HashSet;

use ostler_core::SessionId;
use ostler_sql::queries::ListCall;
use ostler_store::views::{LeaseFilter, Page};

use crate::conn::{Conn, get};
use crate::fault::Sql;
use crate::row::Uid;

pub(crate) async fn list(conn: &Conn, call: &ListCall<'_>, now: Option<i64>) -> Sql<Page> {
    let alive = match call.filter.lease {
        LeaseFilter::Any => HashSet::new(),
        LeaseFilter::Stale => alive(conn, now).await?,
    };
    ostler_sql::queries::list(conn, call, |session| alive.contains(&session)).await
}

/// The sessions that have renewed in time.
async fn alive(conn: &Conn, now: Option<i64>) -> Sql<HashSet<SessionId>> {
    let rows = conn
        .rows(
            "SELECT uid FROM ostler.session WHERE ended_at IS NULL
                AND expires_at >= coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)",
            &[&now],
        )
        .await?;
    rows.iter().map(|row| Ok(SessionId(get::<Uid>(row, 0)?.id()))).collect()
}
