//! Progress bars of the demo, one for each executor, on a terminal; elsewhere nothing.

use std::io::{IsTerminal as _, Write as _};

use ostler_store::Stats;
use ostler_store::views::Survey;

use super::tasks::LANES;

/// The width of a bar.
const WIDTH: usize = 30;

pub(super) struct DemoProgress {
    live: bool,
    /// Whether bars are drawn above the cursor.
    drawn: bool,
}

impl DemoProgress {
    pub(super) fn new() -> Self {
        Self { live: std::io::stdout().is_terminal(), drawn: false }
    }

    pub(super) const fn silent() -> Self {
        Self { live: false, drawn: false }
    }

    /// Draws the bars over the previous ones.
    pub(super) fn show(&mut self, survey: &Survey) -> std::io::Result<()> {
        if !self.live {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        if self.drawn {
            write!(out, "\x1b[{}A", LANES.len())?;
        }
        for lane in LANES {
            let tasks = Stats::of(survey, Some(lane.queue)).tasks;
            let done = usize::try_from(tasks.completed + tasks.failed).unwrap_or(lane.count).min(lane.count);
            let filled = WIDTH * done / lane.count;
            let bar = "█".repeat(filled) + &"░".repeat(WIDTH - filled);
            writeln!(
                out,
                "\x1b[2K   {:<8} {bar} {done} of {}, {} running",
                lane.executor, lane.count, tasks.running
            )?;
        }
        self.drawn = true;
        out.flush()
    }

    /// Further output is printed below the bars.
    pub(super) fn pause(&mut self) {
        self.drawn = false;
    }
}
