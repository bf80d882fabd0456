//! A connection to Redis. No reply is awaited longer than [`ANSWER`].
//!
//! Error messages of the server are never shown, only their codes: a message may repeat what it was sent, including a
//! password.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError};
use rustls::crypto::{CryptoProvider, ring};

use super::RedisAddress;
use super::beat::FoundKey;

/// How long Redis may take to accept the connection, and again to answer all commands of one heartbeat.
const ANSWER: Duration = Duration::from_secs(2);
/// Maximum letters of an error code.
const MAX_CODE: usize = 32;
/// The channel of all events.
const CHANNEL: &str = "ostler:events";
/// A key that no node uses, for the probe.
const PROBE_KEY: &str = "ostler:node:probe";

/// A problem with Redis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisFault {
    /// The connection could not be established, or broke.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// No reply in time.
    #[error("it did not answer within {} s", ANSWER.as_secs())]
    Silent,
    /// Authentication failed or is required.
    #[error("it refuses the login: it requires a user and a password, or different ones")]
    NotLetIn,
    /// The user lacks the necessary permissions.
    #[error("it does not allow this user to set a key ostler:node:… or to publish on {CHANNEL}")]
    NotAllowed,
    /// The server accepts no more keys.
    #[error("it is out of memory and accepts no more keys")]
    Full,
    /// The server is a read-only replica.
    #[error("it is a read-only replica")]
    ReadOnly,
    /// Another error, by its code.
    #[error("it answered with the error {0}")]
    Refused(String),
    /// The peer does not speak the Redis protocol.
    #[error("the server does not speak the Redis protocol")]
    Foreign,
}

impl From<RedisError> for RedisFault {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() {
            return Self::Silent;
        }
        if error.kind() == ErrorKind::AuthenticationFailed {
            return Self::NotLetIn;
        }
        if error.is_io_error() {
            return Self::Unreachable(error.to_string());
        }
        match error.code() {
            Some("WRONGPASS" | "NOAUTH") => Self::NotLetIn,
            Some("NOPERM") => Self::NotAllowed,
            Some("OOM") => Self::Full,
            Some("READONLY") => Self::ReadOnly,
            Some(code) if is_code(code) => Self::Refused(code.to_owned()),
            Some(_) | None => Self::Foreign,
        }
    }
}

/// Whether this is an error code rather than repeated input.
fn is_code(text: &str) -> bool {
    (1..=MAX_CODE).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

impl RedisAddress {
    /// Checks whether a node could announce itself there. Changes nothing.
    ///
    /// # Errors
    /// When the server cannot be reached, or would refuse.
    pub async fn probe(&self) -> Result<(), RedisFault> {
        let mut link = RedisLink::open(self).await?;
        // With XX, a missing key is not set, but missing permissions are reported.
        in_time(
            link.ask::<redis::Value>(redis::cmd("SET").arg(PROBE_KEY).arg("").arg("XX").arg("PX").arg(1)),
        )
        .await?;
        Ok(())
    }
}

pub(super) struct RedisLink(MultiplexedConnection);

impl RedisLink {
    /// Connects and authenticates.
    pub(super) async fn open(address: &RedisAddress) -> Result<Self, RedisFault> {
        if address.encrypts() && CryptoProvider::get_default().is_none() {
            // If another provider was installed concurrently, that one is used.
            let _ = ring::default_provider().install_default();
        }
        let client = Client::open(address.info().clone())?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER));
        in_time(async { Ok(Self(client.get_multiplexed_async_connection_with_config(&config).await?)) }).await
    }

    /// Sets the key with its current value and lifetime, and returns whether it existed.
    pub(super) async fn refresh(
        &mut self,
        key: &str,
        value: &str,
        ttl: Duration,
    ) -> Result<FoundKey, RedisFault> {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let refreshed = async {
            let found: u64 = self.ask(redis::cmd("EXISTS").arg(key)).await?;
            self.ask::<()>(redis::cmd("SET").arg(key).arg(value).arg("PX").arg(millis)).await?;
            Ok(if found == 0 { FoundKey::Gone } else { FoundKey::There })
        };
        in_time(refreshed).await
    }

    /// Publishes an event.
    pub(super) async fn publish(&mut self, event: &str) -> Result<(), RedisFault> {
        in_time(self.ask(redis::cmd("PUBLISH").arg(CHANNEL).arg(event))).await
    }

    pub(super) async fn remove(&mut self, key: &str) -> Result<(), RedisFault> {
        in_time(self.ask(redis::cmd("DEL").arg(key))).await
    }

    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisFault> {
        Ok(command.query_async(&mut self.0).await?)
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, RedisFault>>) -> Result<T, RedisFault> {
    tokio::time::timeout(ANSWER, answer).await.unwrap_or(Err(RedisFault::Silent))
}
