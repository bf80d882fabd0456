//! One suite for every store.
//!
//! A store brings a [`Constructor`]; the suite brings everything else:
//!
//! - [`topics`]: small named cases, verb by verb: what a user would notice.
//! - [`switches`]: takes one safety check out of the store, and expects the cases to turn red.
//! - [`sequences`]: random operations on the store and on the reference, which must answer alike.
//! - [`races`]: two connections at the same task at the same moment; exactly one wins.
//!
//! [`run`] does all four. A store's test file may also call them one by one, to run them in parallel.

mod clock;
mod fixture;
mod picture;
pub mod races;
mod reference;
mod scene;
pub mod sequences;
mod suite;
pub mod switches;
pub mod topics;

pub use clock::ManualClock;
pub use fixture::{BoxFuture, Constructor, Fixture, Halfway};
pub use picture::Picture;
pub use reference::reference;
pub use suite::{Counts, note, run};
