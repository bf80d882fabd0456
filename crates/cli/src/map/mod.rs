//! `ostler map`: a command over many items, as a job in the store.
//!
//! [`item`], [`template`], [`source`] and [`halt`] say what the words on the command line mean, [`identity`] which job that is,
//! [`plan`] puts them together, [`former`] finds what is done already. [`run`] does it; [`report`] prints what comes out, [`progress`] how far it is, [`results`] writes it down.

pub(crate) mod fingerprint;
pub(crate) mod former;
pub(crate) mod halt;
pub(crate) mod item;
pub(crate) mod job;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod source;
pub(crate) mod tally;
pub(crate) mod template;
