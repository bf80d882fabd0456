//! Wake-ups across processes: `logs -f` and `submit --wait` react to changes that another process makes, and poll rarely in between.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ostler_core::Outcome;
use ostler_store::LAST_POLL;
use ostler_testkit::MAX_WAIT;

use crate::hands::Hands;
use crate::ostler::{Place, Running};

/// The socket of the process that watches the store of this place, once there is one.
fn watcher(place: &Place) -> PathBuf {
    let mut folder = place.store().into_os_string();
    folder.push(".nodes");
    let until = Instant::now() + MAX_WAIT;
    loop {
        let entries = std::fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path());
        let mut sockets = entries.filter(|path| path.extension().is_some_and(|end| end == "watch"));
        if let Some(socket) = sockets.next() {
            return socket;
        }
        assert!(Instant::now() < until, "no process watches");
        std::thread::yield_now();
    }
}

/// How often the threads of a process went to sleep so far: a poll takes several turns of them.
fn naps(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let naps = |status: String| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |count| count.trim().parse().expect("a number"))
    };
    threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok()).map(naps).sum()
}

/// Each line is written when the one before was printed: by polls alone, each would take a second.
#[test]
fn a_follower_prints_what_another_process_writes_before_its_next_poll() {
    const LINES: u32 = 20;
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    let task = hands.begin("mail");
    let following = Running::start(place.command(["logs", "-f", &id]));
    watcher(&place);
    let began = Instant::now();
    for number in 0..LINES {
        hands.log(task.lease.as_ref(), &format!("line {number}"));
        assert_eq!(following.line(), format!("line {number}"));
    }
    assert!(began.elapsed() < LAST_POLL * LINES / 2, "it polls: {:?}", began.elapsed());
    hands.end(task, Outcome::Success, None);
    assert_eq!(following.end(), (Some(0), Vec::new()));
}

#[test]
fn a_wait_polls_rarely_and_ends_though_its_hint_is_lost() {
    const WATCHED: Duration = Duration::from_secs(4);
    let place = Place::new();
    let hands = Hands::join(&place);
    let waiting = Running::start(place.command(["submit", "mail", "send", "--wait"]));
    let task = hands.begin("mail");
    let socket = watcher(&place);
    let (began, before) = (Instant::now(), naps(waiting.pid()));
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    let _ = nothing.recv_timeout(WATCHED);
    let (polled, passed) = (naps(waiting.pid()) - before, began.elapsed());
    // A poll of every tenth of a second, as a loop without hints would need, takes some thirty turns a second.
    assert!(polled < 16 * passed.as_secs(), "{polled} turns in {passed:?}");
    std::fs::remove_file(socket).expect("it is removed");
    hands.end(task, Outcome::Success, Some("7"));
    assert_eq!(waiting.end(), (Some(0), vec!["7".to_owned()]));
}
