//! Opening a store: refusals, and the creation and migration of its tables.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Timeouts;
use ostler_sql::views::{self, Database};
use ostler_store::{Bells, Bounds, Checks, Clock, Error, ErrorKind};

use crate::address::Address;
use crate::cache::Cache;
use crate::commit_mark::CommitMarks;
use crate::conn::{Conn, Names, SCHEMA, get, quoted};
use crate::connect::{Connector, MAX_CONNECT};
use crate::fault::{Abort, Sql, fault};
use crate::functions::FUNCTIONS;
use crate::inbox::channel;
use crate::liveness::Failover;
use crate::locks::{LockTarget, Locks, Mode};
use crate::move_target::refuse_half;
use crate::notifier::{ListenMode, Listening, Notifier};
use crate::pools::{Limits, Pools};
use crate::schema::{MIGRATIONS, SINCE, VERSION};
use crate::session_settings::SessionSettings;
use crate::tls::certificates;
use crate::transactor::{Time, Transactor};
use crate::url::{APPLICATION_NAME, servers};

/// The oldest supported server version.
const OLDEST_SERVER: i32 = 140_000;
/// The default timeout of a statement.
const PATIENCE: Duration = Duration::from_secs(20);
/// The default size of the pool.
const CONNECTIONS: usize = 8;
/// The default idle time after which a connection is checked.
const CHECK_IDLE: Duration = Duration::from_secs(15);
/// The maximum length of a schema name, in bytes.
const MAX_SCHEMA_BYTES: usize = 48;

/// The options for opening a store.
#[derive(Clone)]
pub struct Options {
    /// The schema of the tables. It is created if it is missing.
    pub schema: String,
    /// The number of connections that the verbs share, on each runtime of the process (a node has its own). Two more are
    /// used for the heartbeat and for notifications.
    pub connections: usize,
    /// The timeout of one statement, including waits for locks. A connection that does not answer in this time is
    /// dropped.
    pub patience: Duration,
    /// When the tasks of this node are handed to other nodes, should it die.
    pub failover: Failover,
    /// What the server shows of the connections in `pg_stat_activity`, unless the URL says it; `None`: "ostler".
    pub application_name: Option<String>,
    /// Whether notifications of other processes are received.
    pub listening: Listening,
    /// How long a connection may be idle before it is checked: before the next use, and periodically for the listening
    /// one.
    pub check_idle: Duration,
    /// The clock; `None`: the server's, which all nodes share.
    pub clock: Option<Arc<dyn Clock>>,
    /// The bounds that an owner may set.
    pub bounds: Bounds,
    /// The checks made by the store: all of them, outside of tests.
    pub checks: Checks,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            connections: CONNECTIONS,
            patience: PATIENCE,
            failover: Failover::Known,
            application_name: None,
            listening: Listening::On,
            check_idle: CHECK_IDLE,
            clock: None,
            bounds: Bounds::default(),
            checks: Checks::default(),
        }
    }
}

/// What to do if there are no tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// Create them.
    Make,
    /// Report that there is no store.
    Expect,
}

/// Opens the store at `url`; `None`: there is none, and none was to be created.
pub(crate) async fn open(
    url: &str,
    options: &Options,
    tables: Tables,
) -> Result<Option<(Transactor, Connector)>, Error> {
    let address = Address::parse(url)?;
    let options = &address.options(options);
    check_schema(&options.schema)?;
    let bound = MAX_CONNECT.min(options.patience);
    let connector = connector(&address, options.patience, options.application_name.as_deref())?;
    let names = Arc::new(Names::new(&options.schema, options.patience));
    let timeouts = Timeouts { wait: Some(options.patience), create: Some(bound), recycle: Some(bound) };
    let bounds = Limits { most: options.connections, timeouts, check_idle: options.check_idle };
    let pools = Pools::new(connector.clone(), bounds);
    // Uses a dedicated connection: its errors are more specific than those of a pool.
    let mut conn = Conn::own(connector.client().await.map_err(fault)?, connector.session_settings(), &names);
    look_at_server(&conn).await.map_err(fault)?;
    if tables == Tables::Expect && version(&conn, &options.schema).await.map_err(fault)?.is_none() {
        return Ok(None);
    }
    migrate(&mut conn, &options.schema).await.map_err(fault)?;
    refuse_half(&conn, &options.schema).await.map_err(fault)?;
    let bells = Arc::new(Bells::default());
    let how = ListenMode { listening: options.listening, check_idle: options.check_idle };
    let notifier = Notifier::start(&pools, connector.clone(), channel(&options.schema), &bells, how).await;
    let time = options.clock.clone().map_or(Time::Server, Time::Given);
    let transactor = Transactor {
        pools,
        names,
        cache: Arc::new(Cache::new(&options.schema)),
        marks: CommitMarks::default(),
        checks: options.checks,
        time,
        bells,
        notifier: notifier.map_err(fault)?,
    };
    Ok(Some((transactor, connector)))
}

/// Creates the connector for an address, with this statement timeout and application name.
pub(crate) fn connector(
    address: &Address,
    patience: Duration,
    application_name: Option<&str>,
) -> Result<Connector, Error> {
    let (url, certificates) = certificates(address.url());
    let bound = MAX_CONNECT.min(patience);
    let mut servers = servers(&url)?;
    for server in &mut servers {
        if server.get_application_name() == Some(APPLICATION_NAME) {
            server.application_name(application_name.unwrap_or(APPLICATION_NAME));
        }
    }
    Ok(Connector::new(servers, certificates.encryption()?, bound, SessionSettings::new(patience)))
}

pub(crate) fn check_schema(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if name.len() <= MAX_SCHEMA_BYTES && begins_well && name.chars().all(plain) && !name.starts_with("pg_") {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "\"{name}\" is not a valid schema name: use lower-case letters, digits and \"_\", at most {MAX_SCHEMA_BYTES}"
    )))
}

/// Refuses a server that is too old or not writable.
pub(crate) async fn look_at_server(conn: &Conn) -> Sql<()> {
    let row = conn
        .one(
            "SELECT current_setting('server_version_num')::integer, pg_is_in_recovery(), current_setting('server_version')",
            &[],
        )
        .await?;
    if get::<i32>(&row, 0)? < OLDEST_SERVER {
        let version: String = get(&row, 2)?;
        let sentence = format!("the server is PostgreSQL {version}, but 14 or newer is required");
        return Err(Abort::Refused(Error::new(ErrorKind::Foreign, sentence)));
    }
    if get(&row, 1)? {
        let sentence = "the server is a read-only standby: connect to the primary";
        return Err(Abort::Refused(Error::new(ErrorKind::ReadOnly, sentence)));
    }
    Ok(())
}

/// Migrates the tables to this version. Of all processes that open the store concurrently, one migrates and the others
/// wait.
pub(crate) async fn migrate(conn: &mut Conn, schema: &str) -> Sql<()> {
    if version(conn, schema).await?.is_some_and(|version| version >= VERSION) {
        return Ok(());
    }
    conn.begins();
    let migrated = migrate_alone(conn, schema).await;
    match migrated {
        Ok(()) => conn.commit().await,
        Err(stop) => {
            let _ = conn.roll_back().await;
            Err(stop)
        }
    }
}

async fn migrate_alone(conn: &Conn, schema: &str) -> Sql<()> {
    let (lock, _) = Locks::none().and(LockTarget::Schema, Mode::Exclusive).columns(schema);
    conn.batch("BEGIN; SET LOCAL lock_timeout = 0; SET LOCAL client_min_messages = warning").await?;
    conn.rows("SELECT pg_advisory_xact_lock(hashtextextended($1, 0)) IS NULL", &[&lock[0]]).await?;
    let before = version(conn, schema).await?.unwrap_or(0);
    if before == 0 {
        refuse_foreign(conn, schema).await?;
        conn.batch(&format!("CREATE SCHEMA IF NOT EXISTS {}", quoted(schema))).await?;
        conn.batch("CREATE TABLE ostler.meta(version integer NOT NULL, since integer NOT NULL)").await?;
        conn.batch("INSERT INTO ostler.meta(version, since) VALUES(0, 0)").await?;
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(before).unwrap_or(0)) {
        conn.batch(step).await?;
    }
    conn.batch(FUNCTIONS).await?;
    conn.batch(&views::create(Database::Postgres)).await?;
    conn.batch(&format!(
        "UPDATE ostler.meta SET version = {VERSION}, since = {SINCE} WHERE version < {VERSION}"
    ))
    .await
}

/// Returns the schema version; `None`: there are no tables.
pub(crate) async fn version(conn: &Conn, schema: &str) -> Sql<Option<i32>> {
    // Read from the catalogue itself: the server's name cache may be older than the lock.
    let made = conn
        .exists(
            "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = $1 AND c.relname = 'meta' AND c.relkind = 'r'",
            &[&schema],
        )
        .await?;
    if !made {
        return Ok(None);
    }
    let Some(row) = conn.row("SELECT version, since FROM ostler.meta", &[]).await? else { return Ok(None) };
    if get::<i32>(&row, 1)? > VERSION {
        let sentence = format!(
            "the schema \"{schema}\" was created by a newer Ostler, which cannot share it with this one"
        );
        return Err(Abort::Refused(Error::new(ErrorKind::TooNew, sentence)));
    }
    Ok(Some(get(&row, 0)?))
}

/// Refuses a schema that contains foreign tables.
async fn refuse_foreign(conn: &Conn, schema: &str) -> Sql<()> {
    let theirs = conn
        .exists(
            "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 LIMIT 1",
            &[&schema],
        )
        .await?;
    if !theirs {
        return Ok(());
    }
    let sentence = format!(
        "the schema \"{schema}\" contains tables that are not an Ostler store, and was not changed; choose another schema"
    );
    Err(Abort::Refused(Error::new(ErrorKind::Foreign, sentence)))
}
