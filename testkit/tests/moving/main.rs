//! A store moves from SQLite to PostgreSQL: nothing is lost, nothing is there twice, and it goes on as if nothing had happened.

mod alive;
mod fill;
mod killed;
mod place;
mod refusals;
mod sequences;
mod whole;
