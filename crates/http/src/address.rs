//! Address rules: which addresses may be connected to, against requests to internal services (SSRF).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

/// Which addresses may be connected to. They are checked after the name is resolved, on the address that is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressRules {
    Any,
    /// Public addresses, and those allowed besides. Proxies are not used: the name would be resolved behind them.
    Public {
        allowed: Vec<Allowed>,
    },
}

/// An exception: a host by its name, or a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// In lower case.
    Host(String),
    Range(IpNet),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a host such as api.example.org, an address, or a range such as 10.0.0.0/8")]
pub struct BadAllowed;

impl FromStr for Allowed {
    type Err = BadAllowed;

    fn from_str(text: &str) -> Result<Self, BadAllowed> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Range(address.into()));
        }
        if text.contains('/') {
            return text.parse().map(|range: IpNet| Self::Range(range.trunc())).map_err(|_| BadAllowed);
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_host = !text.is_empty() && text.chars().all(plain);
        is_host.then(|| Self::Host(text.to_ascii_lowercase())).ok_or(BadAllowed)
    }
}

impl AddressRules {
    /// Public addresses only.
    #[must_use]
    pub const fn public() -> Self {
        Self::Public { allowed: Vec::new() }
    }

    /// Whether this address of this host may be connected to.
    #[must_use]
    pub fn allow(&self, host: &str, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Public { allowed } => {
                // An IPv4 address is judged as one, however it is written.
                let address = address.to_canonical();
                is_public(address)
                    || allowed.iter().any(|exception| match exception {
                        Allowed::Host(name) => name.eq_ignore_ascii_case(host),
                        Allowed::Range(range) => range.contains(&address),
                    })
            }
        }
    }
}

/// Whether an address belongs to the public internet: not this machine, not a private or link-local network (which includes the
/// metadata services of clouds), and not reserved.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let reserved = match a {
        // This network, private networks, this machine, multicast and reserved.
        0 | 10 | 127 | 224..=255 => true,
        // Shared by carriers; some clouds have their metadata service here.
        100 => (64..=127).contains(&b),
        169 => b == 254,
        172 => (16..=31).contains(&b),
        // Protocol assignments, documentation, the former relays of 6to4, private networks.
        192 => matches!((b, c), (0, 0 | 2) | (88, 99) | (168, _)),
        // Benchmarks, documentation.
        198 => matches!((b, c), (18 | 19, _) | (51, 100)),
        203 => (b, c) == (0, 113),
        _ => false,
    };
    !reserved
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // IPv4 in IPv6.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, benchmarks and other protocol assignments; documentation.
        [0x2001, second, ..] => second >= 0x200 && second != 0xdb8,
        [0x3fff, second, ..] => second >= 0x1000,
        // Only this part is assigned for the public.
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn what_is_not_of_the_public_internet_is_known() {
        for text in [
            "127.0.0.1",
            "127.255.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "100.64.0.1",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2001::1",
            "2001:db8::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
        ] {
            assert!(!AddressRules::public().allow("host", address(text)), "{text}");
        }
        for text in [
            "1.1.1.1",
            "100.63.0.1",
            "172.32.0.1",
            "192.1.0.1",
            "::ffff:8.8.8.8",
            "2606:4700::1111",
            "2a00::1",
        ] {
            assert!(AddressRules::public().allow("host", address(text)), "{text}");
        }
        assert!(AddressRules::Any.allow("host", address("127.0.0.1")));
    }

    #[test]
    fn exceptions_are_hosts_and_ranges() {
        let allowed = ["Internal.Example", "10.1.0.0/16", "::1"].map(|text| text.parse().expect(text));
        let rules = AddressRules::Public { allowed: allowed.to_vec() };
        for (host, text, allowed) in [
            ("internal.example", "192.168.0.1", true),
            ("other.example", "192.168.0.1", false),
            ("other.example", "10.1.255.1", true),
            ("other.example", "::ffff:10.1.0.1", true),
            ("other.example", "10.2.0.1", false),
            ("other.example", "::1", true),
        ] {
            assert_eq!(rules.allow(host, address(text)), allowed, "{host} {text}");
        }
        for text in ["", "10.0.0.0/99", "a b", "http://x"] {
            assert_eq!(text.parse::<Allowed>(), Err(BadAllowed), "{text}");
        }
    }
}
