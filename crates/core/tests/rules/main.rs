//! The rules, without a store: tables, and properties with fixed seeds.

mod budgets;
mod decide_table;
mod end_kinds;
mod fixed;
mod guide_table;
mod ids;
mod properties;
mod ranks;
mod retries;
