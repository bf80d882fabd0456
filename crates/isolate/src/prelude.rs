//! The prelude: the JavaScript that every isolate executes before a function's modules, the same for every engine.
//!
//! The core is executed at once. The other parts make globals that many functions never use, and are executed at the first access.

/// Console, timers, `ctx`, and the entry function that Rust calls.
pub(crate) const CORE: &str = include_str!("prelude/core.js");

/// The parts that are executed when one of their globals is used.
const PARTS: [(&str, &str); 6] = [
    ("abort", include_str!("prelude/abort.js")),
    ("clone", include_str!("prelude/clone.js")),
    ("crypto", include_str!("prelude/crypto.js")),
    ("fetch", include_str!("prelude/fetch.js")),
    ("text", include_str!("prelude/text.js")),
    ("url", include_str!("prelude/url.js")),
];

/// The source of a part: a function of the tools that the core gives it.
pub(crate) fn part(name: &str) -> Option<&'static str> {
    PARTS.iter().find(|(part, _)| *part == name).map(|(_, source)| *source)
}
