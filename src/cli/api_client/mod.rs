//! The client of a running daemon's HTTP API: `Endpoint` for one daemon and its connections, `ApiClient`
//! for commands that ask it once.

mod address;
mod connection;
mod endpoint;
mod error;
mod listener;
mod secret;
mod tls;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::Value;
use tokio::runtime;

use super::{
    UsageError,
    globals::Globals,
    status::{Figures, STATUS, fitting, read},
};
use crate::{
    base::deadlines,
    config::{Config, DEFAULT_ADDRESS, Fault, Listen, Place, reachable},
};

pub(super) use self::{
    address::Address,
    endpoint::Endpoint,
    error::AskError,
    secret::{Secret, secret},
};

/// How long a GET waits for the answer.
pub(super) const READ_TIMEOUT: Duration = deadlines::ANSWER;

/// The most characters that an error shows of a daemon's text.
const LONGEST_TEXT: usize = 400;

/// The option `--at`: the address of the daemon.
#[derive(Debug, clap::Args)]
pub(super) struct At {
    /// Where the daemon listens: IP:PORT, or unix:PATH [default: what the configuration says in http.listen]
    #[arg(long, value_name = "ADDRESS")]
    at: Option<Listen>,
}

impl At {
    /// Whether the command line has `--at`.
    pub(super) fn is_given(&self) -> bool {
        self.at.is_some()
    }

    /// An error if the command line has `--at`, for a command that asks no daemon.
    pub(super) fn only_with_here(&self) -> Result<(), UsageError> {
        match self.at {
            None => Ok(()),
            Some(_) => Err(UsageError("--at is for --local: otherwise no daemon is asked".to_owned())),
        }
    }
}

/// A client of one daemon's HTTP API.
#[derive(Debug)]
pub(super) struct ApiClient {
    endpoint: Endpoint,
    runtime: runtime::Runtime,
    /// The configuration that the daemon must run with. None if `--at` names the daemon: then any configuration will do.
    expected: Option<Expected>,
    /// The value of `--timeout`: how long an answer may take.
    timeout: Option<Duration>,
}

/// The parts of a command's configuration that identify the daemon that uses it.
#[derive(Debug)]
pub(super) struct Expected {
    database: String,
    /// The configuration file, unless the command line overrides its database. A service may have its database from systemd
    /// alone, so the file identifies it too.
    file: Option<PathBuf>,
}

impl Expected {
    /// What a daemon of this configuration has.
    pub(super) fn of(globals: &Globals, config: &Config) -> Self {
        let file = globals.config().filter(|_| globals.database().is_none()).map(Path::to_owned);
        Self { database: config.database.clone(), file }
    }

    /// An error if a daemon with these figures uses another database.
    pub(super) fn check(&self, daemon: &Endpoint, figures: &Figures) -> Result<(), AskError> {
        if figures.database.is(&self.database)
            || self.file.as_ref().is_some_and(|file| figures.config.is(file))
        {
            return Ok(());
        }
        Err(AskError::Elsewhere {
            at: daemon.to_string(),
            option: daemon.option,
            theirs: fitting(&figures.database.url, LONGEST_TEXT),
            ours: self.database.clone(),
        })
    }
}

/// An error if the configuration does not say where its daemon listens.
pub(super) fn need_http(faults: Vec<Fault>) -> anyhow::Result<()> {
    match faults.into_iter().find(|fault| fault.place == Place::Http) {
        Some(fault) => Err(fault.error.into()),
        None => Ok(()),
    }
}

impl ApiClient {
    /// A client of the daemon that `--at` names, or else of the configuration's daemon.
    pub(super) fn find(globals: &Globals, at: &At) -> anyhow::Result<Self> {
        let (config, faults) = globals.start_to_ask(at.is_given())?;
        let daemon = match &at.at {
            Some(address) => Self::new(endpoint(address, &config, AT)?)?,
            None => {
                need_http(faults)?;
                Self::of(globals, &config)?
            }
        };
        Ok(Self { timeout: globals.timeout(), ..daemon })
    }

    /// A client of the daemon whose URL is in place of the database, if there is one.
    pub(super) fn of_database(globals: &Globals) -> anyhow::Result<Option<Self>> {
        if address_of(&globals.load_leniently()?.0)?.is_none() {
            return Ok(None);
        }
        let (config, _) = globals.start_leniently()?;
        let daemon = Self::of(globals, &config)?;
        Ok(Some(Self { timeout: globals.timeout(), ..daemon }))
    }

    /// A client of the configuration's daemon. The configuration may be invalid.
    pub(super) fn of(globals: &Globals, config: &Config) -> anyhow::Result<Self> {
        if let Some(address) = address_of(config)? {
            if !address.is_https() && !address.is_trusted(&config.http) {
                let problem = format!("cannot ask {address}: the connection is not encrypted");
                return Err(UsageError(format!("{problem}; use https, or a tunnel to the daemon")).into());
            }
            let token = token(&address, config, false, "")?;
            return Self::new(Endpoint::new(address, token, DATABASE)?);
        }
        let expected = Some(Expected::of(globals, config));
        Ok(Self { expected, ..Self::new(endpoint(&config.http.listen, config, AT)?)? })
    }

    fn new(endpoint: Endpoint) -> anyhow::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { endpoint, runtime, expected: None, timeout: None })
    }

    /// An error if a daemon with these figures uses another database than this command.
    pub(super) fn expect_own(&self, figures: &Figures) -> Result<(), AskError> {
        self.expected.as_ref().map_or(Ok(()), |expected| expected.check(&self.endpoint, figures))
    }

    /// This client with a limit on the wait for an answer.
    pub(super) fn within(self, limit: Duration) -> Self {
        Self { timeout: Some(limit), ..self }
    }

    /// The URL of the daemon; none on a Unix socket.
    pub(super) fn url(&self) -> Option<String> {
        self.endpoint.url()
    }

    /// Sends a GET request.
    pub(super) fn get(&self, path: &str) -> Result<Value, AskError> {
        self.runtime.block_on(self.answer("GET", path, None))
    }

    /// The status of the daemon, whole and as far as it is shown, after a check that the daemon uses the expected database.
    pub(super) fn figures(&self) -> anyhow::Result<(Value, Figures)> {
        let answer = self.get(STATUS)?;
        let figures = read(&answer)?;
        self.expect_own(&figures)?;
        Ok((answer, figures))
    }

    /// Sends a request that changes something, after a check that the daemon uses the expected database.
    pub(super) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        if self.expected.is_some() {
            self.figures().map_err(|error| match error.downcast_ref() {
                Some(AskError::Elsewhere { .. }) => error.context("nothing was changed"),
                _ => error,
            })?;
        }
        let patience = self.timeout.unwrap_or(deadlines::COMMAND);
        Ok(self.runtime.block_on(self.endpoint.ask_once(method, path, body, patience))?)
    }

    /// The value of `--timeout`.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The answer to a request that has the same effect if it is done twice.
    pub(super) async fn answer(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, AskError> {
        let patience =
            self.timeout.unwrap_or(if method == "GET" { READ_TIMEOUT } else { deadlines::COMMAND });
        self.endpoint.ask(method, path, body, patience).await
    }
}

/// The address of the daemon whose URL is in place of the database.
pub(super) fn address_of(config: &Config) -> Result<Option<Address>, UsageError> {
    let wrong = |problem| UsageError(format!("{:?} is not the URL of a daemon: {problem}", config.database));
    config.is_of_daemon().then(|| config.database.parse().map_err(wrong)).transpose()
}

/// The token for an address. The secret of the configuration stays on this machine, and no other token goes over an open connection unless
/// `is_open_allowed`; `or` says how that is allowed.
pub(super) fn token(
    address: &Address,
    config: &Config,
    is_open_allowed: bool,
    or: &str,
) -> anyhow::Result<Option<Secret>> {
    if address.is_trusted(&config.http) {
        return secret(config);
    }
    match Secret::of_environment()? {
        Some(_) if !is_open_allowed && !address.is_https() => {
            let problem = format!("cannot send KVQUEUE_TOKEN to {address}: the connection is not encrypted");
            Err(UsageError(format!("{problem}; use https, or a tunnel to the daemon{or}")).into())
        }
        token => Ok(token),
    }
}

/// The option that may have the URL of a daemon.
const DATABASE: &str = "--database";

/// The option of [`At`].
const AT: &str = "--at";

/// The daemon at an address of the configuration or of `option`.
pub(super) fn endpoint(listen: &Listen, config: &Config, option: &'static str) -> anyhow::Result<Endpoint> {
    let usage = |problem: &str, or: &str| {
        UsageError(format!("{problem}; {or}say where the daemon listens with {option}"))
    };
    let address = match listen {
        Listen::Off => {
            return Err(usage("http.listen is \"off\"", "remove that and restart the daemon, or ").into());
        }
        Listen::Auto => Address::Tcp(DEFAULT_ADDRESS),
        Listen::Tcp(address) if address.port() == 0 => {
            return Err(usage("port 0 means any free port", "").into());
        }
        Listen::Tcp(address) => Address::Tcp(reachable(*address)),
        Listen::Unix(path) => Address::Unix(path.clone()),
    };
    let secret = secret(config)?;
    let is_trusted = address.is_trusted(&config.http);
    if secret.is_some() && !is_trusted {
        tracing::warn!(
            event = "secret_withheld",
            %listen,
            "not sending KVQUEUE_TOKEN or the secret of http.token-file: the address is neither http.listen nor on this machine"
        );
    }
    let certificate = config.http.tls_certificate.as_ref().filter(|_| matches!(address, Address::Tcp(_)));
    let tls = certificate.map(|certificate| tls::of_own_daemon(certificate)).transpose()?;
    let daemon = Endpoint::new(address, secret.filter(|_| is_trusted), option)?;
    Ok(match tls {
        Some(tls) => daemon.with_tls(tls),
        None => daemon,
    })
}

/// A duration for people: whole seconds, or milliseconds below one second.
pub(super) fn rough(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds => format!("{seconds} s"),
    }
}

/// The characters that are percent-encoded in a path. The dot is one, so that no name is `..`.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// A name as a segment of a URL's path.
pub(super) fn encoded(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, IN_PATH)
}

impl fmt::Display for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_percent_encoded_except_letters_digits_and_dashes() {
        assert_eq!(encoded("a-b_9").to_string(), "a-b_9");
        assert_eq!(encoded("../é?").to_string(), "%2E%2E%2F%C3%A9%3F");
    }
}
