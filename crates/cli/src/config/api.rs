//! `listen` and the table `[api]`: where the HTTP API of a node listens, and by which names it is reached.

use ipnet::IpNet;
use ostler_config::{FoundValue, Section};
use ostler_server::{ListenAddress, MetricsAccess};

/// The word for no API.
const NONE: &str = "none";

/// Where a node listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listen {
    /// At the usual address, if no other process has it.
    #[default]
    Usual,
    At(ListenAddress),
    Nowhere,
}

impl Listen {
    /// Parses an address, or `none`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self::Nowhere);
        }
        text.parse().map(Self::At).map_err(|error: ostler_server::ListenError| format!("{error}, or {NONE}"))
    }
}

/// The API of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApiSettings {
    pub(crate) listen: Listen,
    /// Names by which the API is called, besides its address.
    pub(crate) hosts: Vec<String>,
    /// The path before all paths; empty: none.
    pub(crate) base_path: String,
    pub(crate) public_url: Option<String>,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) metrics: MetricsAccess,
}

pub(super) fn read(listen: Option<FoundValue<'_>>, mut section: Section<'_>) -> ApiSettings {
    let listen = listen.and_then(|found| {
        let text = found.text()?;
        Listen::parse(&text).map_err(|error| found.refuse::<()>(format!("is invalid: {error}"))).ok()
    });
    let hosts = section.find("hosts").and_then(|found| found.texts("[\"ostler.example.org\"]"));
    let base_path = section.find("base_path").and_then(|found| {
        let text = found.text()?;
        let good = text.is_empty()
            || (text.starts_with('/') && !text.ends_with('/') && !text.contains(['?', '#', ' ']));
        if good {
            Some(text)
        } else {
            found.refuse("must begin with a slash and not end with one, such as \"/ostler\"")
        }
    });
    let public_url = section.find("public_url").and_then(|found| {
        let text = found.text()?;
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        if host.is_some_and(|host| !host.is_empty() && !host.starts_with('/')) {
            Some(text)
        } else {
            found.refuse("must be an address such as \"https://ostler.example.org\"")
        }
    });
    let proxies = section.find("trusted_proxies").and_then(|found| {
        let texts = found.texts("[\"10.0.0.0/8\"]")?;
        let read =
            |text: &String| text.parse().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from)).ok();
        match texts.iter().map(read).collect::<Option<Vec<IpNet>>>() {
            Some(networks) => Some(networks),
            None => found.refuse("must be IP addresses or networks, such as [\"10.0.0.0/8\"]"),
        }
    });
    let metrics = section.find("metrics").and_then(|found| match found.text()?.as_str() {
        "token" => Some(MetricsAccess::Token),
        "open" => Some(MetricsAccess::Open),
        _ => found.refuse("must be \"token\" or \"open\""),
    });
    section.close(&[]);
    ApiSettings {
        listen: listen.unwrap_or_default(),
        hosts: hosts.unwrap_or_default(),
        base_path: base_path.unwrap_or_default(),
        public_url,
        trusted_proxies: proxies.unwrap_or_default(),
        metrics: metrics.unwrap_or_default(),
    }
}
