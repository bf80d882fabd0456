//! Races: two connections act on the same task at the same time. Exactly one wins, and over many rounds each side does:
//! a race that always has the same winner tests nothing.

mod plans;
mod rounds;
mod run;

pub use run::run;
