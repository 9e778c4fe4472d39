//! HTTP: who could reach it, and how much of it there is.

use std::net::SocketAddr;

use crate::config::{ConfigError, Http, Listen, size};

/// The longest body that can be allowed: payloads have to fit into a transaction, and in base 64 they are longer by a third.
const MAX_BODY: u64 = 16 << 20;

/// Fewer would not do for a page and a client; more are not served well by one thread.
const CONNECTIONS: std::ops::RangeInclusive<usize> = 8..=10_000;

impl Http {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        self.validate_token()?;
        self.validate_tls()?;
        if self.max_body == 0 || self.max_body > MAX_BODY {
            let problem =
                if self.max_body == 0 { "nothing could be pushed" } else { "that is too much to hold" };
            let fix = format!("write a size of up to {:?}, or leave the key out", size::format(MAX_BODY));
            let value = format!("{:?}", size::format(self.max_body));
            return Err(ConfigError::value("http.max-body", value, problem, fix));
        }
        if !CONNECTIONS.contains(&self.max_connections) {
            let fix = format!("set it to {} or more, and at most {}", CONNECTIONS.start(), CONNECTIONS.end());
            let problem = "that is not a sensible number of connections";
            return Err(ConfigError::value("http.max-connections", self.max_connections, problem, fix));
        }
        self.origins.iter().enumerate().try_for_each(|(index, origin)| validate_origin(index, origin))
    }
}

impl Http {
    fn validate_token(&self) -> Result<(), ConfigError> {
        if self.require_token != Some(false) {
            return Ok(());
        }
        let refuse = |problem, fix| Err(ConfigError::value("http.require-token", false, problem, fix));
        if self.token_file.is_some() {
            return refuse(
                "nobody would have to send the secret in http.token-file",
                "remove one of the two",
            );
        }
        match &self.listen {
            Listen::Tcp(address) if !is_loopback(address) => refuse(
                "other machines could reach http.listen, and nobody would have to send a token",
                "remove the key, or listen on 127.0.0.1 or a Unix socket",
            ),
            _ => Ok(()),
        }
    }

    fn validate_tls(&self) -> Result<(), ConfigError> {
        let missing = |key, other| {
            let fix = "name both files, or neither";
            Err(ConfigError::value(key, "(not set)", format!("{other} needs it"), fix))
        };
        match (&self.tls_certificate, &self.tls_key, &self.listen) {
            (Some(_), None, _) => missing("http.tls-key", "http.tls-certificate"),
            (None, Some(_), _) => missing("http.tls-certificate", "http.tls-key"),
            (Some(path), _, Listen::Unix(_)) => {
                let value = format_args!("\"{}\"", path.display());
                let problem = "a Unix socket does not use TLS";
                let fix = "remove http.tls-certificate and http.tls-key, or set http.listen to an IP address";
                Err(ConfigError::value("http.tls-certificate", value, problem, fix))
            }
            (None, _, Listen::Tcp(address)) if !is_loopback(address) && !self.allow_plaintext => {
                let problem = "tokens would be sent to it unencrypted";
                let fix = "set http.tls-certificate and http.tls-key; or http.allow-plaintext = true if a proxy or a tunnel encrypts the connections";
                Err(ConfigError::value("http.listen", format_args!("\"{address}\""), problem, fix))
            }
            _ => Ok(()),
        }
    }
}

/// Whether only this machine reaches it.
pub(crate) fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// An origin is what browsers send as `Origin`: a scheme, a host, perhaps a port, nothing else.
fn validate_origin(index: usize, origin: &str) -> Result<(), ConfigError> {
    let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    let is_host = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._:[]".contains(c);
    if rest.is_some_and(|host| !host.is_empty() && host.chars().all(is_host)) {
        return Ok(());
    }
    let fix = "write it as browsers send it, as in \"https://queues.example\": lower case, without a path";
    Err(ConfigError::value(
        format!("http.origins[{index}]"),
        format_args!("{origin:?}"),
        "that is no origin",
        fix,
    ))
}
