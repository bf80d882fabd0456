//! Text tables with aligned columns, using spaces and no tabs.

use ostler_core::StateName;

use super::Looks;
use super::visible;

/// The maximum width of the last column on a terminal. Elsewhere nothing is truncated.
const MAX_LAST: usize = 80;
const GAP: usize = 2;

/// The colour of a cell, where colours are enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Plain,
    Strong,
    Good,
    Bad,
    Lively,
    Faint,
}

impl Paint {
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Strong => Some("1"),
            Self::Good => Some("32"),
            Self::Bad => Some("31"),
            Self::Lively => Some("36"),
            Self::Faint => Some("2"),
        }
    }

    pub(super) const fn of(state: StateName) -> Self {
        match state {
            StateName::Queued => Self::Plain,
            StateName::Claimed | StateName::Running => Self::Lively,
            StateName::Completed => Self::Good,
            StateName::Failed => Self::Bad,
            StateName::Cancelled => Self::Faint,
        }
    }

    pub(super) fn on(self, text: &str, looks: Looks) -> String {
        match (self.code(), looks) {
            (Some(code), Looks::Colour) => format!("\x1b[{code}m{text}\x1b[0m"),
            (Some(_) | None, Looks::Colour | Looks::Terminal | Looks::Plain) => text.to_owned(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    paint: Paint,
}

impl Cell {
    pub(super) fn painted(text: impl AsRef<str>, paint: Paint) -> Self {
        Self { text: visible(text.as_ref()), paint }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::painted(text, Paint::Plain)
    }
}

/// Rows under a header.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|name| Cell::painted(name, Paint::Strong)).collect()] }
    }

    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(super) fn render(mut self, looks: Looks) -> String {
        if looks != Looks::Plain {
            for last in self.rows.iter_mut().filter_map(|row| row.last_mut()) {
                shorten(&mut last.text);
            }
        }
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            // Spaces are written before the next non-empty cell, so that no line ends with them.
            let mut owed = 0;
            for (cell, width) in row.iter().zip(&widths) {
                if !cell.text.is_empty() {
                    text.extend(std::iter::repeat_n(' ', owed));
                    text.push_str(&cell.paint.on(&cell.text, looks));
                    owed = 0;
                }
                owed += width - cell.text.chars().count() + GAP;
            }
            text.push('\n');
        }
        text
    }
}

fn shorten(text: &mut String) {
    if text.chars().count() > MAX_LAST {
        *text = text.chars().take(MAX_LAST - 1).chain(['…']).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(looks: Looks) -> String {
        let mut table = Table::new(&["ID", "STATE", "ERROR"]);
        table.row(vec!["1".into(), Cell::painted("failed", Paint::Bad), "x".repeat(200).into()]);
        table.row(vec!["größer".into(), "".into(), "\x1b[31mred\nnew".into()]);
        table.row(vec!["2".into(), "queued".into(), "".into()]);
        table.render(looks)
    }

    #[test]
    fn columns_line_up_and_nothing_is_cut_off_a_terminal() {
        let text = table(Looks::Plain);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ID      STATE   ERROR");
        assert_eq!(lines[1], format!("1       failed  {}", "x".repeat(200)));
        assert_eq!(lines[2], "größer          \\u{1b}[31mred\\nnew");
        assert_eq!(lines[3], "2       queued");
    }

    #[test]
    fn a_terminal_gets_short_lines_and_colours_only_where_allowed() {
        assert!(table(Looks::Terminal).contains(&format!("{}…\n", "x".repeat(79))));
        assert!(!table(Looks::Terminal).contains('\x1b'));
        assert!(table(Looks::Colour).contains("\x1b[31mfailed\x1b[0m"));
    }
}
