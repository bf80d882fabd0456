//! Fetch rules: the list `fetch` of a pool, and which hosts and addresses it allows (against requests to internal services, SSRF).

use std::net::{IpAddr, Ipv6Addr};

use ostler_http::is_public;
use url::Host;

use super::error::FetchError;
use super::target::{FetchTarget, TargetHost};

/// Which hosts functions may reach. An entry is one of
///
/// - `api.example.org`: this name; `*.example.org`: every name below it, not itself; `*`: every name and every public address;
/// - `93.184.215.14` or `[2606:4700::1111]`: this address.
///
/// Each may end in a port, as in `api.example.org:8443`; without one it stands for the ports 80 and 443. Whatever is listed, a name is
/// connected to only at public addresses. An address that is not public needs an entry with itself and its port, and is reached by a URL
/// that has the address, never by a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchRules {
    entries: Vec<FetchEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FetchEntry {
    hosts: ListedHosts,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ListedHosts {
    Every,
    Name(String),
    /// Names that end in this, which begins with a dot.
    Below(String),
    Address(IpAddr),
}

impl FetchRules {
    /// No host is allowed.
    #[must_use]
    pub const fn none() -> Self {
        Self { entries: Vec::new() }
    }

    /// Reads the list of a pool. An empty one allows no host.
    ///
    /// # Errors
    /// A sentence for each entry that cannot be used, one per line.
    pub fn parse(list: &[String]) -> Result<Self, String> {
        let mut faults = Vec::new();
        let mut entries = Vec::new();
        for text in list {
            match entry(text) {
                Ok(entry) => entries.push(entry),
                Err(fault) => faults.push(format!("\"{text}\" in `fetch` {fault}.")),
            }
        }
        if faults.is_empty() { Ok(Self { entries }) } else { Err(faults.join("\n")) }
    }

    /// Whether the URL of a request may be asked for. If it has a name, its addresses are checked later, by [`admit_resolved`].
    pub(crate) fn admit(&self, target: &FetchTarget) -> Result<(), FetchError> {
        if self.entries.is_empty() {
            return Err(FetchError::NoRules);
        }
        if self.entries.iter().any(|entry| entry.allows(target)) {
            return Ok(());
        }
        Err(match target.host {
            TargetHost::Address(address) if !is_outside(address) => {
                FetchError::NotPublic { address, target: target.to_string() }
            }
            TargetHost::Address(_) | TargetHost::Name(_) => {
                FetchError::NotListed { target: target.to_string() }
            }
        })
    }
}

/// Checks every address of a name. One that is not public refuses the name as a whole: a resolver that mixes them is not trusted to mean
/// well with the others.
pub(crate) fn admit_resolved(
    host: &str,
    addresses: impl IntoIterator<Item = IpAddr>,
) -> Result<(), FetchError> {
    match addresses.into_iter().find(|address| !is_outside(*address)) {
        Some(address) => Err(FetchError::ResolvesInside { host: host.to_owned(), address }),
        None => Ok(()),
    }
}

impl FetchEntry {
    fn allows(&self, target: &FetchTarget) -> bool {
        let port = match self.port {
            Some(port) => port == target.port,
            None => matches!(target.port, 80 | 443),
        };
        port && match (&self.hosts, &target.host) {
            (ListedHosts::Every, TargetHost::Name(_)) => true,
            (ListedHosts::Every, TargetHost::Address(address)) => is_outside(*address),
            (ListedHosts::Name(listed), TargetHost::Name(name)) => listed == name,
            (ListedHosts::Below(end), TargetHost::Name(name)) => {
                name.len() > end.len() && name.ends_with(end.as_str())
            }
            (ListedHosts::Address(listed), TargetHost::Address(address)) => {
                // No canonical form: an address inside is allowed in the spelling that is listed.
                listed == address && (self.port.is_some() || is_outside(*address))
            }
            (ListedHosts::Name(_) | ListedHosts::Below(_), TargetHost::Address(_))
            | (ListedHosts::Address(_), TargetHost::Name(_)) => false,
        }
    }
}

/// Whether an address is one of the public internet, and of no other address in disguise: IPv4 in IPv6 (mapped, NAT64, 6to4) ends at a
/// gateway that this table does not know.
fn is_outside(address: IpAddr) -> bool {
    let embeds = |address: Ipv6Addr| {
        matches!(address.segments(), [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, ..] | [0x2002, ..])
    };
    match address {
        IpAddr::V4(_) => is_public(address),
        IpAddr::V6(v6) => is_public(address) && !embeds(v6),
    }
}

/// Reads an entry. The fault ends a sentence that begins with the entry.
fn entry(text: &str) -> Result<FetchEntry, String> {
    let (host, port) = split_port(text)?;
    let hosts = match host.strip_prefix("*.") {
        None if host == "*" => ListedHosts::Every,
        Some(name) => match read_host(name)? {
            ListedHosts::Name(name) => ListedHosts::Below(format!(".{name}")),
            ListedHosts::Address(_) | ListedHosts::Every | ListedHosts::Below(_) => {
                return Err("has a star before something that is not a name".to_owned());
            }
        },
        None => read_host(host)?,
    };
    if let ListedHosts::Address(address) = hosts
        && port.is_none()
        && !is_outside(address)
    {
        return Err(format!("is not a public address, so it needs its port, as in \"{host}:8080\""));
    }
    Ok(FetchEntry { hosts, port })
}

/// Splits an entry into host and port. The host of an IPv6 address is in brackets.
fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    if text.contains(['/', '@', '?', '#', '%', '\\']) || text.contains(char::is_whitespace) {
        return Err("is not a host; write it without scheme and path, such as \"api.example.org\"".to_owned());
    }
    let (host, port) = match text.rfind(']') {
        Some(end) => {
            let (host, rest) = text.split_at(end + 1);
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err("has something behind the address that is not a port".to_owned()),
            }
        }
        None => match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => {
                return Err("has an IPv6 address without brackets; write \"[::1]:9000\"".to_owned());
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let Some(port) = port else { return Ok((host, None)) };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if digits && number > 0 => Ok((host, Some(number))),
        Ok(_) | Err(_) => Err("has a port that is not a number from 1 to 65535".to_owned()),
    }
}

fn read_host(text: &str) -> Result<ListedHosts, String> {
    if text.contains('*') {
        return Err("has a star in the wrong place; \"*\" and \"*.example.org\" are allowed".to_owned());
    }
    let not_a_host = || "is not a host, such as \"api.example.org\"".to_owned();
    match Host::parse(text).map_err(|_| not_a_host())? {
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(&name);
            if name.split('.').any(str::is_empty) {
                return Err(not_a_host());
            }
            if name == "localhost" || name.ends_with(".localhost") {
                return Err(
                    "is this machine, which is reached by its address alone, such as \"127.0.0.1:8080\""
                        .to_owned(),
                );
            }
            Ok(ListedHosts::Name(name.to_owned()))
        }
        Host::Ipv4(address) if text == address.to_string() => Ok(ListedHosts::Address(address.into())),
        // What looks like one thing and is another is no good in a list that people review.
        Host::Ipv4(address) => Err(format!("is the address {address}; write it so")),
        Host::Ipv6(address) => Ok(ListedHosts::Address(address.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::target;
    use super::*;

    fn rules(list: &[&str]) -> Result<FetchRules, String> {
        FetchRules::parse(&list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    fn allows(list: &[&str], url: &str) -> bool {
        let target = target::parse(url).and_then(|url| target::of(&url)).expect(url);
        rules(list).expect("valid rules").admit(&target).is_ok()
    }

    #[test]
    fn entries_allow_names_ports_and_addresses() {
        let some =
            ["api.example.org", "*.example.net", "alt.example.org:8443", "10.0.0.5:8080", "[::1]:9000"];
        for (url, allowed) in [
            ("http://api.example.org/", true),
            ("https://api.example.org/", true),
            ("https://API.example.org./x", true),
            ("https://api.example.org:8443/", false),
            ("http://api.example.org:443/", true),
            ("https://example.org/", false),
            ("https://x.api.example.org/", false),
            ("https://api.example.org.evil.example/", false),
            ("https://example.net/", false),
            ("https://a.example.net/", true),
            ("https://a.b.example.net/", true),
            ("https://aexample.net/", false),
            ("https://a.example.net:81/", false),
            ("https://alt.example.org:8443/", true),
            ("https://alt.example.org/", false),
            ("http://10.0.0.5:8080/", true),
            ("http://10.0.0.5/", false),
            ("http://10.0.0.6:8080/", false),
            ("http://0xa000005:8080/", true),
            ("http://[::ffff:10.0.0.5]:8080/", false),
            ("http://[::1]:9000/", true),
            ("http://[0:0:0:0:0:0:0:1]:9000/", true),
            ("http://[::1]/", false),
            ("http://127.0.0.1:9000/", false),
            ("http://93.184.215.14/", false),
        ] {
            assert_eq!(allows(&some, url), allowed, "{url}");
        }
    }

    #[test]
    fn a_star_is_the_public_internet_on_its_usual_ports() {
        for (url, allowed) in [
            ("https://anything.example/", true),
            ("https://anything.example:8443/", false),
            ("http://93.184.215.14/", true),
            ("https://[2606:4700::1111]/", true),
            ("http://localhost/", true), // Its addresses are checked when it is resolved.
            ("http://127.0.0.1/", false),
            ("http://0x7f.1/", false),
            ("http://2130706433/", false),
            ("http://0/", false),
            ("http://10.0.0.1/", false),
            ("http://172.16.0.1/", false),
            ("http://192.168.0.1/", false),
            ("http://169.254.169.254/latest/meta-data", false),
            ("http://100.100.100.200/", false),
            ("http://198.18.0.1/", false),
            ("http://224.0.0.1/", false),
            ("http://255.255.255.255/", false),
            ("http://[::]/", false),
            ("http://[::1]/", false),
            ("http://[::ffff:127.0.0.1]/", false),
            ("http://[::ffff:8.8.8.8]/", false),
            ("http://[::127.0.0.1]/", false),
            ("http://[64:ff9b::10.0.0.1]/", false),
            ("http://[64:ff9b::8.8.8.8]/", false),
            ("http://[64:ff9b:1::1]/", false),
            ("http://[2002:808:808::1]/", false),
            ("http://[fe80::1]/", false),
            ("http://[fd00:ec2::254]/", false),
            ("http://[2001:db8::1]/", false),
            ("http://[ff02::1]/", false),
        ] {
            assert_eq!(allows(&["*"], url), allowed, "{url}");
        }
        assert!(allows(&["*:8443"], "https://anything.example:8443/"));
        assert!(!allows(&["*:80"], "http://10.0.0.1/"), "a star never reaches inside");
        assert!(allows(&["93.184.215.14"], "https://93.184.215.14/"));
    }

    #[test]
    fn a_name_that_resolves_inside_is_refused_whatever_else_it_resolves_to() {
        let check = |addresses: &[&str]| {
            admit_resolved("api.example.org", addresses.iter().map(|text| text.parse().expect(text)))
        };
        assert!(check(&["93.184.215.14", "2606:4700::1111"]).is_ok());
        for inside in
            ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "::ffff:93.184.215.14", "64:ff9b::1"]
        {
            let said = check(&["93.184.215.14", inside]).expect_err(inside).to_string();
            assert!(said.contains(inside) && said.contains("`fetch`"), "{said}");
        }
    }

    #[test]
    fn faults_of_a_list_are_sentences() {
        for (text, fault) in [
            ("", "is not a host"),
            (".", "is not a host"),
            ("a..b", "is not a host"),
            ("https://api.example.org", "write it without scheme and path"),
            ("api.example.org/v1", "write it without scheme and path"),
            ("anna@example.org", "write it without scheme and path"),
            ("a b", "write it without scheme and path"),
            ("api.example.org:", "has a port that is not a number"),
            ("api.example.org:0", "has a port that is not a number"),
            ("api.example.org:+80", "has a port that is not a number"),
            ("api.example.org:65536", "has a port that is not a number"),
            ("api.example.org:*", "has a port that is not a number"),
            ("::1", "without brackets"),
            ("[::1", "without brackets"),
            ("[::1]9000", "not a port"),
            ("[nope]:80", "is not a host"),
            ("10.0.0.5", "needs its port"),
            ("[::1]", "needs its port"),
            ("[::ffff:8.8.8.8]", "needs its port"),
            ("127.1:80", "is the address 127.0.0.1; write it so"),
            ("2130706433:80", "is the address 127.0.0.1; write it so"),
            ("localhost:8080", "by its address alone"),
            ("*.localhost", "by its address alone"),
            ("**", "has a star in the wrong place"),
            ("a*.org", "has a star in the wrong place"),
            ("*.*", "has a star in the wrong place"),
            ("*.10.0.0.1", "a star before something that is not a name"),
        ] {
            let said = rules(&[text]).expect_err(text);
            assert!(
                said.contains(fault) && said.contains("`fetch`") && said.ends_with('.'),
                "{text}: {said}"
            );
        }
        let both = rules(&["a b", "x.example", "::1"]).expect_err("two faults");
        assert_eq!(both.lines().count(), 2, "{both}");
    }

    #[test]
    fn no_list_refuses_with_the_name_of_the_key() {
        let target = target::parse("https://example.org/").and_then(|url| target::of(&url)).expect("a URL");
        for rules in [FetchRules::none(), rules(&[]).expect("an empty list"), FetchRules::default()] {
            let said = rules.admit(&target).expect_err("refused").to_string();
            assert!(said.contains("`fetch`") && said.contains("pool"), "{said}");
        }
    }
}
