//! The probe of the sandbox self-test: a child that tries what its sandbox must not allow, and reports what works.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps};
use serde::{Deserialize, Serialize};

use super::calls::{DeniedCall, denied, landlock_version};
use super::confinement::{Attributes, Network};
use crate::supervisor::try_call;

/// The first argument with which a program that has sandboxes runs [`probe`]. Internal.
pub const PROBE: &str = "ostler-probe";
/// Timeout of a connection that must not be established.
const PATIENCE: Duration = Duration::from_secs(5);
/// The prefix of a reported breach.
pub(super) const BREACH: &str = "breach: ";
/// Printed when everything was tried.
pub(super) const TRIED: &str = "tried";

/// What to try.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Trial {
    /// A file that must not be read, if there is one.
    pub(super) secret: Option<PathBuf>,
    /// A file that must not be created.
    pub(super) closed: Option<PathBuf>,
    /// A file that must be created.
    pub(super) open: PathBuf,
    /// A listener that must not be reached without network access.
    pub(super) listener: SocketAddr,
    /// The same at a Unix socket.
    pub(super) socket: PathBuf,
    /// The same at a Unix socket for datagrams.
    pub(super) datagrams: PathBuf,
    /// A file outside whose attributes must not be changed.
    pub(super) file: PathBuf,
    pub(super) network: Network,
    pub(super) attributes: Attributes,
}

/// Returns the breaches of a sandbox, as far as the calling process can tell.
pub(super) fn attempt(trial: &Trial) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut allowed = |is: bool, what: String| breaches.extend(is.then_some(what));
    if let Some(secret) = &trial.secret {
        allowed(reads(secret), format!("\"{}\" can be read", secret.display()));
        let opened = OpenOptions::new().append(true).open(secret);
        allowed(opened.is_ok(), format!("\"{}\" can be written", secret.display()));
    }
    if let Some(closed) = &trial.closed {
        allowed(makes(closed), format!("a file can be created: \"{}\"", closed.display()));
    }
    allowed(
        !makes(&trial.open),
        format!("a file cannot be created where it should: \"{}\"", trial.open.display()),
    );
    let (inet, unix) = match trial.network {
        Network::None => (true, true),
        Network::Unix => (true, false),
        Network::Open => (false, false),
    };
    let connects = || TcpStream::connect_timeout(&trial.listener, PATIENCE).is_ok();
    allowed(inet && connects(), format!("a connection to {} succeeds", trial.listener));
    let sends = || {
        let any = SocketAddr::new(trial.listener.ip(), 0);
        UdpSocket::bind(any).is_ok_and(|socket| socket.send_to(b"x", trial.listener).is_ok())
    };
    allowed(inet && sends(), format!("a datagram to {} can be sent", trial.listener));
    let calls = || UnixStream::connect(&trial.socket).is_ok();
    allowed(unix && calls(), format!("a connection to \"{}\" succeeds", trial.socket.display()));
    let sends_locally =
        || UnixDatagram::pair().is_ok_and(|(one, _)| one.send_to(b"x", &trial.datagrams).is_ok());
    allowed(unix && sends_locally(), format!("a datagram to \"{}\" can be sent", trial.datagrams.display()));
    let fixed = match trial.attributes {
        Attributes::Fixed => true,
        Attributes::Changeable => false,
    };
    let outside = trial.file.display();
    allowed(fixed && changes_mode(&trial.file), format!("the mode of \"{outside}\" can be changed"));
    allowed(fixed && changes_times(&trial.file), format!("the times of \"{outside}\" can be changed"));
    breaches
}

fn changes_mode(path: &Path) -> bool {
    rustix::fs::chmodat(CWD, path, Mode::RUSR, AtFlags::empty()).is_ok()
}

fn changes_times(path: &Path) -> bool {
    let long_ago = Timespec { tv_sec: 0, tv_nsec: 0 };
    let times = Timestamps { last_access: long_ago, last_modification: long_ago };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).is_ok()
}

/// Those of these calls that the kernel would execute.
fn undenied(calls: &[DeniedCall]) -> Vec<&'static str> {
    let reaches = |call: &&DeniedCall| !matches!(try_call(call), Err(error) if DeniedCall::is_denial(error));
    calls.iter().filter(reaches).map(DeniedCall::name).collect()
}

/// Those of the calls that the strictest sandbox denies, which the kernel would execute for this process. They have no effect.
#[must_use]
pub fn reachable_calls() -> Vec<&'static str> {
    undenied(&denied(Network::None, Attributes::Fixed))
}

/// Whether the parent process can be signalled. Landlock prevents it only since its sixth version.
fn signals_its_parent() -> bool {
    /// The first version that restricts signals.
    const SCOPED: std::ffi::c_long = 6;
    let promised = try_call(&landlock_version()).is_ok_and(|version| version >= SCOPED);
    let signals = |parent| rustix::process::test_kill_process(parent).is_ok();
    promised && rustix::process::getppid().is_some_and(signals)
}

fn reads(path: &Path) -> bool {
    let mut one = [0];
    OpenOptions::new().read(true).open(path).and_then(|mut file| file.read(&mut one)).is_ok()
}

/// Creates a file, and removes it again.
fn makes(path: &Path) -> bool {
    let made = OpenOptions::new().write(true).create_new(true).open(path).is_ok();
    if made {
        let _ = std::fs::remove_file(path);
    }
    made
}

/// The main function of the process that [`prove`](super::prove) starts: tries what the given trial lists, and prints the breaches.
///
/// # Errors
/// When the trial is invalid, or the output cannot be written.
pub fn probe(trial: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let trial: Trial = serde_json::from_str(trial)?;
    let mut breaches = attempt(&trial);
    let undenied = undenied(&denied(trial.network, trial.attributes));
    if !undenied.is_empty() {
        breaches.push(format!("these system calls are not denied: {}", undenied.join(", ")));
    }
    if signals_its_parent() {
        breaches.push("a process outside can be signalled".to_owned());
    }
    if !rustix::thread::no_new_privs()? {
        breaches.push("a program can give it new privileges".to_owned());
    }
    let mut out = std::io::stdout().lock();
    // The calling program may have begun a line.
    writeln!(out)?;
    for breach in breaches {
        writeln!(out, "{BREACH}{breach}")?;
    }
    writeln!(out, "{TRIED}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_sees_calls_that_no_rule_denies() {
        // Calls that every container allows, and that have no effect with the arguments of the trial, whatever the user.
        let names = [
            "socketpair",
            "fchmod",
            "fchmodat",
            "fchown",
            "utimensat",
            "prlimit64",
            "setpriority",
            "sched_setparam",
            "kill",
            "clone",
            "ioctl",
        ];
        let calls = denied(Network::None, Attributes::Fixed);
        let some: Vec<DeniedCall> = calls.into_iter().filter(|call| names.contains(&call.name())).collect();
        assert_eq!(some.len(), names.len());
        assert_eq!(undenied(&some).len(), names.len(), "{:?}", undenied(&some));
    }
}
