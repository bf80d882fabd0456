//! Stall watch: finds an attempt that is alive and does nothing, long before its timeout. Signs of life are output, frames, and CPU
//! time of the process tree.

use std::fs::read_to_string;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure};
use tokio::time::Instant;

use crate::supervisor::descendants;

/// How often the CPU time is read before an attempt counts as stuck; the last look finds it.
const LOOKS: u32 = 4;
/// The shortest time between two looks: each reads /proc.
const SHORTEST: Duration = Duration::from_millis(20);

/// Watches one attempt.
pub(crate) struct StallWatch {
    /// An attempt without signs of life for this long is stuck; `None`: it is not watched.
    after: Option<Duration>,
    root: i32,
    /// The last sign of life.
    alive_at: Instant,
    looked_at: Instant,
    cpu: u64,
}

impl StallWatch {
    /// Watches a process and its descendants from now on.
    pub(crate) fn new(after: Option<Duration>, root: i32) -> Self {
        let now = Instant::now();
        let cpu = after.map_or(0, |_| cpu_ticks(root));
        Self { after, root, alive_at: now, looked_at: now, cpu }
    }

    /// Records a sign of life.
    pub(crate) fn alive(&mut self) {
        if self.after.is_some() {
            self.alive_at = Instant::now();
        }
    }

    /// Waits for the next look. Never completes for an attempt that is not watched.
    pub(crate) async fn due(&self) {
        match self.after {
            Some(after) => tokio::time::sleep_until(self.looked_at + (after / LOOKS).max(SHORTEST)).await,
            None => std::future::pending().await,
        }
    }

    /// Looks at the CPU time. Returns the failure of an attempt that is stuck.
    pub(crate) fn look(&mut self) -> Option<Failure> {
        let after = self.after?;
        self.looked_at = Instant::now();
        let cpu = cpu_ticks(self.root);
        // Less than before is a sign, too: a child has ended.
        if cpu != self.cpu {
            self.cpu = cpu;
            self.alive_at = self.looked_at;
        }
        let silent = self.looked_at - self.alive_at;
        let message = || format!("it is stuck: no output and no CPU time for {after:?}");
        (silent >= after).then(|| Failure::new(ErrorClass::Stuck, message()))
    }
}

/// The CPU time of a process and its descendants, with that of the children they have waited for, in clock ticks.
fn cpu_ticks(root: i32) -> u64 {
    descendants(root).into_iter().filter_map(ticks).sum()
}

fn ticks(pid: i32) -> Option<u64> {
    ticks_in(&read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// utime, stime, cutime and cstime: the 14th to 17th fields. The second, a name, may contain anything, and ends with the last
/// parenthesis.
fn ticks_in(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields = rest.split(' ').skip(11).take(4);
    fields.map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_name() {
        let rest = "S 1 2 3 0 -1 4194560 12 0 0 0 7 5 40 2 20 0 1 0 99 1000 10";
        for name in ["sh", "a) b (c", ") S 1", ""] {
            assert_eq!(ticks_in(&format!("42 ({name}) {rest}\n")), Some(54), "{name}");
        }
        assert_eq!(ticks_in("42 (sh) S 1 2"), Some(0));
        assert_eq!(ticks_in(""), None);
    }

    #[tokio::test]
    async fn an_attempt_that_is_not_watched_is_never_stuck() {
        let mut watch = StallWatch::new(None, rustix::process::getpid().as_raw_pid());
        assert_eq!(watch.look(), None);
        let due = tokio::time::timeout(Duration::from_millis(50), watch.due());
        assert!(due.await.is_err(), "no look is due");
    }
}
