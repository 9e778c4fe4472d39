//! The settings of HTTP: keys, defaults and checks.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::row::{
    NeededBy, Reload, Setting,
    range::Bound::{Count, Size, Time},
};
use super::{ConfigError, duration, number, size};

/// The address of [`Listen::Auto`].
pub(crate) const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);

/// The name of the file that the daemon makes for the operator's secret.
const TOKEN_FILE: &str = "http-token";

/// The prefix of a Unix socket's path.
pub(super) const UNIX: &str = "unix:";

/// The largest `max-body`: payloads have to fit into a transaction, and in base 64 they are longer by a third.
pub(crate) const MAX_BODY: usize = 16 << 20;

/// The default of `max-body`.
pub(crate) const DEFAULT_BODY: usize = 9 << 20;

/// The longest path of a Unix socket, in bytes, as Linux has it.
const MAX_SOCKET_PATH: usize = 107;

/// HTTP: the API, the metrics, the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    default,
    expecting = "a table such as { listen = \"auto\" }"
)]
#[non_exhaustive]
pub struct Http {
    /// Where the daemon listens.
    pub listen: Listen,
    /// The file with the operator's secret; the daemon makes it if it does not exist. `None`: a file of its own, in the
    /// database's directory if that is embedded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Whether clients have to send a token. `None`: at an IP address, and wherever there is a `token_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_token: Option<bool>,
    /// Clients beyond this machine may send tokens unencrypted, because a proxy or a tunnel encrypts them on the way.
    pub allow_plaintext: bool,
    /// A PEM file with the certificate for TLS and the chain to its authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    /// A PEM file with the private key of that certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Whether requests that change something are refused.
    pub read_only: bool,
    /// The longest body of a request, in bytes.
    #[serde(with = "size")]
    pub max_body: u64,
    /// The most connections of clients with a valid token at a time.
    #[serde(deserialize_with = "number::deserialize")]
    pub max_connections: usize,
    /// How long a connection stays open without a request.
    #[serde(with = "duration")]
    pub keep_alive: Duration,
    /// Other origins whose pages may send requests that change something, as in `https://queues.example`.
    pub origins: Vec<String>,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: Listen::Auto,
            token_file: None,
            require_token: None,
            allow_plaintext: false,
            tls_certificate: None,
            tls_key: None,
            read_only: false,
            max_body: DEFAULT_BODY as u64,
            max_connections: 256,
            // Longer than the 60 s of usual load balancers and proxies: otherwise one of them may send a request just as
            // the daemon closes.
            keep_alive: Duration::from_mins(2),
            origins: Vec::new(),
        }
    }
}

impl Http {
    /// Whether clients have to send a token.
    pub(crate) fn needs_token(&self) -> bool {
        self.require_token.unwrap_or(self.token_file.is_some() || self.listens_on_ip())
    }

    fn listens_on_ip(&self) -> bool {
        matches!(self.listen, Listen::Auto | Listen::Tcp(_))
    }

    /// The file of the operator's secret, if there is one. It is as protected as the database: in an embedded
    /// database's directory, which only its user can open, or below that user's home.
    pub(crate) fn token_path(&self, database: &str) -> Option<PathBuf> {
        if self.token_file.is_some() || !self.needs_token() || !self.listens_on_ip() {
            return self.token_file.clone();
        }
        let directory = fdb_embedded::embedded_directory(database).or_else(state_directory)?;
        Some(directory.join(TOKEN_FILE))
    }
}

/// Where a user's programs keep what is theirs, by systemd's and XDG's variables.
fn state_directory() -> Option<PathBuf> {
    let path = |name| {
        // Systemd's variable may name several.
        let first = std::env::var(name).ok()?.split(':').next().map(PathBuf::from);
        first.filter(|path| path.is_absolute())
    };
    path("STATE_DIRECTORY").or_else(|| {
        let home = || path("HOME").map(|home| home.join(".local/state"));
        Some(path("XDG_STATE_HOME").or_else(home)?.join("kvqueue"))
    })
}

/// The address at which a daemon on this machine can be reached: loopback if it listens on all addresses.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl Http {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        self.validate_listen()?;
        self.validate_token()?;
        self.validate_tls()?;
        self.origins.iter().enumerate().try_for_each(|(index, origin)| validate_origin(index, origin))
    }

    fn validate_listen(&self) -> Result<(), ConfigError> {
        match &self.listen {
            Listen::Unix(path) if path.as_os_str().len() > MAX_SOCKET_PATH => {
                let problem = format!(
                    "the path of a Unix socket has at most {MAX_SOCKET_PATH} bytes, and this one has {}",
                    path.as_os_str().len()
                );
                let value = format_args!("\"{}\"", self.listen);
                Err(ConfigError::value("http.listen", value, problem, "choose a shorter one, as in /run"))
            }
            _ => Ok(()),
        }
    }

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

/// Whether only this machine reaches the address.
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
        "this is not an origin",
        fix,
    ))
}

/// Where the daemon listens for HTTP.
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

/// What there is to know about these settings.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::new(
        "http.listen",
        "where the API, the metrics and the dashboard are: `\"IP:PORT\"` (if it is not free, the daemon does not start); `\"unix:PATH\"` (mode 0660); `\"off\"`; \
         `\"auto\"` is `127.0.0.1:7420` if that is free, and otherwise a warning and no HTTP ([HTTP](config/process.md#http))",
    )
    .needed_by(NeededBy::Http),
    Setting::new(
        "http.token-file",
        "the file with the operator's secret, which clients send as `Authorization: Bearer SECRET` and which allows everything; the daemon makes the \
         file if it does not exist",
    )
    .without_default("see [HTTP](config/process.md#http)", "\"/run/kvqueue/http-token\"")
    .needed_by(NeededBy::Http),
    Setting::new(
        "http.require-token",
        "whether clients have to send an access token or that secret ([SECURITY.md](SECURITY.md))",
    )
    .without_default("see [HTTP](config/process.md#http)", "true")
    .needed_by(NeededBy::Http)
    .reload(Reload::AtOnce),
    Setting::new("http.tls-certificate", "a PEM file with the certificate for TLS, and the chain to its authority")
        .without_default("none", "\"/etc/kvqueue/tls.crt\"")
        .needed_by(NeededBy::Http),
    Setting::new(
        "http.tls-key",
        "a PEM file with that certificate's private key, which other users may not read (mode 0640 or less)",
    )
    .without_default("none", "\"/etc/kvqueue/tls.key\"")
    .needed_by(NeededBy::Http),
    Setting::new(
        "http.allow-plaintext",
        "whether the daemon may listen beyond loopback without TLS, because a proxy or a tunnel encrypts the connections",
    )
    .needed_by(NeededBy::Http),
    Setting::new("http.read-only", "`true`: nothing can be changed by HTTP").needed_by(NeededBy::Http)
    .reload(Reload::AtOnce),
    Setting::new("http.max-body", "the longest body of a request; a payload in base 64 takes a third more")
        .at_least(Size(1), "nothing could be pushed")
        .at_most(Size(MAX_BODY as u64), "that is too much to hold")
        .needed_by(NeededBy::Http),
    Setting::new(
        "http.max-connections",
        "the most connections at a time of clients that have sent a valid token, or need none. Others have 64 places more; the oldest of them gives \
         way to a new one ([SECURITY.md](SECURITY.md#clients-without-a-token))",
    )
    .at_least(Count(8), "a page and a client need a few")
    .at_most(Count(10_000), "one thread does not serve more")
    .needed_by(NeededBy::Http),
    Setting::new(
        "http.keep-alive",
        "how long a connection stays open without a request; longer than a load balancer or a proxy keeps a silent one, so that it closes first",
    )
    .at_least(Time(Duration::from_secs(1)), "a load balancer keeps a silent connection longer")
    .at_most(Time(Duration::from_hours(1)), "silent connections would take the places of others")
    .needed_by(NeededBy::Http),
    Setting::new(
        "http.origins",
        "other origins whose pages may change something, as in `\"https://queues.example\"`; on loopback also host names by which clients may ask the daemon",
    )
    .needed_by(NeededBy::Http)
    .reload(Reload::AtOnce),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_no_socket_can_have_is_refused() {
        for length in [107, 108] {
            let listen = Listen::Unix(format!("/{}", "x".repeat(length - 1)).into());
            let checked = Http { listen, ..Http::default() }.validate();
            assert_eq!(checked.is_ok(), length == 107, "{checked:?}");
            // The system agrees.
            let directory = tempfile::tempdir().unwrap();
            let short = directory.path().display().to_string().len() + 1;
            let path = directory.path().join("x".repeat(length - short));
            assert_eq!(std::os::unix::net::UnixListener::bind(path).is_ok(), length == 107);
        }
    }

    #[test]
    fn listen_addresses_round_trip() {
        for text in ["auto", "off", "127.0.0.1:7420", "[::1]:0", "unix:/run/x.sock", "unix:x"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for wrong in ["", "localhost:80", "7420", "127.0.0.1", "unix:", "AUTO"] {
            assert!(wrong.parse::<Listen>().unwrap_err().contains("is no address"), "{wrong}");
        }
    }
}
