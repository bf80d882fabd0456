//! The terminal of `top`: taken with one clear, drawn in synchronised output, and given back as it was, however the program ends.

use std::io::{self, Write};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::draw::draw;
use super::model::Model;

/// What a frame is written to before it is sent: one write for one frame.
type Out = io::BufWriter<io::Stdout>;

/// Bytes of a frame that are sent at once.
const BUFFER_BYTES: usize = 64 * 1024;

pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Out>>,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn open() -> io::Result<Self> {
        // A panic is printed on the terminal as it was before.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back(&mut io::stdout());
            before(panic);
        }));
        enable_raw_mode()?;
        let mut out = io::BufWriter::with_capacity(BUFFER_BYTES, io::stdout());
        let opened = execute!(out, EnterAlternateScreen, Hide, Clear(ClearType::All))
            .and_then(|()| Terminal::new(CrosstermBackend::new(out)));
        match opened {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                give_back(&mut io::stdout());
                Err(error)
            }
        }
    }

    /// Draws what differs from the last frame; a terminal that knows synchronised output shows it at once.
    pub(crate) fn draw(&mut self, model: &Model) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| draw(model, frame))?;
        queue!(self.terminal.backend_mut(), EndSynchronizedUpdate)?;
        Write::flush(self.terminal.backend_mut())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(&mut io::stdout());
    }
}

/// The terminal as it was. Errors are ignored: it may be gone.
fn give_back(out: &mut impl Write) {
    let _ = execute!(out, EndSynchronizedUpdate, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
