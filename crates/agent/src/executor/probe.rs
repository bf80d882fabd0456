//! The version probe: runs the program with `--version`, and says in a sentence what is wrong with it.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::policy::AgentPolicy;
use crate::environment::inherited;
use crate::version::{VersionError, VersionOutput, probe};

/// How long the program may take.
const MAX_PROBE: Duration = Duration::from_secs(20);
/// Bytes of its answer that are read.
const MAX_ANSWER_BYTES: u64 = 4 * 1024;

/// Whether the program of a pool can be used. A plain command is not started for that: it has no version, and would begin to work.
pub(crate) async fn program_version(policy: &AgentPolicy) -> Result<(), VersionError> {
    let known = policy.dialect.program().and(policy.program());
    let Some(program) = known else { return Ok(()) };
    let printed = match tokio::time::timeout(MAX_PROBE, printed(policy, program)).await {
        Ok(Ok(printed)) => Some(printed),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(String::new()),
    };
    let output = printed.as_deref().map_or(VersionOutput::Missing, VersionOutput::Printed);
    probe(policy.dialect, program, output).map(drop)
}

async fn printed(policy: &AgentPolicy, program: &str) -> io::Result<String> {
    let mut command = Command::new(program);
    command.args(policy.command.iter().skip(1)).arg("--version").stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null()).kill_on_drop(true).env_clear();
    command.envs(inherited(policy.dialect, std::env::vars_os(), &policy.environment.keep));
    command.envs(policy.environment.set.iter().map(|(name, value)| (name, value)));
    let mut child = command.spawn()?;
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
