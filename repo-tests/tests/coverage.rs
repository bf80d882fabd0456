//! Checks docs/coverage.md, which locates each feature of the source designs: everything it names exists, a named test is
//! a test, and a row without a location names the part that will bring it.

use std::collections::BTreeSet;
use std::path::Path;

use repo_tests::{none, root, text};

const DOCUMENT: &str = "docs/coverage.md";
/// The parts not built yet.
const PARTS: [&str; 3] = ["agents", "isolates", "server"];
/// The source designs, each with its own section.
const DESIGNS: [&str; 5] = ["000", "001", "002", "003", "004"];
/// The maximum number of rows on existing features that name files only, and no test. It may only fall.
const MOST_WITHOUT_A_TEST: usize = 21;
/// The path of conformance suites, whose cases have no `#[test]` attribute.
const SUITES: &str = "/conformance/";
/// The maximum number of attribute lines above a test.
const MOST_ATTRIBUTES: usize = 6;
/// Precedes the names of parts.
const TO_COME: &str = "to come: ";

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

    fn place(&self) -> &str {
        self.cells.last().map_or("", String::as_str)
    }

    /// The code spans of the last cell.
    fn named(&self) -> Vec<&str> {
        self.place().split('`').skip(1).step_by(2).collect()
    }

    /// The text outside the code spans: empty, or the parts to come.
    fn parts(&self) -> Result<Vec<&str>, String> {
        let outside: Vec<&str> =
            self.place().split('`').step_by(2).map(|text| text.trim_matches([' ', ',', ';'])).collect();
        let words = outside.iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>();
        match words.as_slice() {
            [] => Ok(Vec::new()),
            [one] => match one.strip_prefix(TO_COME) {
                Some(parts) => Ok(parts.split(", ").collect()),
                None => Err(self.says(&format!("\"{one}\" is neither a place nor \"{TO_COME}…\""))),
            },
            _ => Err(self.says("there is more than one text between the places")),
        }
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
fn every_row_is_located_or_says_what_brings_it() {
    let mut wrong = Vec::new();
    for row in rows() {
        match row.parts() {
            Err(why) => wrong.push(why),
            Ok(parts) if parts.is_empty() && row.named().is_empty() => wrong.push(row.says("names no place")),
            Ok(parts) => {
                let unknown = parts.iter().filter(|part| !PARTS.contains(part));
                wrong.extend(unknown.map(|part| row.says(&format!("\"{part}\" is not one of {PARTS:?}"))));
            }
        }
    }
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

/// Whether there is a test with this name: a case of a suite, or a function with a test attribute.
fn is_test(path: &str, source: &str, function: &str) -> bool {
    let Some(at) = source.find(&format!("fn {function}(")) else { return false };
    let line = source[..at].rfind('\n').map_or(0, |end| end + 1);
    let mut above =
        source[..line].lines().rev().take(MOST_ATTRIBUTES).take_while(|line| !line.trim().is_empty());
    path.contains(SUITES)
        || above.any(|line| line.trim().starts_with("#[test]") || line.contains("#[tokio::test"))
}

#[test]
fn few_rows_name_no_test() {
    let without: Vec<String> = rows()
        .iter()
        .filter(|row| !row.named().is_empty() && row.named().iter().all(|place| !place.contains("::")))
        .map(|row| row.says("names files, and no test that would turn red"))
        .collect();
    assert!(
        without.len() <= MOST_WITHOUT_A_TEST,
        "{} rows, and at most {MOST_WITHOUT_A_TEST}:\n{}",
        without.len(),
        without.join("\n")
    );
}

#[test]
fn a_function_that_is_no_test_is_told_from_one() {
    let source = "fn helper() {}\n\n    #[test]\n    fn shows() {}\n\n#[tokio::test(flavor = \"x\")]\nasync fn waits() {}\n";
    let found =
        ["helper", "shows", "waits", "missing"].map(|name| is_test("crates/a/tests/b.rs", source, name));
    assert_eq!(found, [false, true, true, false]);
    assert!(is_test("crates/a/src/conformance/b.rs", source, "helper"));
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
