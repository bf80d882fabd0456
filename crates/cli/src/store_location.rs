//! Which store to use: `--store`, then `OSTLER_STORE`, then `ostler.toml` in this folder or above it, then `ostler.db` in the user's
//! state folder.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_postgres::{Failover, Listening, Postgres};
use ostler_sqlite::Sqlite;
use ostler_sqlite::integrity::{self, UnopenableLock};
use ostler_store::calls::Retention;
use ostler_store::{Bounds, Error, ErrorKind, Store, SystemClock};

use crate::config::{Config, STRAYS, StoreUrl};
use crate::exit::{Code, refused};

pub(crate) const CONFIG_FILE: &str = "ostler.toml";
/// The environment variable with the store's URL.
pub(crate) const STORE_VARIABLE: &str = "OSTLER_STORE";
/// The file name of the default store, in the state folder.
const STORE_FILE: &str = "ostler.db";
/// The subfolder of the user's state folder.
const STATE_FOLDER: &str = "ostler";
/// The timeout for opening a store.
pub(crate) const MAX_OPENING: Duration = Duration::from_secs(10);

/// What to do if there is no store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMissing {
    /// Fail: a command that looks for tasks has the wrong path, or is too early.
    Refuse,
    /// Create one.
    Make,
}

/// How long a store stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// For a few calls.
    Brief,
    /// For long: wake-up hints from other processes are wanted.
    Long,
}

pub(crate) enum OpenStore {
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

impl OpenStore {
    /// The store behind either backend.
    pub(crate) fn store(self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => store,
            Self::Postgres(store) => store,
        }
    }
}

/// Where the store is, and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreLocation {
    url: StoreUrl,
    origin: Origin,
    bounds: Bounds,
    keep: Retention,
    strays: Duration,
    failover: Failover,
    /// The name of the node that opens it.
    node: Option<String>,
}

/// What named the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Option,
    Environment,
    Config,
    Default,
}

impl Origin {
    /// The name for programs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Option => "option",
            Self::Environment => "environment",
            Self::Config => "config",
            Self::Default => "default",
        }
    }
}

/// Looks up an environment variable.
pub(crate) type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl StoreLocation {
    /// Finds the store a command is about. `config` reads the config, if there is one; it is called only when neither the option
    /// nor the environment names a store.
    pub(crate) fn find(
        flag: Option<&str>,
        env: Env<'_>,
        config: impl FnOnce() -> anyhow::Result<Option<Config>>,
    ) -> anyhow::Result<Self> {
        if let Some(url) = flag {
            return Self::named("--store", url, Origin::Option);
        }
        if let Some(url) = env(STORE_VARIABLE).filter(|url| !url.is_empty()) {
            let url = url.into_string().map_err(|_| {
                let sentence = format!("{STORE_VARIABLE} must be UTF-8 text, such as sqlite:ostler.db");
                refused(Code::BadInput, sentence)
            })?;
            return Self::named(STORE_VARIABLE, &url, Origin::Environment);
        }
        let Config { store, payload_limit, keep, strays, .. } = config()?.unwrap_or_default();
        let place = match store {
            Some(url) => Self::at(url, Origin::Config),
            None => Self::in_state_folder(env)?,
        };
        Ok(Self {
            bounds: Bounds { payload_bytes: payload_limit, ..Bounds::default() },
            keep,
            strays,
            ..place
        })
    }

    fn named(field: &str, url: &str, origin: Origin) -> anyhow::Result<Self> {
        match StoreUrl::parse(url) {
            Ok(url) => Ok(Self::at(url, origin)),
            Err(error) => Err(refused(Code::BadInput, format!("{field}: {error}"))),
        }
    }

    fn at(url: StoreUrl, origin: Origin) -> Self {
        Self {
            url,
            origin,
            bounds: Bounds::default(),
            keep: Retention::default(),
            strays: STRAYS,
            failover: Failover::Known,
            node: None,
        }
    }

    /// The default store, in the user's state folder.
    fn in_state_folder(env: Env<'_>) -> anyhow::Result<Self> {
        // The XDG specification says to ignore relative paths in these variables.
        let folder = |name: &str| env(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
        let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
        let state = state.ok_or_else(|| {
            let sentence = "no store is named, and neither XDG_STATE_HOME nor HOME is set; add --store sqlite:PATH or \
                --store postgres://…, or set OSTLER_STORE";
            refused(Code::BadInput, sentence)
        })?;
        Ok(Self::at(StoreUrl::Sqlite(state.join(STATE_FOLDER).join(STORE_FILE)), Origin::Default))
    }

    pub(crate) const fn url(&self) -> &StoreUrl {
        &self.url
    }

    pub(crate) const fn origin(&self) -> Origin {
        self.origin
    }

    pub(crate) const fn url_mut(&mut self) -> &mut StoreUrl {
        &mut self.url
    }

    /// The path or address for people, without a password.
    pub(crate) fn name(&self) -> String {
        match &self.url {
            StoreUrl::Sqlite(path) => path.display().to_string(),
            StoreUrl::Postgres(address) => address.to_string(),
        }
    }

    /// Sets the failover time, for a node.
    pub(crate) fn with_failover(self, failover: Failover) -> Self {
        Self { failover, ..self }
    }

    /// Sets the name of the node, for the server's list of connections.
    pub(crate) fn with_node(self, name: &str) -> Self {
        Self { node: Some(name.to_owned()), ..self }
    }

    pub(crate) const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// How long finished tasks are kept.
    pub(crate) const fn keep(&self) -> Retention {
        self.keep
    }

    /// How long orphaned rows are kept.
    pub(crate) const fn strays(&self) -> Duration {
        self.strays
    }

    /// Opens the store for a few calls.
    pub(crate) async fn open(&self, missing: IfMissing) -> anyhow::Result<Arc<dyn Store>> {
        Ok(self.open_for(OpenMode::Brief, missing).await?.store())
    }

    pub(crate) async fn open_for(&self, stay: OpenMode, missing: IfMissing) -> anyhow::Result<OpenStore> {
        self.prepare(missing)?;
        let opened = tokio::time::timeout(MAX_OPENING, self.try_open(stay, missing)).await;
        let opened = opened.map_err(|_| self.silent())?.map_err(refusal)?;
        opened.ok_or_else(|| self.absent())
    }

    /// Opens the store, keeping the kind of error; `None` if there is no store and none is to be created.
    pub(crate) async fn try_open(
        &self,
        stay: OpenMode,
        missing: IfMissing,
    ) -> Result<Option<OpenStore>, Error> {
        let address = match &self.url {
            StoreUrl::Sqlite(path) => {
                let (path, bounds) = (path.clone(), self.bounds);
                let options = ostler_sqlite::Options { bounds, ..ostler_sqlite::Options::default() };
                let opening =
                    tokio::task::spawn_blocking(move || Sqlite::open(path, Arc::new(SystemClock), options));
                let opened =
                    opening.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
                return opened.map(|store| Some(OpenStore::Sqlite(Arc::new(store))));
            }
            StoreUrl::Postgres(address) => address,
        };
        let listening = match stay {
            OpenMode::Brief => Listening::Brief,
            OpenMode::Long => Listening::On,
        };
        let options = ostler_postgres::Options {
            listening,
            failover: self.failover,
            application_name: self.node.as_ref().map(|node| format!("ostler {node}")),
            bounds: self.bounds,
            ..ostler_postgres::Options::default()
        };
        let opened = match missing {
            IfMissing::Refuse => Postgres::open_existing(address.secret(), options).await?,
            IfMissing::Make => Some(Postgres::open(address.secret(), options).await?),
        };
        Ok(opened.map(|store| OpenStore::Postgres(Arc::new(store))))
    }

    /// Checks that there is a store, or that one may be created. For PostgreSQL that is only known after opening it.
    pub(crate) fn prepare(&self, missing: IfMissing) -> anyhow::Result<()> {
        let StoreUrl::Sqlite(path) = &self.url else { return Ok(()) };
        match (missing, self.origin) {
            (IfMissing::Refuse, _) if !is_there(path) => Err(self.absent()),
            (IfMissing::Make, Origin::Default) => make_state_folder(path),
            (IfMissing::Refuse, _) => Ok(()),
            (IfMissing::Make, Origin::Option | Origin::Environment | Origin::Config) => Ok(()),
        }
    }

    /// A warning about the location, printed when a node starts.
    pub(crate) fn warning(&self) -> Option<String> {
        match &self.url {
            // A folder that cannot be read makes opening the store fail, with an error.
            StoreUrl::Sqlite(path) => {
                unopenable_sentence(&integrity::unopenable_locks(path).unwrap_or_default())
            }
            StoreUrl::Postgres(_) => None,
        }
    }

    /// The error for a missing store.
    pub(crate) fn absent(&self) -> anyhow::Error {
        let sentence =
            format!("there is no store at {}; \"ostler submit\" or \"ostler up\" creates one", self.name());
        refused(Code::Store, sentence)
    }

    /// The error for a store that does not answer in time.
    pub(crate) fn silent(&self) -> anyhow::Error {
        refused(Code::Store, format!("the store {} does not answer", self.name()))
    }
}

/// The warning about lock files that this user cannot open; `None` if there are none.
pub(crate) fn unopenable_sentence(locks: &[UnopenableLock]) -> Option<String> {
    let UnopenableLock { file, reason } = locks.first()?;
    let more = match locks.len() - 1 {
        0 => String::new(),
        more => format!(", nor {more} more"),
    };
    Some(format!(
        "The lock file {} of a node cannot be opened by this user ({reason}){more}: if that node dies, its tasks wait until its \
            lease expires",
        file.display()
    ))
}

/// Whether the path exists. A path that cannot be examined counts as existing, so that opening it reports the error.
fn is_there(path: &Path) -> bool {
    let not_found = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    !std::fs::symlink_metadata(path).is_err_and(not_found)
}

/// The user's state folder of Ostler, created if it is missing.
pub(crate) fn state_folder() -> anyhow::Result<PathBuf> {
    let place = StoreLocation::in_state_folder(&|name| std::env::var_os(name))?;
    match place.url {
        StoreUrl::Sqlite(path) => {
            make_state_folder(&path)?;
            Ok(path.parent().map(Path::to_owned).unwrap_or_default())
        }
        StoreUrl::Postgres(_) => unreachable!("the default store is a file"),
    }
}

fn make_state_folder(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| {
        refused(Code::Store, format!("cannot create the folder {}: {error}", folder.display()))
    })
}

/// Any error while opening a store means that the store was refused.
#[allow(clippy::needless_pass_by_value, reason = "used as `map_err(refusal)`")]
pub(crate) fn refusal(error: Error) -> anyhow::Error {
    refused(Code::Store, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(flag: Option<&str>, variables: &[(&str, &str)]) -> Result<String, String> {
        let env = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        let found = StoreLocation::find(flag, &env, || Ok(None)).map_err(|error| error.to_string())?;
        Ok(found.name())
    }

    #[test]
    fn what_is_said_last_wins() {
        let home = ("HOME", "/home/anna");
        let all = [home, ("XDG_STATE_HOME", "/state"), ("OSTLER_STORE", "sqlite:/b.db")];
        for (flag, variables, path) in [
            (Some("sqlite:/a.db"), &all[..], "/a.db"),
            (Some("a.db"), &all[..], "a.db"),
            (None, &all[..], "/b.db"),
            (None, &all[..2], "/state/ostler/ostler.db"),
            (None, &all[..1], "/home/anna/.local/state/ostler/ostler.db"),
            (None, &[home, ("OSTLER_STORE", "")], "/home/anna/.local/state/ostler/ostler.db"),
            (None, &[home, ("XDG_STATE_HOME", "state")], "/home/anna/.local/state/ostler/ostler.db"),
        ] {
            assert_eq!(find(flag, variables), Ok(path.to_owned()), "{flag:?} {variables:?}");
        }
    }

    #[test]
    fn without_a_home_a_store_must_be_named() {
        let sentence = find(None, &[]).expect_err("there is no place");
        assert!(sentence.contains("--store"), "{sentence}");
    }

    #[test]
    fn the_field_with_the_wrong_name_is_said() {
        let database = find(Some("postgres://anna:secret@db/jobs"), &[]);
        assert_eq!(database, Ok("postgres://anna:***@db/jobs".to_owned()));
        assert!(find(Some("redis:x"), &[]).is_err_and(|sentence| sentence.starts_with("--store: ")));
        assert!(find(None, &[("OSTLER_STORE", "redis:x")]).is_err_and(|it| it.starts_with("OSTLER_STORE: ")));
    }
}
