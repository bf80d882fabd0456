//! The verbs, each as statements inside one transaction. No rule is made here: `ostler_core` decides, and these
//! write what it says.

pub(crate) mod claim;
pub(crate) mod enqueue;
pub(crate) mod events;
pub(crate) mod expire;
pub(crate) mod finish;
pub(crate) mod jobs;
pub(crate) mod make_ready;
pub(crate) mod node_commands;
pub(crate) mod outbox;
pub(crate) mod prune;
pub(crate) mod schedules;
pub(crate) mod sessions;
pub(crate) mod start;
pub(crate) mod survey;
