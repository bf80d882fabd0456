//! One frame of a model. Pure: the same model and size give the same cells.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use ostler_core::visible;

use super::model::{Model, Section, StoreLink, Transcript};
use super::rows::{Rows, clock, counts, rows, widths};

/// The widest column but the last.
const MAX_WIDTH: usize = 28;

pub(crate) fn draw(model: &Model, frame: &mut Frame<'_>) {
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(model)), head);
    frame.render_widget(Paragraph::new(sections(model)), tabs);
    match &model.transcript {
        Some(transcript) => lines(transcript, frame, body),
        None => table(model, frame, body),
    }
    frame.render_widget(Paragraph::new(last_line(model)), foot);
}

const fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

const fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn heading(model: &Model) -> Vec<Line<'static>> {
    let Some(seen) = &model.seen else {
        return vec![Line::from(format!("ostler top  {}", visible(&model.store)))];
    };
    let as_of = clock(seen.as_of.timestamp());
    let when = match &model.link {
        StoreLink::Live => format!("as of {as_of}"),
        StoreLink::Lost(why) => format!("NOT CONNECTED since {as_of}: {}", visible(why)),
    };
    vec![Line::from(format!("ostler top  {when}  {}", visible(&model.store))), Line::from(counts(seen))]
}

fn sections(model: &Model) -> Line<'static> {
    if let Some(transcript) = &model.transcript {
        return Line::styled(format!(" transcript of {} ", transcript.task), bold());
    }
    let mut spans = Vec::new();
    for (place, section) in Section::ALL.into_iter().enumerate() {
        let bad = if section == Section::Problems && !model.findings.is_empty() {
            format!(" ({})", model.findings.len())
        } else {
            String::new()
        };
        let style = if section == model.section { reversed() } else { Style::new() };
        spans.push(Span::styled(format!(" {} {}{bad} ", place + 1, section.name()), style));
    }
    Line::from(spans)
}

fn table(model: &Model, frame: &mut Frame<'_>, area: Rect) {
    let Some(seen) = &model.seen else {
        frame.render_widget(Paragraph::new("reading the store"), area);
        return;
    };
    let Rows { heading, rows } = rows(model.section, seen, &model.findings);
    if rows.is_empty() {
        frame.render_widget(Paragraph::new(format!("no {}", model.section.name())), area);
        return;
    }
    let widths = widths(heading, &rows);
    let last = widths.len() - 1;
    let widths = widths.iter().enumerate().map(|(column, width)| match column == last {
        true => Constraint::Min(1),
        false => Constraint::Length(u16::try_from((*width).min(MAX_WIDTH)).unwrap_or(u16::MAX)),
    });
    let widths: Vec<Constraint> = widths.collect();
    // Only rows that can be seen are made: there may be thousands.
    let room = usize::from(area.height).saturating_sub(1).max(1);
    let selected = model.selected();
    let first = if model.section == Section::Problems { 0 } else { (selected + 1).saturating_sub(room) };
    let shown = rows.into_iter().skip(first).take(room);
    let shown = shown.map(|row| Row::new(row.into_iter().map(Cell::from).collect::<Vec<_>>()));
    let table = Table::new(shown, widths)
        .header(Row::new(heading.iter().copied()).style(bold()))
        .row_highlight_style(reversed())
        .column_spacing(2);
    let mut state = TableState::new();
    if model.section != Section::Problems {
        state.select(Some(selected - first));
    }
    frame.render_stateful_widget(table, area, &mut state);
}

fn lines(transcript: &Transcript, frame: &mut Frame<'_>, area: Rect) {
    let room = usize::from(area.height);
    let end = transcript.lines.len().saturating_sub(transcript.back);
    let first = end.saturating_sub(room);
    // Long lines are cut at the edge: a line of the log is a line of the screen.
    let shown = transcript.lines.range(first..end).map(|line| Line::from(line.as_str()));
    let shown: Vec<Line<'_>> =
        if transcript.lines.is_empty() { vec!["no events yet".into()] } else { shown.collect() };
    frame.render_widget(Paragraph::new(shown), area);
}

fn last_line(model: &Model) -> Line<'static> {
    match (&model.question, model.notice.as_str()) {
        (Some(question), _) => Line::styled(visible(&question.sentence), reversed()),
        (None, "") => Line::from(model.keys()),
        (None, notice) => Line::styled(visible(notice), bold()),
    }
}
