//! Rules about presence in Redis. Work does not depend on it, so nothing here is an error.

use ostler_runtime::RedisFault;

use super::super::facts::PresenceFacts;
use super::{Finding, info, warning};

pub(super) fn finding(PresenceFacts { address, probed }: &PresenceFacts) -> Finding {
    match probed {
        Ok(()) => info("presence", format!("Nodes can publish their presence in {address}"), ""),
        Err(fault) => warning(
            "presence-away",
            format!("Nodes cannot publish their presence in {address}: {fault}"),
            format!("{} Work goes on, and nodes keep retrying", advice(fault)),
        ),
    }
}

fn advice(fault: &RedisFault) -> &'static str {
    match fault {
        RedisFault::Unreachable(_) => "Check that Redis is up, and the host and port of presence.redis.",
        RedisFault::Silent => {
            "Check whether Redis hangs or is overloaded, and whether a firewall drops the traffic."
        }
        RedisFault::NotLetIn => "Check the user and the password of presence.redis.",
        RedisFault::NotAllowed => {
            "Allow it: ACL SETUSER name ~ostler:node:* &ostler:events +exists +set +del +publish."
        }
        RedisFault::Full => "Give Redis more memory (maxmemory), or configure it to evict keys.",
        RedisFault::ReadOnly => "Use the primary in presence.redis.",
        RedisFault::Refused(_) => "See the log of Redis.",
        RedisFault::Foreign => {
            "Check the host and the port of presence.redis, and whether it should be rediss://."
        }
    }
}
