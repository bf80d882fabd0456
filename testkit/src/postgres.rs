//! A private PostgreSQL server: in a temporary folder, on its own socket, removed with the test.
//!
//! PostgreSQL refuses to run as root, so a test that runs as root starts it as another user. A supervisor watches a pipe of the process
//! that started it: when that process ends in any way, it stops the server and removes its folder.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::signal::MAX_WAIT;

/// Where Debian installs the programs of a server, one folder per version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The user that a server runs as when the test runs as root: the first that exists.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// The user and the database that tests connect with.
const NAME: &str = "ostler";
/// The port of a server that is reached only through its socket, as a part of the socket's name.
const PORT: u16 = 5432;
/// The interval of checks whether the server is up.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Runs the server ($1: its folder; $2: the signal that ends it at once; the rest: the program with its arguments), obeys the commands
/// on its standard input, and cleans up when that is closed.
const SUPERVISOR: &str = r#"folder=$1; signal=$2; shift 2
run() { "$@" >>"$folder/server.log" 2>&1 </dev/null & server=$!; }
end() { kill -s "$signal" "$server" 2>/dev/null; wait "$server" 2>/dev/null; }
# Kills all of its processes, and waits until none is left: a new server refuses to start beside an old one.
crash() {
    children=$(cat "/proc/$server/task/$server/children")
    kill -9 "$server" $children 2>/dev/null
    wait "$server" 2>/dev/null
    for child in $children; do
        while [ -e "/proc/$child" ] && ! grep -q '^State:[[:space:]]Z' "/proc/$child/status" 2>/dev/null; do sleep 0.01; done
    done
}
run "$@"
while read -r word; do
    case $word in
    stop) end && echo stopped || echo stopped ;;
    crash) crash && echo crashed || echo crashed ;;
    start) run "$@" && echo started ;;
    esac
done
end
rm -rf "$folder""#;

/// The durability of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Does not wait for the disk, where a test is about something else.
    Unsynced,
    /// Every commit waits for the disk, as in a real installation.
    Synced,
}

/// A private server, stopped on drop and when the process ends.
#[derive(Debug)]
pub struct PrivatePostgres {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    kept: Kept,
}

/// A server whose supervisor stops it when this process ends, and removes its folder.
#[derive(Debug)]
pub(crate) struct Kept {
    folder: PathBuf,
    supervisor: Child,
    /// The supervisor's standard input; closed to stop the server.
    line: Option<ChildStdin>,
    heard: BufReader<ChildStdout>,
}

impl Kept {
    /// Starts the program under a supervisor. `signal` is the signal that ends it at once.
    pub(crate) fn start(folder: PathBuf, signal: &str, program: &Command) -> Self {
        let mut supervisor = Command::new("sh");
        supervisor.args(["-c", SUPERVISOR, "supervisor"]).arg(&folder).arg(signal);
        supervisor.arg(program.get_program()).args(program.get_args());
        let mut supervisor = supervisor
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be started");
        let line = supervisor.stdin.take();
        let heard = BufReader::new(supervisor.stdout.take().expect("it was piped"));
        Self { folder, supervisor, line, heard }
    }

    pub(crate) fn say(&mut self, word: &str) {
        let line = self.line.as_mut().expect("the line is open until the end");
        writeln!(line, "{word}").expect("the supervisor listens");
        let mut answer = String::new();
        self.heard.read_line(&mut answer).expect("the supervisor answers");
        assert!(!answer.is_empty(), "the supervisor of a private server is gone");
    }

    /// The server's log.
    pub(crate) fn log(&self) -> String {
        let mut text = String::new();
        let opened = std::fs::File::open(self.folder.join("server.log"));
        let _ = opened.and_then(|mut file| file.read_to_string(&mut text));
        text
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.line.take());
        let _ = self.supervisor.wait();
    }
}

impl PrivatePostgres {
    /// The server shared by all tests of this process. It does not wait for its disk.
    ///
    /// # Panics
    /// When no server can be started: a test that needs one fails without it.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PrivatePostgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Disk::Unsynced))
    }

    /// Starts a server.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, or does not start.
    #[must_use]
    pub fn start(disk: Disk) -> Self {
        Self::start_with(disk, &[])
    }

    /// Starts a server with these settings, such as `wal_writer_delay=10s`.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, or does not start.
    #[must_use]
    pub fn start_with(disk: Disk, settings: &[&str]) -> Self {
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Made::new(disk).initialised().launch(disk, &settings).with_database()
    }

    /// Starts a server that listens on this machine's network and uses TLS, with this certificate and key in PEM.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, or does not start.
    #[must_use]
    pub fn encrypting(certificate: &str, key: &str) -> Self {
        // Another process may take the port in between; then the server does not start.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let made =
            Made { port: free.expect("a port can be had").port(), ..Made::new(Disk::Unsynced) }.initialised();
        let mut settings = vec!["listen_addresses=127.0.0.1".to_owned(), "ssl=on".to_owned()];
        for (name, pem) in [("ssl_cert_file", certificate), ("ssl_key_file", key)] {
            settings.push(format!("{name}={}", made.keep_secret(name, pem).display()));
        }
        made.launch(Disk::Unsynced, &settings).with_database()
    }

    fn with_database(self) -> Self {
        run(self.program("createdb").args(["-U", NAME, NAME]));
        self
    }

    /// A client program for this server.
    fn program(&self, name: &str) -> Command {
        let mut program = Command::new(self.programs.join(name));
        program.arg("-h").arg(&self.folder).args(["-p", &self.port.to_string()]);
        program
    }

    /// Starts a standby of this server, which follows it and is read-only.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn standby(&self) -> Self {
        let folder = crate::scratch().keep();
        let made = Made { programs: self.programs.clone(), folder, port: PORT, user: unprivileged() };
        made.give(&made.folder);
        let mut copy = made.program("pg_basebackup");
        copy.args(["--no-sync", "--checkpoint=fast", "-R", "-U", NAME, "-h"]).arg(&self.folder);
        run(copy.arg("-D").arg(made.data()));
        made.launch(Disk::Unsynced, &[])
    }

    /// Stops the server at once, as a crash does.
    ///
    /// # Panics
    /// When the supervisor is gone.
    pub fn stop(&mut self) {
        self.kept.say("stop");
    }

    /// Kills all processes of the server with SIGKILL.
    ///
    /// # Panics
    /// When the supervisor is gone.
    pub fn crash(&mut self) {
        self.kept.say("crash");
    }

    /// Kills one process of the server with SIGKILL, as the kernel does when memory runs out. The server then ends all the others and
    /// restarts; waits until it has.
    ///
    /// # Panics
    /// When there is no such process, or the server does not restart.
    pub fn kill_backend(&self, pid: i32) {
        let (_never, pause) = channel::<()>();
        let ends = "all server processes terminated; reinitializing";
        let before = self.log().matches(ends).count();
        run(Command::new("kill").args(["-9", &pid.to_string()]));
        let until = Instant::now() + MAX_WAIT;
        while self.log().matches(ends).count() == before {
            assert!(Instant::now() < until, "the server goes on without a backend: {}", self.log());
            let _ = pause.recv_timeout(LOOK_AGAIN);
        }
        self.wait_until_up();
    }

    /// Starts the server again after a stop, at the same address.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        self.kept.say("start");
        self.wait_until_up();
    }

    /// Promotes a standby to a writable server.
    ///
    /// # Panics
    /// When the promotion fails.
    pub fn promote(&self) {
        let (programs, folder) = (self.programs.clone(), self.folder.clone());
        let made = Made { programs, folder, port: self.port, user: unprivileged() };
        run(made.program("pg_ctl").arg("promote").arg("--wait").arg("-D").arg(made.data()));
    }

    /// The URL of the server's one database, which contains only what tests create.
    #[must_use]
    pub fn url(&self) -> String {
        let socket: String = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://{NAME}@{socket}/{NAME}")
    }

    /// The port, if the server listens on the network.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the socket and the data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn wait_until_up(&self) {
        let until = Instant::now() + MAX_WAIT;
        let (_never, pause) = channel::<()>();
        loop {
            if self
                .program("pg_isready")
                .args(["-q", "-U", NAME])
                .status()
                .is_ok_and(|status| status.success())
            {
                return;
            }
            assert!(Instant::now() < until, "the private PostgreSQL does not come up: {}", self.log());
            let _ = pause.recv_timeout(LOOK_AGAIN);
        }
    }

    fn log(&self) -> String {
        self.kept.log()
    }
}

/// Where a server runs, and as which user.
pub(crate) struct Made {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    user: Option<String>,
}

impl Made {
    fn new(disk: Disk) -> Self {
        let folder = match disk {
            Disk::Unsynced => crate::scratch(),
            Disk::Synced => tempfile::tempdir().expect("a temporary folder can be made"),
        };
        let made = Self { programs: programs(), folder: folder.keep(), port: PORT, user: unprivileged() };
        made.give(&made.folder);
        made
    }

    /// A folder for a server with its programs in `programs`.
    pub(crate) fn anywhere(programs: PathBuf) -> Self {
        let made = Self { programs, folder: crate::scratch().keep(), port: PORT, user: unprivileged() };
        made.give(&made.folder);
        made
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn into_folder(self) -> PathBuf {
        self.folder
    }

    fn initialised(self) -> Self {
        run(Command::new("cp").arg("-a").arg(template()).arg(self.data()));
        self
    }

    /// Writes a file that only the server may read.
    pub(crate) fn keep_secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        let mut file = std::fs::OpenOptions::new();
        let opened = file.write(true).create_new(true).mode(0o600).open(&path);
        opened.and_then(|mut file| file.write_all(text.as_bytes())).expect("the file can be written");
        self.give(&path);
        path
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn give(&self, path: &Path) {
        if let Some(user) = &self.user {
            run(Command::new("chown").arg(user).arg(path));
        }
    }

    /// One of the server's programs, run as the server's user.
    pub(crate) fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let mut command = match &self.user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                let who = [format!("--reuid={user}"), format!("--regid={}", group_of(user))];
                command.args(who).arg("--clear-groups").arg(path);
                command
            }
            None => Command::new(path),
        };
        command.current_dir(&self.folder);
        command
    }

    fn launch(self, disk: Disk, settings: &[String]) -> PrivatePostgres {
        let mut server = self.program("postgres");
        server.arg("-D").arg(self.data()).arg("-k").arg(&self.folder).args(["-c", "listen_addresses="]);
        server.args(["-p", &self.port.to_string()]);
        server.args([
            "-c",
            "max_connections=1000",
            "-c",
            "shared_buffers=128MB",
            "-c",
            "deadlock_timeout=200ms",
        ]);
        match disk {
            Disk::Unsynced => server.args(["-c", "fsync=off", "-c", "full_page_writes=off"]),
            Disk::Synced => server.args(["-c", "fsync=on", "-c", "max_wal_size=4GB"]),
        };
        for setting in settings {
            server.arg("-c").arg(setting);
        }
        let kept = Kept::start(self.folder.clone(), "QUIT", &server);
        let (folder, programs, port) = (self.folder, self.programs, self.port);
        let server = PrivatePostgres { folder, programs, port, kept };
        server.wait_until_up();
        server
    }
}

/// The data folder of a new server. It is made once in a process, and copied: that is much faster.
fn template() -> PathBuf {
    static MADE: OnceLock<Kept> = OnceLock::new();
    let kept = MADE.get_or_init(|| {
        let made = Made::new(Disk::Unsynced);
        let mut initdb = made.program("initdb");
        initdb.args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-U", NAME, "-D"]);
        run(initdb.arg(made.data()));
        // No server: the supervisor only removes the folder.
        Kept::start(made.into_folder(), "TERM", &Command::new("true"))
    });
    kept.folder.join("data")
}

/// The program folder of the newest installed server.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    found.sort();
    if let Some((_, bin)) = found.pop() {
        return bin;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
        .expect("this test needs the programs of a PostgreSQL server (Debian: apt-get install postgresql)")
}

/// The user to run as instead of root; `None`: this is not root.
fn unprivileged() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let known =
        |user: &&&str| Command::new("id").arg(user).output().is_ok_and(|asked| asked.status.success());
    let user = USERS.iter().find(known).expect("root needs another user to run the server as");
    Some((*user).to_owned())
}

fn group_of(user: &str) -> String {
    let asked = run(Command::new("id").args(["-g", user]));
    String::from_utf8_lossy(&asked.stdout).trim().to_owned()
}

fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_comes_up_and_leaves_nothing_behind() {
        let server = PrivatePostgres::start(Disk::Unsynced);
        let asked = run(server.program("psql").args(["-U", NAME, "-Atc", "SELECT 6 * 7"]));
        assert_eq!(String::from_utf8_lossy(&asked.stdout).trim(), "42");
        let folder = server.folder().to_owned();
        assert!(folder.exists());
        drop(server);
        assert!(!folder.exists(), "the folder is gone with the server");
    }
}
