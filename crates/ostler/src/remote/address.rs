//! Where a node is, and the token in the file beside its store.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use ostler_http::Uri;

use super::error::{RemoteError, RemoteErrorKind};

/// Bytes of a token file that are read: the API's limit for it.
const MAX_TOKEN_FILE_BYTES: u64 = 64 << 10;
/// Whose token a client has, unless it is named.
const OWNER: &str = "owner";

/// Where requests go.
#[derive(Clone, Debug)]
pub(crate) enum NodeAddress {
    /// The beginning of every address, without a slash at its end.
    Web(String),
    Socket(PathBuf),
}

impl NodeAddress {
    pub(crate) fn parse(text: &str) -> Result<Self, RemoteError> {
        let wrong = || {
            RemoteError::invalid("url", "expected http://host:port, https://host, or unix:/path/to/api.sock")
        };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(wrong()) } else { Ok(Self::Socket(PathBuf::from(path))) };
        }
        let base = text.trim_end_matches('/');
        let uri: Uri = base.parse().map_err(|_| wrong())?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none();
        // A password in an address would end up in messages.
        let is_plain = uri.authority().is_some_and(|whole| !whole.as_str().contains('@'));
        if is_web && is_plain { Ok(Self::Web(base.to_owned())) } else { Err(wrong()) }
    }

    /// For people.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Web(base) => base.clone(),
            Self::Socket(path) => format!("unix:{}", path.display()),
        }
    }

    /// The address of a path. The name of a host does not matter on a socket.
    pub(crate) fn uri(&self, path: &str) -> Result<Uri, RemoteError> {
        let base = match self {
            Self::Web(base) => base.as_str(),
            Self::Socket(_) => "http://localhost",
        };
        format!("{base}{path}")
            .parse()
            .map_err(|_| RemoteError::invalid("path", "the path is not an address"))
    }
}

/// The token of the owner, from lines `NAME full|read TOKEN`.
pub(crate) fn token_of(path: &Path) -> Result<String, RemoteError> {
    let refused = |sentence: String| RemoteError {
        details: serde_json::json!({ "field": "token_file" }),
        ..RemoteError::new(RemoteErrorKind::Unauthorized, "no_token", sentence)
    };
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MAX_TOKEN_FILE_BYTES).read_to_string(&mut text));
    read.map_err(|error| {
        refused(format!(
            "the token file {} cannot be read: {error}; `ostler up` writes it beside its store",
            path.display()
        ))
    })?;
    for line in text.lines() {
        if let [name, _, token] = line.split_whitespace().collect::<Vec<_>>().as_slice()
            && *name == OWNER
        {
            return Ok((*token).to_owned());
        }
    }
    Err(refused(format!("the token file {} has no line for {OWNER}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_nodes() {
        for (text, shown) in [
            ("http://127.0.0.1:7700", "http://127.0.0.1:7700"),
            ("https://jobs.example/base/", "https://jobs.example/base"),
            ("unix:/run/api.sock", "unix:/run/api.sock"),
            ("unix:///run/api.sock", "unix:/run/api.sock"),
        ] {
            assert_eq!(NodeAddress::parse(text).map(|to| to.shown()).ok().as_deref(), Some(shown));
        }
        for text in
            ["", "unix:", "ftp://x", "127.0.0.1:7700", "http://", "http://anna:secret@host", "http://h?x=1"]
        {
            let error = NodeAddress::parse(text).expect_err(text).to_string();
            assert!(error.contains("http://host:port") && !error.contains("secret"), "{error}");
        }
    }
}
