//! Twin: the test binary, started again as a second process.
//!
//! A test that needs a second process is paired with an ignored test that runs there. The two exchange lines over the
//! twin's standard input and output; on the output they are mixed with those of the test runner.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::process::{Pid, Signal, kill_process};

use crate::signal::MAX_WAIT;

/// Marks the lines of a twin in the output of its test runner.
const MARK: &str = "@> ";

/// Another process that runs one test of the same binary. Killed on drop.
#[derive(Debug)]
pub struct Twin {
    name: String,
    child: Child,
    lines: Receiver<String>,
}

impl Twin {
    /// Starts the test `name`, which must be ignored, with these environment variables.
    ///
    /// # Panics
    /// When the process cannot be started.
    #[must_use]
    pub fn start(name: &str, variables: &[(&str, &OsStr)]) -> Self {
        let program = std::env::current_exe().expect("the test knows its own program");
        Self::spawn(name, Command::new(program), variables)
    }

    /// Like [`start`](Self::start), with a mount namespace of its own. Needs root or user namespaces.
    ///
    /// # Panics
    /// When this machine allows neither, or the process cannot be started.
    #[must_use]
    pub fn start_apart(name: &str, variables: &[(&str, &OsStr)]) -> Self {
        let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
        let works = |way: &&&[&str]| {
            let tried = Command::new("unshare").args(**way).arg("true").stderr(Stdio::null()).status();
            tried.is_ok_and(|status| status.success())
        };
        let way = ways.iter().find(works).expect(
            "this test mounts file systems of its own: it needs `unshare`, and to be root or a machine that allows \
             user namespaces",
        );
        let mut unshare = Command::new("unshare");
        unshare.args(*way).arg("--").arg(std::env::current_exe().expect("the test knows its own program"));
        Self::spawn(name, unshare, variables)
    }

    fn spawn(name: &str, mut command: Command, variables: &[(&str, &OsStr)]) -> Self {
        command
            .args(["--exact", name, "--ignored", "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} starts: {error}"));
        let out = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some((_, said)) = line.split_once(MARK) {
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        Self { name: name.to_owned(), child, lines }
    }

    /// The twin's next line.
    ///
    /// # Panics
    /// When there is none within [`MAX_WAIT`], or the twin is dead.
    #[must_use]
    pub fn hear(&mut self) -> String {
        self.lines.recv_timeout(MAX_WAIT).unwrap_or_else(|_| {
            panic!("{} says nothing (it has ended: {:?})", self.name, self.child.try_wait())
        })
    }

    /// Waits for this line.
    ///
    /// # Panics
    /// When the next line is another one, or there is none.
    pub fn expect(&mut self, line: &str) {
        let said = self.hear();
        assert_eq!(said, line, "what {} says", self.name);
    }

    /// Sends a line to the twin.
    ///
    /// # Panics
    /// When the twin has closed its input.
    pub fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("its input is a pipe");
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("{} does not listen: {error}", self.name));
    }

    /// Sends a signal to the twin.
    ///
    /// # Panics
    /// When the twin is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is there");
    }

    /// Kills the twin, and waits until it is dead.
    ///
    /// # Panics
    /// When it had exited before.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        let status = self.end();
        assert_eq!(
            status.signal(),
            Some(Signal::KILL.as_raw()),
            "{} was killed and did not end: {status}",
            self.name
        );
    }

    /// Waits for the twin to exit.
    ///
    /// # Panics
    /// When waiting fails.
    #[must_use]
    pub fn wait(mut self) -> ExitStatus {
        // With its input closed, a twin that waits for a line exits too.
        drop(self.child.stdin.take());
        self.end()
    }

    fn end(&mut self) -> ExitStatus {
        loop {
            match self.lines.recv_timeout(MAX_WAIT) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{} does not end", self.name),
            }
        }
        self.child.wait().expect("its end can be waited for")
    }

    /// Waits for the twin to exit successfully.
    ///
    /// # Panics
    /// When it fails.
    pub fn succeed(self) {
        let name = self.name.clone();
        let status = self.wait();
        assert!(status.success(), "{name} fails: {status}");
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The twin's end of the conversation.
#[derive(Debug)]
pub struct Voice;

impl Voice {
    /// Sends a line to the test that started this process.
    ///
    /// # Panics
    /// When the test has closed the pipe.
    pub fn say(line: &str) {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{MARK}{line}").and_then(|()| out.flush()).expect("the test listens");
    }

    /// Waits for a line; `None`: the input is closed.
    #[must_use]
    pub fn hear() -> Option<String> {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }
}
