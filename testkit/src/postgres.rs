//! A private PostgreSQL server: in a temporary folder, on a socket of its own, gone when the test is.
//!
//! A server does not run as root, so that it is started as another user then. It hangs on a pipe of the process that started it: when
//! that process ends, however it ends, the server is stopped and its folder removed.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::signal::MAX_WAIT;

/// Where Debian keeps the programs of a server, one folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Who a server runs as when the test is run by root: the first of these that there is.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// The user and the database that tests connect with.
const NAME: &str = "ostler";
/// How long to wait before looking again whether the server is up.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Runs the server ($1: its folder; the rest: the program with its arguments), stops and starts it as it hears on its standard input, and
/// clears up when that is closed.
const KEEPER: &str = r#"folder=$1; shift
run() { "$@" >>"$folder/server.log" 2>&1 </dev/null & server=$!; }
end() { kill -QUIT "$server" 2>/dev/null; wait "$server" 2>/dev/null; }
run "$@"
while read -r word; do
    case $word in
    stop) end && echo stopped || echo stopped ;;
    start) run "$@" && echo started ;;
    esac
done
end
rm -rf "$folder""#;

/// What a server does about its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// It does not wait for the disk: the test asks something else.
    Unsynced,
    /// Every commit waits for the disk, as in a real installation.
    Synced,
}

/// A private server. It is stopped when this is dropped, and when the process ends.
#[derive(Debug)]
pub struct PrivatePostgres {
    folder: PathBuf,
    programs: PathBuf,
    keeper: Child,
    /// Closed to stop the server.
    line: Option<ChildStdin>,
    heard: BufReader<ChildStdout>,
}

impl PrivatePostgres {
    /// The server that all tests of this process share. It does not wait for its disk.
    ///
    /// # Panics
    /// When no server can be started: without one, a test that needs it fails.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PrivatePostgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Disk::Unsynced))
    }

    /// Starts a server.
    ///
    /// # Panics
    /// When there is none on this machine, or it does not come up.
    #[must_use]
    pub fn start(disk: Disk) -> Self {
        let programs = programs();
        let folder = match disk {
            Disk::Unsynced => crate::scratch(),
            Disk::Synced => tempfile::tempdir().expect("a temporary folder can be made"),
        }
        .keep();
        let user = unprivileged();
        let made = Made { programs, folder, user };
        made.give_folder();
        let mut initdb = made.program("initdb");
        initdb.args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-U", NAME, "-D"]);
        run(initdb.arg(made.data()));
        let server = made.launch(disk);
        run(Command::new(server.programs.join("createdb"))
            .arg("-h")
            .arg(&server.folder)
            .args(["-U", NAME, NAME]));
        server
    }

    /// Starts a standby of this server, which follows it and can only be read.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn standby(&self) -> Self {
        let folder = crate::scratch().keep();
        let made = Made { programs: self.programs.clone(), folder, user: unprivileged() };
        made.give_folder();
        let mut copy = made.program("pg_basebackup");
        copy.args(["--no-sync", "--checkpoint=fast", "-R", "-U", NAME, "-h"]).arg(&self.folder);
        run(copy.arg("-D").arg(made.data()));
        made.launch(Disk::Unsynced)
    }

    /// Stops the server at once, as a crash does.
    ///
    /// # Panics
    /// When it cannot be told.
    pub fn stop(&mut self) {
        self.say("stop");
    }

    /// Starts it again after a stop, at the same place.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start_again(&mut self) {
        self.say("start");
        self.wait_until_up();
    }

    /// A standby becomes a server that can be written.
    ///
    /// # Panics
    /// When it does not.
    pub fn promote(&self) {
        let made =
            Made { programs: self.programs.clone(), folder: self.folder.clone(), user: unprivileged() };
        run(made.program("pg_ctl").arg("promote").arg("--wait").arg("-D").arg(made.data()));
    }

    fn say(&mut self, word: &str) {
        let line = self.line.as_mut().expect("the line is open until the end");
        writeln!(line, "{word}").expect("the keeper listens");
        let mut answer = String::new();
        self.heard.read_line(&mut answer).expect("the keeper answers");
        assert!(!answer.is_empty(), "the keeper of the private PostgreSQL is gone");
    }

    /// Where it is: its one database, which has nothing in it but what tests make.
    #[must_use]
    pub fn url(&self) -> String {
        let socket: String = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://{NAME}@{socket}/{NAME}")
    }

    /// The folder of its socket and its data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn wait_until_up(&self) {
        let until = Instant::now() + MAX_WAIT;
        let (_never, pause) = channel::<()>();
        loop {
            let mut ready = Command::new(self.programs.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(&self.folder).args(["-U", NAME]);
            if ready.status().is_ok_and(|status| status.success()) {
                return;
            }
            assert!(Instant::now() < until, "the private PostgreSQL does not come up: {}", self.log());
            let _ = pause.recv_timeout(LOOK_AGAIN);
        }
    }

    fn log(&self) -> String {
        let mut text = String::new();
        let opened = std::fs::File::open(self.folder.join("server.log"));
        let _ = opened.and_then(|mut file| file.read_to_string(&mut text));
        text
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        drop(self.line.take());
        let _ = self.keeper.wait();
    }
}

/// Where a server is to be, and who it runs as.
struct Made {
    programs: PathBuf,
    folder: PathBuf,
    user: Option<String>,
}

impl Made {
    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn give_folder(&self) {
        if let Some(user) = &self.user {
            run(Command::new("chown").arg(user).arg(&self.folder));
        }
    }

    /// One of the server's programs, as the user that it runs as.
    fn program(&self, name: &str) -> Command {
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

    fn launch(self, disk: Disk) -> PrivatePostgres {
        let server = self.program("postgres");
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]).arg(&self.folder);
        keeper.arg(server.get_program()).args(server.get_args());
        keeper.arg("-D").arg(self.data()).arg("-k").arg(&self.folder).args(["-c", "listen_addresses="]);
        keeper.args([
            "-c",
            "max_connections=300",
            "-c",
            "shared_buffers=128MB",
            "-c",
            "deadlock_timeout=200ms",
        ]);
        match disk {
            Disk::Unsynced => keeper.args(["-c", "fsync=off", "-c", "full_page_writes=off"]),
            Disk::Synced => keeper.args(["-c", "fsync=on", "-c", "max_wal_size=4GB"]),
        };
        let mut keeper = keeper
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be started");
        let line = keeper.stdin.take();
        let heard = BufReader::new(keeper.stdout.take().expect("it was piped"));
        let server = PrivatePostgres { folder: self.folder, programs: self.programs, keeper, line, heard };
        server.wait_until_up();
        server
    }
}

/// The folder with the programs of the newest server there is.
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

/// Whom to be instead of root; `None`: this is not root.
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
        let asked = run(Command::new(server.programs.join("psql")).arg("-h").arg(server.folder()).args([
            "-U",
            NAME,
            "-Atc",
            "SELECT 6 * 7",
        ]));
        assert_eq!(String::from_utf8_lossy(&asked.stdout).trim(), "42");
        let folder = server.folder().to_owned();
        assert!(folder.exists());
        drop(server);
        assert!(!folder.exists(), "the folder is gone with the server");
    }
}
