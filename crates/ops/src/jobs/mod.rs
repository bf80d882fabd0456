//! Jobs: batches of tasks from one template. [`find()`] them by id or name, [`manage`] them as a whole; [`results`] has the results of
//! their items.
//!
//! [`create`] makes one for a running node. [`plan`] makes one from a template and items, and [`former`] finds its earlier run, by the fingerprint; items may have several [`parts`]. The first items may be a
//! [`pilot`], and a [`synthesis`] the last task.

pub mod create;
mod find;
mod fingerprint;
pub mod former;
mod item;
pub mod manage;
pub mod parts;
pub mod pilot;
mod placeholder;
pub mod plan;
mod quoting;
pub mod results;
mod spec;
pub mod synthesis;
mod template;
mod totals;

pub use find::{FailedItem, JobRunner, by_id, existing, find, list, page, server, serving, show, view};
pub use fingerprint::ItemOrder;
pub use item::{Item, ItemForm, PathPart};
pub use placeholder::UnknownPlaceholder;
pub use quoting::{ShellPlace, shell_line};
pub use spec::{ItemFolders, ItemPayload, ItemWorktrees, JobPool, JobSpec, ServedBy};
pub use template::{ItemData, TemplateError};
pub use totals::JobTotals;
