//! Parses the URL of a store: its servers, in order, and the connection settings.

use std::time::Duration;

use ostler_store::Error;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::fault::with_source;

/// The default TCP connect timeout.
const MAX_REACH: Duration = Duration::from_secs(10);
/// TCP keepalive defaults, unless the URL sets them: idle time before the first probe, interval and number of probes, and
/// how long sent data may stay unacknowledged.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
const MAX_UNCONFIRMED: Duration = Duration::from_secs(60);

/// The application name of connections, if nothing else is set.
pub(crate) const APPLICATION_NAME: &str = "ostler";

/// The servers of a URL, in its order: one or more.
pub(crate) fn servers(url: &str) -> Result<Vec<Config>, Error> {
    let all = config(url)?;
    let (hosts, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    if !(addresses.is_empty() || addresses.len() == hosts.len()) {
        return Err(Error::invalid("the URL of the store must have as many hostaddr as host"));
    }
    if !(ports.len() < 2 || ports.len() == hosts.len()) {
        return Err(Error::invalid("the URL of the store must have one port, or as many as host"));
    }
    let one = |(at, host): (usize, &Host)| {
        let mut config = without_host(&all);
        match host {
            Host::Tcp(name) => config.host(name),
            Host::Unix(folder) => config.host_path(folder),
        };
        if let Some(address) = addresses.get(at) {
            config.hostaddr(*address);
        }
        if let Some(port) = ports.get(at).or(ports.first()) {
            config.port(*port);
        }
        config
    };
    Ok(hosts.iter().enumerate().map(one).collect())
}

fn config(url: &str) -> Result<Config, Error> {
    let mut config: Config = url.parse().map_err(|error| {
        let what = with_source(&error);
        Error::invalid(format!(
            "the URL of the store cannot be read ({what}): write it like postgres://user@host/database"
        ))
    })?;
    if config.get_hosts().is_empty() {
        // The address also serves as the name of its server.
        for address in config.get_hostaddrs().to_vec() {
            config.host(address.to_string());
        }
    }
    if config.get_hosts().is_empty() {
        return Err(Error::invalid(
            "the URL of the store names no host: write it like postgres://user@host/database",
        ));
    }
    if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
        // Local sockets cannot be eavesdropped, and no server offers encryption there.
        config.ssl_mode(SslMode::Disable);
    }
    if config.get_application_name().is_none() {
        config.application_name(APPLICATION_NAME);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(MAX_REACH);
    }
    keep_alive(&mut config);
    if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        // Of several servers, the writable one.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    Ok(config)
}

fn keep_alive(config: &mut Config) {
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(MAX_UNCONFIRMED);
    }
}

/// Copies the settings that apply to each server.
fn without_host(all: &Config) -> Config {
    let mut config = Config::new();
    if let Some(user) = all.get_user() {
        config.user(user);
    }
    if let Some(password) = all.get_password() {
        config.password(password);
    }
    if let Some(database) = all.get_dbname() {
        config.dbname(database);
    }
    if let Some(options) = all.get_options() {
        config.options(options);
    }
    if let Some(name) = all.get_application_name() {
        config.application_name(name);
    }
    if let Some(timeout) = all.get_connect_timeout() {
        config.connect_timeout(*timeout);
    }
    if let Some(timeout) = all.get_tcp_user_timeout() {
        config.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        config.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        config.keepalives_retries(retries);
    }
    config
        .keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .target_session_attrs(all.get_target_session_attrs())
        .channel_binding(all.get_channel_binding());
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_of_a_url_is_what_the_url_says_of_it() {
        let url = "postgres://u:secret@one:1,two:2/d?connect_timeout=7&keepalives_idle=9&keepalives_retries=4&sslmode=require&options=-c%20jit%3Doff";
        let each = servers(url).expect("it can be read");
        for (at, one) in each.iter().enumerate() {
            let alone = format!(
                "postgres://u:secret@{}/d?connect_timeout=7&keepalives_idle=9&keepalives_retries=4&sslmode=require&options=-c%20jit%3Doff",
                ["one:1", "two:2"][at]
            );
            let mut alone: Config = alone.parse().expect("it can be read");
            alone.application_name("ostler").target_session_attrs(TargetSessionAttrs::ReadWrite);
            alone.keepalives_interval(KEEPALIVE_INTERVAL).tcp_user_timeout(MAX_UNCONFIRMED);
            assert_eq!(*one, alone);
        }
        assert_eq!(each.len(), 2);
    }

    #[test]
    fn an_idle_connection_is_kept_alive() {
        let one = &servers("postgres://host/d").expect("it can be read")[0];
        assert!(one.get_keepalives());
        assert_eq!(one.get_keepalives_idle(), KEEPALIVE_IDLE);
        assert_eq!(one.get_keepalives_interval(), Some(KEEPALIVE_INTERVAL));
        assert_eq!(one.get_keepalives_retries(), Some(KEEPALIVE_RETRIES));
        assert_eq!(one.get_tcp_user_timeout(), Some(&MAX_UNCONFIRMED));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for url in ["host=a,b port=1,2,3", "host=a,b hostaddr=127.0.0.1", "user=u", "postgres://host:port/x"]
        {
            assert!(servers(url).is_err(), "{url}");
        }
        assert_eq!(servers("hostaddr=127.0.0.1").expect("it can be read").len(), 1);
    }
}
