//! SIGTERM, SIGINT and SIGHUP, as a wait.

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// The terminal was closed. `None`: this process was started to survive that, as by nohup.
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup })
    }

    /// Waits for the next of any.
    pub(crate) async fn next(&mut self) {
        let Self { terminate, interrupt, hangup } = self;
        let hangup = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether SIGHUP was ignored when this process started: a handler would end that.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status).is_some_and(|mask| mask & 1 << (SignalKind::hangup().as_raw_value() - 1) != 0)
}

/// The mask of ignored signals in the status of a process.
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        assert_eq!(ignored("Name:\tostler\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), Some(0x1001));
        assert_eq!(ignored("Name:\tostler\n"), None);
    }
}
