//! Modules in V8: the modules of an isolate, and the imports of a source.

use std::collections::HashMap;

use super::callbacks;
use super::start::shared;
use super::state::state_of;
use crate::engine::LiveIsolate;
use crate::function::{FunctionSource, ModuleKind, resolve};

/// Heap for parsing one source, which is itself bounded.
const PARSE_MEMORY_BYTES: usize = 256 << 20;
/// Stack for parsing one source.
const PARSE_STACK_BYTES: usize = 512 << 10;
/// What a script imports that is not there.
const NOT_STATIC: &str = "only modules that a function imports statically can be imported";

/// The modules that an isolate may import: those of its function, which are known before it runs.
#[derive(Default)]
pub(super) struct ModuleTable {
    source: Option<FunctionSource>,
    compiled: HashMap<String, v8::Global<v8::Module>>,
    /// The paths of compiled modules, by the ids of their scripts.
    paths: HashMap<i32, String>,
}

impl ModuleTable {
    pub(super) fn new(source: &FunctionSource) -> Self {
        Self { source: Some(source.clone()), ..Self::default() }
    }

    #[cfg(test)]
    pub(super) fn script_ids(&self) -> Vec<i32> {
        self.paths.keys().copied().collect()
    }
}

/// Why a module cannot be used.
pub(super) enum ModuleFault {
    /// A specifier leads nowhere: the message of a `ReferenceError`.
    Unresolved(String),
    /// An exception is pending.
    Thrown,
}

/// Compiles a module and all that it imports.
pub(super) fn compiled<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    path: &str,
) -> Result<v8::Local<'s, v8::Module>, ModuleFault> {
    let first = compiled_alone(scope, path)?;
    let mut wanted = vec![(path.to_owned(), first)];
    while let Some((importer, module)) = wanted.pop() {
        for specifier in specifiers(scope, module) {
            let path = resolved(scope, &importer, &specifier).map_err(ModuleFault::Unresolved)?;
            let is_known =
                state_of(scope).is_some_and(|state| state.modules.borrow().compiled.contains_key(&path));
            if !is_known {
                let module = compiled_alone(scope, &path)?;
                wanted.push((path, module));
            }
        }
    }
    Ok(first)
}

/// The path of an import, if it is one of the function's modules.
fn resolved(isolate: &v8::Isolate, importer: &str, specifier: &str) -> Result<String, String> {
    let refused = |why: &str| format!("Error resolving module '{specifier}' from '{importer}': {why}");
    let path = resolve(importer, specifier).map_err(|why| refused(&why))?;
    let state = state_of(isolate).ok_or_else(|| refused(NOT_STATIC))?;
    let modules = state.modules.borrow();
    match modules.source.as_ref().and_then(|source| source.module(&path)) {
        Some(_) => Ok(path),
        None => Err(refused(NOT_STATIC)),
    }
}

fn compiled_alone<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    path: &str,
) -> Result<v8::Local<'s, v8::Module>, ModuleFault> {
    let state = state_of(scope).ok_or(ModuleFault::Thrown)?;
    let known = state.modules.borrow().compiled.get(path).cloned();
    if let Some(known) = known {
        return Ok(v8::Local::new(scope, &known));
    }
    let text = {
        let modules = state.modules.borrow();
        let module = modules.source.as_ref().and_then(|source| source.module(path)).cloned();
        module.ok_or_else(|| ModuleFault::Unresolved(NOT_STATIC.to_owned()))?
    };
    let module = match text.kind {
        ModuleKind::JavaScript => compile(scope, path, &text.text),
        ModuleKind::Json => {
            // As a literal, a key `__proto__` would set the prototype.
            let literal = serde_json::to_string(&*text.text).unwrap_or_default();
            compile(scope, path, &format!("export default JSON.parse({literal});"))
        }
    };
    let module = module.ok_or(ModuleFault::Thrown)?;
    let mut modules = state.modules.borrow_mut();
    modules.compiled.insert(path.to_owned(), v8::Global::new(scope, module));
    if let Some(id) = module.script_id() {
        modules.paths.insert(id, path.to_owned());
    }
    Ok(module)
}

fn compile<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    path: &str,
    text: &str,
) -> Option<v8::Local<'s, v8::Module>> {
    let name = v8::String::new(scope, path)?.into();
    let origin = v8::ScriptOrigin::new(scope, name, 0, 0, false, 0, None, false, false, true, None);
    let text = v8::String::new(scope, text)?;
    let mut source = v8::script_compiler::Source::new(text, Some(&origin));
    v8::script_compiler::compile_module(scope, &mut source)
}

/// What a module imports statically.
fn specifiers(scope: &mut v8::PinScope<'_, '_>, module: v8::Local<'_, v8::Module>) -> Vec<String> {
    let requests = module.get_module_requests();
    (0..requests.length())
        .filter_map(|at| requests.get(scope, at))
        .filter_map(|request| v8::Local::<v8::ModuleRequest>::try_from(request).ok())
        .map(|request| request.get_specifier().to_rust_string_lossy(scope))
        .collect()
}

/// The module behind a static import, when modules are linked: all of them are compiled.
pub(super) fn imported<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    specifier: v8::Local<'s, v8::String>,
    importer: v8::Local<'s, v8::Module>,
) -> Option<v8::Local<'s, v8::Module>> {
    let state = state_of(scope)?;
    let importer = state.modules.borrow().paths.get(&importer.script_id()?).cloned()?;
    let path = resolved(scope, &importer, &specifier.to_rust_string_lossy(scope)).ok()?;
    let module = state.modules.borrow().compiled.get(&path).cloned()?;
    Some(v8::Local::new(scope, &module))
}

/// `import()`: a module of the function, or an error in the promise.
pub(super) fn import_dynamically<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    _options: v8::Local<'s, v8::Data>,
    importer: v8::Local<'s, v8::Value>,
    specifier: v8::Local<'s, v8::String>,
    _attributes: v8::Local<'s, v8::FixedArray>,
) -> Option<v8::Local<'s, v8::Promise>> {
    let importer = importer.to_rust_string_lossy(scope);
    let specifier = specifier.to_rust_string_lossy(scope);
    let path = resolved(scope, &importer, &specifier);
    let module = path.map_err(ModuleFault::Unresolved).and_then(|path| compiled(scope, &path));
    match module {
        Ok(module) => {
            module.instantiate_module(scope, callbacks::resolve_module)?;
            let evaluated = v8::Local::<v8::Promise>::try_from(module.evaluate(scope)?).ok()?;
            let namespace = module.get_module_namespace();
            let then = v8::Function::builder(return_data).data(namespace).build(scope)?;
            evaluated.then(scope, then)
        }
        Err(ModuleFault::Unresolved(message)) => {
            let message = v8::String::new(scope, &message)?;
            let error = v8::Exception::reference_error(scope, message);
            let resolver = v8::PromiseResolver::new(scope)?;
            resolver.reject(scope, error)?;
            Some(resolver.get_promise(scope))
        }
        Err(ModuleFault::Thrown) => None,
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the form of a callback of V8")]
fn return_data(
    _scope: &mut v8::PinScope<'_, '_>,
    arguments: v8::FunctionCallbackArguments<'_>,
    mut result: v8::ReturnValue<'_, v8::Value>,
) {
    result.set(arguments.data());
}

/// The static imports of a source. It is parsed in an isolate of its own, and not executed.
pub(super) fn imports(name: &str, source: &str) -> Result<Vec<String>, String> {
    let _live = LiveIsolate::new();
    let params = shared().snapshot.params().heap_limits(0, PARSE_MEMORY_BYTES);
    let mut isolate = v8::Isolate::new(callbacks::with_stack_limit(params, PARSE_STACK_BYTES));
    v8::scope!(let scope, &mut isolate);
    let context = v8::Context::new(scope, v8::ContextOptions::default());
    let scope = &mut v8::ContextScope::new(scope, context);
    v8::tc_scope!(let scope, scope);
    match compile(scope, name, source) {
        Some(module) => Ok(specifiers(scope, module)),
        None => {
            let (error, place) = (scope.exception(), scope.message());
            Err(syntax_error(scope, name, error, place))
        }
    }
}

/// An error of a module as text, with its place.
pub(super) fn syntax_error<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    name: &str,
    error: Option<v8::Local<'s, v8::Value>>,
    place: Option<v8::Local<'s, v8::Message>>,
) -> String {
    let Some(error) = error.and_then(|error| error.to_string(scope)) else {
        return format!("{name}: it cannot be parsed");
    };
    let error = error.to_rust_string_lossy(scope);
    let Some(place) = place else { return format!("{error} ({name})") };
    let file = place.get_script_resource_name(scope).map(|file| file.to_rust_string_lossy(scope));
    let line = place.get_line_number(scope).unwrap_or(0);
    let column = place.get_start_column() + 1;
    format!("{error} ({}:{line}:{column})", file.as_deref().unwrap_or(name))
}
