//! Runs the program and captures its output.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};

use ostler_testkit::{MAX_WAIT, PrivatePostgres, ProcessSignal, scratch};
use rustix::process::{Pid, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A folder, with or without a store.
pub(crate) struct Place {
    folder: TempDir,
    /// The URL of the store, if it is not a file of the folder.
    url: Option<String>,
}

/// The exit code and output of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: scratch(), url: None }
    }

    /// A place whose store is on the PostgreSQL server shared by all tests, in its own schema.
    pub(crate) fn on_server() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let schema = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::at(format!("{}?schema=place_{schema}", PrivatePostgres::shared().url()))
    }

    /// A place whose store is a file that other places can share.
    pub(crate) fn shared_file() -> Self {
        let place = Self::new();
        let url = format!("sqlite:{}", place.store().display());
        Self { url: Some(url), ..place }
    }

    /// A place with the store at this URL.
    pub(crate) fn at(url: String) -> Self {
        Self { url: Some(url), ..Self::new() }
    }

    /// The URL of the store, if it is not a file of the folder.
    pub(crate) fn url(&self) -> &str {
        self.url.as_deref().expect("the store is on a server")
    }

    /// Another folder with the same store, as on another machine.
    pub(crate) fn elsewhere(&self) -> Self {
        Self { folder: scratch(), url: self.url.clone() }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder().join("ostler.db")
    }

    /// The program, with an environment that contains only the path to other programs.
    pub(crate) fn bare(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ostler"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TZ", "UTC");
        // Tests run at once, and one address has one node.
        command.env("OSTLER_LISTEN", "none");
        command.current_dir(self.folder()).stdin(Stdio::null());
        command
    }

    /// The program on the store of this place.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.bare();
        match &self.url {
            Some(url) => command.env("OSTLER_STORE", url),
            None => command.env("OSTLER_STORE", self.store()),
        };
        command.args(args);
        command
    }

    /// Runs the program to completion.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Ran {
        ran(&mut self.command(args))
    }

    /// Runs it with this standard input.
    pub(crate) fn run_with<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>, input: &[u8]) -> Ran {
        let mut command = self.command(args);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // It may close its input before everything is written.
        let _ = child.stdin.take().expect("its input is a pipe").write_all(input);
        read(&child.wait_with_output().expect("it ends"))
    }

    /// Runs it, and expects success.
    pub(crate) fn done<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    }

    /// The same, with a JSON answer.
    pub(crate) fn json<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Value {
        let words: Vec<A> = args.into_iter().collect();
        let ran = ran(self.command(&words).arg("--json"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.json()
    }

    /// Runs it, and expects it to fail with this code and a message that contains these words.
    pub(crate) fn refused<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>, code: i32, words: &str) {
        self.run(args).is_refused(code, words);
    }

    /// Writes a file into the folder.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder().join(name);
        std::fs::write(&path, text).expect("the file can be written");
        path
    }
}

impl Ran {
    pub(crate) fn is_refused(&self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.starts_with("ostler: "), "an error says who speaks: {self:?}");
        assert!(self.err.contains(words), "\"{words}\" is not in {:?}", self.err);
        assert!(!self.err.contains("panicked"), "{self:?}");
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command to completion.
pub(crate) fn ran(command: &mut Command) -> Ran {
    read(&command.output().expect("it starts"))
}

fn read(output: &Output) -> Ran {
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout.clone()).expect("it prints text"),
        err: String::from_utf8(output.stderr.clone()).expect("it complains in text"),
    }
}

/// A running program. It is killed on drop.
pub(crate) struct Running {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let out = lines(child.stdout.take().expect("its output is a pipe"));
        let err = lines(child.stderr.take().expect("its complaints are a pipe"));
        Self { child, out, err }
    }

    /// The next line of output.
    pub(crate) fn line(&self) -> String {
        self.out.recv_timeout(MAX_WAIT).unwrap_or_else(|_| {
            panic!("it prints nothing; it says {:?}", self.err.try_iter().collect::<Vec<_>>())
        })
    }

    /// Waits for a line on standard error that contains these words.
    pub(crate) fn says(&self, words: &str) -> String {
        loop {
            let line =
                self.err.recv_timeout(MAX_WAIT).unwrap_or_else(|_| panic!("it does not say \"{words}\""));
            if line.contains(words) {
                return line;
            }
        }
    }

    /// All lines on standard error that have not been read, once it has exited.
    pub(crate) fn errors(&self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.err.recv_timeout(MAX_WAIT) {
                Ok(line) => lines.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return lines,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it does not end"),
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: ProcessSignal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Kills it and waits for its end: what it held, such as a socket, is free then.
    pub(crate) fn kill(&mut self) {
        self.signal(ProcessSignal::KILL);
        self.child.wait().expect("its end can be waited for");
    }

    /// Waits for the exit code, and returns the unread lines.
    pub(crate) fn end(mut self) -> (Option<i32>, Vec<String>) {
        let mut rest = Vec::new();
        // Its output ends when it exits, at the latest.
        loop {
            match self.out.recv_timeout(MAX_WAIT) {
                Ok(line) => rest.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it does not end"),
            }
        }
        (self.child.wait().expect("its end can be waited for").code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// A terminal: `hand` is the keyboard and the screen.
pub(crate) struct Terminal {
    hand: std::fs::File,
    program: OwnedFd,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let hand = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&hand).and_then(|()| unlockpt(&hand)).expect("the terminal is ours");
        let name = ptsname(&hand, Vec::new()).expect("the terminal has a name");
        let program = std::fs::File::options()
            .read(true)
            .write(true)
            .open(name.to_str().expect("the name is text"))
            .expect("the terminal opens");
        Self { hand: hand.into(), program: program.into() }
    }

    /// The keyboard and the screen, once more.
    pub(crate) fn hand(&self) -> std::fs::File {
        self.hand.try_clone().expect("descriptors are left")
    }

    /// How it treats what is typed and shown.
    pub(crate) fn modes(&self) -> rustix::termios::Termios {
        rustix::termios::tcgetattr(&self.program).expect("it is a terminal")
    }

    /// A descriptor for the program.
    pub(crate) fn end(&self) -> Stdio {
        self.program.try_clone().expect("descriptors are left").into()
    }

    /// Sets its width.
    pub(crate) fn columns(&self, columns: u16) {
        let size = rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.program, size).expect("the terminal has a size");
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        writeln!(self.hand, "{line}").expect("the terminal takes it");
    }

    /// Everything that appeared, once the program has exited.
    pub(crate) fn screen(self) -> String {
        self.screen_and("\0", || {})
    }

    /// The same. When these words have appeared, `act` is called.
    pub(crate) fn screen_and(mut self, words: &str, act: impl FnOnce()) -> String {
        drop(self.program);
        let (mut shown, mut act, mut piece) = (Vec::new(), Some(act), [0; 4096]);
        // Reading a terminal that no other process has open ends with an error.
        while let Ok(count @ 1..) = self.hand.read(&mut piece) {
            shown.extend_from_slice(&piece[..count]);
            if String::from_utf8_lossy(&shown).contains(words)
                && let Some(act) = act.take()
            {
                act();
            }
        }
        String::from_utf8_lossy(&shown).into_owned()
    }
}
