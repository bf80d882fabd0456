//! The plan of a map job, from the command line. Runs nothing and opens no store.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use ostler_ops::jobs::plan::{ItemWork, JobPlan, PlanError, PlanRequest, PoolWork};
use ostler_ops::jobs::{Item, ItemData, JobSpec, UnknownPlaceholder};
use ostler_store::jobs::JobRecord;

use super::source::{ItemSource, ItemUse, Items};
use super::{item_folders, pool, prompt};
use crate::args::Map;
use crate::config::nearest;
use crate::exit::{Code, refused};
use ostler_process::injection::{CommandWord, Data, Pasted, pasted};

/// Separates the template from the items.
const ITEMS: &[u8] = b":::";

/// Reads the items and builds the plan. `None` if there are no items. A payload has at most `payload_bytes`.
pub(crate) fn make(map: &Map, payload_bytes: usize) -> anyhow::Result<Option<JobPlan>> {
    let (words, given) = split(&map.words)?;
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
    let source = source(map, given)?;
    let items = source.read(used, stdin).map_err(|error| refused(Code::BadInput, error.to_string()))?;
    let Items { all, fields } = items;
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
        timeout_ms: map.timeout.map(|timeout| timeout.as_millis()),
        pilot: map.pilot,
        before: 0,
    };
    checked(request).map(Some)
}

fn checked(request: PlanRequest) -> anyhow::Result<JobPlan> {
    JobPlan::new(request).map_err(|error| {
        let sentence = match &error {
            PlanError::Placeholder(unknown) => explained(unknown),
            PlanError::Prompt { .. } | PlanError::TooLarge { .. } => error.to_string(),
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
        (None, None) if words.is_empty() => ItemSource::Lines,
        (None, None) => ItemSource::Words(words.into_iter().map(OsString::into_vec).collect()),
    };
    source.read(used, stdin).map_err(|error| refused(Code::BadInput, error.to_string()))
}

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

/// Words before and after `:::`.
type SplitWords = (Vec<Vec<u8>>, Option<Vec<Vec<u8>>>);

fn split(words: &[OsString]) -> anyhow::Result<SplitWords> {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_vec()).collect();
    let mut parts = words.split(|word| word == ITEMS);
    let template = parts.next().unwrap_or_default().to_vec();
    let items = parts.next().map(<[Vec<u8>]>::to_vec);
    if parts.next().is_some() {
        return Err(refused(Code::BadInput, "\":::\" may be given only once"));
    }
    Ok((template, items))
}

fn source(map: &Map, given: Option<Vec<Vec<u8>>>) -> anyhow::Result<ItemSource> {
    let other = [
        map.files.clone().map(ItemSource::Files),
        map.csv.clone().map(ItemSource::Csv),
        map.jsonl.clone().map(ItemSource::Jsonl),
        map.null.then_some(ItemSource::Nul),
        map.items_from.clone().map(ItemSource::Command),
    ]
    .into_iter()
    .flatten()
    .next();
    match (given, other) {
        (Some(_), Some(_)) => {
            Err(refused(Code::BadInput, "give items after \":::\" or with an option, not both"))
        }
        (Some(words), None) if words.is_empty() => Err(refused(Code::BadInput, "no items after \":::\"")),
        (Some(words), None) => Ok(ItemSource::Words(words)),
        (None, Some(other)) => Ok(other),
        (None, None) if io::stdin().is_terminal() => {
            let sentence = "no items: give them after \":::\", with --files, --csv, --jsonl or --items-from, or one per line on standard input";
            Err(refused(Code::BadInput, sentence))
        }
        (None, None) => Ok(ItemSource::Lines),
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
    let name = Item::plain(first).name().to_vec();
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

    #[test]
    fn items_stand_after_three_colons() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let (template, items) = split(&words("gzip -9 ::: a b")).expect("words");
        assert_eq!(template, [b"gzip".to_vec(), b"-9".to_vec()]);
        assert_eq!(items, Some(vec![b"a".to_vec(), b"b".to_vec()]));
        assert_eq!(split(&words("gzip")).expect("words").1, None);
        assert_eq!(split(&words("::: a")).expect("words").0, Vec::<Vec<u8>>::new());
        assert!(split(&words("x ::: a ::: b")).is_err());
    }
}
