//! A private Redis server: in a temporary folder, on its own port, removed with the test.
//!
//! A supervisor watches a pipe of the process that started it: when that process ends in any way, it kills the server and removes its
//! folder. Data is lost when the server stops, as with a server without a disk.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::signal::MAX_WAIT;

/// Outside the kernel's ephemeral ports, so that the server gets the same one again after a stop.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;
/// The interval of checks whether the server is up.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Runs the server ($1: its folder; the rest: the program with its arguments), obeys the commands on its standard input, and
/// cleans up when that is closed.
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

/// A private server, killed on drop and when the process ends.
#[derive(Debug)]
pub struct PrivateRedis {
    folder: PathBuf,
    port: u16,
    password: Option<String>,
    supervisor: Child,
    /// The supervisor's standard input; closed to end the server.
    line: Option<ChildStdin>,
    heard: BufReader<ChildStdout>,
}

impl PrivateRedis {
    /// Starts a server without a password.
    ///
    /// # Panics
    /// When Redis is not installed, or does not start: a test that needs it fails without it.
    #[must_use]
    pub fn start() -> Self {
        Self::with(None, &[])
    }

    /// Starts a server with a password.
    ///
    /// # Panics
    /// When Redis is not installed, or does not start.
    #[must_use]
    pub fn guarded(password: &str) -> Self {
        Self::with(Some(password), &[])
    }

    /// Starts a server with TLS, with this certificate and key in PEM. Its plain port is open too, for the test itself.
    ///
    /// # Panics
    /// When Redis is not installed, or does not start.
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

    /// The port, on this machine only.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL, with the password.
    #[must_use]
    pub fn url(&self) -> String {
        let password = self.password.as_deref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{password}127.0.0.1:{}", self.port)
    }

    /// Stops the server at once, as a crash does; its data is lost.
    ///
    /// # Panics
    /// When the supervisor is gone.
    pub fn stop(&mut self) {
        self.say("stop");
    }

    /// Starts the server again after a stop, at the same address.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        self.say("start");
        self.wait_until_up();
    }

    /// Pauses the server; its connections stay open.
    ///
    /// # Panics
    /// When the supervisor is gone.
    pub fn pause(&mut self) {
        self.say("pause");
    }

    /// Resumes the server after a pause.
    ///
    /// # Panics
    /// When the supervisor is gone.
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

    /// Runs a command through redis-cli; returns the answer without its trailing newline.
    ///
    /// # Panics
    /// When the server does not answer.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> String {
        let asked = self.cli().args(words).output().expect("redis-cli can be started");
        assert!(asked.status.success(), "{words:?}: {}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8_lossy(&asked.stdout).trim_end().to_owned()
    }

    /// Subscribes to a channel.
    ///
    /// # Panics
    /// When the subscription fails.
    #[must_use]
    pub fn listen(&self, channel: &str) -> Heard {
        Heard::begin(self.cli().args(["SUBSCRIBE", channel]))
    }

    fn cli(&self) -> Command {
        let mut cli = Command::new("redis-cli");
        cli.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]).stdin(Stdio::null());
        if let Some(password) = &self.password {
            // Not an argument, which other users can read.
            cli.env("REDISCLI_AUTH", password);
        }
        cli
    }

    fn wait_until_up(&self) {
        let until = Instant::now() + MAX_WAIT;
        let (_never, pause) = channel::<()>();
        let folder = self.folder.display().to_string();
        loop {
            // The server of another test would have another folder.
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

/// The messages of a channel; unsubscribes on drop.
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
        // "subscribe", the channel, and the number of subscriptions.
        assert_eq!(lines.by_ref().take(3).count(), 3, "the channel is listened to");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            // "message", the channel, and the text.
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
    /// When none arrives within [`MAX_WAIT`].
    #[must_use]
    pub fn next(&self) -> String {
        self.messages.recv_timeout(MAX_WAIT).expect("a message arrives on the channel")
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

/// A port that is free now. Concurrent processes start their search at different ports.
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
