//! The version probe: runs the program with `--version`, and says in a sentence what is wrong with it.

use std::io;
use std::process::Stdio;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::policy::AgentPolicy;
use crate::environment::inherited;
use crate::version::{VersionError, VersionOutput, probe};

/// Bytes of its answer that are read.
const MAX_ANSWER_BYTES: usize = 4 * 1024;

/// Whether the program of a pool can be used. A plain command is not started for that: it has no version, and would begin to work.
pub(crate) async fn program_version(policy: &AgentPolicy) -> Result<(), VersionError> {
    let known = policy.dialect.program().and(policy.program());
    let Some(program) = known else { return Ok(()) };
    let most = policy.version_timeout;
    let read = |output: VersionOutput<'_>| probe(policy.dialect, program, output).map(drop);
    match tokio::time::timeout(
        most,
        printed(policy, program, |answer| read(VersionOutput::Printed(answer)).is_ok()),
    )
    .await
    {
        Ok(Ok(printed)) => read(VersionOutput::Printed(&printed)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => read(VersionOutput::Missing),
        Ok(Err(error)) => read(VersionOutput::Printed(&error.to_string())),
        Err(_) => read(VersionOutput::Silent(most)),
    }
}

/// What the program prints, until it is an answer: a process that it has started may hold its output open.
async fn printed(
    policy: &AgentPolicy,
    program: &str,
    is_answer: impl Fn(&str) -> bool,
) -> io::Result<String> {
    let mut command = Command::new(program);
    command.args(policy.command.iter().skip(1)).arg("--version").stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null()).kill_on_drop(true).env_clear();
    command.envs(inherited(policy.dialect, std::env::vars_os(), &policy.environment.keep));
    command.envs(policy.dialect.probe_variables().iter().copied());
    command.envs(policy.environment.set.iter().map(|(name, value)| (name, value)));
    let mut child = command.spawn()?;
    let Some(mut stdout) = child.stdout.take() else { return Ok(String::new()) };
    let mut answer = Vec::with_capacity(MAX_ANSWER_BYTES);
    loop {
        let count = (&mut stdout).take(MAX_ANSWER_BYTES as u64).read_buf(&mut answer).await?;
        let text = String::from_utf8_lossy(&answer);
        // A line without an end may be the half of a version.
        let is_whole = text.ends_with('\n') && is_answer(&text);
        if count == 0 || is_whole || answer.len() >= MAX_ANSWER_BYTES {
            return Ok(text.into_owned());
        }
    }
}
