//! The vocabulary: one meaning for a type name, plain words in prose, and the places that CONTRIBUTING.md names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use repo_tests::{files, has_end, none, root, text};

/// A type name may be defined in this many crates. In more, it usually has more than one meaning.
const MAX_CRATES: usize = 2;
/// Names that more crates may define, with the reason.
const ALLOWED: [(&str, &str); 1] =
    [("Tx", "the transaction trait of ostler-sql, and its two implementations")];
/// Words that hide the actor or avoid a term of art. Put together here, so that this file has none of them.
const VAGUE: [&str; 6] = [
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("no", "body"),
    concat!("is ", "said"),
    concat!("is ", "told"),
    concat!("by ", "heart"),
];
/// So many lines may have one of them.
const MAX_VAGUE: usize = 40;
/// Changes that CONTRIBUTING.md leads to.
const MIN_PLACES: usize = 20;

/// The crate of a product source file.
fn crate_of(path: &Path) -> Option<String> {
    let mut parts = path.iter().map(|part| part.to_string_lossy());
    let (first, name, source) = (parts.next()?, parts.next()?, parts.next()?);
    (first == "crates" && source == "src").then(|| name.into_owned())
}

/// The name that a line defines, if it defines a type.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let rest = ["struct ", "enum ", "trait ", "union "].iter().find_map(|word| line.strip_prefix(word))?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
}

#[test]
fn a_type_name_has_one_meaning() {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in files().into_iter().filter(|path| has_end(path, "rs")) {
        let Some(name) = crate_of(&path) else { continue };
        for line in text(&path).unwrap_or_default().lines() {
            if let Some(defined) = defined(line) {
                crates.entry(defined.to_owned()).or_default().insert(name.clone());
            }
        }
    }
    assert!(crates.len() > 500, "the walk found {} types", crates.len());
    for (name, reason) in ALLOWED {
        let users = crates.get(name).map_or(0, BTreeSet::len);
        assert!(users > MAX_CRATES, "{name} needs no exception any more ({reason})");
    }
    let shared: Vec<String> = crates
        .iter()
        .filter(|(name, users)| {
            users.len() > MAX_CRATES && !ALLOWED.iter().any(|(allowed, _)| allowed == name)
        })
        .map(|(name, users)| format!("{name}: {}", users.iter().cloned().collect::<Vec<_>>().join(", ")))
        .collect();
    none("give each of these types a name that says what it is in its crate", &shared);
}

#[test]
fn prose_names_the_actor() {
    let mut vague = Vec::new();
    for path in files() {
        let ends = ["rs", "md", "toml", "py", "js", "ts", "mjs"];
        if !ends.iter().any(|end| has_end(&path, end)) {
            continue;
        }
        for (at, line) in text(&path).unwrap_or_default().lines().enumerate() {
            let line = line.to_lowercase();
            if VAGUE.iter().any(|word| line.contains(word)) {
                vague.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    }
    assert!(
        vague.len() <= MAX_VAGUE,
        "{} lines say {VAGUE:?}; name the caller, node, worker or store instead:\n{}",
        vague.len(),
        vague.join("\n")
    );
}

#[test]
fn contributing_leads_to_files_that_exist() {
    let page = text(&PathBuf::from("CONTRIBUTING.md")).expect("it is text");
    let section = page.split("## Where do I change").nth(1).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows: Vec<&str> =
        section.lines().filter(|line| line.starts_with('|') && line.contains('`')).collect();
    assert!(rows.len() >= MIN_PLACES, "the table has {} rows", rows.len());
    let mut gone = Vec::new();
    for row in rows {
        let place = row.split('|').nth(2).unwrap_or_default();
        assert!(place.trim().starts_with('`') && place.contains('/'), "no file in: {row}");
        let paths: Vec<&str> = row.split('`').skip(1).step_by(2).filter(|code| code.contains('/')).collect();
        gone.extend(paths.iter().filter(|path| !root().join(path).exists()).map(|path| (*path).to_owned()));
    }
    none("CONTRIBUTING.md leads to files that do not exist", &gone);
}
