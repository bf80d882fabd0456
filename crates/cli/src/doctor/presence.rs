//! Whether nodes can publish their presence in Redis, and what helps if they cannot.

use ostler_ops::doctor::facts::{PresenceFacts, PresenceFault};
use ostler_runtime::{RedisAddress, RedisFault};

/// Asks the Redis server, with a timeout.
pub(super) async fn probe(redis: Option<RedisAddress>) -> Option<PresenceFacts> {
    let redis = redis?;
    let fault = redis.probe().await.err();
    let fault = fault.map(|fault| PresenceFault { sentence: fault.to_string(), advice: advice(&fault) });
    Some(PresenceFacts { address: redis.to_string(), fault })
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
