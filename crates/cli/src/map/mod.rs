//! `ostler map`: runs a command over many items, as a job in the store.
//!
//! [`words`], [`source`], [`halt`], [`prompt`], [`pool`] and [`plan`] parse the command line; `ostler-ops` has the template, the fingerprint and
//! the tasks, and finds an earlier run, which [`former`] describes. [`run`] runs the job, and [`watch`] waits for its end;
//! [`unserved`] says why items are never claimed, and [`allowance`] that a usage limit is near; [`report`] prints outputs, [`progress`] and
//! [`table`] show the progress, [`pilot`] asks about the other items and [`budget`] about more money, by a [`question`], and [`results`]
//! writes the results.

pub(crate) mod allowance;
pub(crate) mod budget;
pub(crate) mod command;
pub(crate) mod former;
pub(crate) mod halt;
pub(crate) mod item_folders;
pub(crate) mod pilot;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod progress;
pub(crate) mod prompt;
pub(crate) mod question;
pub(crate) mod report;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod tally;
pub(crate) mod unserved;
pub(crate) mod watch;
pub(crate) mod words;
