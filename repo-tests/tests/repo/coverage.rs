//! Checks docs/coverage.md, which locates each feature of the source designs: a feature that is there, wholly or partly,
//! names a test that runs, and everything named exists.

use std::collections::BTreeSet;
use std::path::Path;

use repo_tests::{none, root, text};

const DOCUMENT: &str = "docs/coverage.md";
/// The source designs, each with its own section.
const DESIGNS: [&str; 5] = ["000", "001", "002", "003", "004"];
/// The path of conformance suites, whose cases have no `#[test]` attribute.
const SUITES: &str = "/conformance/";
/// The maximum number of attribute lines above a test.
const MOST_ATTRIBUTES: usize = 6;
/// Precedes what is missing of a feature.
const PARTLY: &str = "partly: ";
/// Begins the middle cell of a feature that is left out on purpose.
const NO: &str = "no: ";

/// Whether a feature is there, by the middle cell of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Yes,
    Partly,
    No,
}

/// A row of a table.
struct Row {
    line: usize,
    design: Option<&'static str>,
    cells: Vec<String>,
}

fn rows() -> Vec<Row> {
    let document = text(Path::new(DOCUMENT)).expect("the document is text");
    let mut design = None;
    let mut rows = Vec::new();
    for (at, line) in document.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ") {
            design = DESIGNS.into_iter().find(|number| title.starts_with(&format!("Design {number}")));
        }
        let is_row = line.starts_with("| ") && !line.starts_with("| what the source says |");
        if is_row {
            let inside = line.trim().trim_start_matches('|').trim_end_matches('|');
            let cells = inside.split(" | ").map(|cell| cell.trim().to_owned()).collect();
            rows.push(Row { line: at + 1, design, cells });
        }
    }
    rows
}

impl Row {
    /// A complaint about this row.
    fn says(&self, what: &str) -> String {
        format!("{DOCUMENT}:{}: {what}", self.line)
    }

    fn verdict(&self) -> Verdict {
        let middle = self.cells.get(1).map(|cell| cell.to_lowercase()).unwrap_or_default();
        if middle.starts_with(NO) {
            Verdict::No
        } else if middle.contains(PARTLY) {
            Verdict::Partly
        } else {
            Verdict::Yes
        }
    }

    fn place(&self) -> &str {
        self.cells.last().map_or("", String::as_str)
    }

    /// The code spans of the last cell.
    fn named(&self) -> Vec<&str> {
        self.place().split('`').skip(1).step_by(2).collect()
    }

    /// The texts outside the code spans.
    fn beside(&self) -> Vec<&str> {
        let texts = self.place().split('`').step_by(2).map(|text| text.trim_matches([' ', ',', ';']));
        texts.filter(|text| !text.is_empty()).collect()
    }
}

#[test]
fn every_row_has_three_cells_and_all_are_filled() {
    let wrong: Vec<String> = rows()
        .iter()
        .filter(|row| row.cells.len() != 3 || row.cells.iter().any(String::is_empty))
        .map(|row| row.says(&format!("has {} cells, or an empty one", row.cells.len())))
        .collect();
    none("rows look like | source | Ostler | where |", &wrong);
}

#[test]
fn every_row_has_places_and_nothing_else() {
    let wrong: Vec<String> = rows()
        .iter()
        .filter(|row| row.named().is_empty() || !row.beside().is_empty())
        .map(|row| row.says("names no place, or something that is none"))
        .collect();
    none("rows without a place", &wrong);
}

#[test]
fn every_place_exists() {
    let mut wrong = Vec::new();
    for row in rows() {
        for place in row.named() {
            let (path, function) = match place.split_once("::") {
                Some((path, function)) => (path, Some(function)),
                None => (place, None),
            };
            if !root().join(path).exists() {
                wrong.push(row.says(&format!("there is no {path}")));
                continue;
            }
            let Some(function) = function else { continue };
            let source = text(Path::new(path)).unwrap_or_default();
            if !is_test(path, &source, function) {
                wrong.push(row.says(&format!("{path} has no test {function}")));
            }
        }
    }
    none("places that do not exist", &wrong);
}

/// Whether there is a test with this name that runs: a case in the table of its suite, a page in the table of guides, one of those that run
/// on each engine or each store, or a function with a test attribute that is not ignored.
fn is_test(path: &str, source: &str, function: &str) -> bool {
    let is_guide =
        path.ends_with("program/guide.rs") && source.contains(&format!("    {function}: \"docs/guide/"));
    let Some(at) = source.find(&format!("fn {function}(")) else { return is_guide };
    if path.contains(SUITES) && path.contains("/src/") {
        return is_case(path, source, function);
    }
    if is_on_each("engine", source, function) || is_on_each("store", source, function) {
        return true;
    }
    let line = source[..at].rfind('\n').map_or(0, |end| end + 1);
    let above = source[..line].lines().rev().take(MOST_ATTRIBUTES).take_while(|line| !line.trim().is_empty());
    let attributes: Vec<&str> = above.map(str::trim).filter(|line| line.starts_with("#[")).collect();
    let is = |start: &str| attributes.iter().any(|line| line.starts_with(start));
    (is("#[test]") || is("#[tokio::test")) && !is("#[ignore")
}

/// Whether a macro of the file makes a test of the function for each JavaScript engine, or for each store.
fn is_on_each(what: &str, source: &str, function: &str) -> bool {
    source.split(&format!("on_each_{what}")).skip(1).any(|rest| {
        let list =
            rest.trim_start_matches("_async").strip_prefix("!(").and_then(|list| list.split(')').next());
        list.is_some_and(|list| list.split(',').any(|name| name.trim() == function))
    })
}

/// Whether a case is in a table: of its own file or, for races, of the file that lists them.
fn is_case(path: &str, source: &str, function: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let listed = |text: &str| {
        text.match_indices(function).any(|(at, found)| {
            let (before, after) = (&text[..at], &text[at + found.len()..]);
            !before.ends_with(is_word) && after.starts_with([',', ']'])
        })
    };
    let rounds = Path::new(path).with_file_name("rounds.rs");
    listed(source) || (root().join(&rounds).exists() && text(&rounds).is_some_and(|text| listed(&text)))
}

#[test]
fn every_feature_that_is_there_names_a_test() {
    let without: Vec<String> = rows()
        .iter()
        .filter(|row| matches!(row.verdict(), Verdict::Yes | Verdict::Partly))
        .filter(|row| row.named().iter().all(|place| !place.contains("::")))
        .map(|row| row.says("names no test that would turn red"))
        .collect();
    none("features without a test", &without);
}

#[test]
fn a_verdict_is_in_the_middle_cell() {
    let verdict = |middle: &str| {
        let cells = ["a", middle, "b"].map(str::to_owned).to_vec();
        Row { line: 1, design: None, cells }.verdict()
    };
    assert_eq!(
        ["the same", "x; partly: no y", "Partly: no y", "no: why", "later on"].map(verdict),
        [Verdict::Yes, Verdict::Partly, Verdict::Partly, Verdict::No, Verdict::Yes]
    );
}

#[test]
fn a_function_that_is_no_test_is_told_from_one() {
    let source = "fn helper() {}\n\n    #[test]\n    fn shows() {}\n\n#[tokio::test(flavor = \"x\")]\nasync fn waits() {}\n\n\
                  #[test]\n#[ignore = \"twin\"]\nfn twin() {}\n";
    let found = ["helper", "shows", "waits", "missing", "twin"]
        .map(|name| is_test("crates/a/tests/b.rs", source, name));
    assert_eq!(found, [false, true, true, false, false]);
    let suite =
        "cases![\n    listed,\n];\n\nasync fn listed(s: &Scene) {}\n\nasync fn forgotten(s: &Scene) {}\n";
    let found = ["listed", "forgotten"].map(|name| is_test("crates/a/src/conformance/b.rs", suite, name));
    assert_eq!(found, [true, false]);
    let engines = "on_each_engine_async!(one, two);\non_each_engine!(\n    three,\n);\nfn one() {}\nfn three() {}\nfn four() {}\n";
    let found = ["one", "three", "four"].map(|name| is_test("crates/a/tests/b.rs", engines, name));
    assert_eq!(found, [true, true, false]);
    let stores = "on_each_store!(one);\nasync fn one(world: World) {}\nasync fn two(world: World) {}\n";
    assert_eq!(["one", "two"].map(|name| is_test("crates/a/tests/b.rs", stores, name)), [true, false]);
}

#[test]
fn every_source_design_has_its_section() {
    let seen: BTreeSet<&str> = rows().iter().filter_map(|row| row.design).collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), DESIGNS);
    let strays: Vec<String> = rows()
        .iter()
        .filter(|row| row.design.is_none())
        .map(|row| row.says("belongs to no design"))
        .collect();
    none("rows outside of a section", &strays);
}

#[test]
fn nothing_is_said_twice_in_one_design() {
    let mut seen = BTreeSet::new();
    let twice: Vec<String> = rows()
        .iter()
        .filter(|row| !seen.insert((row.design, row.cells.first().cloned())))
        .map(|row| row.says("says what another row of its design says"))
        .collect();
    none("repeated rows", &twice);
}
