//! Progress of a map job on standard error: a bar on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use ostler_core::Cost;
use ostler_store::views::Counts;
use ostler_store::{Clock as _, SystemClock};
use tokio::time::Instant;

use super::table::LiveTable;
use crate::exit::say;
use crate::print::how_long;

/// The interval between lines where there is no bar.
const LINES_EVERY: Duration = Duration::from_secs(10);
/// The template of the bar: one line that fits the terminal, built by [`line()`].
const LOOK: &str = "{msg}";
/// Columns of a terminal of unknown width.
const USUAL_COLUMNS: usize = 80;
/// Columns of the bar itself, at most; with fewer than the minimum it is left out.
const BAR_COLUMNS: usize = 30;
const LEAST_BAR_COLUMNS: usize = 5;
/// Longer estimates are not shown.
const MAX_SHOWN_SECONDS: f64 = 1e9;

pub(crate) struct MapProgress {
    items: u64,
    before: u64,
    began: Instant,
    shown: ProgressView,
}

enum ProgressView {
    Nothing,
    Bar(ProgressBar),
    Lines { last: Instant },
}

impl MapProgress {
    /// Shows nothing.
    pub(crate) fn quiet(items: u64) -> Self {
        Self { items, before: 0, began: Instant::now(), shown: ProgressView::Nothing }
    }

    /// Shows progress as standard error allows; `before` items are already done.
    pub(crate) fn visible(items: u64, before: u64) -> Self {
        let began = Instant::now();
        let shown = if io::stderr().is_terminal() {
            let bar = ProgressBar::new(items);
            // A mistake in a constant template would show at once.
            if let Ok(style) = ProgressStyle::with_template(LOOK) {
                bar.set_style(style);
            }
            ProgressView::Bar(bar)
        } else {
            ProgressView::Lines { last: began }
        };
        Self { items, before, began, shown }
    }

    /// Whether there is room for a table of items.
    pub(crate) const fn is_bar(&self) -> bool {
        match self.shown {
            ProgressView::Bar(_) => true,
            ProgressView::Nothing | ProgressView::Lines { .. } => false,
        }
    }

    /// Shows these counts, and below a bar these items.
    pub(crate) fn update(&mut self, counts: &Counts, table: &LiveTable) {
        let done = counts.ended();
        match &mut self.shown {
            ProgressView::Nothing => {}
            ProgressView::Bar(bar) => {
                let columns = columns();
                let line = line(done, self.before, self.items, counts, self.began.elapsed(), columns);
                let rows = table.lines(columns, SystemClock.now());
                bar.set_message([vec![line], rows].concat().join("\n"));
            }
            ProgressView::Lines { last } if last.elapsed() < LINES_EVERY => {}
            ProgressView::Lines { last } => {
                *last = Instant::now();
                let line = plain(done, self.before, self.items, counts, self.began.elapsed());
                say(&line);
            }
        }
    }

    /// Prints something while the bar is hidden.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.shown {
            ProgressView::Bar(bar) => bar.suspend(print),
            ProgressView::Nothing | ProgressView::Lines { .. } => print(),
        }
    }

    /// A handle for printing beside the bar.
    pub(crate) fn beside(&self) -> Beside {
        match &self.shown {
            ProgressView::Bar(bar) => Beside(Some(bar.clone())),
            ProgressView::Nothing | ProgressView::Lines { .. } => Beside(None),
        }
    }

    /// Removes the bar for good: what follows is printed in lines.
    pub(crate) fn clear(&self) {
        match &self.shown {
            ProgressView::Bar(bar) => bar.finish_and_clear(),
            ProgressView::Nothing | ProgressView::Lines { .. } => {}
        }
    }

    /// Removes the bar and prints the summary, with what the job has cost if that is known.
    pub(crate) fn finish(self, counts: &Counts, cost: Option<Cost>) {
        self.clear();
        match &self.shown {
            ProgressView::Nothing => {}
            ProgressView::Bar(_) | ProgressView::Lines { .. } => {
                let cost = cost.map(|cost| format!("; {cost}")).unwrap_or_default();
                say(&format!("{}{cost}", summary(self.items, self.before, counts, self.began.elapsed())));
            }
        }
    }
}

/// No dead bar stays on the screen, on any path.
impl Drop for MapProgress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[derive(Clone)]
pub(crate) struct Beside(Option<ProgressBar>);

impl Beside {
    /// Writes `output` to standard output, after anything `first` prints, while the bar is hidden. Output that does not end its line
    /// would have the bar drawn behind it, so the line is ended on the terminal; the output itself is unchanged.
    pub(crate) fn print(&self, output: &[u8], first: impl FnOnce()) -> io::Result<()> {
        let write = || {
            first();
            let mut out = io::stdout().lock();
            out.write_all(output).and_then(|()| out.flush())
        };
        let Some(bar) = &self.0 else { return write() };
        bar.suspend(|| {
            let written = write();
            if !output.is_empty() && !output.ends_with(b"\n") && io::stdout().is_terminal() {
                let _ = io::stderr().write_all(b"\n");
            }
            written
        })
    }
}

/// The width of the terminal.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(USUAL_COLUMNS)
}

/// The progress in one line that leaves the last column free: some terminals wrap as soon as that is filled.
fn line(done: u64, before: u64, items: u64, counts: &Counts, took: Duration, columns: usize) -> String {
    let mut text = format!("{}% {done}/{items}", percent(done, items));
    if counts.failed > 0 {
        text.push_str(&format!(" {}", failed(counts)));
    }
    if let Some(pace) = Pace::of(done.saturating_sub(before), items.saturating_sub(done), took) {
        text.push_str(&format!(" {:.1}/s,", pace.rate));
        if let Some(left) = pace.left {
            text.push_str(&format!(" {} left,", how_long(left)));
        }
    }
    text.push_str(&format!(" {}", elapsed(took)));
    let room = columns.saturating_sub(1);
    let width = room.saturating_sub(text.len() + 1).min(BAR_COLUMNS);
    if width < LEAST_BAR_COLUMNS {
        text.truncate(room);
        return text;
    }
    let full = usize::try_from(done.saturating_mul(width as u64) / items.max(1)).unwrap_or(width).min(width);
    format!("{}{} {text}", "█".repeat(full), "░".repeat(width - full))
}

/// How fast items end, once some have ended.
struct Pace {
    /// Items per second.
    rate: f64,
    /// The estimated time for the others; `None`: there are none.
    left: Option<Duration>,
}

impl Pace {
    fn of(ended: u64, open: u64, took: Duration) -> Option<Self> {
        let rate = ended as f64 / took.as_secs_f64().max(0.001);
        let left = Duration::from_secs_f64((open as f64 / rate).min(MAX_SHOWN_SECONDS));
        (ended > 0).then_some(Self { rate, left: (open > 0).then_some(left) })
    }
}

/// Rounded down: 100 means all.
fn percent(done: u64, items: u64) -> u64 {
    done.saturating_mul(100) / items.max(1)
}

/// The time in whole units: milliseconds would only flicker.
fn elapsed(took: Duration) -> String {
    match took.as_secs() {
        0 => "0s".to_owned(),
        seconds => how_long(Duration::from_secs(seconds)),
    }
}

fn failed(counts: &Counts) -> String {
    if counts.failed == 0 { String::new() } else { format!("({} failed)", counts.failed) }
}

fn plain(done: u64, before: u64, items: u64, counts: &Counts, took: Duration) -> String {
    let pace = Pace::of(done.saturating_sub(before), items.saturating_sub(done), took);
    let pace = pace.map(|Pace { rate, left }| {
        let left = left.map(|left| format!(", about {} left", how_long(left))).unwrap_or_default();
        format!(", {rate:.1}/s{left}")
    });
    format!(
        "{done} of {items} done, {}% {}({}{})",
        percent(done, items),
        spaced(&failed(counts)),
        elapsed(took),
        pace.unwrap_or_default()
    )
}

fn spaced(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text} ") }
}

fn summary(items: u64, before: u64, counts: &Counts, took: Duration) -> String {
    let earlier = if before > 0 { format!(" ({before} of them in an earlier run)") } else { String::new() };
    let mut parts = vec![format!("{} completed{earlier}", counts.completed)];
    let others = [
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (items.saturating_sub(counts.ended()), "left"),
    ];
    parts.extend(
        others.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
    );
    format!("{}: {}; {:.1} s", counted(items), parts.join(", "), took.as_secs_f64())
}

/// What to do about the items that have not completed.
pub(crate) fn again(items: u64, counts: &Counts) -> String {
    let open = items.saturating_sub(counts.completed);
    let what = if open == 1 { "item" } else { "items" };
    let action = if counts.failed == open { "retry" } else { "run" };
    let which = if counts.failed == open { "failed" } else { "remaining" };
    let all = if counts.completed > 0 { format!(" (--fresh: all {items})") } else { String::new() };
    format!("run the same command again to {action} the {open} {which} {what}{all}")
}

fn counted(items: u64) -> String {
    if items == 1 { "1 item".to_owned() } else { format!("{items} items") }
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
            "10 items: 7 completed (3 of them in an earlier run), 2 failed, 1 left; 1.5 s"
        );
        let all = Counts { completed: 1, ..Counts::default() };
        assert_eq!(summary(1, 0, &all, took), "1 item: 1 completed; 1.5 s");
        assert_eq!(
            again(10, &counts),
            "run the same command again to run the 3 remaining items (--fresh: all 10)"
        );
        let failed = Counts { failed: 1, ..Counts::default() };
        assert_eq!(again(1, &failed), "run the same command again to retry the 1 failed item");
    }

    #[test]
    fn the_bar_fits_the_terminal() {
        let counts = Counts { completed: 30, failed: 2, ..Counts::default() };
        let at = |columns| line(32, 12, 52, &counts, Duration::from_secs(10), columns);
        let wide = at(200);
        assert_eq!(
            wide,
            format!("{}{} 61% 32/52 (2 failed) 2.0/s, 10s left, 10s", "█".repeat(18), "░".repeat(12))
        );
        for columns in 0..100 {
            assert!(at(columns).chars().count() < columns.max(1), "{columns}: {}", at(columns));
        }
        assert_eq!(at(45), "61% 32/52 (2 failed) 2.0/s, 10s left, 10s", "no room for a bar");
        let none = line(0, 0, 52, &Counts::default(), Duration::from_millis(1_500), 50);
        assert_eq!(none, format!("{} 0% 0/52 1s", "░".repeat(30)), "nothing is known of how fast it will be");
        assert!(line(0, 0, 52, &Counts::default(), Duration::from_millis(20), 50).ends_with("0/52 0s"));
        let all = line(52, 0, 52, &Counts::default(), Duration::from_secs(4), 70);
        assert_eq!(all, format!("{} 100% 52/52 13.0/s, 4s", "█".repeat(30)));
    }

    #[test]
    fn a_line_says_how_fast_and_how_long_still() {
        let counts = Counts { completed: 30, failed: 2, ..Counts::default() };
        let line = plain(32, 12, 52, &counts, Duration::from_secs(10));
        assert_eq!(line, "32 of 52 done, 61% (2 failed) (10s, 2.0/s, about 10s left)");
        assert_eq!(plain(0, 0, 5, &Counts::default(), Duration::from_secs(11)), "0 of 5 done, 0% (11s)");
    }
}
