//! Dependencies between crates. A new edge is a decision: add it to this table, and its reason to docs/decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Every current or planned crate, and the workspace crates it may depend on. Everything else follows: no
/// row has `ostler-cli` on its right side, and `ostler-server` has no executor and nothing that has one.
const ALLOWED: &[(&str, &[&str])] = &[
    ("ostler-core", &[]),
    ("ostler-store", &["ostler-core"]),
    ("ostler-schedule", &["ostler-core", "ostler-store"]),
    ("ostler-sql", &["ostler-core", "ostler-store"]),
    ("ostler-sqlite", &["ostler-core", "ostler-store", "ostler-sql"]),
    ("ostler-postgres", &["ostler-core", "ostler-store", "ostler-sql"]),
    ("ostler-exec", &["ostler-core"]),
    // The reader of the config file, and the contract of pool kinds. It knows no store.
    ("ostler-config", &["ostler-core", "ostler-exec"]),
    // Requests to elsewhere.
    ("ostler-http", &["ostler-core"]),
    ("ostler-process", &["ostler-core", "ostler-exec", "ostler-config"]),
    ("ostler-agent", &["ostler-core", "ostler-exec", "ostler-config", "ostler-http", "ostler-process"]),
    ("ostler-isolate", &["ostler-core", "ostler-exec", "ostler-config", "ostler-http", "ostler-process"]),
    ("ostler-runtime", &["ostler-core", "ostler-store", "ostler-schedule", "ostler-exec"]),
    ("ostler-wire", &["ostler-core", "ostler-store", "ostler-schedule"]),
    ("ostler-ops", &["ostler-core", "ostler-store", "ostler-schedule", "ostler-wire", "ostler-http"]),
    ("ostler-server", &["ostler-core", "ostler-store", "ostler-wire", "ostler-ops"]),
    ("ostler", &LIBRARY),
    ("ostler-cli", &EVERYTHING),
    // Never shipped.
    ("ostler-conformance", &["ostler-core", "ostler-store"]),
    (
        "ostler-testkit",
        &[
            "ostler-core",
            "ostler-store",
            "ostler-conformance",
            "ostler-sqlite",
            "ostler-postgres",
            "ostler-exec",
        ],
    ),
    (
        "bench",
        // It measures each crate separately.
        &EVERYTHING,
    ),
    ("repo-tests", &[]),
];

/// The library includes everything except the server and the program.
const LIBRARY: [&str; 14] = [
    "ostler-core",
    "ostler-store",
    "ostler-schedule",
    "ostler-ops",
    "ostler-sqlite",
    "ostler-postgres",
    "ostler-exec",
    "ostler-config",
    "ostler-http",
    "ostler-process",
    "ostler-agent",
    "ostler-isolate",
    "ostler-runtime",
    // What a node answers to a client.
    "ostler-wire",
];

/// The program depends on everything that is shipped.
const EVERYTHING: [&str; 16] = [
    "ostler",
    "ostler-core",
    "ostler-store",
    "ostler-schedule",
    "ostler-ops",
    "ostler-sqlite",
    "ostler-postgres",
    "ostler-exec",
    "ostler-config",
    "ostler-http",
    "ostler-process",
    "ostler-agent",
    "ostler-isolate",
    "ostler-runtime",
    "ostler-wire",
    "ostler-server",
];

/// Allowed as dev-dependencies only. The testkit itself may use the suite.
const FOR_TESTS: [&str; 2] = ["ostler-testkit", "ostler-conformance"];

/// Libraries for command lines and terminals.
const TERMINAL: [&str; 6] = ["clap", "clap_complete", "anstream", "indicatif", "ratatui", "crossterm"];

/// Crates that run work, or depend on one that does.
const EXECUTORS: [&str; 7] = [
    "ostler-exec",
    "ostler-config",
    "ostler-process",
    "ostler-agent",
    "ostler-isolate",
    "ostler-runtime",
    "ostler",
];

/// A crate with its dependencies, from its manifest.
struct Member {
    name: String,
    /// Normal and build dependencies.
    product: BTreeSet<String>,
    /// Dev-dependencies.
    tests: BTreeSet<String>,
}

fn members() -> Vec<Member> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be run");
    assert!(asked.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&asked.stderr));
    let metadata: Value = serde_json::from_slice(&asked.stdout).expect("cargo metadata prints JSON");
    list(&metadata, "packages").iter().map(member).collect()
}

fn member(package: &Value) -> Member {
    let mut member = Member { name: word(package, "name"), product: BTreeSet::new(), tests: BTreeSet::new() };
    for dependency in list(package, "dependencies") {
        let name = word(dependency, "name");
        match dependency.get("kind").and_then(Value::as_str) {
            Some("dev") => member.tests.insert(name),
            Some("build") | None => member.product.insert(name),
            Some(other) => panic!("cargo has a kind of dependency that this test does not know: {other}"),
        };
    }
    member
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).unwrap_or_else(|| panic!("cargo metadata has a list {field}"))
}

fn word(value: &Value, field: &str) -> String {
    let text = value.get(field).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("cargo metadata has a text {field}")).to_owned()
}

fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    ALLOWED.iter().copied().collect()
}

/// The names that are workspace crates.
fn ours(names: &BTreeSet<String>) -> impl Iterator<Item = &str> {
    names
        .iter()
        .map(String::as_str)
        .filter(|name| *name == "bench" || *name == "repo-tests" || name.starts_with("ostler"))
}

#[test]
fn every_crate_is_in_the_table() {
    let known = allowed();
    for member in members() {
        assert!(
            known.contains_key(member.name.as_str()),
            "{} is a crate that the table of edges does not know. Does it keep a heavy dependency out, or make a \
             rule checkable? Then add it to ALLOWED in repo-tests/tests/repo/edges.rs, with what it may depend on.",
            member.name
        );
    }
}

#[test]
fn no_crate_depends_on_what_it_may_not_see() {
    let known = allowed();
    for member in members() {
        let may_see = known.get(member.name.as_str()).copied().unwrap_or_default();
        for seen in ours(&member.product) {
            assert!(
                may_see.contains(&seen),
                "{} depends on {seen}, and may not: it sees {may_see:?} only",
                member.name
            );
        }
    }
}

#[test]
fn tests_see_the_testkit_and_what_their_crate_may_see() {
    let known = allowed();
    for member in members() {
        let may_see = known.get(member.name.as_str()).copied().unwrap_or_default();
        for seen in ours(&member.tests) {
            assert!(
                FOR_TESTS.contains(&seen) || may_see.contains(&seen),
                "the tests of {} depend on {seen}: tests may see {FOR_TESTS:?}, and what their crate may see",
                member.name
            );
        }
    }
}

#[test]
fn what_only_tests_need_is_in_no_product() {
    for member in members().iter().filter(|member| !FOR_TESTS.contains(&member.name.as_str())) {
        let shipped = FOR_TESTS.iter().find(|name| member.product.contains(**name));
        assert_eq!(shipped, None, "{} ships it: make it a dev-dependency", member.name);
    }
}

#[test]
fn the_rules_depend_on_nothing_at_all() {
    let core = members().into_iter().find(|member| member.name == "ostler-core").expect("there is a core");
    assert!(core.product.is_empty(), "ostler-core depends on {:?}: rules need no library", core.product);
}

#[test]
fn use_cases_know_no_terminal() {
    let all = members();
    let ops = all.iter().find(|member| member.name == "ostler-ops").expect("there are use cases");
    let terminal = TERMINAL.iter().filter(|name| ops.product.contains(**name)).collect::<Vec<_>>();
    assert!(terminal.is_empty(), "ostler-ops depends on {terminal:?}: a page or a tool has no terminal");
    let program = all.iter().find(|member| member.name == "ostler-cli").expect("there is a program");
    assert!(
        TERMINAL.iter().any(|name| program.product.contains(*name)),
        "the list names what the program uses"
    );
}

#[test]
fn the_table_itself_keeps_the_three_great_rules() {
    let known = allowed();
    assert_eq!(known.len(), ALLOWED.len(), "a crate stands in the table twice");
    for (name, may_see) in &known {
        assert!(!may_see.contains(&"ostler-cli"), "{name} may see the program; nothing does");
        assert!(!may_see.contains(&"ostler-testkit"), "{name} may ship the testkit; nothing does");
        for seen in *may_see {
            assert!(known.contains_key(seen), "{name} may see {seen}, which is not in the table");
        }
    }
    for seen in reachable(&known, "ostler-server") {
        assert!(!EXECUTORS.contains(&seen), "the server would see {seen}, which can run work");
    }
}

/// All direct and transitive dependencies that a crate may have.
fn reachable(known: &BTreeMap<&'static str, &'static [&'static str]>, from: &str) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&'static str> = known[from].to_vec();
    while let Some(name) = next.pop() {
        if found.insert(name) {
            next.extend(known[name]);
        }
    }
    found
}

#[test]
fn the_edges_have_no_circle() {
    let known = allowed();
    for name in known.keys() {
        assert!(!reachable(&known, name).contains(name), "{name} would depend on itself");
    }
}
