//! The keys of `[http]`: where the daemon is asked and told, and by whom.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::{number, size};

/// Where it listens without a word about it.
pub(crate) const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);

/// The prefix of a Unix socket's path.
const UNIX: &str = "unix:";

/// HTTP: the API, the metrics, the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Http {
    /// Where it listens.
    pub listen: Listen,
    /// A file with the secret that clients have to know; without it every client that reaches the address may do everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Every client has to send a token, also on this machine; without it only if there is a `token_file`.
    pub require_token: bool,
    /// Nothing can be changed by HTTP.
    pub read_only: bool,
    /// The longest body of a request, in bytes.
    #[serde(with = "size")]
    pub max_body: u64,
    /// The most connections at a time.
    #[serde(deserialize_with = "number::deserialize")]
    pub max_connections: usize,
    /// Other origins whose pages may change something, as in `https://queues.example`.
    pub origins: Vec<String>,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: Listen::Auto,
            token_file: None,
            require_token: false,
            read_only: false,
            max_body: 9 << 20,
            max_connections: 256,
            origins: Vec::new(),
        }
    }
}

/// Where HTTP is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Listen {
    /// On 127.0.0.1:7420 if that is free, and nowhere otherwise.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// On this address. Port 0 is any free one.
    Tcp(SocketAddr),
    /// On a Unix socket at this path.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix(UNIX)) {
            ("auto", _) => Ok(Self::Auto),
            ("off", _) => Ok(Self::Off),
            (_, Some(path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            _ => text.parse().map(Self::Tcp).map_err(|_| {
                format!(
                    "{text:?} is no address; write it as in \"{DEFAULT_ADDRESS}\" or \"unix:/run/kvqueue/http.sock\", or \"off\""
                )
            }),
        }
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        listen.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["auto", "off", "127.0.0.1:7420", "[::1]:0", "unix:/run/x.sock", "unix:x"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for wrong in ["", "localhost:80", "7420", "127.0.0.1", "unix:", "AUTO"] {
            assert!(wrong.parse::<Listen>().unwrap_err().contains("is no address"), "{wrong}");
        }
    }
}
