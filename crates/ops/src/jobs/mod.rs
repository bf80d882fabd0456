//! Jobs: batches of tasks from one template. [`find()`] them by id or name, [`manage`] them as a whole; [`results`] has the results of
//! their items.
//!
//! [`plan`] makes one from a template and items, and [`former`] finds its earlier run, by the fingerprint.

mod find;
mod fingerprint;
pub mod former;
mod item;
pub mod manage;
pub mod plan;
pub mod results;
mod spec;
mod template;

pub use find::{FailedItem, JobRunner, by_id, existing, find, list, server, serving, show, view};
pub use item::Item;
pub use spec::{ItemPayload, JobSpec, ServedBy};
pub use template::{ItemData, UnknownPlaceholder, quoted_if_needed};
