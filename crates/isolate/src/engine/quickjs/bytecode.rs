//! Bytecode of QuickJS: the only file of this engine with `unsafe` in it.
//!
//! The engine trusts bytecode like native code. So a value here is made only from a source that this process has compiled, is never
//! changed, and lives in its memory alone: nothing is read from a file, a socket or a script. Scripts and modules are two types,
//! because the engine does not tell them apart when it reads them.
#![allow(unsafe_code, reason = "the engine cannot check bytecode, so reading it is unsafe")]

use std::cell::Cell;
use std::ffi::{CString, c_int};
use std::rc::Rc;

use rquickjs::module::{Declared, WriteOptions};
use rquickjs::object::Accessor;
use rquickjs::{Ctx, Error, Module, Object, Value, qjs};

/// A compiled script, without its source: its functions print as native ones.
pub(super) struct ScriptCode(Box<[u8]>);

/// A compiled module, with its source: functions of a task print as they were written.
pub(super) struct ModuleCode(Box<[u8]>);

impl ScriptCode {
    /// Compiles strict code, and does not execute it.
    pub(super) fn compile(ctx: &Ctx<'_>, name: &str, source: &str) -> rquickjs::Result<Self> {
        let (name, text) = (CString::new(name)?, CString::new(source)?);
        let context = ctx.as_raw().as_ptr();
        let flags = qjs::JS_EVAL_TYPE_GLOBAL | qjs::JS_EVAL_FLAG_STRICT | qjs::JS_EVAL_FLAG_COMPILE_ONLY;
        // SAFETY: both texts end with a zero, which the length does not count.
        let compiled = unsafe {
            qjs::JS_Eval(context, text.as_ptr(), length(source.len())?, name.as_ptr(), flags as c_int)
        };
        // SAFETY: the value is this context's, and owned.
        let compiled = unsafe { owned(ctx, compiled) }?;
        let flags = qjs::JS_WRITE_OBJ_BYTECODE | qjs::JS_WRITE_OBJ_STRIP_SOURCE;
        let mut bytes = 0;
        // SAFETY: the value lives until the end of this function.
        let written =
            unsafe { qjs::JS_WriteObject(context, &raw mut bytes, compiled.as_raw(), flags as c_int) };
        if written.is_null() {
            return Err(Error::Exception);
        }
        let bytes = usize::try_from(bytes).map_err(|_| Error::Unknown)?;
        // SAFETY: the engine has written so many bytes there.
        let code = unsafe { std::slice::from_raw_parts(written, bytes) }.into();
        // SAFETY: it is the engine's allocation, which nothing refers to any more.
        unsafe { qjs::js_free(context, written.cast()) };
        Ok(Self(code))
    }

    /// Executes the script.
    pub(super) fn evaluate<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Value<'js>> {
        let context = ctx.as_raw().as_ptr();
        let flags = qjs::JS_READ_OBJ_BYTECODE as c_int;
        // SAFETY: `compile` is the only constructor, so this is a script that this engine has written, byte for byte.
        let script = unsafe { qjs::JS_ReadObject(context, self.0.as_ptr(), length(self.0.len())?, flags) };
        // SAFETY: it looks at the tag alone.
        if unsafe { qjs::JS_IsException(script) } {
            return Err(Error::Exception);
        }
        // SAFETY: the value is this context's, and the engine takes it over.
        let value = unsafe { qjs::JS_EvalFunction(context, script) };
        // SAFETY: the value is this context's, and owned.
        unsafe { owned(ctx, value) }
    }
}

impl ModuleCode {
    /// The code of a module that was compiled from its source. `None` if there is no memory for it, and for one with tagged templates:
    /// the engine freezes the arrays of their texts, and does not when it reads code.
    ///
    /// No script may have run in this context.
    pub(super) fn of<'js>(ctx: &Ctx<'js>, module: &Module<'js, Declared>) -> rquickjs::Result<Option<Self>> {
        const RAW: &str = "raw";
        // The engine asks each of these arrays for its raw texts when it writes code, and the array of raw texts has none itself.
        let arrays: Object<'js> = ctx.globals().get::<_, Object<'js>>("Array")?.get("prototype")?;
        let has_templates = Rc::new(Cell::new(false));
        let asked = Rc::clone(&has_templates);
        arrays.prop(RAW, Accessor::from(move || asked.set(true)).configurable())?;
        let written = module.write(WriteOptions::default());
        arrays.remove(RAW)?;
        match written {
            Ok(code) if !has_templates.get() => Ok(Some(Self(code.into()))),
            Ok(_) => Ok(None),
            Err(_) => {
                drop(ctx.catch());
                Ok(None)
            }
        }
    }

    /// Declares the module. The loader of the runtime finds what it imports.
    pub(super) fn declare<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Module<'js, Declared>> {
        // SAFETY: `of` is the only constructor, so this is a module that this engine has written, byte for byte.
        unsafe { Module::load(ctx.clone(), &self.0) }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// A value of the engine, or its exception, which stays pending.
///
/// # Safety
/// The value must belong to the context, and to the caller.
unsafe fn owned<'js>(ctx: &Ctx<'js>, value: qjs::JSValue) -> rquickjs::Result<Value<'js>> {
    // SAFETY: the caller's promise.
    let value = unsafe { Value::from_raw(ctx.clone(), value) };
    if value.is_exception() { Err(Error::Exception) } else { Ok(value) }
}

fn length(bytes: usize) -> rquickjs::Result<qjs::size_t> {
    bytes.try_into().map_err(|_| Error::Unknown)
}
