//! Presence in Redis. Without it work goes on, and so nothing here is an error.

use ostler_runtime::RedisFault;

use super::super::facts::PresenceFacts;
use super::{Finding, info, warning};

pub(super) fn finding(PresenceFacts { address, probed }: &PresenceFacts) -> Finding {
    match probed {
        Ok(()) => info("presence", format!("Nodes can say in {address} that they are there"), ""),
        Err(fault) => warning(
            "presence-away",
            format!("Nodes cannot say in {address} that they are there: {fault}"),
            format!("{} Work goes on meanwhile, and nodes try again by themselves", advice(fault)),
        ),
    }
}

fn advice(fault: &RedisFault) -> &'static str {
    match fault {
        RedisFault::Unreachable(_) => {
            "Check that Redis is up, and that the host and the port of presence.redis are right."
        }
        RedisFault::Silent => {
            "Look whether Redis hangs or is overloaded, and whether a firewall drops what is sent to it."
        }
        RedisFault::NotLetIn => "Check the user and the password of presence.redis.",
        RedisFault::NotAllowed => {
            "Allow it: ACL SETUSER name ~ostler:node:* &ostler:events +exists +set +del +publish."
        }
        RedisFault::Full => "Give Redis more memory (maxmemory), or let it evict keys.",
        RedisFault::ReadOnly => "Name the primary in presence.redis.",
        RedisFault::Refused(_) => "Look into the log of Redis.",
        RedisFault::Foreign => {
            "Check the host and the port of presence.redis, and whether it should be rediss://."
        }
    }
}
