//! `ostler top`: the system on a terminal, calm over a slow line.
//!
//! - `model.rs`: what is shown and selected, and what a key means. Pure.
//! - `rows.rs`: the tables, as text. `draw.rs`: one frame of a model. Both pure, and every text of a task in them is escaped.
//! - `screen.rs`: the terminal, which is restored however the program ends. `feed.rs`: reads the store while it is shown.
//! - `run.rs`: the loop, which draws only what has changed, at most four times a second.

mod draw;
mod feed;
mod model;
mod rows;
mod run;
mod screen;
#[cfg(test)]
mod tests;

pub(crate) use feed::findings;
pub(crate) use model::KeysAllowed;
pub(crate) use rows::text;
pub(crate) use run::{TopPlan, run};
