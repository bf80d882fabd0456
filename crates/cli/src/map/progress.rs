//! How far a map job is: a bar on a terminal, plain lines elsewhere. All of it goes to standard error.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use ostler_store::views::Counts;
use tokio::time::Instant;

use crate::exit::say;

/// How often a line is printed where there is no bar.
const LINES_EVERY: Duration = Duration::from_secs(10);
/// How the bar looks.
const LOOK: &str = "{bar:30} {pos}/{len} {msg} {per_sec}, {eta} left";

/// How far it is.
pub(crate) struct Progress {
    items: u64,
    before: u64,
    began: Instant,
    shown: Shown,
}

enum Shown {
    Nothing,
    Bar(ProgressBar),
    Lines { last: Instant },
}

impl Progress {
    /// Nothing is shown.
    pub(crate) fn quiet(items: u64) -> Self {
        Self { items, before: 0, began: Instant::now(), shown: Shown::Nothing }
    }

    /// Shown as standard error allows it; `before` are done already.
    pub(crate) fn visible(items: u64, before: u64) -> Self {
        let began = Instant::now();
        let shown = if io::stderr().is_terminal() {
            let bar = ProgressBar::new(items);
            // What is wrong with a style that never changes would be seen at once.
            if let Ok(style) = ProgressStyle::with_template(LOOK) {
                bar.set_style(style);
            }
            bar.set_position(before);
            bar.reset_eta();
            Shown::Bar(bar)
        } else {
            Shown::Lines { last: began }
        };
        Self { items, before, began, shown }
    }

    /// So it stands now.
    pub(crate) fn update(&mut self, counts: &Counts) {
        let done = ended(counts);
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar) => {
                bar.set_message(failed(counts));
                bar.set_position(done);
            }
            Shown::Lines { last } if last.elapsed() < LINES_EVERY => {}
            Shown::Lines { last } => {
                *last = Instant::now();
                let line = plain(done, self.before, self.items, counts, self.began.elapsed());
                say(&line);
            }
        }
    }

    /// Prints something while the bar is out of the way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(print),
            Shown::Nothing | Shown::Lines { .. } => print(),
        }
    }

    /// A handle for whoever prints beside the bar.
    pub(crate) fn bar(&self) -> Option<ProgressBar> {
        match &self.shown {
            Shown::Bar(bar) => Some(bar.clone()),
            Shown::Nothing | Shown::Lines { .. } => None,
        }
    }

    /// It is over: the bar goes, and the summary comes.
    pub(crate) fn finish(self, counts: &Counts) {
        let took = self.began.elapsed();
        match self.shown {
            Shown::Nothing => return,
            Shown::Bar(bar) => bar.finish_and_clear(),
            Shown::Lines { .. } => {}
        }
        say(&summary(self.items, self.before, counts, took));
    }
}

/// How many have ended.
pub(crate) const fn ended(counts: &Counts) -> u64 {
    counts.completed + counts.failed + counts.cancelled
}

fn failed(counts: &Counts) -> String {
    if counts.failed == 0 { String::new() } else { format!("({} failed)", counts.failed) }
}

fn plain(done: u64, before: u64, items: u64, counts: &Counts, took: Duration) -> String {
    let rate = done.saturating_sub(before) as f64 / took.as_secs_f64().max(0.001);
    let left = if rate > 0.0 {
        let seconds = (items.saturating_sub(done)) as f64 / rate;
        format!(", about {seconds:.0} s left")
    } else {
        String::new()
    };
    format!("{done} of {items} done {}({rate:.1}/s{left})", spaced(&failed(counts)))
}

fn spaced(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text} ") }
}

fn summary(items: u64, before: u64, counts: &Counts, took: Duration) -> String {
    let mut parts = vec![format!("{} completed", counts.completed)];
    let others = [
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (items.saturating_sub(ended(counts)), "left"),
    ];
    parts.extend(
        others.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
    );
    if before > 0 {
        parts.push(format!("{before} of them before"));
    }
    let what = if items == 1 { "item" } else { "items" };
    format!("{items} {what} in {:.1} s: {}", took.as_secs_f64(), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_became_of_all_items() {
        let counts = Counts { completed: 7, failed: 2, queued: 1, ..Counts::default() };
        let took = Duration::from_millis(1_540);
        assert_eq!(
            summary(10, 3, &counts, took),
            "10 items in 1.5 s: 7 completed, 2 failed, 1 left, 3 of them before"
        );
        let all = Counts { completed: 1, ..Counts::default() };
        assert_eq!(summary(1, 0, &all, took), "1 item in 1.5 s: 1 completed");
    }

    #[test]
    fn a_line_says_how_fast_and_how_long_still() {
        let counts = Counts { completed: 30, failed: 2, ..Counts::default() };
        let line = plain(32, 12, 52, &counts, Duration::from_secs(10));
        assert_eq!(line, "32 of 52 done (2 failed) (2.0/s, about 10 s left)");
        assert_eq!(plain(0, 0, 5, &Counts::default(), Duration::ZERO), "0 of 5 done (0.0/s)");
    }
}
