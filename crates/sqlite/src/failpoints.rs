//! Fail points: named places where a test kills the process, to check what is left on disk.

/// Kills the process here if a test requests it: `OSTLER_CRASH_AT=finish.committed`, or
/// `OSTLER_CRASH_AT=finish.committed:3` for the third pass.
#[cfg(feature = "crash-points")]
pub(crate) fn point(verb: &str, place: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    static WANTED: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static SEEN: AtomicU32 = AtomicU32::new(0);
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("OSTLER_CRASH_AT").ok()?;
        let (point, nth) = text.split_once(':').unwrap_or((&text, "1"));
        Some((point.to_owned(), nth.parse().unwrap_or(1)))
    });
    let Some((point, nth)) = wanted else { return };
    let here = point.split_once('.').is_some_and(|(v, p)| v == verb && p == place);
    if here && SEEN.fetch_add(1, Ordering::SeqCst) + 1 == *nth {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // Wait for the signal; no further code may run.
        loop {
            std::thread::park();
        }
    }
}

/// No-op outside of tests.
#[cfg(not(feature = "crash-points"))]
pub(crate) const fn point(_verb: &str, _place: &str) {}
