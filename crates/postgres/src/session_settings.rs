//! Session settings: transaction settings independent of the server's configuration, sent with each BEGIN or once per
//! connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::Client;

/// Begins a writing transaction. It sees all commits before it got its locks, whatever the database's default is.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Begins a read transaction on one snapshot.
const BEGIN_LOOK: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Settings of writing transactions. Plans are made for large tables, whatever their current size: a plan made for an
/// empty table would still be used with a million rows in it. So no plan depends on parameter values, and each is made
/// once: planning takes longer than executing.
const WRITING: [(&str, &str); 4] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// The same settings for reads: the server's defaults.
const LOOKING: [(&str, &str); 4] = [
    ("enable_seqscan", "on"),
    ("enable_hashjoin", "on"),
    ("enable_mergejoin", "on"),
    ("plan_cache_mode", "auto"),
];

/// No JIT: where a table has to be read as a whole, the server considers the plan very expensive, and would compile it
/// for half a second.
const UNCOMPILED: (&str, &str) = ("jit", "off");

/// Begins a writing transaction on a connection without session settings.
pub(crate) fn begin_untaught(patience: Duration) -> String {
    local(BEGIN, &writing(patience))
}

/// Begins a read transaction on one snapshot, on a connection without session settings.
pub(crate) fn look_untaught(patience: Duration) -> String {
    local(BEGIN_LOOK, &[uncompiled(), statement_bound(patience)])
}

/// Begins a read transaction on a connection that has the settings of writing transactions.
pub(crate) fn look() -> String {
    local(BEGIN_LOOK, &LOOKING.map(|(name, value)| (name, value.to_owned())))
}

fn local(begin: &str, settings: &[ServerSetting]) -> String {
    let said = settings.iter().map(|(name, value)| format!("; SET LOCAL {name} = {value}"));
    said.fold(begin.to_owned(), |text, setting| text + &setting)
}

/// The name of a server setting, and its value.
type ServerSetting = (&'static str, String);

fn uncompiled() -> ServerSetting {
    (UNCOMPILED.0, UNCOMPILED.1.to_owned())
}

/// The server's timeout is a little shorter, so that the result of the statement is usually known.
fn statement_bound(patience: Duration) -> ServerSetting {
    ("statement_timeout", (patience * 3 / 4).as_millis().to_string())
}

/// The settings of writing transactions. A client that falls silent during one does not block the others for longer than
/// the server's timeout.
fn writing(patience: Duration) -> Vec<ServerSetting> {
    let mut settings = WRITING.map(|(name, value)| (name, value.to_owned())).to_vec();
    let (_, sooner) = statement_bound(patience);
    settings.extend([
        uncompiled(),
        statement_bound(patience),
        ("lock_timeout", (patience / 2).as_millis().to_string()),
        ("idle_in_transaction_session_timeout", sooner),
    ]);
    settings
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pooling {
    Server,
    Pooler,
}

/// Settings that are sent once to each connection of a pool, instead of in each transaction. A pooler in between may give
/// each transaction another connection, and ours to other clients: if there is one, nothing is set in advance.
#[derive(Debug)]
pub(crate) struct SessionSettings {
    settings: String,
    pooler: AtomicBool,
}

impl SessionSettings {
    pub(crate) fn new(patience: Duration) -> Self {
        let settings =
            writing(patience).iter().map(|(name, value)| format!("SET {name} = {value}; ")).collect();
        Self { settings, pooler: AtomicBool::new(false) }
    }

    /// Applies the settings to a new connection, if there is no pooler.
    pub(crate) async fn apply(
        &self,
        client: &Client,
        reported: Option<i32>,
    ) -> Result<(), tokio_postgres::Error> {
        match self.look(client, reported).await? {
            Pooling::Server => client.batch_execute(&self.settings).await,
            Pooling::Pooler => Ok(()),
        }
    }

    /// Detects whether the server or a pooler answers on a new connection: `reported` is the pid reported at connection
    /// start. The statement is unnamed: a pooler may have given its name to another client's statement.
    pub(crate) async fn look(
        &self,
        client: &Client,
        reported: Option<i32>,
    ) -> Result<Pooling, tokio_postgres::Error> {
        let pid: i32 = client.query_typed_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        if reported == Some(pid) {
            return Ok(Pooling::Server);
        }
        self.pooler.store(true, Ordering::Release);
        Ok(Pooling::Pooler)
    }

    /// Whether there is no pooler: then all connections of the pool have the settings, and prepared statements persist.
    pub(crate) fn hold(&self) -> bool {
        !self.pooler.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use ostler_testkit::PrivatePostgres;
    use tokio_postgres::NoTls;

    use super::*;
    use crate::backend::told_pid;

    async fn client() -> Client {
        let (client, connection) =
            tokio_postgres::connect(&PrivatePostgres::shared().url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn shown(client: &Client, setting: &str) -> String {
        client.query_one(&format!("SHOW {setting}"), &[]).await.unwrap().get(0)
    }

    #[tokio::test]
    async fn a_connection_of_the_servers_own_is_taught_once_and_a_look_on_it_is_as_the_server_comes() {
        let (client, session_settings) = (client().await, SessionSettings::new(Duration::from_secs(20)));
        session_settings.apply(&client, told_pid(&client).await).await.unwrap();
        assert!(session_settings.hold());
        for (name, value) in WRITING {
            assert_eq!(shown(&client, name).await, value);
        }
        assert_eq!(shown(&client, "statement_timeout").await, "15s");
        client.batch_execute(&look()).await.unwrap();
        for (name, value) in LOOKING {
            assert_eq!(shown(&client, name).await, value);
        }
        assert_eq!(shown(&client, "jit").await, "off");
    }

    #[tokio::test]
    async fn a_connection_of_a_poolers_is_left_as_it_is() {
        let (client, session_settings) = (client().await, SessionSettings::new(Duration::from_secs(20)));
        let other = told_pid(&client).await.map(|pid| pid + 1);
        session_settings.apply(&client, other).await.unwrap();
        assert!(!session_settings.hold());
        assert_eq!(shown(&client, "enable_seqscan").await, "on");
        client.batch_execute(&begin_untaught(Duration::from_secs(20))).await.unwrap();
        assert_eq!(shown(&client, "enable_seqscan").await, "off");
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(shown(&client, "enable_seqscan").await, "on");
    }
}
