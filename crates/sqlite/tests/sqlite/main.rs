//! The embedded store within one process. No test here may start another process: until it execs, it has copies of all descriptors,
//! among them the liveness locks that other tests free and find free. Tests with several processes are in `twins`.

mod conformance;
mod gates;
mod hand_edited;
mod integrity;
mod replaced;
mod restore;
mod reused;
mod strangers;
mod unreadable;
mod views;
