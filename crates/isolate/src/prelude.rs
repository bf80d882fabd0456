//! The prelude: the JavaScript that every isolate executes before a function's modules, the same for every engine.
//!
//! The core is executed at once. The parts are executed when they are first used. Engines compile both once, as strict code.

/// Returns the entry function that Rust calls.
pub(crate) const CORE: &str = include_str!("prelude/core.js");

/// The parts that are executed when they are first used: functions of the host function, the state of the core, and the other parts.
pub(crate) const PARTS: [(&str, &str); 12] = [
    ("abort", include_str!("prelude/abort.js")),
    ("calls", include_str!("prelude/calls.js")),
    ("clone", include_str!("prelude/clone.js")),
    ("console", include_str!("prelude/console.js")),
    ("crypto", include_str!("prelude/crypto.js")),
    ("ctx", include_str!("prelude/ctx.js")),
    ("errors", include_str!("prelude/errors.js")),
    ("fetch", include_str!("prelude/fetch.js")),
    ("timers", include_str!("prelude/timers.js")),
    ("tools", include_str!("prelude/tools.js")),
    ("text", include_str!("prelude/text.js")),
    ("url", include_str!("prelude/url.js")),
];
