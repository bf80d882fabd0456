//! Prompt templates, with strict variables: what a template asks for and an item does not have is an error, before money is spent.
//!
//! The language is that of Jinja. Literal braces stand in `{% raw %}…{% endraw %}`. An item is data: what is in it is inserted as it is,
//! and never read as a template.

use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{AutoEscape, Environment, Output, State, UndefinedBehavior, Value, context};
use serde_json::Map;
use thiserror::Error;

/// The prompt for a conversation that is resumed: its history has the first one already.
pub const GO_ON: &str = "Go on.";

/// The name of the template in messages of the library.
const NAME: &str = "prompt";
/// Steps of a template, so that a loop over a loop ends.
const MAX_STEPS: u64 = 1_000_000;

/// One item of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptItem {
    /// `item`.
    Text(String),
    /// `item` and `file`, its path; `name` and `stem`, its last part with and without extension.
    File { path: String },
    /// `item`, and each field by its name. From JSON lines, or from CSV, where all values are texts.
    Fields(Map<String, serde_json::Value>),
}

/// The place of an item in its job: `index`, counted from 1, and `total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemPlace {
    pub index: usize,
    pub total: usize,
}

/// A template that was read without an error.
#[derive(Clone)]
pub struct PromptTemplate(Environment<'static>);

impl fmt::Debug for PromptTemplate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PromptTemplate").finish_non_exhaustive()
    }
}

/// What is wrong with a template, or with an item for it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the prompt: {message}")]
pub struct PromptError {
    /// Counted from 1.
    pub line: usize,
    pub message: String,
}

impl PromptTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// When it is not valid.
    pub fn new(source: &str) -> Result<Self, PromptError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
        environment.set_syntax(syntax.expect("the default syntax is valid"));
        environment.set_formatter(format);
        environment.set_fuel(Some(MAX_STEPS));
        let added = environment.add_template_owned(NAME, source.to_owned());
        added.map_err(|error| PromptError::of(&error, &[]))?;
        Ok(Self(environment))
    }

    /// The prompt for an item.
    ///
    /// # Errors
    /// When the template asks for a variable that the item does not have.
    pub fn render(&self, item: &PromptItem, place: ItemPlace) -> Result<String, PromptError> {
        let known = item.variables();
        let fields = Value::from_pairs(known.iter().map(|(name, value)| (name.clone(), value.clone())));
        let template = self.0.get_template(NAME).map_err(|error| PromptError::of(&error, &known))?;
        let variables = context! { index => place.index, total => place.total, ..fields };
        template.render(variables).map_err(|error| PromptError::of(&error, &known))
    }

    /// Whether the template has a variable of this name.
    #[must_use]
    pub fn uses(&self, name: &str) -> bool {
        self.0.get_template(NAME).is_ok_and(|template| template.undeclared_variables(false).contains(name))
    }
}

impl PromptItem {
    fn variables(&self) -> Vec<(String, Value)> {
        let named = |name: &str, value: Value| (name.to_owned(), value);
        match self {
            Self::Text(text) => vec![named("item", text.as_str().into())],
            Self::File { path } => {
                let name = path.rsplit('/').next().unwrap_or(path);
                let stem =
                    name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem });
                [("item", path.as_str()), ("file", path), ("name", name), ("stem", stem)]
                    .map(|(variable, value)| named(variable, value.into()))
                    .into()
            }
            Self::Fields(fields) => {
                // A column that is called `item` wins: it is what its user means.
                let whole = named("item", Serde(fields).into());
                let each = fields.iter().map(|(name, value)| named(name, Serde(value).into()));
                [whole].into_iter().chain(each).collect()
            }
        }
    }
}

impl PromptError {
    fn of(error: &minijinja::Error, known: &[(String, Value)]) -> Self {
        let line = error.line().unwrap_or(1);
        let mut message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        if error.kind() == minijinja::ErrorKind::UndefinedError {
            let mut names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
            names.extend(["index", "total"]);
            let asked =
                error.template_source().zip(error.range()).and_then(|(source, range)| source.get(range));
            let asked = asked.map_or_else(|| "a variable".to_owned(), |asked| format!("`{asked}`"));
            message = format!("{asked} is not defined for this item, which has {}", names.join(", "));
        }
        Self { line, message }
    }
}

/// Texts as they are, and everything else as JSON.
fn format(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), minijinja::Error> {
    if let Some(text) = value.as_str() {
        return Ok(out.write_str(text)?);
    }
    if value.kind() == ValueKind::Undefined {
        return Err(minijinja::ErrorKind::UndefinedError.into());
    }
    let json = serde_json::to_string(value)
        .map_err(|error| minijinja::Error::new(minijinja::ErrorKind::BadSerialization, error.to_string()))?;
    Ok(out.write_str(&json)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLACE: ItemPlace = ItemPlace { index: 3, total: 7 };

    fn render(template: &str, item: &PromptItem) -> Result<String, String> {
        let template = PromptTemplate::new(template).map_err(|error| error.to_string())?;
        template.render(item, PLACE).map_err(|error| error.to_string())
    }

    fn text(item: &str) -> PromptItem {
        PromptItem::Text(item.to_owned())
    }

    fn fields(value: &serde_json::Value) -> PromptItem {
        PromptItem::Fields(value.as_object().expect("an object").clone())
    }

    #[test]
    fn an_item_is_data_whatever_it_looks_like() {
        for item in
            ["{{ 7 * 6 }}", "{% raw %}", "--dangerously-skip-permissions", "-", "a\0b", "<&\"'>", "", "  \n"]
        {
            assert_eq!(render("Review {{ item }}!\n", &text(item)), Ok(format!("Review {item}!\n")));
        }
        let long = "x".repeat(2 << 20);
        assert_eq!(render("{{ item }}", &text(&long)).map(|prompt| prompt.len()), Ok(long.len()));
    }

    #[test]
    fn literal_braces_survive_in_raw() {
        assert_eq!(
            render("{% raw %}{{ item }} {% x %}{% endraw %} {{ item }}", &text("a")),
            Ok("{{ item }} {% x %} a".into())
        );
    }

    #[test]
    fn a_missing_variable_is_an_error_with_its_line_and_what_there_is() {
        let missing = render("Review\n{{ item }}\nby {{ author }}", &text("a")).unwrap_err();
        assert_eq!(
            missing,
            "line 3 of the prompt: `author` is not defined for this item, which has item, index, total"
        );
        let row = fields(&json!({"title": "T", "meta": {"year": 2026}}));
        assert!(render("{{ meta.month }}", &row).is_err());
        assert!(render("{% if author %}x{% endif %}", &text("a")).is_err());
        assert_eq!(render("{{ meta.year }}", &row), Ok("2026".into()));
        let broken = PromptTemplate::new("a\n{{ item").unwrap_err();
        assert_eq!(broken.line, 2, "{broken}");
    }

    #[test]
    fn fields_of_an_item_are_variables_and_the_whole_is_json() {
        let row = fields(&json!({"title": "A {{ b }}", "tags": ["x", "y"], "none": null, "n": 1.5}));
        assert_eq!(
            render("{{ title }} {{ tags }} {{ tags[0] }} {{ none }} {{ n }} {{ index }}/{{ total }}", &row),
            Ok("A {{ b }} [\"x\",\"y\"] x null 1.5 3/7".into())
        );
        let whole = render("{{ item }}", &fields(&json!({"a": 1}))).expect("it is rendered");
        assert_eq!(whole, r#"{"a":1}"#);
    }

    #[test]
    fn a_file_has_its_path_and_its_names() {
        let file = PromptItem::File { path: "src/a b/main.test.rs".into() };
        assert_eq!(
            render("{{ file }}|{{ name }}|{{ stem }}", &file),
            Ok("src/a b/main.test.rs|main.test.rs|main.test".into())
        );
        let hidden = PromptItem::File { path: ".profile".into() };
        assert_eq!(render("{{ name }}|{{ stem }}", &hidden), Ok(".profile|.profile".into()));
    }

    #[test]
    fn a_template_says_which_variables_it_has_and_an_endless_one_ends() {
        let template = PromptTemplate::new("{{ item }}").expect("it is valid");
        assert!(template.uses("item") && !template.uses("file"));
        let endless = "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}";
        assert!(render(endless, &text("a")).is_err());
    }
}
