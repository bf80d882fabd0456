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

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a session may outlive its token.
    const PROMISED: Duration = Duration::from_secs(1);

    fn write(path: &std::path::Path, token: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(path, format!("owner full {token}\n")).expect("it is written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("it is private");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_and_an_unused_link_end_within_a_second_of_their_token_and_others_go_on() {
        let here = ostler_testkit::TempStore::real();
        let path = here.folder().join("tokens");
        write(&path, "the-first-token-of-tests");
        let (tokens, sessions) = (Tokens::file(&path).expect("they are read"), BrowserSessions::default());
        let owner = tokens.find("the-first-token-of-tests").expect("it is there");
        let log_in = || sessions.link(owner.clone());
        let (cookie, _) = sessions.log_in(&log_in(), &tokens).expect("it logs in");
        let unused = log_in();
        // Nothing changes by time alone.
        tokio::time::advance(10 * PROMISED).await;
        assert!(sessions.find(&cookie, &tokens).is_some());
        // A line more ends nothing.
        let both = "the-first-token-of-tests\nother full the-second-token-of-tests";
        write(&path, both);
        tokio::time::advance(PROMISED).await;
        assert!(sessions.find(&cookie, &tokens).is_some());
        write(&path, "the-second-token-of-tests");
        tokio::time::advance(PROMISED).await;
        assert_eq!(sessions.find(&cookie, &tokens), None);
        assert_eq!(sessions.log_in(&unused, &tokens), None);
        // It does not come back with its token.
        write(&path, both);
        tokio::time::advance(PROMISED).await;
        assert!(tokens.find("the-first-token-of-tests").is_some());
        assert_eq!(sessions.find(&cookie, &tokens), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_and_a_link_end_at_their_time() {
        let tokens = Tokens::one("the-only-token-of-tests").expect("a token");
        let sessions = BrowserSessions::default();
        let owner = tokens.owner().expect("it is there");
        let late = sessions.link(owner.clone());
        tokio::time::advance(LINK_TTL + Duration::from_millis(1)).await;
        assert_eq!(sessions.log_in(&late, &tokens), None);
        let link = sessions.link(owner);
        let (cookie, _) = sessions.log_in(&link, &tokens).expect("it logs in");
        assert_eq!(sessions.log_in(&link, &tokens), None, "once");
        tokio::time::advance(SESSION_TTL).await;
        assert!(sessions.find(&cookie, &tokens).is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(sessions.find(&cookie, &tokens), None);
    }
}
