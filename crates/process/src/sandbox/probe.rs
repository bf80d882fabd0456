//! The child that tries what a sandbox must not allow, and says what it could do all the same.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::confinement::Network;

/// How long a connection may take that must not come about.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before each thing that it could do and must not.
pub(super) const BREACH: &str = "breach: ";
/// What it says when it has tried all.
pub(super) const TRIED: &str = "tried";

/// What is to be tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Trial {
    /// What must not be read.
    pub(super) secret: PathBuf,
    /// Where nothing must be made.
    pub(super) closed: PathBuf,
    /// Where something must be made.
    pub(super) open: PathBuf,
    /// Somebody who listens, and must not be reached if there is no network.
    pub(super) listener: SocketAddr,
    /// At a socket file too.
    pub(super) socket: PathBuf,
    pub(super) network: Network,
}

/// What is wrong with a sandbox, as far as the process that calls this can tell.
pub(super) fn attempt(trial: &Trial) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut allowed = |is: bool, what: String| breaches.extend(is.then_some(what));
    allowed(reads(&trial.secret), format!("\"{}\" can be read", trial.secret.display()));
    let opened = OpenOptions::new().append(true).open(&trial.secret);
    allowed(opened.is_ok(), format!("\"{}\" can be written", trial.secret.display()));
    allowed(makes(&trial.closed), format!("a file can be made: \"{}\"", trial.closed.display()));
    allowed(!makes(&trial.open), format!("a file cannot be made where it may: \"{}\"", trial.open.display()));
    let (inet, unix) = match trial.network {
        Network::None => (true, true),
        Network::Unix => (true, false),
        Network::Open => (false, false),
    };
    let connects = || TcpStream::connect_timeout(&trial.listener, PATIENCE).is_ok();
    allowed(inet && connects(), format!("a connection to {} comes about", trial.listener));
    let sends = || {
        let any = SocketAddr::new(trial.listener.ip(), 0);
        UdpSocket::bind(any).is_ok_and(|socket| socket.send_to(b"x", trial.listener).is_ok())
    };
    allowed(inet && sends(), format!("a datagram to {} can be sent", trial.listener));
    let calls = || std::os::unix::net::UnixStream::connect(&trial.socket).is_ok();
    allowed(unix && calls(), format!("a connection to \"{}\" comes about", trial.socket.display()));
    breaches
}

fn reads(path: &Path) -> bool {
    let mut one = [0];
    OpenOptions::new().read(true).open(path).and_then(|mut file| file.read(&mut one)).is_ok()
}

/// Makes a file, and removes it again.
fn makes(path: &Path) -> bool {
    let made = OpenOptions::new().write(true).create_new(true).open(path).is_ok();
    if made {
        let _ = std::fs::remove_file(path);
    }
    made
}

/// The main function of the process that [`prove`](super::prove) starts: tries, and prints what it could do that it must not.
/// The trial is the given text.
///
/// # Errors
/// When there is no trial, or nobody listens.
pub fn probe(trial: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut breaches = attempt(&serde_json::from_str(trial)?);
    if !rustix::thread::no_new_privs()? {
        breaches.push("a program can give it new privileges".to_owned());
    }
    let mut out = std::io::stdout().lock();
    // Whoever started it may have begun a line.
    writeln!(out)?;
    for breach in breaches {
        writeln!(out, "{BREACH}{breach}")?;
    }
    writeln!(out, "{TRIED}")?;
    out.flush()
}
