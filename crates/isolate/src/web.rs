//! URLs for the prelude: the `url` crate behind the JavaScript class `URL`.

use serde::{Deserialize, Serialize};
use url::{Position, Url, quirks};

/// Bytes of a URL that the prelude parses.
const MAX_URL_BYTES: usize = 64 * 1024;

/// A request of the prelude: parse `url` against `base`, then set one part.
#[derive(Deserialize)]
struct UrlRequest {
    url: String,
    base: Option<String>,
    set: Option<(String, String)>,
}

/// The parts of a URL, named as in JavaScript.
#[derive(Serialize)]
struct UrlParts<'a> {
    href: &'a str,
    origin: String,
    protocol: &'a str,
    username: &'a str,
    password: &'a str,
    host: &'a str,
    hostname: &'a str,
    port: &'a str,
    pathname: &'a str,
    search: &'a str,
    hash: &'a str,
}

/// Parses a URL, or sets a part of one. JSON in and out.
pub(crate) fn url(text: &str) -> Result<String, String> {
    if text.len() > MAX_URL_BYTES {
        return Err("Invalid URL: too long".to_owned());
    }
    let request: UrlRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let invalid = |_| format!("Invalid URL: {}", request.url);
    let base = request.base.as_deref().map(Url::parse).transpose().map_err(invalid)?;
    let mut url = Url::options().base_url(base.as_ref()).parse(&request.url).map_err(invalid)?;
    if let Some((part, value)) = &request.set {
        set(&mut url, part, value)?;
    }
    let parts = UrlParts {
        href: url.as_str(),
        origin: quirks::origin(&url),
        protocol: quirks::protocol(&url),
        username: quirks::username(&url),
        password: quirks::password(&url),
        host: &url[Position::BeforeHost..Position::AfterPort],
        hostname: quirks::hostname(&url),
        port: quirks::port(&url),
        pathname: quirks::pathname(&url),
        search: quirks::search(&url),
        hash: quirks::hash(&url),
    };
    serde_json::to_string(&parts).map_err(|error| error.to_string())
}

/// Sets a part as the setter of the same name does. A value that does not fit is ignored, except for `href`.
fn set(url: &mut Url, part: &str, value: &str) -> Result<(), String> {
    match part {
        "href" => quirks::set_href(url, value).map_err(|_| format!("Invalid URL: {value}"))?,
        "protocol" => drop(quirks::set_protocol(url, value)),
        "username" => drop(quirks::set_username(url, value)),
        "password" => drop(quirks::set_password(url, value)),
        "host" => drop(quirks::set_host(url, value)),
        "hostname" => drop(quirks::set_hostname(url, value)),
        "port" => drop(quirks::set_port(url, value)),
        "pathname" => quirks::set_pathname(url, value),
        "search" => quirks::set_search(url, value),
        "hash" => quirks::set_hash(url, value),
        other => return Err(format!("a URL has no part \"{other}\"")),
    }
    Ok(())
}
