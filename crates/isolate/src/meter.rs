//! The meter of a call: CPU time of the thread and wall time, against their limits.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::stop::LimitCause;

/// Measures a call on its own thread.
#[derive(Debug)]
pub(crate) struct Meter {
    started: Instant,
    cpu_start: Duration,
    cpu: Duration,
    deadline: Instant,
}

impl Meter {
    pub(crate) fn start(cpu: Duration, wall: Duration) -> Self {
        let started = Instant::now();
        Self { started, cpu_start: thread_cpu(), cpu, deadline: started + wall }
    }

    /// The limit that is exceeded, if one is.
    pub(crate) fn exceeded(&self) -> Option<LimitCause> {
        let now = Instant::now();
        // A thread uses no more CPU time than passes, and its clock costs a system call.
        let may_have_used = now.saturating_duration_since(self.started) > self.cpu;
        if may_have_used && thread_cpu().saturating_sub(self.cpu_start) > self.cpu {
            Some(LimitCause::Cpu)
        } else if now >= self.deadline {
            Some(LimitCause::Wall)
        } else {
            None
        }
    }

    /// When the wall time is over.
    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// The CPU time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}
