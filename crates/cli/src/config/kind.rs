//! The tables `[pool.NAME.kind.KIND]`: retry and timeout settings of one kind of task. They take precedence over those of the
//! pool, and a task's own settings over them.

use std::collections::BTreeMap;

use ostler_config::Section;
use ostler_core::Overrides;
use ostler_store::{MAX_KINDS, check_name};

use super::pool::overrides;

/// Reads the kinds of a pool that have settings of their own.
pub(super) fn read_all(section: &Section<'_>) -> BTreeMap<String, Overrides> {
    let mut kinds = BTreeMap::new();
    let entries = section.entries();
    if entries.len() > MAX_KINDS {
        section.fault_all(format!(
            "has {} kinds; at most {MAX_KINDS} may have settings of their own",
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
