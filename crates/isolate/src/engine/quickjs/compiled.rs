//! Compiled code, kept by content: the prelude, and the functions that an engine has loaded before.
//!
//! A fresh isolate spends more time in the parser than in anything else, if it parses the prelude. Both are compiled once for an engine, which
//! is one thread: a host process has one.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use rquickjs::{CatchResultExt as _, Context, Ctx, Error, Function, Runtime};

use super::bytecode::{ModuleCode, ScriptCode};
use super::isolate::Intrinsics;
use crate::engine::LiveIsolate;
use crate::prelude;

/// Functions whose code is kept.
const MAX_FUNCTIONS: usize = 1_024;
/// Bytes of code of all of them. A host may grow by more than this before it leaves.
const MAX_BYTES: usize = 8 << 20;

/// The code that isolates of one engine share.
#[derive(Default)]
pub(super) struct CompiledCode {
    prelude: OnceCell<CompiledPrelude>,
    pub(super) functions: RefCell<FunctionCache>,
}

impl CompiledCode {
    /// The prelude, which the first caller compiles.
    ///
    /// # Panics
    /// When the prelude of this program cannot be compiled.
    pub(super) fn prelude(&self) -> &CompiledPrelude {
        self.prelude.get_or_init(|| {
            CompiledPrelude::new().unwrap_or_else(|error| panic!("the prelude cannot be compiled: {error}"))
        })
    }
}

/// The core and the parts of the prelude.
pub(super) struct CompiledPrelude {
    core: ScriptCode,
    parts: HashMap<&'static str, ScriptCode>,
}

impl CompiledPrelude {
    /// Compiles in an isolate of its own, in which no function ever runs.
    fn new() -> Result<Self, String> {
        let _live = LiveIsolate::new();
        let failed = |error: Error| error.to_string();
        let runtime = Runtime::new().map_err(failed)?;
        let context = Context::custom::<Intrinsics>(&runtime).map_err(failed)?;
        context.with(|ctx| {
            let compile = |name: &str, source| {
                let compiled = ScriptCode::compile(&ctx, &format!("ostler:{name}"), source);
                compiled.catch(&ctx).map_err(|error| error.to_string())
            };
            let parts = prelude::PARTS.into_iter().map(|(name, source)| Ok((name, compile(name, source)?)));
            Ok(Self { core: compile("core", prelude::CORE)?, parts: parts.collect::<Result<_, String>>()? })
        })
    }

    /// The function that the core is.
    pub(super) fn core<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Function<'js>> {
        self.core.evaluate(ctx)?.get()
    }

    /// The function that a part is, if there is such a part.
    pub(super) fn part<'js>(&self, ctx: &Ctx<'js>, name: &str) -> Option<rquickjs::Result<Function<'js>>> {
        self.parts.get(name).map(|code| code.evaluate(ctx)?.get())
    }
}

/// The code of a function's modules, by their paths.
#[derive(Default)]
pub(super) struct CompiledFunction(HashMap<String, ModuleCode>);

impl CompiledFunction {
    pub(super) fn add(&mut self, path: &str, code: ModuleCode) {
        self.0.insert(path.to_owned(), code);
    }

    pub(super) fn module(&self, path: &str) -> Option<&ModuleCode> {
        self.0.get(path)
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(path, code)| path.len() + code.bytes()).sum()
    }
}

/// Compiled functions, by the hash of their sources: a changed file is another function. The oldest ones make room.
#[derive(Default)]
pub(super) struct FunctionCache {
    kept: HashMap<[u8; 32], Rc<CompiledFunction>>,
    /// What is kept, oldest first.
    order: VecDeque<[u8; 32]>,
    bytes: usize,
}

impl FunctionCache {
    pub(super) fn find(&self, hash: &[u8; 32]) -> Option<Rc<CompiledFunction>> {
        self.kept.get(hash).cloned()
    }

    /// Keeps a function, unless it alone is larger than the cache.
    pub(super) fn keep(&mut self, hash: [u8; 32], function: CompiledFunction) {
        let bytes = function.bytes();
        if bytes > MAX_BYTES || self.kept.contains_key(&hash) {
            return;
        }
        while self.order.len() >= MAX_FUNCTIONS || self.bytes + bytes > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.kept.remove(&oldest).map_or(0, |function| function.bytes());
        }
        self.bytes += bytes;
        self.order.push_back(hash);
        self.kept.insert(hash, Rc::new(function));
    }
}

#[cfg(test)]
mod tests {
    use rquickjs::Module;

    use super::*;

    /// A compiled function with a text of so many bytes in it.
    fn function(bytes: usize) -> CompiledFunction {
        let runtime = Runtime::new().expect("there is memory");
        let context = Context::custom::<Intrinsics>(&runtime).expect("there is memory");
        let text = format!("export default '{}'", "x".repeat(bytes));
        let code = context.with(|ctx| {
            let module = Module::declare(ctx.clone(), "test.js", text).expect("it is right");
            ModuleCode::of(&ctx, &module).expect("there is memory").expect("it has no templates")
        });
        let mut function = CompiledFunction::default();
        function.add("test.js", code);
        function
    }

    fn hash(number: usize) -> [u8; 32] {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    #[test]
    fn the_oldest_functions_make_room_for_others() {
        let mut cache = FunctionCache::default();
        for number in 0..MAX_FUNCTIONS + 10 {
            cache.keep(hash(number), function(1));
        }
        assert_eq!((cache.kept.len(), cache.order.len()), (MAX_FUNCTIONS, MAX_FUNCTIONS));
        assert!(cache.find(&hash(9)).is_none() && cache.find(&hash(10)).is_some());
        let many = cache.bytes;
        cache.keep(hash(10), function(1));
        assert_eq!(cache.bytes, many, "one that is kept is not counted twice");
    }

    #[test]
    fn large_functions_make_room_by_their_bytes() {
        let mut cache = FunctionCache::default();
        for number in 0..5 {
            cache.keep(hash(number), function(MAX_BYTES / 4));
        }
        assert!(cache.bytes <= MAX_BYTES && cache.kept.len() < 4, "{} bytes", cache.bytes);
        assert!(cache.find(&hash(4)).is_some());
        cache.keep(hash(9), function(MAX_BYTES));
        assert!(cache.find(&hash(9)).is_none() && cache.find(&hash(4)).is_some(), "it is too large");
        let counted: usize = cache.kept.values().map(|function| function.bytes()).sum();
        assert_eq!(cache.bytes, counted);
    }
}
