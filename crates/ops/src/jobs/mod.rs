//! Jobs: batches of tasks from one template. [`find`] them by id or name, [`manage`] them as a whole; [`spec`] has their stored form,
//! [`results`] the results of their items.

mod find;
pub mod manage;
pub mod results;
pub mod spec;

pub use find::{FailedItem, JobRunner, by_id, find, list, made_from, server, show, view};
pub use spec::{ItemPayload, JobSpec, ServedBy};
