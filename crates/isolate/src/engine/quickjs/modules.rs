//! Modules in QuickJS: the loader of an isolate, which compiles or takes compiled code, and the imports of a source.

use std::cell::RefCell;
use std::rc::Rc;

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Context, Ctx, Error, Exception, Module, Runtime};

use super::bytecode::ModuleCode;
use super::compiled::CompiledFunction;
use crate::engine::LiveIsolate;
use crate::function::{FunctionSource, ModuleKind, resolve};

/// Memory for parsing one source, which is itself bounded.
const PARSE_MEMORY_BYTES: usize = 256 << 20;
/// Stack for parsing one source.
const PARSE_STACK_BYTES: usize = 512 << 10;
/// Text of a module whose code is kept. A longer one is parsed for each isolate.
const MAX_KEPT_TEXT_BYTES: usize = 1 << 20;

/// The modules that an isolate may import: those of its function, which are known before it runs.
#[derive(Clone, Default)]
pub(super) struct Modules(Rc<RefCell<LoadedFunction>>);

#[derive(Default)]
struct LoadedFunction {
    source: Option<FunctionSource>,
    /// The code of its modules, if the engine has loaded it before.
    known: Option<Rc<CompiledFunction>>,
    /// The code of modules that this isolate has compiled. `None` when scripts have run in it.
    compiled: Option<CompiledFunction>,
}

impl Modules {
    pub(super) fn set(&self, source: &FunctionSource, known: Option<Rc<CompiledFunction>>) {
        let compiled = Some(CompiledFunction::default());
        *self.0.borrow_mut() = LoadedFunction { source: Some(source.clone()), known, compiled };
    }

    /// Declares a module, and all that it imports.
    pub(super) fn declare<'js>(&self, ctx: &Ctx<'js>, path: &str) -> rquickjs::Result<Module<'js, Declared>> {
        let (module, known) = {
            let function = self.0.borrow();
            let module = function.source.as_ref().and_then(|source| source.module(path)).cloned();
            (module.ok_or_else(|| Error::new_loading(path))?, function.known.clone())
        };
        if let Some(code) = known.as_ref().and_then(|function| function.module(path)) {
            return code.declare(ctx);
        }
        let declared = match module.kind {
            ModuleKind::JavaScript => Module::declare(ctx.clone(), path, &*module.text),
            ModuleKind::Json => {
                // As a literal, a key `__proto__` would set the prototype.
                let literal = serde_json::to_string(&*module.text).map_err(|_| Error::new_loading(path))?;
                Module::declare(ctx.clone(), path, format!("export default JSON.parse({literal});"))
            }
        }?;
        if self.0.borrow().compiled.is_some()
            && module.text.len() <= MAX_KEPT_TEXT_BYTES
            && let Some(code) = ModuleCode::of(ctx, &declared)?
            && let Some(compiled) = &mut self.0.borrow_mut().compiled
        {
            compiled.add(path, code);
        }
        Ok(declared)
    }

    /// The code of what was compiled, before any of it is executed.
    pub(super) fn take_compiled(&self) -> CompiledFunction {
        self.0.borrow_mut().compiled.take().unwrap_or_default()
    }
}

impl Resolver for Modules {
    fn resolve<'js>(
        &mut self,
        _ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<String> {
        let refused = |message: String| Error::new_resolving_message(base, name, message);
        let path = resolve(base, name).map_err(refused)?;
        let function = self.0.borrow();
        match function.source.as_ref().and_then(|source| source.module(&path)) {
            Some(_) => Ok(path),
            None => {
                Err(refused("only modules that a function imports statically can be imported".to_owned()))
            }
        }
    }
}

impl Loader for Modules {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<Module<'js, Declared>> {
        self.declare(ctx, name)
    }
}

/// Notes what a source imports, and answers with empty modules.
#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<Vec<String>>>);

impl Resolver for Recorder {
    fn resolve<'js>(
        &mut self,
        _ctx: &Ctx<'js>,
        _base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<String> {
        self.0.borrow_mut().push(name.to_owned());
        Ok(name.to_owned())
    }
}

impl Loader for Recorder {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<Module<'js, Declared>> {
        Module::declare(ctx.clone(), name, "")
    }
}

/// The static imports of a source. It is parsed in an isolate of its own, and not executed.
pub(super) fn imports(name: &str, source: &str) -> Result<Vec<String>, String> {
    let _live = LiveIsolate::new();
    let recorder = Recorder::default();
    let parsed = parse(name, source, &recorder);
    let recorded = recorder.0.take();
    parsed.map(|()| recorded)
}

fn parse(name: &str, source: &str, recorder: &Recorder) -> Result<(), String> {
    let failed = |error: Error| error.to_string();
    let runtime = Runtime::new().map_err(failed)?;
    let context = Context::full(&runtime).map_err(failed)?;
    runtime.set_memory_limit(PARSE_MEMORY_BYTES);
    runtime.set_max_stack_size(PARSE_STACK_BYTES);
    runtime.set_loader(recorder.clone(), recorder.clone());
    context.with(|ctx| {
        let parsed = Module::declare(ctx.clone(), name, source);
        parsed.map(|_| ()).map_err(|error| syntax_error(&ctx, name, &error))
    })
}

/// An error of a module as text, with its place.
pub(super) fn syntax_error(ctx: &Ctx<'_>, name: &str, error: &Error) -> String {
    if !error.is_exception() {
        return format!("{name}: {error}");
    }
    let value = ctx.catch();
    let Some(exception) = value.as_object().cloned().and_then(Exception::from_object) else {
        return format!("{name}: it cannot be parsed");
    };
    let kind: String = exception.get("name").unwrap_or_else(|_| "Error".to_owned());
    let message = exception.message().unwrap_or_default();
    let place = exception.stack().unwrap_or_default();
    let place = place.lines().next().unwrap_or_default().trim();
    match place.strip_prefix("at ") {
        Some(place) => format!("{kind}: {message} ({place})"),
        None => format!("{kind}: {message} ({name})"),
    }
}
