//! How transactions are, whatever the server is set to: what is said at their begin, or once to a connection that keeps it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::Client;

/// Begins a transaction that writes. It sees what others did before it got its locks, whatever the database is set to.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Begins a look at one moment of the store.
const BEGIN_LOOK: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// What holds for transactions that write. Plans are made for large tables, whatever their size is now: a plan that was made for an empty
/// table would still be used when a million rows are in it. So no plan depends on what is asked for, and each is made once: making it anew
/// takes longer than to carry it out.
const WRITING: [(&str, &str); 4] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// The same for looks: as the server comes.
const LOOKING: [(&str, &str); 4] = [
    ("enable_seqscan", "on"),
    ("enable_hashjoin", "on"),
    ("enable_mergejoin", "on"),
    ("plan_cache_mode", "auto"),
];

/// No plan is compiled: where a table has to be read as a whole, the server takes the plan for a very expensive one, and would compile it for
/// half a second.
const UNCOMPILED: (&str, &str) = ("jit", "off");

/// Begins a transaction that writes on a connection that was told nothing.
pub(crate) fn begin_untaught(patience: Duration) -> String {
    local(BEGIN, &writing(patience))
}

/// Begins a look at one moment on a connection that was told nothing.
pub(crate) fn look_untaught(patience: Duration) -> String {
    local(BEGIN_LOOK, &[uncompiled(), statement_bound(patience)])
}

/// Begins a look on a connection that was told how transactions that write are.
pub(crate) fn look() -> String {
    local(BEGIN_LOOK, &LOOKING.map(|(name, value)| (name, value.to_owned())))
}

fn local(begin: &str, settings: &[ServerSetting]) -> String {
    let said = settings.iter().map(|(name, value)| format!("; SET LOCAL {name} = {value}"));
    said.fold(begin.to_owned(), |text, setting| text + &setting)
}

/// A name of the server's, and its value.
type ServerSetting = (&'static str, String);

fn uncompiled() -> ServerSetting {
    (UNCOMPILED.0, UNCOMPILED.1.to_owned())
}

/// The server gives up a little earlier, where it can, so that it is known what became of the statement.
fn statement_bound(patience: Duration) -> ServerSetting {
    ("statement_timeout", (patience * 3 / 4).as_millis().to_string())
}

/// What holds for transactions that write. Whoever falls silent in the middle of one does not hold up the others for longer than the
/// server's patience.
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

/// Who answers on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pooling {
    Server,
    Pooler,
}

/// What the connections of a pool are told once, so that it need not be said again in each transaction. A pooler between us and the server
/// may give each transaction another connection, and ours to others: where there is one, nothing is said beforehand.
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

    /// Teaches a new connection, if it is the server that answers.
    pub(crate) async fn apply(
        &self,
        client: &Client,
        told: Option<i32>,
    ) -> Result<(), tokio_postgres::Error> {
        match self.look(client, told).await? {
            Pooling::Server => client.batch_execute(&self.settings).await,
            Pooling::Pooler => Ok(()),
        }
    }

    /// Looks who answers on a new connection: `told` is the process that whoever answered has named. The question has no name at the
    /// server: a pooler may have given that name to a statement of somebody else.
    pub(crate) async fn look(
        &self,
        client: &Client,
        told: Option<i32>,
    ) -> Result<Pooling, tokio_postgres::Error> {
        let pid: i32 = client.query_typed_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        if told == Some(pid) {
            return Ok(Pooling::Server);
        }
        self.pooler.store(true, Ordering::Release);
        Ok(Pooling::Pooler)
    }

    /// Whether it is the server that answers, and never a pooler: then all connections of the pool have them, and a statement that was
    /// prepared stays so.
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
