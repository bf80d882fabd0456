//! What a node tells its service manager (systemd, `Type=notify`): that it is up, that it stops, and, for the watchdog, that its heartbeat
//! lives. One datagram each, to the socket in `NOTIFY_SOCKET`; without one, nothing is sent.
//!
//! A node whose store is away fences itself and waits for the store: a restart would not help it, so the watchdog hears from it. A node
//! that should renew its leases and does not, because its heartbeat hangs, is silent, and is restarted.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use ostler_runtime::{NodeHandle, NodeState};
use tokio::time::Instant;

/// The socket of the service manager.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Microseconds within which the watchdog wants to hear from the process with the id in the other variable.
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";
/// Pings within the time of the watchdog.
const PINGS: u32 = 3;
/// How long a heartbeat may be late, besides its own interval.
const MAX_LATE: Duration = Duration::from_secs(10);

/// The service manager of this process.
#[derive(Debug)]
pub(super) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Duration>,
}

/// Tells the watchdog about a node, until it is dropped.
pub(super) struct WatchdogPings(tokio::task::JoinHandle<()>);

impl Drop for WatchdogPings {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ServiceManager {
    /// The one that the environment names.
    pub(super) fn here() -> Option<Self> {
        Self::from_variables(&|name| std::env::var_os(name))
    }

    fn from_variables(variable: crate::store_location::Env<'_>) -> Option<Self> {
        let address = address(variable(SOCKET)?.as_os_str())?;
        let number = |name| variable(name).and_then(|text| text.to_str()?.parse::<u64>().ok());
        let ours = number(WATCHDOG_PROCESS).is_none_or(|id| id == u64::from(std::process::id()));
        let watchdog = number(WATCHDOG).filter(|micros| *micros > 0 && ours).map(Duration::from_micros);
        let socket = UnixDatagram::unbound().ok()?;
        // It must not hold the node up.
        socket.set_nonblocking(true).ok()?;
        Some(Self { socket, address, watchdog })
    }

    pub(super) fn ready(&self) {
        self.send("READY=1\nSTATUS=takes tasks");
    }

    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=waits for running tasks");
    }

    /// A manager that cannot be reached is no reason to stop working.
    fn send(&self, message: &str) {
        if let Err(error) = self.socket.send_to_addr(message.as_bytes(), &self.address) {
            tracing::debug!(target: "ostler::up", "the service manager cannot be told: {error}");
        }
    }

    /// Pings the watchdog while the node's heartbeat lives.
    pub(super) fn watch(&self, node: NodeHandle) -> Option<WatchdogPings> {
        let pause = self.watchdog? / PINGS;
        let (socket, address) = (self.socket.try_clone().ok()?, self.address.clone());
        Some(WatchdogPings(tokio::spawn(async move {
            let mut pulse = Pulse { beats: 0, seen_at: Instant::now() };
            loop {
                let (state, beats) = (*node.state().borrow(), node.telemetry().counters().heartbeats);
                if pulse.lives(state, beats, Instant::now()) {
                    let _ = socket.send_to_addr(b"WATCHDOG=1", &address);
                }
                tokio::time::sleep(pause).await;
            }
        })))
    }
}

/// A path, or the name of an abstract socket after `@`.
fn address(socket: &OsStr) -> Option<SocketAddr> {
    match socket.as_bytes() {
        [] => None,
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        _ => SocketAddr::from_pathname(socket).ok(),
    }
}

/// When the last heartbeat was seen.
struct Pulse {
    beats: u64,
    seen_at: Instant,
}

impl Pulse {
    fn lives(&mut self, state: NodeState, beats: u64, now: Instant) -> bool {
        match state {
            NodeState::Running | NodeState::Draining if beats == self.beats => {
                now.duration_since(self.seen_at) < MAX_LATE
            }
            // While it is fenced it does not renew, and tries to join again.
            NodeState::Running | NodeState::Draining | NodeState::Fenced => {
                (self.beats, self.seen_at) = (beats, now);
                true
            }
            NodeState::Ended => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use ostler_testkit::scratch;

    use super::*;

    fn manager(socket: &str, micros: &str, process: &str) -> Option<ServiceManager> {
        let all = [(SOCKET, socket), (WATCHDOG, micros), (WATCHDOG_PROCESS, process)];
        let find = |name: &str| all.iter().find(|(known, text)| *known == name && !text.is_empty());
        ServiceManager::from_variables(&|name| find(name).map(|(_, text)| OsString::from(text)))
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let count = socket.recv(&mut bytes).expect("a datagram");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn sockets_with_a_path_and_abstract_ones_are_told() {
        let folder = scratch();
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).expect("a socket");
        let name = format!("ostler-test-{}", std::process::id());
        let abstract_one = SocketAddr::from_abstract_name(&name).expect("a name");
        let abstract_one = UnixDatagram::bind_addr(&abstract_one).expect("a socket");
        for (socket, text) in [(by_path, path.display().to_string()), (abstract_one, format!("@{name}"))] {
            let manager = manager(&text, "", "").expect("it is named");
            manager.ready();
            assert!(heard(&socket).starts_with("READY=1\n"));
            manager.stopping();
            assert!(heard(&socket).starts_with("STOPPING=1\n"));
        }
        assert!(manager("", "", "").is_none());
        // One that is gone is no error.
        manager("/nowhere/at/all", "", "").expect("it is named").ready();
    }

    #[test]
    fn the_watchdog_of_another_process_is_not_ours() {
        let ours = std::process::id().to_string();
        let time = |micros, process| manager("@x", micros, process).and_then(|manager| manager.watchdog);
        assert_eq!(time("30000000", &ours), Some(Duration::from_secs(30)));
        assert_eq!(time("30000000", ""), Some(Duration::from_secs(30)));
        assert_eq!(time("30000000", "1"), None);
        assert_eq!(time("0", &ours), None);
        assert_eq!(time("", ""), None);
    }

    #[tokio::test]
    async fn a_heartbeat_that_hangs_is_silence_and_a_store_that_is_away_is_not() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut pulse = Pulse { beats: 0, seen_at: start };
        assert!(pulse.lives(NodeState::Running, 1, after(1)));
        assert!(pulse.lives(NodeState::Running, 1, after(10)));
        assert!(!pulse.lives(NodeState::Running, 1, after(12)));
        assert!(!pulse.lives(NodeState::Draining, 1, after(100)));
        // The node has noticed it itself.
        assert!(pulse.lives(NodeState::Fenced, 1, after(101)));
        assert!(pulse.lives(NodeState::Running, 1, after(105)));
        assert!(pulse.lives(NodeState::Running, 2, after(112)));
        assert!(!pulse.lives(NodeState::Ended, 3, after(113)));
    }
}
