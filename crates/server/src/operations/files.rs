//! Output files of tasks: only those that the store knows, unchanged since, as an attachment that a browser does not open.

use std::io::Read as _;

use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, HeaderValue};
use ostler_ops::tasks;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use sha2::{Digest as _, Sha256};

use crate::answer::{Answer, RequestError, plain};
use crate::call::ApiCall;
use crate::headers::SANDBOX;

/// The largest file that is sent.
const MAX_FILE_BYTES: u64 = 64 << 20;

pub(super) async fn file(call: ApiCall) -> Result<Answer, RequestError> {
    let shown = tasks::show(call.store(), &call.task()?).await?;
    let path = call.param("path").to_owned();
    let known = shown.view.detail.attempts.iter().rev().flat_map(|attempt| &attempt.files);
    let Some(known) = known.into_iter().find(|file| file.path == path).cloned() else {
        return Err(RequestError::not_found("the task has no such file"));
    };
    let Some(folder) = shown.record.task.folder else {
        return Err(RequestError::not_found("the task has no folder of its own, so its files are not kept"));
    };
    if known.size > MAX_FILE_BYTES {
        return Err(RequestError::conflict(
            "too_large",
            format!("the file has more than {MAX_FILE_BYTES} bytes"),
        ));
    }
    let name = path.clone();
    let read = tokio::task::spawn_blocking(move || read(&folder, &name)).await;
    let Ok(Ok(bytes)) = read else {
        return Err(RequestError::not_found("the file is gone, or is not on this machine"));
    };
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if digest != known.sha256 {
        return Err(RequestError::conflict("changed", "the file has changed since its attempt ended"));
    }
    let mut answer = plain(StatusCode::OK, "application/octet-stream", bytes);
    let name: String = path.rsplit('/').next().unwrap_or_default().chars().map(plain_char).collect();
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_DISPOSITION, disposition.unwrap_or(HeaderValue::from_static("attachment")));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    Ok(answer)
}

const fn plain_char(c: char) -> char {
    if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ') { c } else { '_' }
}

/// Reads a regular file beneath a folder. Links are not followed.
fn read(folder: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let folder = rustix::fs::openat(CWD, folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = std::fs::File::from(rustix::fs::openat2(&folder, path, flags, Mode::empty(), resolve)?);
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
