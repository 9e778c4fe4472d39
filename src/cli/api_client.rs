//! The client of a running daemon's HTTP API, for the commands that ask a daemon or change its state.

use std::{
    ffi::OsStr,
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::{Value, json};

use super::{
    UsageError,
    globals::Globals,
    output::about,
    status::{self, Figures, fitting},
};
use crate::{
    config::{Config, DEFAULT_ADDRESS, Http, Listen, Place, is_loopback, reachable},
    deadlines,
    exit::Exit,
    http::Token,
};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a GET waits for bytes of the answer. The daemon itself waits six seconds for its database.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// The most characters that an error shows of a daemon's text.
const LONGEST_TEXT: usize = 400;

/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: u64 = 16 << 20;

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

/// A client of one daemon's HTTP API. Each request opens a connection of its own.
#[derive(Debug)]
pub(super) struct ApiClient {
    address: Address,
    token: Option<Token>,
    /// The configuration that the daemon must run with. None if `--at` names the daemon: then any configuration will do.
    expected: Option<Expected>,
    /// The value of `--timeout`: how long an answer may take.
    timeout: Option<Duration>,
}

/// The parts of a command's configuration that identify the daemon that uses it.
#[derive(Debug)]
struct Expected {
    database: String,
    /// The configuration file, unless the command line overrides its database. A service may have its database from systemd
    /// alone, so the file identifies it too.
    file: Option<PathBuf>,
}

#[derive(Debug, Clone)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A request to a daemon failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// No connection.
    #[error("no daemon answers at {at}; is it running? --at ADDRESS names another address")]
    Nobody {
        at: String,
        #[source]
        error: io::Error,
    },
    /// Connected, but no answer in time.
    #[error("the daemon at {at} has not answered for {}; its log may show why", rough(*silence))]
    Silent { at: String, silence: Duration },
    /// The answer is incomplete, or another program sent it.
    #[error("the answer from {at} is incomplete, or from a program other than kvqueue: {problem}")]
    Garbled { at: String, problem: &'static str },
    /// The daemon uses another database.
    #[error(
        "the daemon at {at} uses the database {theirs}, not {ours}; give the configuration of the daemon that you mean, or name this one with --at {at}"
    )]
    Elsewhere { at: String, theirs: String, ours: String },
    /// The daemon refused the request.
    #[error("the daemon at {at} answers: {message}; {fix}")]
    Refused { at: String, code: String, message: String, fix: String },
}

impl AskError {
    /// The command's exit code.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Nobody { .. } | Self::Silent { .. } | Self::Garbled { .. } | Self::Elsewhere { .. } => {
                Exit::Unavailable
            }
            Self::Refused { code, .. } => match code.as_str() {
                "refused" => Exit::Config,
                // The daemon refuses every request of this kind, or every request at the moment.
                "unauthorized" | "host" | "busy" | "unavailable" => Exit::Unavailable,
                _ => Exit::Failed,
            },
        }
    }
}

/// Whether the secret may be sent there unencrypted: on this machine, and to the address of `http.listen`.
fn is_trusted(address: &Address, http: &Http) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(address) => {
            is_loopback(address) || matches!(http.listen, Listen::Tcp(own) if own == *address)
        }
    }
}

impl ApiClient {
    /// A client of the daemon that `--at` names, or else of the configuration's daemon.
    pub(super) fn find(globals: &Globals, at: &At) -> anyhow::Result<Self> {
        let (config, faults) = globals.start_leniently()?;
        if let Some(fault) = faults.into_iter().find(|fault| fault.place == Place::Http && !at.is_given()) {
            return Err(fault.error.into());
        }
        let daemon = match &at.at {
            Some(address) => Self::at(address, &config)?,
            None => Self::of(globals, &config)?,
        };
        Ok(Self { timeout: globals.timeout(), ..daemon })
    }

    /// A client of the configuration's daemon. The configuration may be invalid.
    pub(super) fn of(globals: &Globals, config: &Config) -> anyhow::Result<Self> {
        let file = globals.config().filter(|_| globals.database().is_none()).map(Path::to_owned);
        let expected = Expected { database: config.database.clone(), file };
        Ok(Self { expected: Some(expected), ..Self::at(&config.http.listen, config)? })
    }

    /// An error if a daemon with these figures uses another database than this command.
    pub(super) fn expect_own(&self, figures: &Figures) -> Result<(), AskError> {
        let matches = |expected: &Expected| {
            figures.database.is(&expected.database)
                || expected.file.as_ref().is_some_and(|file| figures.config.is(file))
        };
        match &self.expected {
            Some(expected) if !matches(expected) => Err(AskError::Elsewhere {
                at: self.to_string(),
                theirs: fitting(&figures.database.url, LONGEST_TEXT),
                ours: expected.database.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// This client with a limit on the wait for an answer.
    pub(super) fn within(self, limit: Duration) -> Self {
        Self { timeout: Some(limit), ..self }
    }

    fn at(listen: &Listen, config: &Config) -> anyhow::Result<Self> {
        let http = &config.http;
        let usage = |problem: &str| UsageError(format!("{problem}; say where the daemon listens with --at"));
        let address = match listen {
            Listen::Off => return Err(usage("http.listen is \"off\"").into()),
            Listen::Auto => Address::Tcp(DEFAULT_ADDRESS),
            Listen::Tcp(address) if address.port() == 0 => {
                return Err(usage("port 0 means any free port").into());
            }
            Listen::Tcp(address) => Address::Tcp(reachable(*address)),
            Listen::Unix(path) => Address::Unix(path.clone()),
        };
        let token = match Token::of_environment()? {
            Some(token) => Some(token),
            None => http.token_path(&config.database).as_deref().map(Token::read).transpose()?.flatten(),
        };
        let token = token.filter(|_| {
            let trusted = is_trusted(&address, http);
            if !trusted {
                tracing::warn!(
                    event = "secret_withheld",
                    %listen,
                    "not sending KVQUEUE_TOKEN or the secret of http.token-file: the address is neither http.listen nor on this machine"
                );
            }
            trusted
        });
        Ok(Self { address, token, expected: None, timeout: None })
    }

    /// The URL of the daemon; none on a Unix socket.
    pub(super) fn url(&self) -> Option<String> {
        match &self.address {
            Address::Tcp(address) => Some(format!("http://{address}")),
            Address::Unix(_) => None,
        }
    }

    /// Sends a GET request.
    pub(super) fn get(&self, path: &str) -> Result<Value, AskError> {
        self.ask("GET", path, None)
    }

    /// Sends a request that changes something, after a check that the daemon uses the expected database.
    pub(super) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        if self.expected.is_some() {
            status::ask(self).map_err(|error| match error.downcast_ref() {
                Some(AskError::Elsewhere { .. }) => error.context("nothing was changed"),
                _ => error,
            })?;
        }
        Ok(self.ask(method, path, body)?)
    }

    /// Pauses or resumes a queue in this daemon only.
    pub(super) fn pause_locally(&self, queue: &OsStr, paused: bool) -> anyhow::Result<Value> {
        let name = queue.to_str().ok_or_else(|| {
            UsageError(format!(
                "queue {:?} cannot be named over HTTP because it is not UTF-8",
                queue.display()
            ))
        })?;
        let path = format!("/api/v1/queues/{}/pause", encoded(name));
        if paused {
            self.send("PUT", &path, Some(&json!({ "local": true })))?;
        } else {
            self.send("DELETE", &(path + "?local=true"), None)?;
        }
        let mut answer = about(name.as_bytes(), "paused", paused);
        answer["local"] = true.into();
        Ok(answer)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, AskError> {
        let request = self.request(method, path, body);
        let patience =
            self.timeout.unwrap_or(if method == "GET" { READ_TIMEOUT } else { deadlines::COMMAND });
        let answer = self.exchange(&request, patience).map_err(|error| self.unanswered(error, patience))?;
        self.read(&answer)
    }

    fn exchange(&self, request: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
        match &self.address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT.min(patience))?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                exchange(stream, request)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                exchange(stream, request)
            }
        }
    }

    fn unanswered(&self, error: io::Error, silence: Duration) -> AskError {
        let at = self.to_string();
        match error.kind() {
            // The read timeout.
            io::ErrorKind::WouldBlock => AskError::Silent { at, silence },
            _ => AskError::Nobody { at, error },
        }
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Vec<u8> {
        let host = match &self.address {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(_) => "localhost".to_owned(),
        };
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        if let Some(token) = &self.token {
            head += &format!("Authorization: {}\r\n", token.header());
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            head += "Content-Type: application/json\r\n";
        }
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    /// The body of an answer. An error if it reports one, or is incomplete.
    fn read(&self, answer: &[u8]) -> Result<Value, AskError> {
        let garbled = |problem| AskError::Garbled { at: self.to_string(), problem };
        let answer = Answer::read(answer).map_err(garbled)?;
        let success = (200..300).contains(&answer.status);
        if success && answer.body.is_empty() {
            return Ok(Value::Null);
        }
        let body: Value =
            serde_json::from_slice(answer.body).map_err(|_| garbled("the answer is not JSON"))?;
        // A status such as 503 from /readyz comes with a body that is not an error.
        if success || body["error"].is_null() {
            return Ok(body);
        }
        let text = |key: &str| body["error"][key].as_str().unwrap_or_default().to_owned();
        let (code, message, fix) = (text("code"), text("message"), text("fix"));
        Err(AskError::Refused { at: self.to_string(), code, message, fix })
    }
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

fn exchange(mut stream: impl Read + Write, request: &[u8]) -> io::Result<Vec<u8>> {
    // A server may answer and close before it has read the whole request, so read even if the write failed.
    let written = stream.write_all(request);
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer)?;
    if answer.is_empty() { written.map(|()| answer) } else { Ok(answer) }
}

/// An HTTP answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer<'a> {
    status: u16,
    body: &'a [u8],
}

impl<'a> Answer<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n").ok_or("the answer has no head")?;
        let (head, body) = (&bytes[..end], &bytes[end + 4..]);
        let head = std::str::from_utf8(head).map_err(|_| "the head of the answer is not text")?;
        let mut lines = head.split("\r\n");
        let status =
            lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
        let length = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map(|(_, length)| length.trim().parse::<usize>());
        match (status, length) {
            (None, _) => Err("the answer is not HTTP"),
            (Some(_), Some(Ok(length))) if length != body.len() => Err("the answer is cut off"),
            (Some(_), Some(Err(_))) => Err("the answer is not HTTP"),
            (Some(status), _) => Ok(Self { status, body }),
        }
    }
}

impl fmt::Display for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_goes_to_this_machine_and_to_the_configured_address_only() {
        let http = Http { listen: "192.0.2.1:7420".parse().unwrap(), ..Http::default() };
        let tcp = |at: &str| is_trusted(&Address::Tcp(at.parse().unwrap()), &http);
        assert!(tcp("127.0.0.1:1") && tcp("[::1]:7420") && tcp("192.0.2.1:7420"));
        assert!(!tcp("192.0.2.1:7421") && !tcp("192.0.2.2:7420"));
        assert!(is_trusted(&Address::Unix("/run/s".into()), &http));
    }

    #[test]
    fn incomplete_answers_are_errors() {
        let read = |text: &'static str| Answer::read(text.as_bytes()).map(|it| (it.status, it.body.len()));
        assert_eq!(read("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"), Ok((200, 2)));
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\n"), Ok((204, 0)));
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}"), Err("the answer is cut off"));
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 3"), Err("the answer has no head"));
        for other in
            ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200\r\nContent-Length: x\r\n\r\n"]
        {
            assert_eq!(read(other), Err("the answer is not HTTP"), "{other:?}");
        }
    }

    #[test]
    fn a_silent_daemon_and_a_missing_one_are_different_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let daemon =
            ApiClient { address: Address::Unix(path.clone()), token: None, expected: None, timeout: None };
        let ask = || {
            let patience = Duration::from_millis(50);
            daemon.exchange(b"GET", patience).map_err(|error| daemon.unanswered(error, patience))
        };
        assert!(matches!(ask(), Err(AskError::Nobody { .. })));
        let _connections_wait_in_its_queue = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let silent = ask().unwrap_err();
        assert!(matches!(silent, AskError::Silent { .. }), "{silent}");
        let silent = AskError::Silent { at: "127.0.0.1:7420".to_owned(), silence: READ_TIMEOUT };
        insta::assert_snapshot!(silent, @"the daemon at 127.0.0.1:7420 has not answered for 15 s; its log may show why");
    }

    #[test]
    fn names_are_percent_encoded_except_letters_digits_and_dashes() {
        assert_eq!(encoded("a-b_9").to_string(), "a-b_9");
        assert_eq!(encoded("../é?").to_string(), "%2E%2E%2F%C3%A9%3F");
    }

    #[test]
    fn a_daemon_on_all_addresses_is_reached_on_loopback() {
        for (listens, reached) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("192.0.2.1:1", "192.0.2.1:1")]
        {
            assert_eq!(reachable(listens.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
