//! The dialect of Claude Code: `claude -p --output-format=stream-json`.

mod ending;
mod plan;
mod stream;

pub(super) use plan::plan;
pub(super) use stream::Stream;
