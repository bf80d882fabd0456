//! Payloads: from an argument, a file, or standard input.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use ostler_core::{MAX_NESTING, is_too_deep};
use ostler_store::Bounds;
use serde_json::Value;

use crate::exit::{Code, refused};

/// Reads the JSON text that `given` stands for, checked but otherwise unchanged.
pub(super) async fn read(given: OsString, bounds: Bounds) -> anyhow::Result<String> {
    // Standard input may be a terminal, and the user may interrupt.
    tokio::task::spawn_blocking(move || check(take(given, bounds)?, bounds)).await?
}

fn take(given: OsString, bounds: Bounds) -> anyhow::Result<Vec<u8>> {
    let bytes = given.as_bytes();
    if bytes == b"-" {
        return bounded(std::io::stdin().lock(), "standard input", bounds);
    }
    if let Some(path) = bytes.strip_prefix(b"@") {
        let path = Path::new(OsStr::from_bytes(path));
        let file = std::fs::File::open(path).map_err(|error| {
            refused(Code::BadInput, format!("payload: cannot read the file {}: {error}", path.display()))
        })?;
        return bounded(file, &path.display().to_string(), bounds);
    }
    Ok(given.into_vec())
}

/// Reads at most one byte more than the limit.
fn bounded(source: impl Read, what: &str, bounds: Bounds) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = source.take(bounds.payload_bytes as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| refused(Code::BadInput, format!("payload: cannot read {what}: {error}")))?;
    Ok(bytes)
}

/// Checks JSON text.
pub(super) fn check(bytes: Vec<u8>, bounds: Bounds) -> anyhow::Result<String> {
    let wrong = |sentence: String| refused(Code::BadInput, format!("payload: {sentence}"));
    if bytes.len() > bounds.payload_bytes {
        return Err(wrong(format!(
            "larger than the limit of {} bytes; put large data in a file and pass its path",
            bounds.payload_bytes
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        wrong(format!("must be UTF-8 text; byte {} is not", error.utf8_error().valid_up_to()))
    })?;
    if text.trim().is_empty() {
        return Err(wrong("empty; for no payload use null".to_owned()));
    }
    if is_too_deep(&text) {
        return Err(wrong(format!("arrays and objects are nested more than {MAX_NESTING} levels deep")));
    }
    match serde_json::from_str::<Value>(&text) {
        Ok(_) => Ok(text.trim().to_owned()),
        Err(error) => Err(wrong(format!("not JSON: {error}; a string needs quotes, such as '\"hello\"'"))),
    }
}
