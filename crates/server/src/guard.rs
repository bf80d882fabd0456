//! The guard: who may ask for what. A pure function of the request's headers, the policy and the operation; it does no I/O and has no clock.
//!
//! Each check compares with our own lists, never one header with another: a rebound page has an Origin that equals its Host. Every route is
//! denied unless the table has it, for every method.

use hyper::StatusCode;

use crate::answer::RequestError;
use crate::metrics::MetricsAccess;
use crate::operations::{Credentials, Operation, OperationEffect};
use crate::tokens::Access;

/// What a node accepts.
#[derive(Clone, Debug, Default)]
pub struct GuardPolicy {
    /// Values of `Host`, in lower case; empty: the listener is a Unix socket, which no browser reaches.
    pub hosts: Vec<String>,
    /// Values of `Origin`.
    pub origins: Vec<String>,
    /// The path before all paths, such as `/ostler`; empty: none. A proxy may strip it or not.
    pub base_path: String,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<ipnet::IpNet>,
    /// Who may read metrics.
    pub metrics: MetricsAccess,
    /// The name of the cookie.
    pub cookie: String,
    /// Whether cookies are sent over TLS only.
    pub cookie_transport: CookieTransport,
}

/// Over what a cookie may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CookieTransport {
    #[default]
    Any,
    TlsOnly,
}

/// What decides about a request.
#[derive(Clone, Debug, Default)]
pub struct RequestFacts<'r> {
    pub host: Option<&'r str>,
    pub origin: Option<&'r str>,
    pub fetch_site: Option<&'r str>,
    pub fetch_mode: Option<&'r str>,
    pub fetch_dest: Option<&'r str>,
}

/// How a caller has proved who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// No token and no cookie.
    None,
    /// A token that this node does not know, or a cookie that is not valid any more.
    Wrong,
    Bearer(Caller),
    Cookie(Caller),
    /// A token, and a cookie of a session besides.
    Both(Caller),
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token.
    pub name: String,
    pub access: Access,
}

/// A request that may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedCaller {
    /// Anyone may ask.
    Anyone,
    By(Caller),
}

/// What the guard decided.
pub type Verdict = Result<AllowedCaller, ApiRefusal>;

/// Why a request is refused, as its status and its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiRefusal {
    /// The Host is not ours.
    Misdirected,
    /// The Origin, or the page that asks, is not ours.
    CrossSite,
    /// There is no credential, or a wrong one.
    Unauthorized,
    /// The token may only look.
    ReadOnly,
}

impl ApiRefusal {
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::CrossSite | Self::ReadOnly => StatusCode::FORBIDDEN,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
        }
    }

    pub(crate) fn error(self) -> RequestError {
        let (code, message) = match self {
            Self::Misdirected => (
                "wrong_host",
                "this Host is not one of this node; use an address that it listens on, or add the name to hosts",
            ),
            Self::CrossSite => ("cross_site", "requests of other sites are refused"),
            Self::Unauthorized => ("unauthorized", "a valid token is required: Authorization: Bearer TOKEN"),
            Self::ReadOnly => ("read_only", "this token may only look; a full token is required"),
        };
        RequestError::new(self.status(), code, message)
    }
}

/// Decides about requests.
#[derive(Clone, Debug)]
pub struct Guard {
    pub policy: GuardPolicy,
}

impl Guard {
    /// Whether the Host is one of ours. Checked first, on every path.
    ///
    /// # Errors
    /// When it is not, or is missing.
    pub fn check_host(&self, facts: &RequestFacts<'_>) -> Result<(), ApiRefusal> {
        if self.policy.hosts.is_empty() {
            return Ok(());
        }
        let host = facts.host.map(str::to_ascii_lowercase);
        let ours = host.is_some_and(|host| self.policy.hosts.contains(&host));
        if ours { Ok(()) } else { Err(ApiRefusal::Misdirected) }
    }

    /// Whether an operation may be done.
    ///
    /// # Errors
    /// The reason why not.
    pub fn admit(&self, operation: &Operation, facts: &RequestFacts<'_>, credential: &Credential) -> Verdict {
        self.check_host(facts)?;
        self.check_site(operation, facts, credential)?;
        let needed = match (operation.credentials, self.policy.metrics) {
            (Credentials::UnlessOpened, MetricsAccess::Open) => Credentials::NotNeeded,
            (Credentials::UnlessOpened, MetricsAccess::Token) => Credentials::Needed,
            (as_said, MetricsAccess::Open | MetricsAccess::Token) => as_said,
        };
        let caller = match (needed, credential) {
            (Credentials::NotNeeded, _) => return Ok(AllowedCaller::Anyone),
            (
                Credentials::Needed | Credentials::Token | Credentials::UnlessOpened,
                Credential::None | Credential::Wrong,
            )
            | (Credentials::Token, Credential::Cookie(_)) => return Err(ApiRefusal::Unauthorized),
            (Credentials::Token, Credential::Bearer(caller) | Credential::Both(caller)) => caller,
            (
                Credentials::Needed | Credentials::UnlessOpened,
                Credential::Bearer(caller) | Credential::Cookie(caller) | Credential::Both(caller),
            ) => caller,
        };
        match (operation.access, caller.access) {
            (Access::Full, Access::Read) => Err(ApiRefusal::ReadOnly),
            (Access::Full, Access::Full) | (Access::Read, Access::Read | Access::Full) => {
                Ok(AllowedCaller::By(caller.clone()))
            }
        }
    }

    fn check_site(
        &self,
        operation: &Operation,
        facts: &RequestFacts<'_>,
        credential: &Credential,
    ) -> Result<(), ApiRefusal> {
        let ours = |origin: &str| self.policy.origins.iter().any(|known| known == origin);
        if !facts.origin.is_none_or(ours) {
            return Err(ApiRefusal::CrossSite);
        }
        let fine = match operation.effect {
            // Every other port of localhost is same-site, so that is not enough. A token without a cookie proves that the caller is no
            // page of another site: a browser sends cookies by itself, and never a token.
            OperationEffect::Change => match (facts.fetch_site, credential) {
                (Some("same-origin"), _) => true,
                (None, Credential::Bearer(_) | Credential::None | Credential::Wrong) => true,
                (Some(_), Credential::Bearer(_)) => true,
                (_, _) => false,
            },
            OperationEffect::Look => match facts.fetch_site {
                None | Some("same-origin" | "none") => true,
                Some(_) => facts.fetch_mode == Some("navigate") && facts.fetch_dest == Some("document"),
            },
        };
        if fine { Ok(()) } else { Err(ApiRefusal::CrossSite) }
    }
}
