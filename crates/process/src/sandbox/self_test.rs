//! Sandbox self-test, the node's side: sets up what must not be reached, and has a child in the sandbox try.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use super::confinement::{Attributes, Network};
use super::policy::{Sandbox, SandboxError};
use super::probe::{BREACH, TRIED, Trial, attempt};
use crate::links;
use crate::supervisor::{Launch, Socket, SpawnError, Stdin, Supervisor, Variables};

/// Timeout of the self-test.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the probe's output, at most. It writes less.
const MAX_SAID: u64 = 64 * 1024;

/// Why a sandbox is not used.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestFailed {
    /// Invalid settings.
    #[error("{0}")]
    Wrong(#[from] SandboxError),
    /// The machine lacks a feature.
    #[error("this machine cannot enforce it: {0}")]
    Unable(String),
    /// What must not work does not work without the sandbox either, so the test proves nothing.
    #[error("it cannot be tested here, because even without it only this works: {0}")]
    NoControl(String),
    /// What must not work does.
    #[error("it does not hold: {0}")]
    Broken(String),
    /// The probe did not report a result.
    #[error("the child that tests it did not report a result: {0}")]
    Silent(String),
    /// Another system error.
    #[error("it cannot be tested: {0}")]
    System(#[from] io::Error),
}

/// Tests a sandbox: starts a child in it, which tries to read and to write the hidden file, to create a file beside it, to
/// change the attributes of a file, to connect to listeners, and every denied system call. The arguments start this program
/// again, so that it calls [`probe`](super::probe) with one more argument, which is added here.
///
/// # Errors
/// When the sandbox must not be used; then nothing of its pool may be started.
pub async fn prove(
    supervisor: &Supervisor,
    sandbox: &Sandbox,
    words: &[&str],
    variables: &[(&str, &str)],
) -> Result<(), SelfTestFailed> {
    if let Some(fault) = sandbox.faults().into_iter().next() {
        return Err(fault.into());
    }
    let folder = tempfile::Builder::new().prefix("ostler-proof-").tempdir()?;
    let inside = tempfile::tempdir_in(folder.path())?;
    let stage = TestBed::set(folder.path())?;
    let mark = folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let secret = match sandbox.hidden.first() {
        Some(hidden) => Some(hidden.canonicalize()?),
        // The store is not a file. Another file stands for it, unless the sandbox may see that one.
        None => Some(&stage.secret).filter(|secret| !sandbox.lists(secret)).cloned(),
    };
    let trial = Trial {
        closed: secret.as_ref().map(|secret| secret.with_file_name(format!(".{mark}"))),
        open: inside.path().join("file"),
        secret,
        listener: stage.address,
        socket: stage.socket.clone(),
        datagrams: stage.datagrams.clone(),
        file: stage.file.clone(),
        network: sandbox.network,
        attributes: sandbox.attributes,
    };
    control(&trial)?;

    // The program itself, and only what the pool grants besides.
    let own = Arc::new(links::folder(inside.path())?);
    let listed = |paths: &[PathBuf]| paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let confinement =
        sandbox.confine([PathBuf::from(THIS)], listed(&sandbox.read), listed(&sandbox.write))?;
    let trial = serde_json::to_string(&trial).map_err(io::Error::from)?;
    let launch = Launch {
        argv: [&[THIS], words, &[&trial]].concat().into_iter().map(Into::into).collect(),
        start: None,
        own: Some(own),
        folder: None,
        keep: Vec::new(),
        set: Variables(
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ),
        stdin: Stdin::Nothing,
        socket: Socket::None,
        confinement: Some(confinement),
    };
    let output = tokio::time::timeout(PATIENCE, output_of(supervisor, launch)).await;
    let output =
        output.map_err(|_| SelfTestFailed::Silent(format!("it took longer than {PATIENCE:?}")))??;
    if !output.lines().any(|line| line == TRIED) {
        return Err(SelfTestFailed::Silent(output.trim().to_owned()));
    }
    let breaches: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix(BREACH)).collect();
    if breaches.is_empty() { Ok(()) } else { Err(SelfTestFailed::Broken(breaches.join("; "))) }
}

/// The running program, found by its inode.
const THIS: &str = "/proc/self/exe";

/// Targets that the probe must not reach.
struct TestBed {
    address: SocketAddr,
    socket: PathBuf,
    datagrams: PathBuf,
    file: PathBuf,
    secret: PathBuf,
    _listeners: (TcpListener, UnixListener, UnixDatagram),
}

impl TestBed {
    fn set(folder: &Path) -> io::Result<Self> {
        let inet = TcpListener::bind("127.0.0.1:0").or_else(|_| TcpListener::bind("[::1]:0"))?;
        let socket = folder.join("socket");
        let unix = UnixListener::bind(&socket)?;
        let datagrams = folder.join("datagrams");
        let datagram = UnixDatagram::bind(&datagrams)?;
        let file = folder.join("outside");
        std::fs::write(&file, "")?;
        let secret = folder.join("secret");
        std::fs::write(&secret, "secret")?;
        Ok(Self {
            address: inet.local_addr()?,
            socket,
            datagrams,
            file,
            secret,
            _listeners: (inet, unix, datagram),
        })
    }
}

/// Checks that all of it works outside the sandbox; otherwise the probe's failure would prove nothing.
fn control(trial: &Trial) -> Result<(), SelfTestFailed> {
    /// Four ways to connect, and two to change a file.
    const ALWAYS: usize = 6;
    /// Reading and writing the hidden file, and creating a file beside it.
    const WITH_A_SECRET: usize = 3;
    let all = Trial { network: Network::None, attributes: Attributes::Fixed, ..trial.clone() };
    let could = attempt(&all);
    let most = ALWAYS + trial.secret.as_ref().map_or(0, |_| WITH_A_SECRET);
    if could.len() == most { Ok(()) } else { Err(SelfTestFailed::NoControl(could.join("; "))) }
}

async fn output_of(supervisor: &Supervisor, launch: Launch) -> Result<String, SelfTestFailed> {
    let mut child = supervisor.spawn(launch).await.map_err(|error| match error {
        SpawnError::Refused { error, .. } => SelfTestFailed::Unable(error.to_string()),
        SpawnError::Pipe(error) | SpawnError::Short { error } => SelfTestFailed::System(error),
        SpawnError::TooLarge | SpawnError::Gone(_) => SelfTestFailed::System(io::Error::other(error)),
    })?;
    let (mut output, mut complained) = (Vec::new(), Vec::new());
    if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
        let (mut out, mut err) = (out.take(MAX_SAID), err.take(MAX_SAID));
        tokio::try_join!(out.read_to_end(&mut output), err.read_to_end(&mut complained))?;
    }
    let _ = child.ended().await;
    Ok(String::from_utf8_lossy(&[output, complained].concat()).into_owned())
}
