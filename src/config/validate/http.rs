//! HTTP: who could reach it, and how much of it there is.

use std::net::SocketAddr;

use crate::config::{ConfigError, Http, Listen, size};

/// The longest body that can be allowed: payloads have to fit into a transaction, and in base 64 they are longer by a third.
const MAX_BODY: u64 = 16 << 20;

/// Fewer would not do for a page and a client; more are not served well by one thread.
const CONNECTIONS: std::ops::RangeInclusive<usize> = 8..=10_000;

impl Http {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        if let Listen::Tcp(address) = &self.listen
            && self.token_file.is_none()
            && !self.require_token
            && !is_loopback(address)
        {
            let problem =
                "others than this machine's users could reach it, and nobody would have to show a secret";
            let fix = "set http.require-token = true, or name a file with a secret in http.token-file, or listen on 127.0.0.1 or a Unix socket";
            return Err(ConfigError::value("http.listen", format_args!("\"{address}\""), problem, fix));
        }
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
