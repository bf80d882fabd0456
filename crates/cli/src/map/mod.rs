//! `ostler map`: runs a command over many items, as a job in the store.
//!
//! [`source`], [`halt`] and [`plan`] parse the command line; `ostler-ops` has the template, the fingerprint and the tasks, and finds
//! an earlier run, of which [`former`] tells. [`run`] runs the job; [`report`] prints outputs, [`progress`] shows the progress, and
//! [`results`] writes the results.

pub(crate) mod former;
pub(crate) mod halt;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod source;
pub(crate) mod tally;
