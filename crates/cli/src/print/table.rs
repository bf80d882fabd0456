//! Text tables with aligned columns, using spaces and no tabs. On a terminal they fit its width: the widest columns are cut.

use ostler_core::StateName;

use super::Looks;
use super::visible;

/// The maximum width of the last column on a terminal. Elsewhere nothing is truncated.
const MAX_LAST: usize = 80;
/// No column is cut to fewer characters than this, even if the table is then wider than the terminal.
const MIN_WIDTH: usize = 8;
/// The characters of an id that a terminal shows: its last ones, by which every command finds it.
const SHORT_ID: usize = 8;
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

impl Cell {
    /// An id: whole for programs, its end for people on a terminal.
    pub(super) fn id(id: &str, looks: Looks) -> Self {
        Self::from(short_id(id, looks))
    }
}

/// The end of an id on a terminal. The ids of one moment begin alike.
pub(super) fn short_id(id: &str, looks: Looks) -> &str {
    let is_id = id.is_ascii() && id.len() > SHORT_ID;
    match looks {
        Looks::Terminal | Looks::Colour if is_id => &id[id.len() - SHORT_ID..],
        Looks::Plain | Looks::Terminal | Looks::Colour => id,
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::painted(text, Paint::Plain)
    }
}

/// Rows under a header.
#[derive(Clone, Debug)]
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

    pub(super) fn render(self, looks: Looks) -> String {
        let columns = match looks {
            Looks::Plain => None,
            Looks::Terminal | Looks::Colour => terminal_columns(),
        };
        self.render_within(looks, columns)
    }

    /// `columns`: the width of the terminal, if it is known.
    fn render_within(mut self, looks: Looks, columns: Option<usize>) -> String {
        if looks != Looks::Plain {
            for last in self.rows.iter_mut().filter_map(|row| row.last_mut()) {
                shorten(&mut last.text, MAX_LAST);
            }
        }
        if let Some(columns) = columns {
            self.fit(columns);
        }
        let widths = self.widths();
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

    /// The width of each column.
    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        (0..columns).map(width).collect()
    }

    /// Cuts the widest columns until a row fits.
    fn fit(&mut self, columns: usize) {
        let mut widths = self.widths();
        let gaps = GAP * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > columns {
            match widths.iter_mut().max_by_key(|width| **width) {
                Some(widest) if *widest > MIN_WIDTH => *widest -= 1,
                Some(_) | None => break,
            }
        }
        for row in &mut self.rows {
            for (cell, width) in row.iter_mut().zip(&widths) {
                shorten(&mut cell.text, *width);
            }
        }
    }
}

/// The width of the terminal on standard output; `None` if it does not say.
fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

fn shorten(text: &mut String, most: usize) {
    if text.chars().count() > most {
        *text = text.chars().take(most.saturating_sub(1)).chain(['…']).collect();
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
        table.render_within(looks, None)
    }

    #[test]
    fn a_table_fits_the_terminal_and_the_widest_columns_are_cut() {
        let mut table = Table::new(&["ID", "ABOUT", "ERROR"]);
        table.row(vec![
            Cell::id("01JC8Z0Q4M9T7N3V5X1B2D6F8H", Looks::Terminal),
            "a".repeat(30).into(),
            "b".repeat(60).into(),
        ]);
        table.row(vec!["2".into(), "short".into(), "".into()]);
        let text = table.clone().render_within(Looks::Terminal, Some(40));
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width <= 40) && widths.contains(&40), "{text}");
        let row = text.lines().nth(1).unwrap_or_default();
        assert_eq!(row, format!("1B2D6F8H  {}…  {}…", "a".repeat(13), "b".repeat(13)));
        // Too narrow for every column: nothing is cut below what can be read.
        let narrow = table.render_within(Looks::Terminal, Some(10));
        assert!(narrow.contains(&format!("{}…", "a".repeat(7))), "{narrow}");
    }

    #[test]
    fn ids_are_whole_for_programs() {
        let id = "01JC8Z0Q4M9T7N3V5X1B2D6F8H";
        assert_eq!((short_id(id, Looks::Plain), short_id("7", Looks::Terminal)), (id, "7"));
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
