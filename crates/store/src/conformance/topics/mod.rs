//! Small named cases, a file per topic. Each gets a store of its own and says what a user would notice.

mod amend;
mod bounds;
mod breakers;
mod cancel;
mod claim;
mod deadlines;
mod dependencies;
mod dependents;
mod enqueue;
mod events;
mod expire;
mod finish;
mod hearing;
mod holds;
mod limits;
mod list;
mod news;
mod orders;
mod prune;
mod queues;
mod rates;
mod release;
mod replay;
mod runner;
mod sessions;
mod show;
mod start;
mod steps;
mod survey;
mod tellings;
mod unique;
mod upkeep;
mod wakeups;

pub use runner::run;
pub(super) use runner::{Topic, outcome, topics, words};
