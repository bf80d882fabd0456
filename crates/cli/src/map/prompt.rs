//! Prompt templates of `ostler map`: read once, and rendered for each item before anything is enqueued.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use ostler_agent::prompt::{ItemPlace, PromptItem, PromptTemplate};
use ostler_ops::jobs::plan::RenderPrompt;
use ostler_ops::jobs::{Item, ItemForm, ItemOrder};
use serde_json::{Map, Value, json};

use crate::args;
use crate::exit::{Code, refused};

/// The maximum size of a template. It is stored with the job.
const MAX_BYTES: u64 = 100 * 1024;
/// The variables of an item that is not a row.
const OF_ITEMS: [&str; 4] = ["item", "file", "name", "stem"];
/// What a template that asks for no item gets appended: otherwise all prompts would be the same.
const THE_ITEM: &str = "\n\n{{ item }}";

/// The template that was given, if any. One that has no variable of an item gets the item appended.
pub(crate) fn template(map: &args::Map, columns: &[String]) -> anyhow::Result<Option<String>> {
    let Some(text) = given(map)? else { return Ok(None) };
    let template = parsed(&text)?;
    let of_item = OF_ITEMS.into_iter().chain(columns.iter().map(String::as_str));
    let asks = of_item.into_iter().any(|name| template.uses(name));
    Ok(Some(if asks { text } else { format!("{}{THE_ITEM}", text.trim_end()) }))
}

fn given(map: &args::Map) -> anyhow::Result<Option<String>> {
    match (&map.prompt, &map.prompt_file) {
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(file)) => read(file).map(Some),
        (None, None) => Ok(None),
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    let wrong = |why: String| refused(Code::BadInput, format!("--prompt-file {}: {why}", file.display()));
    let mut bytes = Vec::new();
    let open = std::fs::File::open(file);
    open.and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(wrong(format!("larger than {} KiB, the maximum", MAX_BYTES / 1024)));
    }
    String::from_utf8(bytes).map_err(|_| wrong("not UTF-8 text".to_owned()))
}

fn parsed(text: &str) -> anyhow::Result<PromptTemplate> {
    PromptTemplate::new(text).map_err(|error| refused(Code::BadInput, error.to_string()))
}

/// Renders this template.
pub(crate) fn renderer(text: &str) -> anyhow::Result<RenderPrompt> {
    let template = parsed(text)?;
    let order = if template.uses("index") { ItemOrder::Matters } else { ItemOrder::Free };
    let render = move |item: &Item, number: u64, total: u64| {
        let place = |number| usize::try_from(number).unwrap_or(usize::MAX);
        let place = ItemPlace { index: place(number), total: place(total) };
        template.render(&variables(item)?, place).map_err(|error| error.to_string())
    };
    Ok(RenderPrompt { render: Arc::new(render), order })
}

/// Renders a template over results. They are `results`, a list; `total` is their number.
pub(crate) fn synthesis(text: &str, results: Vec<Value>) -> anyhow::Result<RenderPrompt> {
    let template = parsed(text)?;
    let total = results.len();
    let item = PromptItem::Fields(Map::from_iter([("results".to_owned(), Value::from(results))]));
    let place = ItemPlace { index: total + 1, total };
    let render = move |_: &Item, _, _| {
        template.render(&item, place).map_err(|error| format!("the synthesis: {error}"))
    };
    Ok(RenderPrompt { render: Arc::new(render), order: ItemOrder::Free })
}

/// The template of the synthesis, if there is one. It is tried on a result as it may be.
pub(crate) fn synthesis_template(map: &args::Map) -> anyhow::Result<Option<String>> {
    let Some(text) = &map.synthesis else { return Ok(None) };
    let sample = json!({"number": 1, "item": "", "state": "completed", "output": "", "error": null});
    let tried = (synthesis(text, vec![sample])?.render)(&Item::default(), 1, 1);
    tried.map_err(|why| refused(Code::BadInput, why))?;
    Ok(Some(text.clone()))
}

fn variables(item: &Item) -> Result<PromptItem, String> {
    let text = || {
        let text = std::str::from_utf8(&item.bytes).map_err(|_| "not UTF-8 text, as a prompt has to be")?;
        Ok::<_, String>(text.to_owned())
    };
    Ok(match item.form {
        ItemForm::Text => PromptItem::Text(text()?),
        ItemForm::File => PromptItem::File { path: text()? },
        ItemForm::Row => PromptItem::Fields(item.row().unwrap_or_default()),
    })
}
