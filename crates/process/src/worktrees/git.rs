//! Runs git: with arguments and no shell, in bounded time, without prompts, and without the variables that lead it elsewhere.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::AsyncReadExt as _;

use crate::argument::Argument;
use crate::supervisor::{About, Child, Exit, Launch, Socket, SpawnError, Stdin, Supervisor, Variables};

const GIT: &str = "git";
/// Asks for the folder that all worktrees of a repository share.
pub(super) const COMMON_DIR: [&str; 3] = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
/// The variables that git inherits: no `GIT_*`, which name other repositories.
const KEPT: [&str; 17] = [
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];
/// No questions, no locks for the sake of speed, and messages in English.
const SET: [(&str, &str); 6] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "true"),
    ("SSH_ASKPASS", "true"),
    ("GCM_INTERACTIVE", "never"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("LC_ALL", "C"),
];
/// Bytes that are read of an answer.
const MAX_ANSWER_BYTES: u64 = 4 << 20;
/// Characters of what git said in a message: its end.
const QUOTED_CHARS: usize = 500;
/// The default time limit of a git command.
const PATIENCE: Duration = Duration::from_secs(60);

/// What git is asked about.
#[derive(Clone, Debug)]
pub(super) struct Git {
    /// Arguments before the command.
    about: Vec<OsString>,
    patience: Duration,
}

/// Why git did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    #[error("git is not installed")]
    Missing,
    /// What was asked for is no commit.
    #[error("there is no such commit")]
    NoCommit,
    #[error("\"git {command}\" failed: {}", quoted(.said))]
    Failed { command: String, said: String },
    #[error("git did not finish within {0:?}")]
    Late(Duration),
    #[error("{0}")]
    System(io::Error),
}

impl Git {
    /// In the repository of this folder.
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self { about: vec!["-C".into(), folder.into()], patience: PATIENCE }
    }

    /// In the repository with this folder of git's own.
    pub(super) fn of_repository(git_dir: &Path) -> Self {
        Self { about: vec![option("--git-dir=", git_dir)], patience: PATIENCE }
    }

    /// In a worktree, wherever its `.git` leads. No program runs that the worktree could name.
    pub(super) fn of_worktree(admin: &Path, path: &Path) -> Self {
        let about = vec![
            option("--git-dir=", admin),
            option("--work-tree=", path),
            "-c".into(),
            "core.fsmonitor=false".into(),
        ];
        Self { about, patience: PATIENCE }
    }

    /// The same, if it takes no longer than this.
    pub(super) fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Runs a command of git, and waits for it. Returns its output.
    pub(super) fn run(&self, words: &[&str]) -> Result<String, GitError> {
        let (mut out, mut err) = (file()?, file()?);
        let mut command = Command::new(GIT);
        command.args(&self.about).args(words).env_clear().current_dir("/").stdin(Stdio::null());
        command.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)))).envs(SET);
        command.stdout(out.try_clone().map_err(GitError::System)?);
        command.stderr(err.try_clone().map_err(GitError::System)?);
        let mut child = command.spawn().map_err(|error| {
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            if is_missing { GitError::Missing } else { GitError::System(error) }
        })?;
        let status = match ended_within(&child, self.patience).map_err(GitError::System)? {
            true => child.wait().map_err(GitError::System)?,
            false => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(GitError::Late(self.patience));
            }
        };
        let read = |file: &mut std::fs::File| {
            let mut bytes = Vec::new();
            file.rewind().and_then(|()| file.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        if status.success() {
            return read(&mut out).map_err(GitError::System);
        }
        let said = read(&mut err).map_err(GitError::System)?;
        Err(GitError::Failed { command: command_of(words), said })
    }

    /// The id of a commit.
    pub(super) fn commit(&self, name: &str) -> Result<String, GitError> {
        known(self.run(&commit_of(name).each_ref().map(String::as_str)))
    }

    /// The same as [`run`](Self::run), as a child of the supervisor: it does not outlive the node.
    pub(super) async fn supervised(
        &self,
        supervisor: &Supervisor,
        words: &[&str],
    ) -> Result<String, GitError> {
        let all = [OsStr::new(GIT)].into_iter().chain(self.about.iter().map(OsString::as_os_str));
        let all = all.chain(words.iter().map(OsStr::new));
        let launch = Launch {
            argv: all.map(argument).collect(),
            folder: Some("/".to_owned()),
            start: None,
            own: None,
            keep: KEPT.map(str::to_owned).to_vec(),
            set: Variables(SET.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()),
            stdin: Stdin::Nothing,
            socket: Socket::None,
            confinement: None,
        };
        let child = supervisor.spawn(launch).await.map_err(|error| {
            let is_missing = matches!(
                &error,
                SpawnError::Refused { about: About::Program, error } if error.kind() == io::ErrorKind::NotFound
            );
            if is_missing { GitError::Missing } else { GitError::System(io::Error::other(error)) }
        })?;
        let ended = tokio::time::timeout(self.patience, followed(child)).await;
        let (exit, out, err) = ended.map_err(|_| GitError::Late(self.patience))?.map_err(GitError::System)?;
        match exit {
            Exit::Code(0) => Ok(out),
            Exit::Code(_) => Err(GitError::Failed { command: command_of(words), said: err }),
            Exit::Signal(signal) => {
                let said = format!("it was killed by signal {signal}");
                Err(GitError::Failed { command: command_of(words), said })
            }
        }
    }

    /// The same as [`commit`](Self::commit), under the supervisor.
    pub(super) async fn supervised_commit(
        &self,
        supervisor: &Supervisor,
        name: &str,
    ) -> Result<String, GitError> {
        let words = commit_of(name);
        known(self.supervised(supervisor, &words.each_ref().map(String::as_str)).await)
    }
}

fn commit_of(name: &str) -> [String; 4] {
    ["rev-parse".to_owned(), "--verify".to_owned(), "--quiet".to_owned(), format!("{name}^{{commit}}")]
}

/// A commit that is not there is no error of git: it says nothing.
fn known(answer: Result<String, GitError>) -> Result<String, GitError> {
    match answer {
        Ok(id) => Ok(id.trim().to_owned()),
        Err(GitError::Failed { said, .. }) if said.trim().is_empty() => Err(GitError::NoCommit),
        Err(error) => Err(error),
    }
}

/// Reads both pipes until the child has ended.
async fn followed(mut child: Child) -> io::Result<(Exit, String, String)> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let read = |pipe: Option<tokio::net::unix::pipe::Receiver>| async {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            pipe.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes).await?;
        }
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (out, err, exit) = tokio::join!(read(out), read(err), child.ended());
    Ok((exit.map_err(io::Error::other)?, out?, err?))
}

/// Waits until a process has ended, or the time is up.
fn ended_within(child: &std::process::Child, patience: Duration) -> io::Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let until = Instant::now() + patience;
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now()));
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], left.ok().as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

fn argument(word: &OsStr) -> Argument {
    use std::os::unix::ffi::OsStrExt as _;
    Argument(word.as_bytes().to_vec())
}

fn command_of(words: &[&str]) -> String {
    words.iter().take(2).copied().collect::<Vec<_>>().join(" ")
}

/// The end of what git said, on one line.
fn quoted(said: &str) -> String {
    let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().rev().map(|(at, _)| at).take(QUOTED_CHARS).last() {
        Some(0) | None => line,
        Some(from) => format!("… {}", &line[from..]),
    }
}

fn file() -> Result<std::fs::File, GitError> {
    tempfile::tempfile().map_err(GitError::System)
}

/// The folder of git's own that all worktrees of a repository share, from the answer to [`COMMON_DIR`].
pub(super) fn common_dir(answer: &str) -> PathBuf {
    PathBuf::from(answer.strip_suffix('\n').unwrap_or(answer))
}
