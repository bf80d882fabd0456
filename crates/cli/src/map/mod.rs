//! `ostler map`: runs a command over many items, as a job in the store.
//!
//! [`item`], [`template`], [`source`] and [`halt`] parse the command line, [`fingerprint`] identifies the job, [`plan`] combines
//! them, and [`former`] finds an earlier run. [`run`] runs the job; [`report`] prints outputs, [`progress`] shows the progress, and
//! [`results`] writes the results.

pub(crate) mod fingerprint;
pub(crate) mod former;
pub(crate) mod halt;
pub(crate) mod item;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod source;
pub(crate) mod tally;
pub(crate) mod template;
