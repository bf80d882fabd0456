//! The plan of a map job, from the command line. Runs nothing and opens no store.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use ostler_ops::jobs::parts::{combined, grouped};
use ostler_ops::jobs::plan::{ItemWork, JobPlan, PlanError, PlanRequest, PoolWork};
use ostler_ops::jobs::{Item, ItemData, JobSpec, PathPart, TemplateError, UnknownPlaceholder};
use ostler_store::jobs::JobRecord;
use regex::bytes::Regex;

use super::source::{ItemSource, ItemUse, Items, MAX_ITEMS, RecordEnd, is_stdin};
use super::words::{MapWords, WordSource};
use super::{item_folders, pool, prompt};
use crate::args::Map;
use crate::config::nearest;
use crate::exit::{Code, refused};
use ostler_process::injection::{CommandWord, Data, Pasted, pasted};

/// Reads the items and builds the plan. `None` if there are no items. A payload has at most `payload_bytes`.
pub(crate) fn make(map: &Map, payload_bytes: usize) -> anyhow::Result<Option<JobPlan>> {
    let MapWords { template: words, sources: given } = MapWords::parse(&map.words)?;
    let used = match (map.pool.is_some() || map.agent.is_some(), words.is_empty()) {
        (true, true) => ItemUse::Payload,
        (false, false) => ItemUse::Argument,
        (false, true) => return Err(refused(Code::BadInput, "no command before \":::\"")),
        (true, false) => {
            let sentence =
                "with --pool and --agent there is no command; give items after \":::\" or with an option";
            return Err(refused(Code::BadInput, sentence));
        }
    };
    if map.shell.is_some() && words.len() > 1 {
        let sentence = "--shell runs a command of one string: put quotes around the whole command";
        return Err(refused(Code::BadInput, sentence));
    }
    let Items { all, fields } = read(map, sources(map, given)?, used)?;
    let template = prompt::template(map, &fields)?;
    let prompt = template.as_deref().map(prompt::renderer).transpose()?;
    let folder = folder()?;
    let item_folders = item_folders::asked_for(map, &folder)?;
    let pool = pool::asked_for(map, template, item_folders.as_ref())?;
    if all.is_empty() {
        return Ok(None);
    }
    let name = map.name.clone();
    let request = PlanRequest {
        name: name.unwrap_or_else(|| pool.as_ref().map_or_else(|| name_of(&words), |pool| pool.name.clone())),
        work: match pool {
            Some(pool) => ItemWork::Pool(PoolWork { pool, prompt, payload_bytes }),
            None => ItemWork::Command(words),
        },
        items: all,
        columns: fields,
        folder,
        item_folders,
        shell: map.shell.clone(),
        timeout_ms: map.timeout.map(|timeout| timeout.as_millis()),
        pilot: map.pilot,
        before: 0,
    };
    checked(request).map(Some)
}

fn checked(request: PlanRequest) -> anyhow::Result<JobPlan> {
    JobPlan::new(request).map_err(|error| {
        let sentence = match &error {
            PlanError::Template(TemplateError::Unknown(unknown)) => explained(unknown),
            PlanError::Template(TemplateError::Unquotable { .. })
            | PlanError::NotNumeric { .. }
            | PlanError::Prompt { .. }
            | PlanError::TooLarge { .. } => error.to_string(),
        };
        refused(Code::BadInput, sentence)
    })
}

/// The plan for more items of an existing job, by its template.
pub(crate) fn more(record: &JobRecord, items: Items, payload_bytes: usize) -> anyhow::Result<JobPlan> {
    let Some(spec) = JobSpec::of(record) else {
        let sentence = format!("job {} was not made by \"ostler map\", so it has no template", record.job.id);
        return Err(refused(Code::BadInput, sentence));
    };
    if spec.parts.is_some() {
        let sentence = format!(
            "the items of job {} have several parts; run its \"ostler map\" command with all items instead",
            record.job.id
        );
        return Err(refused(Code::BadInput, sentence));
    }
    let work = match spec.pool {
        None => ItemWork::Command(spec.command.into_iter().map(|word| word.0).collect()),
        Some(pool) => {
            let prompt = pool.prompt.as_deref().map(prompt::renderer).transpose()?;
            ItemWork::Pool(PoolWork { pool, prompt, payload_bytes })
        }
    };
    checked(PlanRequest {
        name: record.job.name.clone(),
        work,
        items: items.all,
        columns: items.fields,
        folder: spec.folder,
        item_folders: spec.item_folders,
        shell: spec.shell,
        timeout_ms: spec.timeout_ms.map(u128::from),
        pilot: spec.pilot,
        before: record.job.items,
    })
}

/// The items for [`more`]: words, or else lines of standard input.
pub(crate) fn read_more(
    words: Vec<OsString>,
    csv: Option<PathBuf>,
    jsonl: Option<PathBuf>,
    used: ItemUse,
) -> anyhow::Result<Items> {
    let source = match (csv, jsonl) {
        (Some(file), _) => ItemSource::Csv(file),
        (None, Some(file)) => ItemSource::Jsonl(file),
        (None, None) if words.is_empty() => ItemSource::Stdin(RecordEnd::Line),
        (None, None) => ItemSource::Words(words.into_iter().map(OsString::into_vec).collect()),
    };
    source.read(used, stdin).map_err(|error| refused(Code::BadInput, error.to_string()))
}

/// The placeholders of every item.
const PLACEHOLDERS: &str = "{}, {.}, {/}, {//}, {/.}, {#}, and {1}, {2}, … for the parts of an item";

/// An unknown placeholder in the words of the command line, with the column that was probably meant.
fn explained(unknown: &UnknownPlaceholder) -> String {
    match unknown {
        UnknownPlaceholder::Column { name, columns } => {
            let known: Vec<&str> = columns.iter().map(String::as_str).collect();
            let listed = columns.join(", ");
            let hint = match nearest(name, &known) {
                Some(near) => format!("did you mean {{{near}}}? The columns are {listed}"),
                None => format!("the columns are {listed}"),
            };
            format!("there is no column \"{name}\"; {hint}. For the literal text, write \\{{{name}}}")
        }
        UnknownPlaceholder::NoColumns(name) => format!(
            "{{{name}}} is not a placeholder: only rows of --csv and --jsonl have columns; the item is {{}}. For the literal text, \
             write \\{{{name}}}"
        ),
        UnknownPlaceholder::Part { name, parts: 1 } => format!(
            "{{{name}}} is not a placeholder here: an item has one part. Several come from several ::: or ::::, --colsep and -n. For the \
             literal text, write \\{{{name}}}"
        ),
        UnknownPlaceholder::Part { name, parts } => format!(
            "{{{name}}} is not a placeholder here: an item has {parts} parts, {{1}} to {{{parts}}}. For the literal text, write \
             \\{{{name}}}"
        ),
        UnknownPlaceholder::Foreign(name) => format!(
            "{{{name}}} is a placeholder of GNU parallel that does not exist here; there are {PLACEHOLDERS}. For the literal text, write \
             \\{{{name}}}"
        ),
    }
}

/// Items that an interpreter would read as part of its program, as `bash -c 'echo {}'` does.
pub(crate) fn pasted_items(plan: &JobPlan) -> Option<Pasted> {
    let words: Vec<_> = plan.data().map(|(word, data)| (String::from_utf8_lossy(word), data)).collect();
    let argv = words.iter().map(|(text, data)| CommandWord { text, data: data_of(*data) });
    pasted(&argv.collect::<Vec<_>>())
}

const fn data_of(data: ItemData) -> Data {
    match data {
        ItemData::None => Data::None,
        ItemData::Whole => Data::Whole,
        ItemData::Piece => Data::Piece,
    }
}

fn sources(map: &Map, given: Vec<WordSource>) -> anyhow::Result<Vec<ItemSource>> {
    let end = if map.null { RecordEnd::Nul } else { RecordEnd::Line };
    let other = [
        map.files.clone().map(ItemSource::Files),
        map.csv.clone().map(ItemSource::Csv),
        map.jsonl.clone().map(ItemSource::Jsonl),
        map.items_from.clone().map(ItemSource::Command),
    ];
    let other = other.into_iter().flatten().next();
    let lists = map.arg_file.iter().map(|file| ItemSource::List(file.clone(), end));
    let given = given.into_iter().map(|source| match source {
        WordSource::Items(items) => ItemSource::Words(items),
        WordSource::File(file) => ItemSource::List(file, end),
    });
    let listed: Vec<ItemSource> = lists.chain(given).collect();
    let only_words = listed.iter().all(|source| matches!(source, ItemSource::Words(_)));
    match other {
        Some(_) if !listed.is_empty() => {
            Err(refused(Code::BadInput, "give items after \":::\" or with an option, not both"))
        }
        Some(other) => Ok(vec![other]),
        None if map.null && !listed.is_empty() && only_words => {
            Err(refused(Code::BadInput, "-0 is for standard input and files; items after \":::\" are words"))
        }
        None if listed.is_empty() && io::stdin().is_terminal() => {
            let sentence = "no items: give them after \":::\", with -a, --files, --csv, --jsonl or --items-from, or one per line on standard input";
            Err(refused(Code::BadInput, sentence))
        }
        None if listed.is_empty() => Ok(vec![ItemSource::Stdin(end)]),
        None => Ok(listed),
    }
}

/// Reads the items of all sources, with their parts.
fn read(map: &Map, sources: Vec<ItemSource>, used: ItemUse) -> anyhow::Result<Items> {
    let from_stdin = |source: &&ItemSource| matches!(source, ItemSource::List(file, _) if is_stdin(file));
    if sources.iter().filter(from_stdin).count() > 1 {
        return Err(refused(Code::BadInput, "standard input can be only one of the sources of items"));
    }
    if used == ItemUse::Payload && sources.len() > 1 {
        let sentence =
            "several sources of items are for commands; with --pool and --agent use --csv or --jsonl";
        return Err(refused(Code::BadInput, sentence));
    }
    let mut fields = Vec::new();
    let mut each = Vec::new();
    for source in sources {
        let items = source.read(used, stdin).map_err(|error| refused(Code::BadInput, error.to_string()))?;
        fields = items.fields;
        let split = |item: Item| match &map.colsep {
            Some(separator) => in_columns(item, separator),
            None => item,
        };
        each.push(items.all.into_iter().map(split).collect());
    }
    let all = combined(each, MAX_ITEMS).ok_or_else(|| {
        refused(Code::BadInput, format!("more than {MAX_ITEMS} combinations, the maximum for one job"))
    })?;
    Ok(Items { all: grouped(all, map.max_args.map_or(1, usize::from)), fields })
}

/// The item with its columns as its parts. As in GNU parallel, blanks around them are left out.
fn in_columns(item: Item, separator: &Regex) -> Item {
    let columns = separator.split(&item.bytes).map(|column| column.trim_ascii().to_vec()).collect();
    Item { parts: columns, ..item }
}

/// The origin of items that come from no file.
pub(crate) const STDIN: &str = "standard input";

/// Where the items come from, for a message about their absence.
pub(crate) fn origin(map: &Map) -> String {
    let words = MapWords::parse(&map.words).map(|words| words.sources).unwrap_or_default();
    let listed = words.into_iter().filter_map(|source| match source {
        WordSource::File(file) => Some(file),
        WordSource::Items(_) => None,
    });
    let given = [&map.csv, &map.jsonl].into_iter().flatten().chain(&map.arg_file).cloned();
    let files: Vec<String> =
        given.chain(listed).filter(|file| !is_stdin(file)).map(|file| file.display().to_string()).collect();
    match (files.as_slice(), &map.items_from) {
        ([], Some(_)) => "the output of --items-from".to_owned(),
        ([], None) => STDIN.to_owned(),
        (files, _) => files.join(", "),
    }
}

fn stdin() -> Box<dyn Read> {
    Box::new(io::stdin())
}

/// The base name of the program.
fn name_of(words: &[Vec<u8>]) -> String {
    let first = words.first().map(Vec::as_slice).unwrap_or_default();
    let first =
        first.split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty()).unwrap_or_default();
    let name = PathPart::Name.of(first).to_vec();
    let name: String = String::from_utf8_lossy(&name).chars().filter(|c| !c.is_control()).take(32).collect();
    if name.is_empty() { "map".to_owned() } else { name }
}

fn folder() -> anyhow::Result<String> {
    let folder = std::env::current_dir()?;
    folder.into_os_string().into_string().map_err(|folder| {
        refused(Code::BadInput, format!("the path of this folder is not UTF-8 text: {}", folder.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_called_after_its_program() {
        let name =
            |words: &[&str]| name_of(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(name(&["/usr/bin/pandoc", "{}"]), "pandoc");
        assert_eq!(name(&["cat {} | wc -l"]), "cat");
        assert_eq!(name(&["/"]), "map");
    }

    /// A node runs the payload of an item, and readers of the store show it.
    #[test]
    fn bytes_have_the_same_form_for_those_who_run_and_those_who_read() {
        for bytes in [&b"a \"b\"\n"[..], b"\xff/", b"", "größer".as_bytes()] {
            let read = serde_json::to_string(&ostler_wire::bytes::ByteString(bytes.to_vec())).expect("JSON");
            let run = serde_json::to_string(&ostler_process::Argument(bytes.to_vec())).expect("JSON");
            assert_eq!(read, run);
        }
    }

    #[test]
    fn an_unknown_column_is_refused_with_the_one_that_was_meant() {
        let unknown = |name: &str, columns: &[&str]| {
            let columns = columns.iter().map(ToString::to_string).collect();
            explained(&UnknownPlaceholder::Column { name: name.to_owned(), columns })
        };
        assert_eq!(
            unknown("nme", &["name", "city"]),
            "there is no column \"nme\"; did you mean {name}? The columns are name, city. For the literal text, write \\{nme}"
        );
        assert!(!unknown("zzz", &["name"]).contains("did you mean"));
        assert_eq!(
            explained(&UnknownPlaceholder::NoColumns("nme".to_owned())),
            "{nme} is not a placeholder: only rows of --csv and --jsonl have columns; the item is {}. For the literal text, write \\{nme}"
        );
    }
}
