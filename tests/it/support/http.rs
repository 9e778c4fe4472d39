//! Asking a daemon over HTTP.

use std::{
    fmt,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{Background, Database, PATIENCE, kvqueue};

/// Where a daemon listens.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// `127.0.0.1:PORT`
    Tcp(String),
    /// A path.
    Unix(PathBuf),
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The head, as it came.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The body, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of an answer of this status.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}: {}", String::from_utf8_lossy(&self.body));
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// The one word of an error.
    #[track_caller]
    pub(crate) fn error(self, status: u16) -> String {
        self.is(status)["error"]["code"].as_str().unwrap().to_owned()
    }

    /// A header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// A request, to be sent on a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    to: Address,
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// With another header, or another value for one.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(it, _)| !it.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self.header("Content-Type", "application/json")
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    #[track_caller]
    pub(crate) fn send(&self) -> Reply {
        let mut text = format!("{} HTTP/1.1\r\n", self.line);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n", self.body.len());
        exchange(&self.to, &[text.as_bytes(), &self.body].concat())
    }
}

impl Address {
    /// `127.0.0.1:PORT`, of one that has a port.
    #[track_caller]
    pub(crate) fn tcp(&self) -> &str {
        match self {
            Self::Tcp(address) => address,
            Self::Unix(path) => panic!("it listens at {}", path.display()),
        }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        let host = match self {
            Self::Tcp(address) => address.clone(),
            Self::Unix(_) => "localhost".to_owned(),
        };
        let headers = vec![("Host".to_owned(), host), ("Connection".to_owned(), "close".to_owned())];
        Request { to: self.clone(), line: format!("{method} {path}"), headers, body: Vec::new() }
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.request("GET", path).send()
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.request("POST", path).json(body).send()
    }
}

/// Sends bytes, and reads what comes until the other side has had enough.
#[track_caller]
pub(crate) fn exchange(to: &Address, bytes: &[u8]) -> Reply {
    trait Both: Read + Write {}
    impl<T: Read + Write> Both for T {}
    let mut stream: Box<dyn Both> = match to {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            Box::new(stream)
        }
        Address::Unix(path) => Box::new(UnixStream::connect(path).unwrap()),
    };
    // One that has had enough does not read it all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").expect("an answer has a head");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a head has a status");
    Reply { status, head, body: answer.split_off(end + 4) }
}

/// A daemon that is asked.
pub(crate) struct Served {
    pub(crate) daemon: Background,
    pub(crate) at: Address,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}

/// A daemon with this configuration, on a free port unless the configuration has an address.
pub(crate) fn serve(db: &Database, config: &str) -> Served {
    let path = db.file(&format!("{}.toml", uuid::Uuid::now_v7()));
    std::fs::write(&path, config).unwrap();
    serve_with(kvqueue(db, &["run", "--config", path.to_str().unwrap()]), config.contains("listen"))
}

/// Whether a command's configuration file says something about tokens.
fn is_about_tokens(command: &Command) -> bool {
    let args: Vec<_> = command.get_args().collect();
    let named = args.windows(2).find(|pair| pair[0] == "--config").map(|pair| pair[1]);
    let path = named.map(|path| command.get_current_dir().unwrap_or(Path::new("")).join(path));
    path.is_some_and(|path| std::fs::read_to_string(path).unwrap_or_default().contains("token"))
}

/// The same for a command; `listens` if its configuration says where. The daemon asks for a token only if its configuration
/// says something about tokens.
pub(crate) fn serve_with(mut command: Command, listens: bool) -> Served {
    if !is_about_tokens(&command) {
        command.env("KVQUEUE_HTTP__REQUIRE_TOKEN", "false");
    }
    command.env("KVQUEUE_HTTP__LISTEN", "127.0.0.1:0");
    if listens {
        command.env_remove("KVQUEUE_HTTP__LISTEN");
    }
    let mut daemon = Background::start(command);
    let at = listening(&mut daemon);
    daemon.wait_for_event("ready");
    Served { daemon, at }
}

/// Waits until a daemon listens, and returns where.
#[track_caller]
pub(crate) fn listening(daemon: &mut Background) -> Address {
    let line: Value = serde_json::from_str(&daemon.wait_for_event("listening")).unwrap();
    let address = line["address"].as_str().unwrap();
    match address.strip_prefix("unix:") {
        Some(path) => Address::Unix(path.into()),
        None => Address::Tcp(address.to_owned()),
    }
}
