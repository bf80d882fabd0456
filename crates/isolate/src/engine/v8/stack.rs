//! The stack of an error as text: call sites, one in a line, without the error itself, as QuickJS has it.

/// Bytes of a stack.
const MAX_STACK_BYTES: usize = 16 * 1024;

/// Called by V8 when a script first reads the stack of an error. A call site is never given to a script.
pub(super) fn text<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    _error: v8::Local<'s, v8::Value>,
    sites: v8::Local<'s, v8::Array>,
) -> v8::Local<'s, v8::Value> {
    // A site cannot be printed when the stack is exhausted, or when the script is being terminated.
    v8::tc_scope!(let scope, scope);
    let mut text = String::new();
    for at in 0..sites.length() {
        let Some(site) = sites.get_index(scope, at).and_then(|site| site.to_string(scope)) else { break };
        text.push_str("    at ");
        text.push_str(&site.to_rust_string_lossy(scope));
        text.push('\n');
        if text.len() > MAX_STACK_BYTES {
            break;
        }
    }
    match v8::String::new(scope, &text) {
        Some(text) => text.into(),
        None => v8::undefined(scope).into(),
    }
}
