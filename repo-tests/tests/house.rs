//! The house rules that a program can check.

use std::path::{Path, PathBuf};

use repo_tests::{files, has_end, none, root, text};

/// A longer file usually serves two readers.
const MAX_SOURCE_LINES: usize = 600;
/// A longer overview is not one.
const MAX_ARCHITECTURE_LINES: usize = 300;
/// Marks of work that is not done. Put together here, so that this file has none of them.
const UNFINISHED: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
    concat!("dbg", "!("),
];
/// Where packages come from is the business of whoever builds, and differs from place to place.
const REGISTRIES: [&str; 9] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("npm", "js.org"),
    concat!("npm", "js.com"),
    concat!("ruby", "gems.org"),
    concat!("docker", ".io"),
    concat!("ghcr", ".io"),
    concat!("deb.debian", ".org"),
];
/// Written by cargo, not by us.
const LOCK_FILE: &str = "Cargo.lock";

fn sources() -> Vec<PathBuf> {
    files().into_iter().filter(|path| has_end(path, "rs")).collect()
}

fn documents() -> Vec<PathBuf> {
    files().into_iter().filter(|path| has_end(path, "md")).collect()
}

/// All texts that people wrote, with their paths.
fn written() -> impl Iterator<Item = (PathBuf, String)> {
    files()
        .into_iter()
        .filter(|path| path != Path::new(LOCK_FILE))
        .filter_map(|path| text(&path).map(|text| (path, text)))
}

fn read(path: &str) -> String {
    text(Path::new(path)).unwrap_or_else(|| panic!("{path} is not text"))
}

/// Lines that contain one of the words.
fn mentions(words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in written() {
        for (at, line) in text.lines().enumerate() {
            let here = words.iter().filter(|word| line.contains(**word));
            found.extend(here.map(|word| format!("{}:{}: {word}", path.display(), at + 1)));
        }
    }
    found
}

#[test]
fn the_walk_finds_the_repository() {
    let files = files();
    for known in ["Cargo.toml", "crates/core/src/decide.rs", "repo-tests/tests/house.rs"] {
        assert!(files.contains(&PathBuf::from(known)), "the walk did not find {known}");
    }
}

#[test]
fn no_source_file_is_too_long() {
    let long: Vec<String> = sources()
        .iter()
        .map(|path| (path, text(path).map_or(0, |text| text.lines().count())))
        .filter(|(_, lines)| *lines > MAX_SOURCE_LINES)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    none("split these by meaning", &long);
}

#[test]
fn nothing_is_left_unfinished() {
    none("finish these, or open an issue", &mentions(&UNFINISHED));
}

#[test]
fn no_registry_is_named() {
    none("say \"the package registry\"", &mentions(&REGISTRIES));
}

#[test]
fn every_source_file_begins_with_what_it_is_for() {
    let silent: Vec<String> = sources()
        .iter()
        .filter(|path| !text(path).is_some_and(|text| begins_with_a_doc(&text)))
        .map(|path| path.display().to_string())
        .collect();
    none("begin these with a module doc (//!)", &silent);
}

fn begins_with_a_doc(source: &str) -> bool {
    let first = source.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!["));
    // At least two words: a doc that says nothing is none.
    first.and_then(|line| line.strip_prefix("//!")).is_some_and(|doc| doc.split_whitespace().count() >= 2)
}

#[test]
fn the_architecture_is_short() {
    let lines = read("ARCHITECTURE.md").lines().count();
    assert!(lines <= MAX_ARCHITECTURE_LINES, "ARCHITECTURE.md has {lines} lines");
}

#[test]
fn every_path_in_the_architecture_exists() {
    let page = read("ARCHITECTURE.md");
    let named = page.split('`').skip(1).step_by(2).filter(|code| looks_like_a_path(code));
    let gone: Vec<String> =
        named.filter(|path| !root().join(path).exists()).map(|path| format!("there is no {path}")).collect();
    none("ARCHITECTURE.md", &gone);
}

/// One word with a slash or a known end, and none of what code has.
fn looks_like_a_path(code: &str) -> bool {
    let plain = code.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let ends = [".rs", ".md", ".toml"].iter().any(|end| code.ends_with(end));
    plain && !code.starts_with('/') && (code.contains('/') || ends)
}

#[test]
fn every_link_in_a_document_leads_somewhere() {
    let mut broken = Vec::new();
    for path in documents() {
        let page = text(&path).unwrap_or_default();
        let folder = root().join(&path).parent().expect("a file lies in a folder").to_owned();
        for target in links(&page) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !folder.join(file).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    none("links that lead nowhere", &broken);
}

/// The targets of `[text](target)` that are not on the network.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

#[test]
fn both_licences_are_there() {
    for (path, words) in [("LICENSE-MIT", "MIT License"), ("LICENSE-APACHE", "Apache License")] {
        let licence = read(path);
        assert!(licence.contains(words), "{path} is not the {words}");
        assert!(licence.contains("2026 The Ostler authors"), "{path} does not say whose it is");
    }
}

#[test]
fn the_readme_names_the_two_commands_on_its_first_screen() {
    let first_screen: Vec<String> = read("README.md").lines().take(40).map(String::from).collect();
    for command in ["cargo run --release -- demo", "./test"] {
        assert!(
            first_screen.iter().any(|line| line.contains(command)),
            "README.md does not show `{command}` early"
        );
    }
}

#[test]
fn the_readme_shows_the_example_as_it_is() {
    let example = read("crates/ostler/examples/hello.rs");
    let shown = format!("```rust\n{}\n```", example.trim());
    assert!(read("README.md").contains(&shown), "README.md and crates/ostler/examples/hello.rs differ");
}

/// The guides are run by the tests of the program, so what stands there is true.
#[test]
fn what_the_readme_says_that_a_command_prints_stands_in_a_guide() {
    let readme = read("README.md");
    let guides: Vec<String> = documents()
        .iter()
        .filter(|path| path.starts_with("docs/guide"))
        .filter_map(|path| text(path))
        .collect();
    let blocks: Vec<&str> = readme
        .split("```console\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```").map(|(block, _)| block))
        .collect();
    assert!(!blocks.is_empty(), "README.md shows what a command prints");
    let unknown: Vec<String> = blocks
        .iter()
        .map(|block| format!("```console\n{block}```"))
        .filter(|block| !guides.iter().any(|guide| guide.contains(block)))
        .collect();
    none("blocks of README.md that stand in no guide", &unknown);
}

#[test]
fn every_decision_is_in_the_index() {
    let index = read("docs/decisions/README.md");
    let missing: Vec<String> = documents()
        .iter()
        .filter_map(|path| path.strip_prefix("docs/decisions").ok())
        .map(|name| name.display().to_string())
        .filter(|name| name != "README.md" && !index.contains(&format!("({name})")))
        .collect();
    none("add these to docs/decisions/README.md", &missing);
}
