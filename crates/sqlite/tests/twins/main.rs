//! The embedded store and several processes: each test here starts this program again as another one (`Twin`).

mod control;
mod crash;
mod disk_full;
mod outbox;
mod processes;
mod refusals;
mod replays;
mod subscribers;
