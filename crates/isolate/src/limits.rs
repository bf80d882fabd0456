//! Limits of one call: memory, CPU time, wall time, stack, output, log lines, timers.

use std::time::Duration;

/// What one call of a function may use. A call that goes beyond a limit ends with the cause of that name
/// ([`FunctionEnd`](crate::FunctionEnd)).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FunctionLimits {
    /// Heap, strings and buffers of the isolate together. The prelude and the function's own code count too.
    pub memory_bytes: usize,
    /// CPU time of the thread, for loading the modules and for the call.
    pub cpu: Duration,
    /// Time that passes, including waits.
    pub wall: Duration,
    /// Native stack below the frame that created the isolate. A thread that runs functions needs [`THREAD_STACK_BYTES`].
    pub stack_bytes: usize,
    /// The JSON text that a function returns.
    pub output_bytes: usize,
    /// Lines written by `console` and `ctx.log`.
    pub log_lines: u32,
    /// Timers that are set and have not fired.
    pub timers: u32,
}

/// The stack that a thread needs for a call with the default limits: that of JavaScript, and room for the Rust code below and above.
pub const THREAD_STACK_BYTES: usize = 2 << 20;

impl FunctionLimits {
    /// The stack of a thread that runs functions within these limits.
    #[must_use]
    pub fn thread_stack_bytes(&self) -> usize {
        THREAD_STACK_BYTES + self.stack_bytes.saturating_sub(Self::default().stack_bytes)
    }
}

impl Default for FunctionLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            cpu: Duration::from_secs(1),
            wall: Duration::from_secs(30),
            stack_bytes: 512 << 10,
            output_bytes: 1 << 20,
            log_lines: 1_000,
            timers: 1_000,
        }
    }
}
