//! A button with its command: a form that runs one operation of the table, and beside it the command line that does the same.
//! A visitor who may only look gets the command alone.

use maud::{Markup, html};

use crate::operations::{Danger, OPERATIONS, Operation};
use crate::page::command::command_line;
use crate::page::forms::{BACK, FormFields};
use crate::page::layout::PageContext;

/// What a button does.
pub(in crate::page) struct ActionButton {
    operation: &'static Operation,
    label: String,
    fields: FormFields,
}

/// The row of an operation.
///
/// # Panics
/// When the table has no such row.
pub(in crate::page) fn row(id: &str) -> &'static Operation {
    OPERATIONS.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("the table has no operation {id}"))
}

impl ActionButton {
    pub(in crate::page) fn new(operation: &str, label: &str, fields: &[(&str, &str)]) -> Self {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { operation: row(operation), label: label.to_owned(), fields: FormFields(fields) }
    }

    /// The same with another label.
    pub(in crate::page) fn labelled(self, label: &str) -> Self {
        Self { label: label.to_owned(), ..self }
    }

    pub(in crate::page) fn command(&self) -> String {
        command_line(self.operation, &self.fields)
    }

    /// The button and its command.
    pub(in crate::page) fn show(&self, page: &PageContext) -> Markup {
        self.show_with(page, &html! {})
    }

    /// The same with inputs of its own.
    pub(in crate::page) fn show_with(&self, page: &PageContext, inputs: &Markup) -> Markup {
        if !page.may_change() {
            return html! {};
        }
        html! {
            form class="act" method="post" action=(page.link(&format!("do/{}", self.operation.id)))
                data-danger=[asks(self.operation)] data-about=(self.operation.summary) {
                @for (name, value) in &self.fields.0 { input type="hidden" name=(name) value=(value); }
                input type="hidden" name=(BACK) value=(page.address);
                (inputs)
                button type="submit" class=(class(self.operation)) { (self.label) }
                (command(&self.command()))
            }
        }
    }
}

/// What a page asks about besides what is dangerous. Nothing is lost by it, so programs need no warning; but a click that was not meant
/// holds work back, or starts and stops processes.
const ALSO_ASKED: [&str; 4] = ["pools.resize", "queues.pause", "jobs.pause", "schedules.pause"];

/// Whether a page asks first, and how bad it is.
pub(in crate::page) fn asks(operation: &Operation) -> Option<&'static str> {
    match operation.danger {
        Danger::None if ALSO_ASKED.contains(&operation.id) => Some(Danger::Disruptive.name()),
        Danger::None => None,
        Danger::Disruptive | Danger::Destructive => Some(operation.danger.name()),
    }
}

pub(in crate::page) fn class(operation: &Operation) -> &'static str {
    match operation.danger {
        Danger::None | Danger::Disruptive => "button",
        Danger::Destructive => "button bad",
    }
}

/// A command line to copy: a click selects it whole.
pub(in crate::page) fn command(line: &str) -> Markup {
    html! { @if !line.is_empty() { code class="cmd" title="Click to copy" { (line) } } }
}

/// An input of a form, with its label and an example.
pub(in crate::page) fn field(name: &str, label: &str, example: &str) -> Markup {
    html! { label { (label) " " input name=(name) placeholder=(example) spellcheck="false" autocomplete="off"; } }
}

/// A form that unfolds.
pub(in crate::page) fn fold(
    page: &PageContext,
    key: &str,
    title: &str,
    button: &ActionButton,
    inputs: &Markup,
) -> Markup {
    html! {
        @if page.may_change() {
            details class="menu" data-key=(format!("fold-{key}")) { summary { (title) } (button.show_with(page, inputs)) }
        }
    }
}

/// Buttons that unfold, so that a table stays calm.
pub(in crate::page) fn menu(page: &PageContext, key: &str, buttons: &[ActionButton]) -> Markup {
    html! {
        @if page.may_change() && !buttons.is_empty() {
            details class="menu" data-key=(format!("menu-{key}")) {
                summary { "Actions" }
                div { @for button in buttons { (button.show(page)) } }
            }
        }
    }
}
