//! The tables `[pool.NAME.kind.KIND]`: what is said about the tries and the time of one kind of task. It wins over what is said
//! for the whole pool, and what a task says of itself wins over it.

use std::collections::BTreeMap;

use ostler_core::Overrides;
use ostler_store::{MAX_KINDS, check_name};

use super::pool::overrides;
use super::section::Section;

/// The kinds of a pool that have rules of their own.
pub(super) fn read_all(section: &Section<'_>) -> BTreeMap<String, Overrides> {
    let mut kinds = BTreeMap::new();
    let entries = section.entries();
    if entries.len() > MAX_KINDS {
        section.fault_all(format!(
            "has {} kinds, and at most {MAX_KINDS} have rules of their own",
            entries.len()
        ));
    }
    for (kind, found) in entries {
        if let Err(error) = check_name("kind", &kind) {
            found.fault(format!("{}: {error}", found.path()));
        }
        let Some(mut section) = found.table() else { continue };
        let said = overrides(&mut section);
        section.close(&[]);
        kinds.insert(kind, said);
    }
    kinds
}
