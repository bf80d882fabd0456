//! A PostgreSQL server of the benchmark's own: in a folder of its own, on a socket of its own, as durable as a real one. It hangs on a
//! pipe of this process, so that it ends when this process does, however that ends.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;

/// Where Debian keeps the programs of servers, one folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Who the server runs as when the benchmark is run by root.
const USER: &str = "postgres";
/// The user and the database.
pub(crate) const NAME: &str = "ostler";
/// What is set; the rest is as the server comes. What others share with it is in memory, and a checkpoint is rare.
pub(crate) const SETTINGS: [&str; 7] = [
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "shared_buffers=512MB",
    "max_wal_size=8GB",
    "checkpoint_timeout=15min",
    "max_connections=100",
];
/// How long it may take to come up.
const MAX_START: Duration = Duration::from_secs(60);
/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Runs the server ($1: its folder; the rest: the program), until the standard input is closed; then clears up.
const SUPERVISOR: &str = r#"folder=$1; shift
"$@" >"$folder/server.log" 2>&1 </dev/null & server=$!
read -r _
kill -INT "$server" 2>/dev/null
wait "$server" 2>/dev/null
rm -rf "$folder""#;

/// The server. It is stopped, and its folder removed, when this is dropped.
pub(crate) struct Server {
    folder: PathBuf,
    supervisor: Child,
    line: Option<ChildStdin>,
}

impl Server {
    /// Makes a database below a folder, and starts a server for it.
    pub(crate) fn start(under: &Path) -> Result<Self, Error> {
        let programs = programs()?;
        let folder = tempfile::Builder::new().prefix("ostler-pg-").tempdir_in(under)?.keep();
        let root = rustix::process::geteuid().is_root();
        if root {
            said(Command::new("chown").arg(USER).arg(&folder))?;
        }
        let program = |name: &str| {
            let path = programs.join(name);
            let mut command = Command::new(if root { Path::new("setpriv") } else { &path });
            if root {
                command.arg(format!("--reuid={USER}")).args(["--regid=nogroup", "--clear-groups"]).arg(path);
            }
            command.current_dir(&folder);
            command
        };
        let data = folder.join("data");
        let made = ["--auth=trust", "--encoding=UTF8", "--locale=C", "-U", NAME, "-D"];
        said(program("initdb").args(made).arg(&data))?;
        let mut server = program("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(&folder).args(["-c", "listen_addresses="]);
        for setting in SETTINGS {
            server.args(["-c", setting]);
        }
        let mut supervisor = Command::new("sh");
        supervisor.args(["-c", SUPERVISOR, "supervisor"]).arg(&folder);
        supervisor.arg(server.get_program()).args(server.get_args());
        let mut supervisor =
            supervisor.current_dir(&folder).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let line = supervisor.stdin.take();
        let started = Self { folder, supervisor, line };
        started.wait_until_up(&programs)?;
        said(
            Command::new(programs.join("createdb")).arg("-h").arg(&started.folder).args(["-U", NAME, NAME]),
        )?;
        Ok(started)
    }

    /// The folder of its socket.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where its database is.
    pub(crate) fn url(&self) -> String {
        let socket = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://{NAME}@{socket}/{NAME}")
    }

    fn wait_until_up(&self, programs: &Path) -> Result<(), Error> {
        let begun = Instant::now();
        let (_never, pause) = std::sync::mpsc::channel::<()>();
        loop {
            let mut ready = Command::new(programs.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(&self.folder).args(["-U", NAME]);
            if ready.status()?.success() {
                return Ok(());
            }
            if begun.elapsed() > MAX_START {
                let log = std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
                return Err(format!("the server does not come up: {log}").into());
            }
            let _ = pause.recv_timeout(LOOK_AGAIN);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.line = None;
        let _ = self.supervisor.wait();
    }
}

/// The folder with the programs of the newest server there is.
fn programs() -> Result<PathBuf, Error> {
    let has = |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| has(bin))
        .collect();
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let newest = found.pop().map(|(_, bin)| bin).or_else(|| std::env::split_paths(&path).find(has));
    newest.ok_or_else(|| {
        "the programs of a PostgreSQL server are needed (Debian: apt-get install postgresql)".into()
    })
}

/// Runs a command to its end, and says what it said if that was not a good one.
pub(crate) fn said(command: &mut Command) -> Result<String, Error> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr)).into())
}
