//! The plan of a map job, from the command line. Runs nothing and opens no store.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Read};
use std::os::unix::ffi::OsStringExt as _;

use ostler_core::{JobId, TaskId};
use ostler_ops::jobs::{ItemPayload, JobSpec, ServedBy};
use ostler_store::calls::NewTask;
use ostler_store::jobs::{NewJob, queue_of};
use ostler_wire::bytes::ByteString;

use super::fingerprint::{ItemDigest, ItemOrder, fingerprint, marks, task_of};
use super::item::Item;
use super::source::{ItemSource, Items};
use super::template::CommandTemplate;
use crate::args::Map;
use crate::exit::{Code, refused};
use crate::injection::{CommandWord, Pasted, pasted};

/// Separates the template from the items.
const ITEMS: &[u8] = b":::";
/// The kind of the tasks of a map job.
pub(crate) const KIND: &str = "item";

pub(crate) struct MapPlan {
    pub(crate) name: String,
    /// The words of the command as given.
    words: Vec<Vec<u8>>,
    template: CommandTemplate,
    /// The items in order.
    pub(crate) items: Vec<Item>,
    marks: Vec<ItemDigest>,
    /// The working folder.
    folder: String,
    timeout_ms: Option<u128>,
}

impl MapPlan {
    /// Reads the items and builds the plan. `None` if there are no items.
    pub(crate) fn make(map: &Map) -> anyhow::Result<Option<Self>> {
        let (words, given) = split(&map.words)?;
        let source = source(map, given)?;
        let items = source.read(stdin).map_err(|error| refused(Code::BadInput, error.to_string()))?;
        let Items { all, fields } = items;
        if all.is_empty() {
            return Ok(None);
        }
        let template = CommandTemplate::parse(&words, &fields)
            .map_err(|unknown| refused(Code::BadInput, unknown.to_string()))?;
        let name = map.name.clone().unwrap_or_else(|| name_of(&words));
        let timeout_ms = map.timeout.map(|timeout| timeout.as_millis());
        let marks = marks(&all);
        Ok(Some(Self { name, words, template, items: all, marks, folder: folder()?, timeout_ms }))
    }

    /// Items that an interpreter would read as part of its program, as `bash -c 'echo {}'` does.
    pub(crate) fn pasted(&self) -> Option<Pasted> {
        let texts: Vec<_> = self.words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let argv = texts.iter().zip(self.template.data());
        let argv: Vec<CommandWord<'_>> = argv.map(|(text, data)| CommandWord { text, data }).collect();
        pasted(&argv)
    }

    /// The digest of everything the job is made from.
    pub(crate) fn fingerprint(&self) -> String {
        let order = if self.template.counts() { ItemOrder::Matters } else { ItemOrder::Free };
        let timeout = self.timeout_ms.map(|ms| ms.to_string()).unwrap_or_default();
        let mut texts: Vec<&[u8]> = vec![self.folder.as_bytes(), timeout.as_bytes()];
        texts.extend(self.words.iter().map(Vec::as_slice));
        fingerprint(&texts, &self.marks, order)
    }

    /// The command for the `number`-th item, counted from 1.
    pub(crate) fn argv(&self, number: u64, item: &Item) -> Vec<Vec<u8>> {
        self.template.argv(item, number)
    }

    pub(crate) fn job(&self, id: JobId, spec: &JobSpec) -> anyhow::Result<NewJob> {
        Ok(NewJob {
            id,
            name: self.name.clone(),
            fingerprint: self.fingerprint(),
            spec: serde_json::to_string(spec)?,
            items: self.items.len() as u64,
        })
    }

    pub(crate) fn spec(&self, map: &Map, jobs: u32) -> JobSpec {
        JobSpec {
            command: self.words.iter().cloned().map(ByteString).collect(),
            folder: self.folder.clone(),
            served_by: if map.detach { ServedBy::Node } else { ServedBy::Mapper },
            jobs,
            attempts: map.retries + 1,
            timeout_ms: self.timeout_ms.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
        }
    }

    /// The task of the item at index `place`.
    pub(crate) fn task(&self, job: JobId, place: usize) -> anyhow::Result<NewTask> {
        let item = &self.items[place];
        let number = place as u64 + 1;
        let payload = ItemPayload {
            number,
            item: ByteString(item.bytes.clone()),
            argv: self.argv(number, item).into_iter().map(ByteString).collect(),
        };
        let task =
            NewTask::new(self.task_id(job, place), queue_of(job), KIND, serde_json::to_string(&payload)?);
        Ok(NewTask { folder: Some(self.folder.clone()), ..task })
    }

    pub(crate) fn task_id(&self, job: JobId, place: usize) -> TaskId {
        task_of(job, self.marks[place])
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
    if template.is_empty() {
        return Err(refused(Code::BadInput, "no command before \":::\""));
    }
    Ok((template, items))
}

fn source(map: &Map, given: Option<Vec<Vec<u8>>>) -> anyhow::Result<ItemSource> {
    let other = [
        map.files.clone().map(ItemSource::Files),
        map.csv.clone().map(ItemSource::Csv),
        map.jsonl.clone().map(ItemSource::Jsonl),
        map.null.then_some(ItemSource::Nul),
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
            let sentence = "no items: give them after \":::\", with --files, --csv or --jsonl, or one per line on standard input";
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
            let read = serde_json::to_string(&ByteString(bytes.to_vec())).expect("JSON");
            let run = serde_json::to_string(&ostler_process::Argument(bytes.to_vec())).expect("JSON");
            assert_eq!(read, run);
        }
    }

    #[test]
    fn items_stand_after_three_colons() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let (template, items) = split(&words("gzip -9 ::: a b")).expect("words");
        assert_eq!(template, [b"gzip".to_vec(), b"-9".to_vec()]);
        assert_eq!(items, Some(vec![b"a".to_vec(), b"b".to_vec()]));
        assert_eq!(split(&words("gzip")).expect("words").1, None);
        assert!(split(&words("::: a")).is_err());
        assert!(split(&words("x ::: a ::: b")).is_err());
    }
}
