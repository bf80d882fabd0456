//! A node as a service: what it tells systemd, and the units that are shipped.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use ostler_testkit::{MAX_WAIT, ProcessSignal, scratch};

use crate::ostler::{Place, Running};

const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/systemd");

/// The next message that is not one of the watchdog, and how many of those came before.
fn next(socket: &UnixDatagram) -> (String, usize) {
    let mut pings = 0;
    loop {
        let mut bytes = [0; 256];
        let count = socket.recv(&mut bytes).expect("a message");
        match String::from_utf8_lossy(&bytes[..count]).into_owned() {
            ping if ping == "WATCHDOG=1" => pings += 1,
            message => return (message, pings),
        }
    }
}

#[test]
fn a_node_says_when_it_is_ready_and_when_it_stops_and_pings_the_watchdog() {
    let place = Place::new();
    place.write("ostler.toml", "[pool.shell]\nexecutor = \"command\"\ncommand = [\"true\"]\n");
    let path = place.folder().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(MAX_WAIT)).expect("a bound");
    let mut command = place.command(["up"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "60000");
    let node = Running::start(command);
    assert_eq!(next(&socket), ("READY=1\nSTATUS=takes tasks".to_owned(), 0));
    // It is ready when it says so: a task runs.
    place.done(["submit", "shell", "run", "--wait"]);
    for _ in 0..3 {
        let mut bytes = [0; 64];
        let count = socket.recv(&mut bytes).expect("a ping");
        assert_eq!(&bytes[..count], b"WATCHDOG=1");
    }
    node.signal(ProcessSignal::TERM);
    let (message, _) = next(&socket);
    assert!(message.starts_with("STOPPING=1\n"), "{message}");
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn systemd_understands_the_units() {
    let folder = scratch();
    for (unit, scope) in [("ostler.service", "--system"), ("ostler-user.service", "--user")] {
        let text = std::fs::read_to_string(Path::new(UNITS).join(unit)).expect("it is there");
        // The program stands elsewhere here.
        let text = text.replace("/usr/local/bin/ostler", env!("CARGO_BIN_EXE_ostler"));
        let text = text.replace("%h/.local/bin/ostler", env!("CARGO_BIN_EXE_ostler"));
        let path = folder.path().join(unit);
        std::fs::write(&path, text).expect("it is written");
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no", scope])
            .arg(&path)
            .env("XDG_RUNTIME_DIR", folder.path())
            .output()
            .expect("systemd-analyze runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let about: Vec<&str> = said.lines().filter(|line| line.contains(unit)).collect();
        assert!(output.status.success() && about.is_empty(), "{unit}: {said}");
    }
}

#[test]
fn the_units_leave_time_to_drain_and_let_the_node_have_control_groups() {
    for unit in ["ostler.service", "ostler-user.service"] {
        let text = std::fs::read_to_string(Path::new(UNITS).join(unit)).expect("it is there");
        for line in [
            "Type=notify",
            "NotifyAccess=main",
            "Delegate=yes",
            "KillMode=mixed",
            "WatchdogSec=90s",
            "TimeoutStopSec=60s",
        ] {
            assert!(text.lines().any(|known| known == line), "{unit}: {line}");
        }
        assert!(!text.contains("ProtectControlGroups"), "{unit}: children have control groups");
    }
}
