//! Conformance suite for stores. Only tests see this crate.
//!
//! A store brings a [`Constructor`]; the suite brings the rest:
//!
//! - [`topics`]: small named cases, verb by verb, for everything a user would notice.
//! - [`switches`]: disables one safety check of the store at a time, and expects a case to fail.
//! - [`sequences`]: random operations on the store and on the reference, which must give the same answers.
//! - [`races`]: two connections act on the same task at the same time; exactly one wins.
//!
//! [`Memory`] is the reference, short and simple: it specifies the verbs.
//!
//! [`run`] does all four. A store's test file may also call them separately, to run them in parallel.

mod clock;
mod fixture;
mod memory;
mod picture;
pub mod races;
mod reference;
mod sample_events;
mod scene;
pub mod sequences;
mod suite;
pub mod switches;
pub mod topics;

pub use clock::ManualClock;
pub use fixture::{BoxFuture, Constructor, Fixture, Halfway};
pub use memory::Memory;
pub use picture::Picture;
pub use reference::reference;
pub use sample_events::one_of_each;
pub use suite::{Counts, note, run};
