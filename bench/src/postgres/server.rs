//! A private PostgreSQL server for the benchmark: in its own folder, on its own socket, with full durability. Its supervisor watches a
//! pipe of this process, and stops the server when this process ends in any way.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
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

/// Runs the server ($1: its folder; the rest: the program) until standard input is closed; then cleans up. A line stops it, which a line
/// answers, and another one starts it again.
const SUPERVISOR: &str = r#"folder=$1; shift
up() { "$@" >>"$folder/server.log" 2>&1 </dev/null & server=$!; }
down() { kill -INT "$server" 2>/dev/null; wait "$server" 2>/dev/null; }
up "$@"
while read -r _; do
    down
    echo down
    read -r _ || break
    up "$@"
done
down
rm -rf "$folder""#;

/// The server. On drop it is stopped and its folder removed.
pub(crate) struct Server {
    folder: PathBuf,
    programs: PathBuf,
    supervisor: Child,
    line: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
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
            supervisor.current_dir(&folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let line = supervisor.stdin.take();
        let answers = BufReader::new(supervisor.stdout.take().ok_or("the supervisor answers")?);
        let started = Self { folder, programs, supervisor, line, answers };
        started.wait_until_up()?;
        said(
            Command::new(started.programs.join("createdb"))
                .arg("-h")
                .arg(&started.folder)
                .args(["-U", NAME, NAME]),
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

    /// Stops the server, does this with the folder of its files, and starts it again: nothing is in its buffers.
    pub(crate) fn restart_after(
        &mut self,
        act: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.tell()?;
        let mut down = String::new();
        self.answers.read_line(&mut down)?;
        if down.trim() != "down" {
            return Err("the supervisor of the server has ended".into());
        }
        act(&self.folder.join("data"))?;
        self.tell()?;
        self.wait_until_up()
    }

    fn tell(&mut self) -> Result<(), Error> {
        let line = self.line.as_mut().ok_or("the supervisor listens")?;
        Ok(line.write_all(b"\n")?)
    }

    fn wait_until_up(&self) -> Result<(), Error> {
        let begun = Instant::now();
        let (_never, pause) = std::sync::mpsc::channel::<()>();
        loop {
            let mut ready = Command::new(self.programs.join("pg_isready"));
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
