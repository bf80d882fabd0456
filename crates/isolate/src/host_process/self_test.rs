//! The self-test of a host's sandbox: native code of the host tries what its sandbox must refuse. Nothing that it tries has an effect
//! where it is not refused.

use std::fs::File;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;

use ostler_process::sandbox::reachable_calls;
use rustix::process::{getppid, test_kill_process};

/// There is nothing here: a kernel that looks for it says so, and a sandbox refuses before.
const NOWHERE: &str = "/nonexistent/ostler";

/// One attempt at what must not work.
type Attempt = fn() -> io::Result<()>;

/// What is tried, besides the calls that every sandbox denies.
const ATTEMPTS: [(&str, Attempt); 8] = [
    ("open", || File::open(NOWHERE).map(drop)),
    ("create", || File::create(NOWHERE).map(drop)),
    ("socket (TCP)", || TcpListener::bind("127.0.0.1:0").map(drop)),
    ("socket (UDP)", || UdpSocket::bind("127.0.0.1:0").map(drop)),
    ("socket (Unix)", || UnixDatagram::unbound().and_then(|_| UnixStream::connect(NOWHERE)).map(drop)),
    ("execve", || Err(Command::new(NOWHERE).exec())),
    ("fork", || Command::new(NOWHERE).spawn().map(drop)),
    ("kill", || match getppid() {
        Some(parent) => Ok(test_kill_process(parent)?),
        None => Err(io::ErrorKind::PermissionDenied.into()),
    }),
];

/// What is not refused.
pub(super) fn breaches() -> Vec<String> {
    let refused = |result: io::Result<()>| matches!(result, Err(error) if error.kind() == io::ErrorKind::PermissionDenied);
    let mut breaches: Vec<String> = ATTEMPTS
        .iter()
        .filter(|(_, attempt)| !refused(attempt()))
        .map(|(name, _)| (*name).to_owned())
        .collect();
    breaches.extend(reachable_calls().into_iter().map(str::to_owned));
    let start = thread::Builder::new().spawn(|| ()).map(drop);
    if !refused(start) {
        breaches.push("a new thread".to_owned());
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_sandbox_the_test_fails() {
        let breaches = breaches();
        let names = ["open", "create", "socket (TCP)", "socket (Unix)", "execve", "fork", "a new thread"];
        for name in names {
            assert!(breaches.iter().any(|breach| breach == name), "{name} is not in {breaches:?}");
        }
        for call in ["kill", "clone", "socketpair"] {
            assert!(breaches.iter().any(|breach| breach == call), "{call} is not in {breaches:?}");
        }
    }
}
