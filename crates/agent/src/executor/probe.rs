//! The version probe: runs the program with `--version`, and says in a sentence what is wrong with it.
//!
//! Many agents are started by a launcher, which runs the program as a child of its own. However a probe ends, nothing of it is left: it is a
//! child of the supervisor, or, on a command line, which has none, the leader of a process group.

use std::io;
use std::process::Stdio;

use ostler_process::supervisor::{About, Launch, Socket, SpawnError, Stdin, Supervisor, Variables};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, copy, sink};
use tokio::process::{Child, Command};

use super::policy::AgentPolicy;
use crate::environment::inherited;
use crate::version::{VersionError, VersionOutput, probe};

/// Bytes of its answer that are read.
const MAX_ANSWER_BYTES: usize = 4 * 1024;

/// Whether the program of a pool can be used. A plain command is not started for that: it has no version, and would begin to work.
/// `supervisor`: that of the node, if there is one.
pub(crate) async fn program_version(
    policy: &AgentPolicy,
    supervisor: Option<&Supervisor>,
) -> Result<(), VersionError> {
    let known = policy.dialect.program().and(policy.program());
    let Some(program) = known else { return Ok(()) };
    let most = policy.version_timeout;
    let read = |output: VersionOutput<'_>| probe(policy.dialect, program, output).map(drop);
    let is_answer = |printed: &str| read(VersionOutput::Printed(printed)).is_ok();
    let printed = async {
        match supervisor {
            Some(supervisor) => of_child(policy, program, supervisor, is_answer).await,
            None => of_group(policy, program, is_answer).await,
        }
    };
    match tokio::time::timeout(most, printed).await {
        Ok(Ok(printed)) => read(VersionOutput::Printed(&printed)),
        Ok(Err(SpawnError::Refused { error, .. })) if error.kind() == io::ErrorKind::NotFound => {
            read(VersionOutput::Missing)
        }
        Ok(Err(SpawnError::Refused { error, .. })) => read(VersionOutput::Printed(&error.to_string())),
        Ok(Err(error)) => read(VersionOutput::NotStarted(&error.to_string())),
        Err(_) => read(VersionOutput::Silent(most)),
    }
}

/// What the program prints as a child of the supervisor, which kills all of it when the child is dropped.
async fn of_child(
    policy: &AgentPolicy,
    program: &str,
    supervisor: &Supervisor,
    is_answer: impl Fn(&str) -> bool,
) -> Result<String, SpawnError> {
    let own = policy.dialect.probe_variables().iter().map(|(name, value)| (*name, *value));
    let set = own.chain(policy.environment.set.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let names = inherited(policy.dialect, std::env::vars_os(), &policy.environment.keep);
    let launch = Launch {
        argv: [program].into_iter().chain(arguments(policy)).map(Into::into).collect(),
        folder: None,
        start: None,
        own: None,
        keep: names.filter_map(|(name, _)| name.into_string().ok()).collect(),
        set: Variables(set.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()),
        stdin: Stdin::Nothing,
        socket: Socket::None,
        confinement: None,
    };
    let mut child = supervisor.spawn(launch).await?;
    let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Ok(String::new());
    };
    let errors = async {
        // A program that cannot write its warnings may not come to its answer.
        let _ = copy(&mut stderr, &mut sink()).await;
        std::future::pending().await
    };
    tokio::select! {
        printed = printed(&mut stdout, is_answer) => Ok(printed),
        never = errors => never,
    }
}

/// The same as a process group of its own.
async fn of_group(
    policy: &AgentPolicy,
    program: &str,
    is_answer: impl Fn(&str) -> bool,
) -> Result<String, SpawnError> {
    let mut command = Command::new(program);
    command.args(arguments(policy)).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null()).process_group(0).kill_on_drop(true).env_clear();
    command.envs(inherited(policy.dialect, std::env::vars_os(), &policy.environment.keep));
    command.envs(policy.dialect.probe_variables().iter().copied());
    command.envs(policy.environment.set.iter().map(|(name, value)| (name, value)));
    let refused = |error| SpawnError::Refused { about: About::Program, error };
    let mut group = ProbeGroup(command.spawn().map_err(refused)?);
    match group.0.stdout.take() {
        Some(mut stdout) => Ok(printed(&mut stdout, is_answer).await),
        None => Ok(String::new()),
    }
}

/// A probe and all that it has started, killed when dropped.
struct ProbeGroup(Child);

impl Drop for ProbeGroup {
    fn drop(&mut self) {
        // Its leader is not waited for before: its pid, and so the id of the group, cannot be another's.
        let leader = self.0.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let _ = leader.map(|group| kill_process_group(group, Signal::KILL));
    }
}

fn arguments(policy: &AgentPolicy) -> impl Iterator<Item = &str> {
    policy.command.iter().skip(1).map(String::as_str).chain(["--version"])
}

/// What it prints, until it is an answer: a process that it has started may hold its output open.
async fn printed(stdout: &mut (impl AsyncRead + Unpin), is_answer: impl Fn(&str) -> bool) -> String {
    let mut answer = Vec::with_capacity(MAX_ANSWER_BYTES);
    loop {
        let count = (&mut *stdout).take(MAX_ANSWER_BYTES as u64).read_buf(&mut answer).await.unwrap_or(0);
        let text = String::from_utf8_lossy(&answer);
        // A line without an end may be the half of a version.
        let is_whole = text.ends_with('\n') && is_answer(&text);
        if count == 0 || is_whole || answer.len() >= MAX_ANSWER_BYTES {
            return text.into_owned();
        }
    }
}
