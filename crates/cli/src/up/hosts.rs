//! This program as a host process of JavaScript functions, started again by its node.

use ostler_isolate::host_process;

use crate::exit::Code;

/// Runs as a host; see [`host_process::run`].
pub(crate) fn host_functions() -> anyhow::Result<Code> {
    match host_process::run()? {}
}
