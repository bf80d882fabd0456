//! Moves a store from SQLite to PostgreSQL: no data is lost or duplicated, and work continues as before.

mod alive;
mod fill;
mod killed;
mod place;
mod refusals;
mod sequences;
mod whole;
