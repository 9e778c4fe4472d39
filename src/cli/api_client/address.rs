//! The address of a daemon.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use actix_web::http::Uri;

use crate::config::{Http, Listen, is_loopback};

/// The port of `http://HOST`.
const HTTP_PORT: u16 = 80;

/// The port of `https://HOST`.
const HTTPS_PORT: u16 = 443;

/// Where a daemon answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
    Url(Url),
}

/// `http://HOST:PORT/PATH`, or the same with `https`. A path is that of a proxy in front of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Url {
    /// With `https`.
    is_tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// With no slash at its end.
    pub(super) path: String,
}

impl Address {
    /// Whether the secret may be sent there unencrypted: on this machine, and to the address of
    /// `http.listen`.
    pub(in crate::cli) fn is_trusted(&self, http: &Http) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(address) => {
                is_loopback(address) || matches!(http.listen, Listen::Tcp(own) if own == *address)
            }
            Self::Url(url) => match url.host.parse() {
                Ok(ip) => Self::Tcp(SocketAddr::new(ip, url.port)).is_trusted(http),
                Err(_) => url.host == "localhost",
            },
        }
    }

    /// Whether the connection is encrypted because the URL says so.
    pub(in crate::cli) fn is_https(&self) -> bool {
        matches!(self, Self::Url(Url { is_tls: true, .. }))
    }

    /// The name or the IP address of the host.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Tcp(address) => address.ip().to_string(),
            Self::Unix(_) => "localhost".to_owned(),
            Self::Url(url) => url.host.clone(),
        }
    }

    /// The value of the header `Host`.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Tcp(address) => address.to_string(),
            Self::Unix(_) => "localhost".to_owned(),
            Self::Url(url) => url.authority(),
        }
    }

    /// What comes before the path of each request.
    pub(super) fn base(&self) -> &str {
        match self {
            Self::Tcp(_) | Self::Unix(_) => "",
            Self::Url(url) => &url.path,
        }
    }
}

impl Url {
    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    fn read(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let is_tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let is_plain = uri.query().is_none();
        let authority = uri.authority().filter(|it| is_plain && !it.as_str().contains('@'))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = match authority.port() {
            Some(port) => Some(port.as_u16()).filter(|port| *port > 0)?,
            None if is_tls => HTTPS_PORT,
            None => HTTP_PORT,
        };
        let path = uri.path().trim_end_matches('/').to_owned();
        (!host.is_empty()).then(|| Self { is_tls, host: host.to_owned(), port, path })
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let listen = text.parse().ok();
        match listen {
            Some(Listen::Unix(path)) => Ok(Self::Unix(path)),
            Some(Listen::Tcp(address)) if address.port() > 0 => Ok(Self::Tcp(address)),
            _ => Url::read(text).map(Self::Url).ok_or_else(|| {
                "write it as in https://queues.example:7420 or unix:/run/kvqueue/http.sock".to_owned()
            }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Url(url) => {
                let scheme = if url.is_tls { "https" } else { "http" };
                write!(f, "{scheme}://{}{}", url.authority(), url.path)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn the_secret_goes_to_this_machine_and_to_the_configured_address_only() {
        let http = Http { listen: "192.0.2.1:7420".parse().unwrap(), ..Http::default() };
        for trusted in [
            "127.0.0.1:1",
            "[::1]:7420",
            "192.0.2.1:7420",
            "unix:/run/s",
            "http://localhost:7420",
            "http://[::1]:1/queues",
            "http://192.0.2.1:7420",
        ] {
            assert!(address(trusted).is_trusted(&http), "{trusted}");
        }
        for other in ["192.0.2.1:7421", "192.0.2.2:7420", "http://localhost.example", "http://192.0.2.1"] {
            assert!(!address(other).is_trusted(&http), "{other}");
        }
    }

    #[test]
    fn a_url_is_read_and_shown() {
        for (text, shown, host, base) in [
            ("http://a.example", "http://a.example:80", "a.example:80", ""),
            ("http://a.example:7420/", "http://a.example:7420", "a.example:7420", ""),
            ("http://[::1]:7420/q/", "http://[::1]:7420/q", "[::1]:7420", "/q"),
            ("https://a.example/q", "https://a.example:443/q", "a.example:443", "/q"),
            ("127.0.0.1:7420", "127.0.0.1:7420", "127.0.0.1:7420", ""),
            ("unix:/run/s", "unix:/run/s", "localhost", ""),
        ] {
            let address = address(text);
            assert_eq!((&*address.to_string(), &*address.host(), address.base()), (shown, host, base));
        }
        for wrong in ["", "a.example", "http://", "http://u:p@a.example", "http://a/?x=1", "ftp://a", "off"] {
            assert!(wrong.parse::<Address>().unwrap_err().starts_with("write it as in"), "{wrong}");
        }
    }
}
