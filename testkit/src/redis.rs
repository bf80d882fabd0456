//! A private Redis server: in a temporary folder, on a port of its own, gone when the test is.
//!
//! It hangs on a pipe of the process that started it: when that process ends, however it ends, the server is killed and its folder
//! removed. What it kept is gone when it is stopped, as with a server that has no disk.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::signal::MAX_WAIT;

/// Ports that the kernel gives to nobody by itself: the server finds its own again after a stop.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;
/// How long to wait before looking again whether the server is up.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Runs the server ($1: its folder; the rest: the program with its arguments), does with it what it hears on its standard input, and
/// clears up when that is closed.
const SUPERVISOR: &str = r#"folder=$1; shift
run() { "$@" >>"$folder/server.log" 2>&1 </dev/null & server=$!; }
end() { kill -KILL "$server" 2>/dev/null; wait "$server" 2>/dev/null; }
run "$@"
while read -r word; do
    case $word in
    stop) end ;;
    start) run "$@" ;;
    pause) kill -STOP "$server" ;;
    resume) kill -CONT "$server" ;;
    esac
    echo done
done
end
rm -rf "$folder""#;

/// A private server. It is killed when this is dropped, and when the process ends.
#[derive(Debug)]
pub struct PrivateRedis {
    folder: PathBuf,
    port: u16,
    password: Option<String>,
    supervisor: Child,
    /// Closed to end the server.
    line: Option<ChildStdin>,
    heard: BufReader<ChildStdout>,
}

impl PrivateRedis {
    /// Starts a server that lets everybody in.
    ///
    /// # Panics
    /// When there is none on this machine, or it does not come up: without one, a test that needs it fails.
    #[must_use]
    pub fn start() -> Self {
        Self::with(None, &[])
    }

    /// Starts one that asks for a password.
    ///
    /// # Panics
    /// When there is none on this machine, or it does not come up.
    #[must_use]
    pub fn guarded(password: &str) -> Self {
        Self::with(Some(password), &[])
    }

    /// Starts one that encrypts, with this certificate and its key, as PEM. Its plain port is open too, for the test itself.
    ///
    /// # Panics
    /// When there is none on this machine, or it does not come up.
    #[must_use]
    pub fn encrypting(certificate: &str, key: &str) -> (Self, u16) {
        let port = free_port();
        let folder = crate::scratch().keep();
        let (at, secret) = (folder.join("server.crt"), folder.join("server.key"));
        std::fs::write(&at, certificate).expect("the file can be written");
        std::fs::write(&secret, key).expect("the file can be written");
        let settings = [
            format!("--tls-port {port}"),
            format!("--tls-cert-file {}", at.display()),
            format!("--tls-key-file {}", secret.display()),
            "--tls-auth-clients no".to_owned(),
        ];
        (Self::launch(folder, None, &settings), port)
    }

    fn with(password: Option<&str>, settings: &[String]) -> Self {
        Self::launch(crate::scratch().keep(), password, settings)
    }

    fn launch(folder: PathBuf, password: Option<&str>, settings: &[String]) -> Self {
        assert!(
            program("redis-server").is_some() && program("redis-cli").is_some(),
            "this test needs the programs of a Redis server (Debian: apt-get install redis-server)"
        );
        let port = free_port();
        let mut supervisor = Command::new("sh");
        supervisor.args(["-c", SUPERVISOR, "supervisor"]).arg(&folder).arg("redis-server");
        supervisor.args([
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        supervisor.arg("--dir").arg(&folder);
        supervisor.args(settings.iter().flat_map(|setting| setting.split(' ')));
        if let Some(password) = password {
            supervisor.args(["--requirepass", password]);
        }
        let started = supervisor.current_dir(&folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut supervisor = started.stderr(Stdio::null()).spawn().expect("sh can be started");
        let line = supervisor.stdin.take();
        let heard = BufReader::new(supervisor.stdout.take().expect("it was piped"));
        let server = Self { folder, port, password: password.map(str::to_owned), supervisor, line, heard };
        server.wait_until_up();
        server
    }

    /// Its port, on this machine only.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where it is, with its password.
    #[must_use]
    pub fn url(&self) -> String {
        let password = self.password.as_deref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{password}127.0.0.1:{}", self.port)
    }

    /// Stops the server at once, as a crash does; what it kept is lost.
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

    /// It does nothing any more, and closes nothing.
    ///
    /// # Panics
    /// When it cannot be told.
    pub fn pause(&mut self) {
        self.say("pause");
    }

    /// It goes on after a pause.
    ///
    /// # Panics
    /// When it cannot be told.
    pub fn resume(&mut self) {
        self.say("resume");
    }

    fn say(&mut self, word: &str) {
        let line = self.line.as_mut().expect("the line is open until the end");
        writeln!(line, "{word}").expect("the supervisor listens");
        let mut answer = String::new();
        self.heard.read_line(&mut answer).expect("the supervisor answers");
        assert!(!answer.is_empty(), "the supervisor of the private Redis is gone");
    }

    /// Asks it something, as redis-cli does: the answer, without its last line's end.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> String {
        let asked = self.cli().args(words).output().expect("redis-cli can be started");
        assert!(asked.status.success(), "{words:?}: {}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8_lossy(&asked.stdout).trim_end().to_owned()
    }

    /// Listens to a channel, from now on.
    ///
    /// # Panics
    /// When it cannot be listened to.
    #[must_use]
    pub fn listen(&self, channel: &str) -> Heard {
        Heard::begin(self.cli().args(["SUBSCRIBE", channel]))
    }

    fn cli(&self) -> Command {
        let mut cli = Command::new("redis-cli");
        cli.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]).stdin(Stdio::null());
        if let Some(password) = &self.password {
            // Not among the arguments, which others can read.
            cli.env("REDISCLI_AUTH", password);
        }
        cli
    }

    fn wait_until_up(&self) {
        let until = Instant::now() + MAX_WAIT;
        let (_never, pause) = channel::<()>();
        let folder = self.folder.display().to_string();
        loop {
            // Somebody else's server would have another folder.
            let asked = self.cli().args(["CONFIG", "GET", "dir"]).output();
            if asked
                .is_ok_and(|asked| String::from_utf8_lossy(&asked.stdout).lines().any(|line| line == folder))
            {
                return;
            }
            assert!(Instant::now() < until, "the private Redis does not come up: {}", self.log());
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

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        drop(self.line.take());
        let _ = self.supervisor.wait();
    }
}

/// What is said on a channel. It ends when this is dropped.
#[derive(Debug)]
pub struct Heard {
    listener: Child,
    messages: Receiver<String>,
}

impl Heard {
    fn begin(command: &mut Command) -> Self {
        let listener = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut listener = listener.spawn().expect("redis-cli can be started");
        let mut lines =
            BufReader::new(listener.stdout.take().expect("it was piped")).lines().map_while(Result::ok);
        // "subscribe", the channel, and how many there are.
        assert_eq!(lines.by_ref().take(3).count(), 3, "the channel is listened to");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            // "message", the channel, and what was said.
            while let Some(message) = lines.nth(2) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { listener, messages }
    }

    /// The next message.
    ///
    /// # Panics
    /// When none comes within [`MAX_WAIT`].
    #[must_use]
    pub fn next(&self) -> String {
        self.messages.recv_timeout(MAX_WAIT).expect("somebody says something on the channel")
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let _ = self.listener.kill();
        let _ = self.listener.wait();
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.exists())
}

/// A port that was free a moment ago. Processes that look at the same time begin at different places.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() as u16).wrapping_mul(37);
    for _ in 0..PORTS {
        let place = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        if TcpListener::bind(("127.0.0.1", FIRST_PORT + place)).is_ok() {
            return FIRST_PORT + place;
        }
    }
    panic!("no port from {FIRST_PORT} on is free");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_comes_up_and_leaves_nothing_behind() {
        let mut server = PrivateRedis::start();
        assert_eq!(server.ask(&["SET", "a", "1"]), "OK");
        let heard = server.listen("news");
        assert_eq!(server.ask(&["PUBLISH", "news", "hello"]), "1");
        assert_eq!(heard.next(), "hello");
        server.stop();
        server.start_again();
        assert_eq!(server.ask(&["EXISTS", "a"]), "0", "it has no disk");
        server.pause();
        server.resume();
        assert_eq!(server.ask(&["PING"]), "PONG");
        let folder = server.folder.clone();
        assert!(folder.exists());
        drop(server);
        assert!(!folder.exists(), "the folder is gone with the server");
    }

    #[test]
    fn a_guarded_server_lets_in_who_knows_its_password() {
        let server = PrivateRedis::guarded("hush");
        assert_eq!(server.ask(&["PING"]), "PONG");
        assert!(server.url().contains(":hush@"));
        let stranger = Command::new("redis-cli").args(["-p", &server.port().to_string(), "PING"]).output();
        let said = String::from_utf8_lossy(&stranger.expect("redis-cli can be started").stdout).into_owned();
        assert!(said.contains("NOAUTH"), "{said}");
    }
}
