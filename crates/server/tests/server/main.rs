//! Tests of the server over real sockets, on a real store. Tests of the program run the same over PostgreSQL.

mod bounds;
mod browser;
mod bulk;
mod counting;
mod documents;
mod forms;
mod live;
mod login;
mod matrix;
mod metrics;
mod openmetrics;
mod outages;
mod page;
mod page_actions;
mod page_answers;
mod page_why;
mod proxies;
mod readers;
mod reads;
mod sockets;
mod submit;
mod walk;
mod world;
