//! How far a map job is: a bar on a terminal, plain lines elsewhere. All of it goes to standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use ostler_store::views::Counts;
use tokio::time::Instant;

use crate::exit::say;
use crate::print::how_long;

/// How often a line is printed where there is no bar.
const LINES_EVERY: Duration = Duration::from_secs(10);
/// What the bar is drawn from: one line that fits the terminal, put together by [`line()`].
const LOOK: &str = "{msg}";
/// Columns of a terminal that does not say how wide it is.
const USUAL_COLUMNS: usize = 80;
/// Columns of the bar itself, at most; with fewer than the least it is left out.
const BAR_COLUMNS: usize = 30;
const LEAST_BAR_COLUMNS: usize = 5;
/// More than this is not said of what is left.
const MAX_SHOWN_SECONDS: f64 = 1e9;

/// How far it is.
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
    /// Nothing is shown.
    pub(crate) fn quiet(items: u64) -> Self {
        Self { items, before: 0, began: Instant::now(), shown: ProgressView::Nothing }
    }

    /// ProgressView as standard error allows it; `before` are done already.
    pub(crate) fn visible(items: u64, before: u64) -> Self {
        let began = Instant::now();
        let shown = if io::stderr().is_terminal() {
            let bar = ProgressBar::new(items);
            // What is wrong with a style that never changes would be seen at once.
            if let Ok(style) = ProgressStyle::with_template(LOOK) {
                bar.set_style(style);
            }
            ProgressView::Bar(bar)
        } else {
            ProgressView::Lines { last: began }
        };
        Self { items, before, began, shown }
    }

    /// So it stands now.
    pub(crate) fn update(&mut self, counts: &Counts) {
        let done = ended(counts);
        match &mut self.shown {
            ProgressView::Nothing => {}
            ProgressView::Bar(bar) => {
                bar.set_message(line(done, self.before, self.items, counts, self.began.elapsed(), columns()));
            }
            ProgressView::Lines { last } if last.elapsed() < LINES_EVERY => {}
            ProgressView::Lines { last } => {
                *last = Instant::now();
                let line = plain(done, self.before, self.items, counts, self.began.elapsed());
                say(&line);
            }
        }
    }

    /// Prints something while the bar is out of the way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.shown {
            ProgressView::Bar(bar) => bar.suspend(print),
            ProgressView::Nothing | ProgressView::Lines { .. } => print(),
        }
    }

    /// A handle for whoever prints beside the bar.
    pub(crate) fn beside(&self) -> Beside {
        match &self.shown {
            ProgressView::Bar(bar) => Beside(Some(bar.clone())),
            ProgressView::Nothing | ProgressView::Lines { .. } => Beside(None),
        }
    }

    /// The bar goes, and does not come back: what follows is said in lines.
    pub(crate) fn clear(&self) {
        match &self.shown {
            ProgressView::Bar(bar) => bar.finish_and_clear(),
            ProgressView::Nothing | ProgressView::Lines { .. } => {}
        }
    }

    /// It is over: the bar goes, and the summary comes.
    pub(crate) fn finish(self, counts: &Counts) {
        self.clear();
        match &self.shown {
            ProgressView::Nothing => {}
            ProgressView::Bar(_) | ProgressView::Lines { .. } => {
                say(&summary(self.items, self.before, counts, self.began.elapsed()));
            }
        }
    }
}

/// However it ends, no dead bar stays on the screen.
impl Drop for MapProgress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Prints beside the bar.
#[derive(Clone)]
pub(crate) struct Beside(Option<ProgressBar>);

impl Beside {
    /// Writes `output` to standard output, after whatever `first` prints, while the bar is out of the way. An output that does not
    /// end its line would have the bar drawn behind it, so the line is ended on the terminal; the output itself stays as it is.
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

/// How wide the terminal is.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(USUAL_COLUMNS)
}

/// How far it is, in one line that leaves the last column free: some terminals wrap as soon as that is filled.
fn line(done: u64, before: u64, items: u64, counts: &Counts, took: Duration, columns: usize) -> String {
    let rate = done.saturating_sub(before) as f64 / took.as_secs_f64().max(0.001);
    let mut text = format!("{done}/{items}");
    if counts.failed > 0 {
        text.push_str(&format!(" {}", failed(counts)));
    }
    if rate > 0.0 {
        let left = Duration::from_secs_f64((items.saturating_sub(done) as f64 / rate).min(MAX_SHOWN_SECONDS));
        text.push_str(&format!(" {rate:.1}/s, {} left", how_long(left)));
    }
    let room = columns.saturating_sub(1);
    let width = room.saturating_sub(text.len() + 1).min(BAR_COLUMNS);
    if width < LEAST_BAR_COLUMNS {
        text.truncate(room);
        return text;
    }
    let full = usize::try_from(done.saturating_mul(width as u64) / items.max(1)).unwrap_or(width).min(width);
    format!("{}{} {text}", "█".repeat(full), "░".repeat(width - full))
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
    fn the_bar_fits_the_terminal() {
        let counts = Counts { completed: 30, failed: 2, ..Counts::default() };
        let at = |columns| line(32, 12, 52, &counts, Duration::from_secs(10), columns);
        let wide = at(200);
        assert_eq!(wide, format!("{}{} 32/52 (2 failed) 2.0/s, 10s left", "█".repeat(18), "░".repeat(12)));
        for columns in 0..100 {
            assert!(at(columns).chars().count() < columns.max(1), "{columns}: {}", at(columns));
        }
        assert_eq!(at(36), "32/52 (2 failed) 2.0/s, 10s left", "no room for a bar");
        let none = line(0, 0, 52, &Counts::default(), Duration::from_secs(1), 50);
        assert_eq!(none, format!("{} 0/52", "░".repeat(30)), "nothing is known of how fast it will be");
    }

    #[test]
    fn a_line_says_how_fast_and_how_long_still() {
        let counts = Counts { completed: 30, failed: 2, ..Counts::default() };
        let line = plain(32, 12, 52, &counts, Duration::from_secs(10));
        assert_eq!(line, "32 of 52 done (2 failed) (2.0/s, about 10 s left)");
        assert_eq!(plain(0, 0, 5, &Counts::default(), Duration::ZERO), "0 of 5 done (0.0/s)");
    }
}
