//! Asking a running daemon, and telling it something: over HTTP, at the address that it listens on.

use std::{
    ffi::OsStr,
    fmt,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    UsageError,
    globals::Globals,
    output::about,
    status::{self, Figures, fitting},
};
use crate::{
    config::{Config, DEFAULT_ADDRESS, Http, Listen, Place, is_loopback},
    deadlines,
    exit::Exit,
    http::Token,
};

/// How long a connection may take to come about.
const REACH: Duration = Duration::from_secs(5);

/// How long an answer to a question may keep silent. The daemon waits six seconds for its database.
pub(super) const QUESTION: Duration = Duration::from_secs(15);

/// Longer texts of a daemon are cut.
const TEXT: usize = 400;

/// The longest answer, in bytes.
const LONGEST: u64 = 16 << 20;

/// Where the daemon is asked.
#[derive(Debug, clap::Args)]
pub(super) struct At {
    /// Where the daemon listens: IP:PORT, or unix:PATH [default: what the configuration says in http.listen]
    #[arg(long, value_name = "ADDRESS")]
    at: Option<Listen>,
}

impl At {
    /// Whether the command line says it.
    pub(super) fn is_given(&self) -> bool {
        self.at.is_some()
    }

    /// Where no daemon is asked, it is a mistake to say where one listens.
    pub(super) fn only_with_here(&self) -> Result<(), UsageError> {
        match self.at {
            None => Ok(()),
            Some(_) => Err(UsageError("--at is for --local: otherwise no daemon is asked".to_owned())),
        }
    }
}

/// A daemon that listens somewhere.
#[derive(Debug)]
pub(super) struct Daemon {
    address: Address,
    token: Option<Token>,
    /// The configuration that it has to be of; none if it is the one at an address, whatever its configuration is.
    of: Option<Own>,
    /// How long an answer may take, if `--timeout` says so.
    timeout: Option<Duration>,
}

/// What of a command's configuration tells which daemon is meant.
#[derive(Debug)]
struct Own {
    database: String,
    /// The file, if nothing was laid over the database that it names. A service may know its database from systemd alone.
    file: Option<PathBuf>,
}

#[derive(Debug, Clone)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A daemon gave no answer, or another than was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// Nobody is there.
    #[error("no daemon answers at {at}; is it running? say with --at where it listens")]
    Nobody {
        at: String,
        #[source]
        error: io::Error,
    },
    /// Somebody is there, and says nothing.
    #[error("the daemon at {at} has said nothing for {}; its log may say why", rough(*silence))]
    Silent { at: String, silence: Duration },
    /// It broke off, or is none of ours.
    #[error("what answers at {at} is no kvqueue, or was cut off: {problem}")]
    Garbled { at: String, problem: &'static str },
    /// It is another database's.
    #[error(
        "the daemon at {at} uses the database {theirs}, not {ours}; give the configuration of the daemon that is meant, or name this one with --at {at}"
    )]
    Elsewhere { at: String, theirs: String, ours: String },
    /// It did not do it.
    #[error("the daemon at {at} says: {message}; {fix}")]
    Refused { at: String, code: String, message: String, fix: String },
}

impl AskError {
    /// The exit code that tells it to scripts.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Nobody { .. } | Self::Silent { .. } | Self::Garbled { .. } | Self::Elsewhere { .. } => {
                Exit::Unavailable
            }
            Self::Refused { code, .. } => match code.as_str() {
                "refused" => Exit::Config,
                // It answers nothing that is asked so, or nothing now.
                "unauthorized" | "host" | "busy" | "unavailable" => Exit::Unavailable,
                _ => Exit::Failed,
            },
        }
    }
}

/// Whether the secret may go there in the clear: to this machine, or to where the configuration has its daemon listen.
fn is_trusted(address: &Address, http: &Http) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(address) => {
            is_loopback(address) || matches!(http.listen, Listen::Tcp(own) if own == *address)
        }
    }
}

impl Daemon {
    /// The daemon at an address, or the one that the configuration is for.
    pub(super) fn find(globals: &Globals, at: &At) -> anyhow::Result<Self> {
        let (config, faults) = globals.start_leniently()?;
        if let Some(fault) = faults.into_iter().find(|fault| fault.place == Place::Http && !at.is_given()) {
            return Err(fault.error.into());
        }
        let daemon = match &at.at {
            Some(address) => Self::at(address, &config.http)?,
            None => Self::of(globals, &config)?,
        };
        Ok(Self { timeout: globals.timeout(), ..daemon })
    }

    /// The daemon of a configuration that may not be valid.
    pub(super) fn of(globals: &Globals, config: &Config) -> anyhow::Result<Self> {
        let file = globals.config().filter(|_| globals.database().is_none()).map(Path::to_owned);
        let own = Own { database: config.database.clone(), file };
        Ok(Self { of: Some(own), ..Self::at(&config.http.listen, &config.http)? })
    }

    /// An error if a daemon with these figures uses another database than this command.
    pub(super) fn expect_own(&self, figures: &Figures) -> Result<(), AskError> {
        let is_ours = |own: &Own| {
            figures.database.is(&own.database)
                || own.file.as_ref().is_some_and(|file| figures.config.is(file))
        };
        match &self.of {
            Some(own) if !is_ours(own) => Err(AskError::Elsewhere {
                at: self.to_string(),
                theirs: fitting(&figures.database.url, TEXT),
                ours: own.database.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Waits no longer than this for an answer.
    pub(super) fn within(self, limit: Duration) -> Self {
        Self { timeout: Some(limit), ..self }
    }

    fn at(listen: &Listen, http: &Http) -> anyhow::Result<Self> {
        let usage = |problem: &str| UsageError(format!("{problem}; say where the daemon listens with --at"));
        let address = match listen {
            Listen::Off => return Err(usage("http.listen is \"off\"").into()),
            Listen::Auto => Address::Tcp(DEFAULT_ADDRESS),
            Listen::Tcp(address) if address.port() == 0 => {
                return Err(usage("port 0 is any free one").into());
            }
            Listen::Tcp(address) => Address::Tcp(reachable(*address)),
            Listen::Unix(path) => Address::Unix(path.clone()),
        };
        let token = http.token_file.as_deref().map(Token::read).transpose()?;
        let token = token.filter(|_| {
            let trusted = is_trusted(&address, http);
            if !trusted {
                tracing::warn!(
                    event = "secret_withheld",
                    %listen,
                    "not sending the secret of http.token-file: the address is neither http.listen nor on this machine"
                );
            }
            trusted
        });
        Ok(Self { address, token, of: None, timeout: None })
    }

    /// Asks for what is at a path.
    pub(super) fn get(&self, path: &str) -> Result<Value, AskError> {
        self.ask("GET", path, None)
    }

    /// Tells it something, if it is the daemon of the database that it is asked for.
    pub(super) fn tell(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        if self.of.is_some() {
            status::ask(self).map_err(|error| match error.downcast_ref() {
                Some(AskError::Elsewhere { .. }) => error.context("nothing was changed"),
                _ => error,
            })?;
        }
        Ok(self.ask(method, path, body)?)
    }

    /// Has it take nothing from a queue, or take from it again; other daemons are not concerned.
    pub(super) fn pause_locally(&self, queue: &OsStr, paused: bool) -> anyhow::Result<Value> {
        let name = queue.to_str().ok_or_else(|| {
            UsageError(format!("queue {:?} cannot be named over HTTP: it is not UTF-8", queue.display()))
        })?;
        let path = format!("/api/v1/queues/{}/pause", encoded(name));
        if paused {
            self.tell("PUT", &path, Some(&json!({ "local": true })))?;
        } else {
            self.tell("DELETE", &(path + "?local=true"), None)?;
        }
        let mut told = about(name.as_bytes(), "paused", paused);
        told["local"] = true.into();
        Ok(told)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, AskError> {
        let request = self.request(method, path, body);
        let patience = self.timeout.unwrap_or(if method == "GET" { QUESTION } else { deadlines::COMMAND });
        let answer = self.exchange(&request, patience).map_err(|error| self.unanswered(error, patience))?;
        self.read(&answer)
    }

    fn exchange(&self, request: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
        match &self.address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, REACH.min(patience))?;
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
            // What a read says whose time is over.
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

    /// The body of an answer; an error if that is one, or cut off.
    fn read(&self, answer: &[u8]) -> Result<Value, AskError> {
        let garbled = |problem| AskError::Garbled { at: self.to_string(), problem };
        let answer = Answer::read(answer).map_err(garbled)?;
        let success = (200..300).contains(&answer.status);
        if success && answer.body.is_empty() {
            return Ok(Value::Null);
        }
        let body: Value =
            serde_json::from_slice(answer.body).map_err(|_| garbled("the answer is not JSON"))?;
        // Not being ready is an answer, too.
        if success || body["error"].is_null() {
            return Ok(body);
        }
        let text = |key: &str| body["error"][key].as_str().unwrap_or_default().to_owned();
        let (code, message, fix) = (text("code"), text("message"), text("fix"));
        Err(AskError::Refused { at: self.to_string(), code, message, fix })
    }
}

/// A time for people: whole seconds, or less than one as it is.
pub(super) fn rough(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds => format!("{seconds} s"),
    }
}

/// A name as it stands in a path.
pub(super) fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let part = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(part).collect()
}

/// A daemon that listens on all addresses is reached on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn exchange(mut stream: impl Read + Write, request: &[u8]) -> io::Result<Vec<u8>> {
    // One that has had enough answers before it has read all.
    let written = stream.write_all(request);
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    if answer.is_empty() { written.map(|()| answer) } else { Ok(answer) }
}

/// An answer, taken apart.
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

impl fmt::Display for Daemon {
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
    fn an_answer_is_whole_or_none() {
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
    fn who_says_nothing_is_another_than_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let daemon = Daemon { address: Address::Unix(path.clone()), token: None, of: None, timeout: None };
        let ask = || {
            let patience = Duration::from_millis(50);
            daemon.exchange(b"GET", patience).map_err(|error| daemon.unanswered(error, patience))
        };
        assert!(matches!(ask(), Err(AskError::Nobody { .. })));
        let _connections_wait_in_its_queue = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let silent = ask().unwrap_err();
        assert!(matches!(silent, AskError::Silent { .. }), "{silent}");
        let silent = AskError::Silent { at: "127.0.0.1:7420".to_owned(), silence: QUESTION };
        insta::assert_snapshot!(silent, @"the daemon at 127.0.0.1:7420 has said nothing for 15 s; its log may say why");
    }

    #[test]
    fn names_are_encoded_but_for_letters_and_digits() {
        assert_eq!(encoded("a-b_9"), "a-b_9");
        assert_eq!(encoded("../é?"), "%2E%2E%2F%C3%A9%3F");
    }

    #[test]
    fn who_listens_everywhere_is_reached_on_loopback() {
        for (listens, reached) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("192.0.2.1:1", "192.0.2.1:1")]
        {
            assert_eq!(reachable(listens.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
