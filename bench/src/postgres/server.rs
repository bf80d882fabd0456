//! A private PostgreSQL server for the benchmark: in its own folder, on its own socket, with full durability. Its supervisor watches a
//! pipe of this process, and stops the server when this process ends in any way.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;

/// Where Debian installs the programs of servers, one folder per version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The user that the server runs as when the benchmark runs as root.
const USER: &str = "postgres";
/// The user and the database.
pub(crate) const NAME: &str = "ostler";
/// Changed settings; the rest are defaults. Shared data fits in memory, and checkpoints are rare.
pub(crate) const SETTINGS: [&str; 7] = [
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "shared_buffers=512MB",
    "max_wal_size=8GB",
    "checkpoint_timeout=15min",
    "max_connections=100",
];
/// How long the server may take to start.
const MAX_START: Duration = Duration::from_secs(60);
/// The polling interval.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Runs the server ($1: its folder; the rest: the program) until standard input is closed; then cleans up.
const SUPERVISOR: &str = r#"folder=$1; shift
"$@" >"$folder/server.log" 2>&1 </dev/null & server=$!
read -r _
kill -INT "$server" 2>/dev/null
wait "$server" 2>/dev/null
rm -rf "$folder""#;

/// The server. On drop it is stopped and its folder removed.
pub(crate) struct Server {
    folder: PathBuf,
    supervisor: Child,
    line: Option<ChildStdin>,
}

impl Server {
    /// Creates a database below a folder, and starts a server for it.
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

    /// The folder of the socket.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The URL of the database.
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

/// The program folder of the newest installed server.
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

/// Runs a command and returns its output; a failure includes that output.
pub(crate) fn said(command: &mut Command) -> Result<String, Error> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr)).into())
}
