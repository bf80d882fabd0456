//! Memory pressure, and the memory of process trees.

use std::fs::read_to_string;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ostler_core::MemoryPressure;

use crate::supervisor::{descendants, own_cgroup};

/// Above this used share, no work is added.
const TIGHT: f64 = 0.85;
/// How long a measurement is valid.
const MEASURE_EVERY: Duration = Duration::from_millis(500);

/// The resident memory of a process and all its descendants. Shared pages are counted for each.
pub(crate) fn family_bytes(pid: i32) -> Option<u64> {
    let each: Vec<u64> = descendants(pid).into_iter().filter_map(resident_bytes).collect();
    (!each.is_empty()).then(|| each.iter().sum())
}

/// The resident memory of one process.
pub(crate) fn resident_bytes(pid: i32) -> Option<u64> {
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    let pages: u64 = read_to_string(format!("/proc/{pid}/statm")).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page)
}

/// Measures memory pressure: there is memory for more work below 85 % of the machine's memory and of the limits of the node's control
/// groups.
#[derive(Debug, Default)]
pub struct Gauge(Mutex<Option<(Instant, MemoryPressure)>>);

impl Gauge {
    /// Returns the memory pressure, measured at most twice a second.
    #[must_use]
    pub fn memory(&self) -> MemoryPressure {
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match *measured {
            Some((at, memory)) if now - at < MEASURE_EVERY => memory,
            Some(_) | None => {
                let memory = if used_share() > TIGHT { MemoryPressure::Tight } else { MemoryPressure::Free };
                *measured = Some((now, memory));
                memory
            }
        }
    }
}

/// The largest used share, of the machine and of every control group around this process. Unreadable values are skipped.
fn used_share() -> f64 {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|info| share_of_machine(&info));
    let groups = own_cgroup().ok();
    let groups = groups.iter().flat_map(|folder| folder.ancestors()).filter_map(share_of_group_at);
    groups.chain(machine).fold(0.0, f64::max)
}

fn share_of_machine(info: &str) -> Option<f64> {
    let field = |name: &str| -> Option<f64> {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let (total, available) = (field("MemTotal")?, field("MemAvailable")?);
    (total > 0.0).then(|| 1.0 - available / total)
}

fn share_of_group_at(folder: &Path) -> Option<f64> {
    let read = |name: &str| read_to_string(folder.join(name)).ok();
    share_of_group(&read("memory.max")?, &read("memory.current")?, &read("memory.stat").unwrap_or_default())
}

/// The used share of a group, without inactive file cache, which can be reclaimed at once. A group without a limit is never full.
fn share_of_group(max: &str, current: &str, stat: &str) -> Option<f64> {
    let (max, current): (f64, f64) = (max.trim().parse().ok()?, current.trim().parse().ok()?);
    let files = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let files: f64 = files.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0.0);
    (max > 0.0).then(|| (current - files).max(0.0) / max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_machine_is_what_is_not_available() {
        let info = "MemTotal:       1000 kB\nMemFree:   10 kB\nMemAvailable:    250 kB\n";
        assert_eq!(share_of_machine(info), Some(0.75));
        assert_eq!(share_of_machine("MemTotal: 1000 kB\n"), None);
        assert_eq!(share_of_machine(""), None);
    }

    #[test]
    fn the_share_of_a_group_leaves_out_what_can_be_had_back() {
        assert_eq!(share_of_group("1000\n", "900\n", "anon 5\ninactive_file 400\n"), Some(0.5));
        assert_eq!(share_of_group("1000\n", "900\n", ""), Some(0.9));
        assert_eq!(share_of_group("max\n", "900\n", ""), None, "it has no bound");
        assert_eq!(share_of_group("0\n", "0\n", ""), None);
    }

    #[test]
    fn a_family_has_more_memory_than_its_head() {
        let me = rustix::process::getpid().as_raw_pid();
        let alone = family_bytes(me).expect("this process is there");
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("it starts");
        assert!(family_bytes(me).expect("it is still there") > 0 && alone > 0);
        let both = descendants(me);
        assert!(both.contains(&me) && both.contains(&i32::try_from(child.id()).expect("a pid")));
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert_eq!(family_bytes(i32::MAX), None);
    }

    #[test]
    fn the_gauge_reads_this_machine() {
        let share = used_share();
        assert!(share > 0.0 && share <= 1.0, "{share}");
        let gauge = Gauge::default();
        assert_eq!(gauge.memory(), gauge.memory());
    }
}
