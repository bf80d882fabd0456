//! The HTTP statuses named in the guide to failures have the class of their row.

use std::time::Duration;

use ostler_exec::class_of_status;

/// The class of each row, and the numbers after "HTTP" in it.
fn named() -> Vec<(String, Vec<u16>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/failures.md");
    let page = std::fs::read_to_string(path).expect("the guide is there");
    let row = |line: &str| -> Option<(String, Vec<u16>)> {
        let class = line.strip_prefix("| `")?.split('`').next()?.to_owned();
        let after = line.split("HTTP ").nth(1)?;
        let list = after.split(|c: char| !c.is_ascii_digit() && c != ',' && c != ' ').next()?;
        Some((class, list.split(',').filter_map(|number| number.trim().parse().ok()).collect()))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn every_status_in_the_guide_has_the_class_of_its_row() {
    let named = named();
    assert!(named.len() >= 5, "{named:?}");
    for (class, statuses) in named {
        assert!(!statuses.is_empty(), "{class}");
        for status in statuses {
            assert_eq!(class_of_status(status, None).name(), class, "{status}");
        }
    }
    assert_eq!(class_of_status(503, Some(Duration::from_secs(1))).name(), "rate_limited");
}
