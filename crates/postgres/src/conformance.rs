//! What the conformance suite does to a store, and no program may: declare a node dead, and empty the store.

use ostler_core::SessionId;
use ostler_store::Error;

use crate::fault::fault;
use crate::row::Uid;
use crate::schema::CLEAR;
use crate::store::Postgres;

impl Postgres {
    /// Marks a node as dead at once, as if its lease had expired.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn kill(&self, session: SessionId) -> Result<(), Error> {
        let conn = self.transactor.conn().await.map_err(fault)?;
        let uid = Uid::of(session.0);
        let killed = conn.exec("UPDATE ostler.session SET expires_at = 0 WHERE uid = $1", &[&uid]).await;
        killed.map(drop).map_err(fault)
    }

    /// Empties the store, as if it had just been created. Pending notifications are sent before.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn clear(&self) -> Result<(), Error> {
        let conn = self.transactor.conn().await.map_err(fault)?;
        conn.batch(CLEAR).await.map_err(fault)?;
        self.transactor.notifier.silent().await;
        Ok(())
    }
}
