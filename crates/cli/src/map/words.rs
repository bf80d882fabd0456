//! The words of `ostler map`: a template, and then items after `:::` and files with items after `::::`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use clap::Args as _;

use crate::args::Map;
use crate::exit::{Code, refused};

/// Announces items.
const ITEMS: &[u8] = b":::";
/// Announces files with items.
const FILES: &[u8] = b"::::";
/// Link two sources in GNU parallel.
const LINKED: [&[u8]; 2] = [b":::+", b"::::+"];

/// The words, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapWords {
    pub(crate) template: Vec<Vec<u8>>,
    pub(crate) sources: Vec<WordSource>,
}

/// A source of items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WordSource {
    Items(Vec<Vec<u8>>),
    /// A file with an item in each line; `-` is standard input.
    File(PathBuf),
}

impl MapWords {
    pub(crate) fn parse(words: &[OsString]) -> anyhow::Result<Self> {
        let is_mark = |word: &OsString| [ITEMS, FILES].contains(&word.as_bytes());
        if let Some(linked) = words.iter().find(|word| LINKED.contains(&word.as_bytes())) {
            let sentence = format!(
                "\"{}\" does not exist here; for items that belong together use --csv, or --colsep",
                linked.display()
            );
            return Err(refused(Code::BadInput, sentence));
        }
        let begin = words.iter().position(is_mark).unwrap_or(words.len());
        let (template, mut rest) = words.split_at(begin);
        let mut sources = Vec::new();
        while let Some((mark, after)) = rest.split_first() {
            let end = after.iter().position(is_mark).unwrap_or(after.len());
            let (given, next) = after.split_at(end);
            if given.is_empty() {
                let what = if mark.as_bytes() == ITEMS { "items" } else { "files" };
                return Err(refused(Code::BadInput, format!("no {what} after \"{}\"", mark.display())));
            }
            if mark.as_bytes() == ITEMS {
                sources.push(WordSource::Items(given.iter().cloned().map(OsString::into_vec).collect()));
            } else {
                sources.extend(given.iter().map(|file| WordSource::File(file.into())));
            }
            rest = next;
        }
        Ok(Self { template: template.iter().cloned().map(OsString::into_vec).collect(), sources })
    }

    /// An item that looks like an option of `ostler map`: the user may have meant one.
    pub(crate) fn option_among_items(&self) -> Option<&OsStr> {
        let command = Map::augment_args(clap::Command::new("map"));
        let is_option = |item: &[u8]| {
            let Ok(item) = std::str::from_utf8(item) else { return false };
            let name = item.split_once('=').map_or(item, |(name, _)| name);
            command.get_arguments().any(|option| match name.strip_prefix("--") {
                Some(long) => option.get_long() == Some(long),
                None => {
                    let shorts = option.get_short_and_visible_aliases().unwrap_or_default();
                    let rest = shorts.iter().find_map(|short| item.strip_prefix('-')?.strip_prefix(*short));
                    rest.is_some_and(|rest| rest.chars().all(|digit| digit.is_ascii_digit()))
                }
            })
        };
        let items = self.sources.iter().flat_map(|source| match source {
            WordSource::Items(items) => items.as_slice(),
            WordSource::File(_) => &[],
        });
        items.map(Vec::as_slice).find(|item| is_option(item)).map(OsStr::from_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> anyhow::Result<MapWords> {
        MapWords::parse(&text.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    fn bytes(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn items_and_files_stand_after_colons() {
        let words = parsed("gzip -9 ::: a b :::: list - ::: c").expect("words");
        assert_eq!(words.template, bytes(&["gzip", "-9"]));
        let sources = [
            WordSource::Items(bytes(&["a", "b"])),
            WordSource::File("list".into()),
            WordSource::File("-".into()),
            WordSource::Items(bytes(&["c"])),
        ];
        assert_eq!(words.sources, sources);
        assert_eq!(parsed("gzip").expect("words").sources, []);
        assert_eq!(parsed("::: a").expect("words").template, Vec::<Vec<u8>>::new());
        for wrong in ["x :::", "x ::::", "x ::: ::: a", "x ::: a :::+ b"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_item_that_looks_like_an_option_is_found() {
        let found = |text: &str| parsed(text).expect("words").option_among_items().map(OsStr::to_owned);
        for option in ["--fail-fast", "--results=x", "-k", "-j4", "-P"] {
            assert_eq!(found(&format!("ls ::: a {option}")), Some(option.into()));
        }
        for item in ["-", "--", "-l", "--fail", "-kx", "-9", "k"] {
            assert_eq!(found(&format!("ls ::: a {item}")), None, "{item}");
        }
    }
}
