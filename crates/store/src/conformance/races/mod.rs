//! Two connections at the same task at the same moment. Exactly one wins, and over many rounds each of them
//! does: a race that always ends the same way tests nothing.

mod plans;
mod rounds;
mod run;

pub use run::run;
