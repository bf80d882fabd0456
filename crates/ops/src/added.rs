//! Ad hoc commands: tasks that bring a command, which runs in the folder of its caller (`ostler add`). They have a queue of their own,
//! which a node serves without any config.

use std::collections::BTreeMap;

use ostler_store::views::{Liveness, Survey};
use ostler_wire::bytes::ByteString;
use serde::Serialize;

use crate::published;

/// The kind of their tasks.
pub const COMMAND_KIND: &str = "command";
/// Their queue on a store of one machine.
const QUEUE: &str = "commands";
/// The variables that a command gets if its caller has them.
pub const USUAL_VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TERM"];

/// From where a store is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreReach<'a> {
    OneMachine,
    /// The folder of a command is that of one machine, with this name.
    ManyMachines(&'a str),
}

impl StoreReach<'_> {
    /// The queue of commands that are added on this machine.
    #[must_use]
    pub fn queue(self) -> String {
        match self {
            Self::OneMachine => QUEUE.to_owned(),
            Self::ManyMachines(machine) => format!("{QUEUE}-{machine}"),
        }
    }
}

/// A command to run, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AddedCommand {
    pub argv: Vec<ByteString>,
    pub environment: BTreeMap<String, String>,
}

impl AddedCommand {
    /// The command of these words. A single one is a script for the shell, as it is for `ostler map`.
    #[must_use]
    pub fn new(mut words: Vec<Vec<u8>>, environment: BTreeMap<String, String>) -> Self {
        if words.len() == 1 {
            words.splice(0..0, [b"sh".to_vec(), b"-c".to_vec()]);
        }
        Self { argv: words.into_iter().map(ByteString).collect(), environment }
    }

    /// The payload of its task.
    #[must_use]
    pub fn payload(&self) -> String {
        // Texts and lists of numbers: there is nothing that JSON cannot have.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Whether a node that is alive serves the queue, other than those of this name.
#[must_use]
pub fn is_served(survey: &Survey, queue: &str, but_for: Option<&str>) -> bool {
    survey.nodes.iter().any(|node| {
        node.liveness == Liveness::Alive
            && Some(node.name.as_str()) != but_for
            && published::queues(node).contains(queue)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_is_a_script_and_several_are_an_argv() {
        let payload = |words: &[&[u8]]| {
            let words = words.iter().map(|word| word.to_vec()).collect();
            AddedCommand::new(words, BTreeMap::from([("PATH".into(), "/bin".into())])).payload()
        };
        assert_eq!(
            payload(&[b"make && make test"]),
            r#"{"argv":["sh","-c","make && make test"],"environment":{"PATH":"/bin"}}"#
        );
        assert_eq!(
            payload(&[b"make", b"-j4", b"\xff"]),
            r#"{"argv":["make","-j4",[255]],"environment":{"PATH":"/bin"}}"#
        );
    }

    #[test]
    fn a_store_of_many_machines_has_a_queue_for_each() {
        assert_eq!(StoreReach::OneMachine.queue(), "commands");
        assert_eq!(StoreReach::ManyMachines("anna").queue(), "commands-anna");
    }
}
