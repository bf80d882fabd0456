//! Tokens: read and full ones, by name. In a file beside the store, which only its owner can read, or one full token from the environment.
//!
//! In memory there are only digests, and all of them are compared, so that the time of an answer tells nothing. The file is read again
//! when it has changed: a removed token ends, and with it the sessions that were opened with it.

use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::guard::Caller;

/// What a token permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To look.
    Read,
    /// To look and to change.
    Full,
}

impl Access {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Full => "full",
        }
    }
}

/// The shortest token that is accepted.
const MIN_TOKEN_BYTES: usize = 16;
/// Random bytes of a new token.
const TOKEN_BYTES: usize = 24;
/// The maximum size of the file.
const MAX_FILE_BYTES: u64 = 64 * 1024;
/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// The digest of a token or a session.
pub(crate) type TokenDigest = [u8; 32];

/// Why there are no tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(
        "the token in OSTLER_TOKEN is too short: it needs at least {MIN_TOKEN_BYTES} characters without spaces"
    )]
    Short,
    #[error("the token file {} cannot be {what}: {error}", path.display())]
    File { path: PathBuf, what: &'static str, error: io::Error },
    #[error("the token file {} may be read by others: chmod 600 makes it private", path.display())]
    Readable { path: PathBuf },
    #[error("the token file {}, line {line}: expected NAME read|full TOKEN, with a token of at least {MIN_TOKEN_BYTES} characters", path.display())]
    Line { path: PathBuf, line: usize },
}

#[derive(Clone, Debug)]
struct KnownToken {
    caller: Caller,
    digest: TokenDigest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileMark {
    inode: u64,
    size: u64,
    modified_ns: i128,
}

#[derive(Debug)]
struct LoadedTokens {
    known: Vec<KnownToken>,
    mark: Option<FileMark>,
    looked: Instant,
}

/// The tokens of a node.
#[derive(Debug)]
pub struct Tokens {
    file: Option<PathBuf>,
    loaded: Mutex<LoadedTokens>,
}

impl Tokens {
    /// One full token, from the environment.
    ///
    /// # Errors
    /// When it is too short.
    pub fn one(token: &str) -> Result<Self, TokenError> {
        if !is_token(token) {
            return Err(TokenError::Short);
        }
        let caller = Caller { name: "OSTLER_TOKEN".to_owned(), access: Access::Full };
        let known = vec![KnownToken { caller, digest: digest(token) }];
        Ok(Self {
            file: None,
            loaded: Mutex::new(LoadedTokens { known, mark: None, looked: Instant::now() }),
        })
    }

    /// No token: nothing listens.
    pub(crate) fn none() -> Self {
        Self {
            file: None,
            loaded: Mutex::new(LoadedTokens { known: Vec::new(), mark: None, looked: Instant::now() }),
        }
    }

    /// The tokens of a file. If there is none, it is created with a full token and a read token.
    ///
    /// # Errors
    /// When it cannot be created or read, others may read it, or a line is wrong.
    pub fn file(path: &Path) -> Result<Self, TokenError> {
        create(path)?;
        let (known, mark) = load(path)?;
        let loaded = LoadedTokens { known, mark: Some(mark), looked: Instant::now() };
        Ok(Self { file: Some(path.to_owned()), loaded: Mutex::new(loaded) })
    }

    /// Whose token this is.
    pub(crate) fn find(&self, token: &str) -> Option<(Caller, TokenDigest)> {
        let asked = digest(token);
        let mut found = None;
        for known in &self.fresh().known {
            if equal(&known.digest, &asked) {
                found = Some((known.caller.clone(), known.digest));
            }
        }
        found
    }

    /// Whether a token still exists.
    pub(crate) fn has(&self, digest: &TokenDigest) -> bool {
        self.fresh().known.iter().any(|known| equal(&known.digest, digest))
    }

    /// The first full token's holder, for login links that the node itself makes.
    pub(crate) fn owner(&self) -> Option<(Caller, TokenDigest)> {
        let loaded = self.fresh();
        let owner = loaded.known.iter().find(|known| known.caller.access == Access::Full)?;
        Some((owner.caller.clone(), owner.digest))
    }

    /// The tokens, read again if the file has changed. A file that cannot be read any more has no tokens.
    fn fresh(&self) -> std::sync::MutexGuard<'_, LoadedTokens> {
        let mut loaded = self.loaded.lock().expect("no panic while tokens are held");
        if let Some(path) = &self.file
            && loaded.looked.elapsed() >= LOOK
        {
            loaded.looked = Instant::now();
            let mark = std::fs::metadata(path).ok().map(|found| FileMark::of(&found));
            if mark != loaded.mark {
                match load(path) {
                    Ok((known, mark)) => (loaded.known, loaded.mark) = (known, Some(mark)),
                    Err(error) => {
                        tracing::warn!(target: "ostler::server", "no token is valid any more: {error}");
                        (loaded.known, loaded.mark) = (Vec::new(), mark);
                    }
                }
            }
        }
        loaded
    }
}

impl FileMark {
    fn of(found: &std::fs::Metadata) -> Self {
        let modified_ns = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
        Self { inode: found.ino(), size: found.size(), modified_ns }
    }
}

fn is_token(text: &str) -> bool {
    text.len() >= MIN_TOKEN_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic())
}

pub(crate) fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares all bytes, wherever the first difference is.
pub(crate) fn equal(one: &TokenDigest, other: &TokenDigest) -> bool {
    one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// A new random text.
pub(crate) fn random_text() -> String {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn create(path: &Path) -> Result<(), TokenError> {
    // Only the process that creates the file writes it, and the text is whole when the name appears.
    let wrong = |what, error| TokenError::File { path: path.to_owned(), what, error };
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let fresh = path.with_extension(format!("token.{}", random_text()));
    let text = format!(
        "# Tokens of the HTTP API: NAME read|full TOKEN\nowner full {}\nviewer read {}\n",
        random_text(),
        random_text()
    );
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| wrong("created", error))?;
    let linked = std::fs::hard_link(&fresh, path);
    let _ = std::fs::remove_file(&fresh);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(wrong("created", error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn load(path: &Path) -> Result<(Vec<KnownToken>, FileMark), TokenError> {
    let wrong = |error| TokenError::File { path: path.to_owned(), what: "read", error };
    let file = std::fs::File::open(path).map_err(wrong)?;
    let found = file.metadata().map_err(wrong)?;
    if found.mode() & 0o077 != 0 {
        return Err(TokenError::Readable { path: path.to_owned() });
    }
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(file, MAX_FILE_BYTES), &mut text).map_err(wrong)?;
    let mut known = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let access = match words.get(1) {
            Some(&"read") => Some(Access::Read),
            Some(&"full") => Some(Access::Full),
            Some(_) | None => None,
        };
        match (words.as_slice(), access) {
            ([name, _, token], Some(access)) if is_token(token) => {
                let caller = Caller { name: (*name).to_owned(), access };
                known.push(KnownToken { caller, digest: digest(token) });
            }
            (_, _) => return Err(TokenError::Line { path: path.to_owned(), line: number }),
        }
    }
    Ok((known, FileMark::of(&found)))
}
