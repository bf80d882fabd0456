//! The style sheet and the scripts of the pages, embedded in the program. Their names have a hash of their content, so a browser may keep
//! them for ever, and a new version of the program has new names.

use std::sync::LazyLock;

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use sha2::{Digest as _, Sha256};

use crate::answer::{Answer, RequestError, plain};
use crate::call::ApiCall;

/// Letters of the hash in a name.
const HASH_LETTERS: usize = 12;

/// An embedded file.
pub(crate) struct Asset {
    /// The name with the hash.
    pub(crate) name: String,
    media: &'static str,
    text: &'static str,
}

impl Asset {
    fn new(stem: &str, ending: &str, media: &'static str, text: &'static str) -> Self {
        let hash: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name: format!("{stem}.{}.{ending}", &hash[..HASH_LETTERS]), media, text }
    }
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The style sheet.
pub(crate) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("app", "css", "text/css; charset=utf-8", include_str!("assets/app.css")));
/// The picture in the tab of a browser.
pub(crate) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("assets/icon.svg")));
/// What makes pages live.
pub(crate) static LIVE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("live", "js", SCRIPT, include_str!("assets/live.js")));
/// Logging in by the fragment of a link.
pub(crate) static LOGIN: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("login", "js", SCRIPT, include_str!("assets/login.js")));

pub(crate) async fn asset(call: ApiCall) -> Result<Answer, RequestError> {
    let wanted = call.param("name");
    let Some(asset) = [&STYLE, &ICON, &LIVE, &LOGIN].into_iter().find(|asset| asset.name == wanted) else {
        return Err(RequestError::not_found("there is no such file"));
    };
    let mut answer = plain(StatusCode::OK, asset.media, asset.text);
    let for_ever = HeaderValue::from_static("public, max-age=31536000, immutable");
    answer.headers_mut().insert(CACHE_CONTROL, for_ever);
    Ok(answer)
}
