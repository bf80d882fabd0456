//! The doctor's rules: pure functions from facts to findings, one file per subject.

mod accounts;
mod clock;
mod config;
mod jobs;
mod leftovers;
mod limits;
mod nodes;
mod presence;
mod queues;
mod schedules;
mod server;
mod store;
mod tasks;
mod threads;
mod workers;

use std::time::Duration;

use ostler_core::show_duration;
use ostler_core::visible;
use ostler_wire::system::FindingView as Finding;

use super::facts::{DoctorFacts, Site, StoreFacts, StoreLook};

/// The maximum number of names listed in one sentence.
const MAX_NAMED: usize = 5;

/// All findings, the worst first.
#[must_use]
pub fn findings(facts: &DoctorFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    match &facts.site {
        Some(Site::File(place)) => found.extend(store::findings(place, facts)),
        Some(Site::Server(address)) => found.extend(server::finding(address, &facts.look)),
        None => {}
    }
    found.extend(clock::findings(facts));
    found.extend(config::findings(facts));
    found.extend(facts.presence.as_ref().map(presence::finding));
    found.extend(facts.threads.as_ref().map(threads::finding));
    found.extend(facts.leftovers.iter().map(leftovers::finding));
    if let Some(seen) = seen(facts) {
        found.extend(nodes::findings(seen));
        found.extend(workers::findings(seen));
        found.extend(queues::findings(seen, facts.now));
        found.extend(schedules::findings(seen, facts.now));
        found.extend(limits::findings(seen, facts.now));
        found.extend(accounts::findings(seen, facts.now));
        found.extend(tasks::findings(seen));
        found.extend(jobs::findings(seen));
    }
    found.sort_by(|a, b| (a.severity, a.code, &a.sentence).cmp(&(b.severity, b.code, &b.sentence)));
    found
}

/// The store's facts, if it could be examined.
fn seen(facts: &DoctorFacts) -> Option<&StoreFacts> {
    match &facts.look {
        StoreLook::Seen(seen) => Some(seen),
        StoreLook::Unnamed
        | StoreLook::Absent
        | StoreLook::Refused(_)
        | StoreLook::Silent(_)
        | StoreLook::Outdated { .. } => None,
    }
}

/// A duration for people, without milliseconds.
fn about(time: Duration) -> String {
    show_duration(Duration::from_secs(time.as_secs()))
}

/// A count of tasks, with the matching verb.
fn tasks(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 task {one}") } else { format!("{count} tasks {many}") }
}

/// The first few names, and the number of the others.
pub(crate) fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<String> = all.map(|name| format!("\"{}\"", visible(name))).collect();
    let shown = all[..all.len().min(MAX_NAMED)].join(", ");
    if all.len() > MAX_NAMED { format!("{shown} and {} more", all.len() - MAX_NAMED) } else { shown }
}

/// A name quoted as one word of a command line.
pub(crate) fn word(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_command_line() {
        for (name, one) in [
            ("shell", "shell"),
            ("old mail", "'old mail'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("-x", "'-x'"),
        ] {
            assert_eq!(word(name), one);
        }
    }

    #[test]
    fn a_long_list_of_names_is_cut() {
        let all = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(names(all.into_iter()), "\"a\", \"b\", \"c\", \"d\", \"e\" and 2 more");
        assert_eq!(names(["a"].into_iter()), "\"a\"");
    }
}
