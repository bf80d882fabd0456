//! Sessions of browsers: login links that are valid once and for minutes, and cookies. They are in memory only: they end with the node, and
//! with the token that opened them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::guard::Caller;
use crate::tokens::{TokenDigest, Tokens, digest, random_text};

/// How long a login link is valid.
const LINK_TTL: Duration = Duration::from_secs(5 * 60);
/// How long a session lasts.
pub(crate) const SESSION_TTL: Duration = Duration::from_secs(12 * 60 * 60);
/// The maximum number of links, and of sessions; above it the oldest ends.
const MAX_KEPT: usize = 1_000;

#[derive(Clone, Debug)]
struct Granted {
    caller: Caller,
    /// The token that opened it.
    token: TokenDigest,
    until: Instant,
}

#[derive(Debug, Default)]
struct KeptSessions {
    links: HashMap<TokenDigest, Granted>,
    sessions: HashMap<TokenDigest, Granted>,
}

/// Login links and sessions.
#[derive(Debug, Default)]
pub(crate) struct BrowserSessions(Mutex<KeptSessions>);

impl BrowserSessions {
    /// A one-time text for a login link.
    pub(crate) fn link(&self, (caller, token): (Caller, TokenDigest)) -> String {
        let text = random_text();
        let mut kept = self.kept();
        bound(&mut kept.links);
        kept.links.insert(digest(&text), Granted { caller, token, until: Instant::now() + LINK_TTL });
        text
    }

    /// Opens a session with the text of a link, which ends by that. Returns the value of the cookie.
    pub(crate) fn log_in(&self, text: &str, tokens: &Tokens) -> Option<(String, Caller)> {
        let mut kept = self.kept();
        let granted = kept.links.remove(&digest(text))?;
        if granted.until < Instant::now() || !tokens.has(&granted.token) {
            return None;
        }
        Some(open(&mut kept, Granted { until: Instant::now() + SESSION_TTL, ..granted }))
    }

    /// Opens a session with a token itself. Returns the value of the cookie.
    pub(crate) fn log_in_by_token(&self, text: &str, tokens: &Tokens) -> Option<(String, Caller)> {
        let (caller, token) = tokens.find(text)?;
        let until = Instant::now() + SESSION_TTL;
        Some(open(&mut self.kept(), Granted { caller, token, until }))
    }

    /// Whose session this cookie is.
    pub(crate) fn find(&self, cookie: &str, tokens: &Tokens) -> Option<Caller> {
        let mut kept = self.kept();
        let id = digest(cookie);
        let granted = kept.sessions.get(&id)?.clone();
        if granted.until < Instant::now() || !tokens.has(&granted.token) {
            kept.sessions.remove(&id);
            return None;
        }
        Some(granted.caller)
    }

    /// Ends a session.
    pub(crate) fn log_out(&self, cookie: &str) {
        self.kept().sessions.remove(&digest(cookie));
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, KeptSessions> {
        self.0.lock().expect("no panic while sessions are held")
    }
}

fn open(kept: &mut KeptSessions, granted: Granted) -> (String, Caller) {
    let cookie = random_text();
    bound(&mut kept.sessions);
    let caller = granted.caller.clone();
    kept.sessions.insert(digest(&cookie), granted);
    (cookie, caller)
}

fn bound(kept: &mut HashMap<TokenDigest, Granted>) {
    if kept.len() < MAX_KEPT {
        return;
    }
    let oldest = kept.iter().min_by_key(|(_, granted)| granted.until).map(|(id, _)| *id);
    if let Some(oldest) = oldest {
        kept.remove(&oldest);
    }
}
