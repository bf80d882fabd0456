//! When recurring work runs: cron lines in time zones, intervals and single times.
//!
//! A store keeps the text of a [`ScheduleSpec`] and does not interpret it. Nodes fire by it, and views and use cases show it. It is a
//! crate of its own, so that those who only read a store need no executor for it, and a store needs no calendar.

mod cron;
mod planned;
mod spec;

pub use cron::{CronLine, local_timezone};
pub use planned::PlannedSchedule;
pub use spec::{BadScheduleSpec, Interval, ScheduleSpec};
