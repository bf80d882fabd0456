//! The snapshot that isolates start from: a context in which the prelude has been executed.

use std::borrow::Cow;

use v8::MapFnTo as _;

use super::state::state_of;
use crate::prelude;

/// What V8 needs before the core.
const ADAPT: &str = include_str!("adapt.js");
/// Finds a part of the prelude, all of which are parsed in the snapshot and executed when they are first used.
const FIND_PART: &str = "(parts) => (name) => parts[name]";

/// A snapshot, made once in a process.
pub(super) struct Snapshot {
    blob: &'static [u8],
    /// Where the entry function is in the context's data.
    entry: usize,
}

impl Snapshot {
    /// Executes the prelude, and keeps the heap.
    ///
    /// # Panics
    /// When the prelude fails.
    pub(super) fn make() -> Self {
        let mut creator = v8::Isolate::snapshot_creator(Some(references()), None);
        let entry = {
            v8::scope!(let scope, &mut creator);
            let context = v8::Context::new(scope, v8::ContextOptions::default());
            let scope = &mut v8::ContextScope::new(scope, context);
            let entry = run_prelude(scope).expect("the prelude is executed");
            scope.set_default_context(context);
            scope.add_context_data(context, entry)
        };
        let blob = creator.create_blob(v8::FunctionCodeHandling::Keep).expect("there is memory");
        Self { blob: Box::leak(blob.to_vec().into_boxed_slice()), entry }
    }

    /// The parameters of an isolate that starts from it.
    pub(super) fn params(&self) -> v8::CreateParams {
        v8::Isolate::create_params().snapshot_blob(self.blob.into()).external_references(references())
    }

    /// The entry function, once in a context.
    pub(super) fn take_entry<'s>(
        &self,
        scope: &mut v8::PinScope<'s, '_>,
    ) -> Option<v8::Local<'s, v8::Function>> {
        scope.get_context_data_from_snapshot_once(self.entry).ok()
    }
}

/// The address of the host function, which the snapshot and all isolates must agree on: it is in one place.
#[inline(never)]
fn native_host() -> v8::FunctionCallback {
    host.map_fn_to()
}

/// The addresses that the snapshot refers to.
fn references() -> Cow<'static, [v8::ExternalReference]> {
    vec![v8::ExternalReference { function: native_host() }].into()
}

fn run_prelude<'s>(scope: &mut v8::PinScope<'s, '_>) -> Option<v8::Local<'s, v8::Function>> {
    let host = v8::Function::builder_raw(native_host()).build(scope)?;
    let receiver = v8::undefined(scope).into();
    evaluated(scope, "v8", ADAPT)?.call(scope, receiver, &[])?;

    let null = v8::null(scope).into();
    let parts = v8::Object::with_prototype_and_properties(scope, null, &[], &[]);
    for (name, source) in prelude::PARTS {
        let part = evaluated(scope, name, source)?;
        let name = v8::String::new(scope, name)?;
        parts.set(scope, name.into(), part.into())?;
    }
    let find = evaluated(scope, "parts", FIND_PART)?.call(scope, receiver, &[parts.into()])?;
    let core = evaluated(scope, "core", prelude::CORE)?;
    core.call(scope, receiver, &[host.into(), find])?.try_into().ok()
}

/// The function that a part of the prelude is.
fn evaluated<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    name: &str,
    source: &str,
) -> Option<v8::Local<'s, v8::Function>> {
    let name = v8::String::new(scope, &format!("ostler:{name}"))?.into();
    let origin = v8::ScriptOrigin::new(scope, name, 0, 0, false, 0, None, false, false, false, None);
    let source = v8::String::new(scope, &format!("\"use strict\";{source}"))?;
    v8::Script::compile(scope, source, Some(&origin))?.run(scope)?.try_into().ok()
}

/// The host function: text in and text out.
#[allow(clippy::needless_pass_by_value, reason = "the form of a callback of V8")]
fn host(
    scope: &mut v8::PinScope<'_, '_>,
    arguments: v8::FunctionCallbackArguments<'_>,
    mut result: v8::ReturnValue<'_, v8::Value>,
) {
    let text = |at| v8::Local::<v8::String>::try_from(arguments.get(at)).ok();
    let answer = match (state_of(scope), text(0), text(1)) {
        (Some(state), Some(op), Some(text)) => {
            let (op, text) = (op.to_rust_string_lossy(scope), text.to_rust_string_lossy(scope));
            let answer = state.bridge.host(&op, &text);
            if state.bridge.stopped().is_some() {
                scope.terminate_execution();
            }
            answer
        }
        (None, _, _) | (_, None, _) | (_, _, None) => Err("the host takes two texts".to_owned()),
    };
    match answer {
        Ok(answer) => match v8::String::new(scope, &answer) {
            Some(answer) => result.set(answer.into()),
            None => throw_type_error(scope, "the answer of the host is too long"),
        },
        Err(message) => throw_type_error(scope, &message),
    }
}

fn throw_type_error(scope: &mut v8::PinScope<'_, '_>, message: &str) {
    if let Some(message) = v8::String::new(scope, message) {
        let error = v8::Exception::type_error(scope, message);
        scope.throw_exception(error);
    }
}
