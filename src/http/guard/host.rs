//! By which name the daemon was reached.
//!
//! This check is against DNS rebinding: a site serves a page, and then lets its name resolve to
//! 127.0.0.1. The browser now takes page and daemon for one origin. But it still sends the site's
//! name as `Host`.

use std::net::SocketAddr;

use actix_web::http::header::{self, HeaderMap};

use crate::{config::is_loopback, http::error::ApiError};

/// The ports that browsers do not write, without and with TLS.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// The names by which it may be reached.
#[derive(Debug)]
pub(in crate::http) enum Hosts {
    /// Any: a secret is needed, or a Unix socket has to be reached.
    Any,
    /// Those of loopback.
    Loopback(Vec<String>),
}

impl Hosts {
    pub(in crate::http) fn of(address: Option<SocketAddr>, is_tls: bool) -> Self {
        let Some(address) = address.filter(is_loopback) else { return Self::Any };
        let port = address.port();
        let own = match address.ip().to_canonical() {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let names = ["localhost", "127.0.0.1", "[::1]", &own];
        let with_port = names.iter().map(|name| format!("{name}:{port}"));
        let without = names
            .iter()
            .filter(|_| port == DEFAULT_PORTS[usize::from(is_tls)])
            .map(|name| (*name).to_owned());
        Self::Loopback(with_port.chain(without).collect())
    }

    /// `origins` are the hosts that the configuration adds.
    pub(in crate::http) fn check(&self, headers: &HeaderMap, origins: &[String]) -> Result<(), ApiError> {
        let Self::Loopback(names) = self else { return Ok(()) };
        // A client without this header is not a browser.
        let Some(host) = headers.get(header::HOST) else { return Ok(()) };
        let host = String::from_utf8_lossy(host.as_bytes());
        let is = |name: &str| name.eq_ignore_ascii_case(&host);
        let added = origins.iter().filter_map(|origin| origin.split_once("://"));
        if names.iter().any(|name| is(name)) || added.into_iter().any(|(_, name)| is(name)) {
            return Ok(());
        }
        Err(ApiError::Host(format!("{host:?}")))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    #[test]
    fn only_loopback_host_names_are_accepted() {
        let hosts = Hosts::of(Some("127.0.0.2:7420".parse().unwrap()), false);
        let check = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            hosts.check(&headers, &["https://q.example".to_owned()]).is_ok()
        };
        for own in [
            "localhost:7420",
            "LOCALHOST:7420",
            "127.0.0.1:7420",
            "127.0.0.2:7420",
            "[::1]:7420",
            "q.example",
        ] {
            assert!(check(own), "{own}");
        }
        for other in ["", "localhost", "evil.example:7420", "127.0.0.1:7421", "127.0.0.1.evil.example:7420"] {
            assert!(!check(other), "{other}");
        }
        assert!(hosts.check(&HeaderMap::new(), &[]).is_ok());
        assert!(matches!(Hosts::of(Some("192.0.2.1:80".parse().unwrap()), false), Hosts::Any));
        assert!(matches!(Hosts::of(None, false), Hosts::Any));
    }
}
