//! A server that webhooks are posted to, and what it does with them.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::support::PATIENCE;

/// A request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    /// By their names in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The next one of a connection; none if the client has closed it.
    fn read(stream: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut line = || {
            let mut line = String::new();
            (stream.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
        };
        let first = line()?;
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = line()?.split_once(": ") {
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
        stream.read_exact(&mut body).ok()?;
        Some(Self { line: first, headers, body })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// Which attempt it is.
    pub(crate) fn attempt(&self) -> u32 {
        self.header("kvqueue-attempt").parse().unwrap()
    }
}

/// What the server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    Answer(u16),
    /// A whole answer.
    Say(String),
    /// Nothing, until the client closes the connection.
    Hang,
}

type Decide = Box<dyn Fn(&Request) -> Deed + Send>;

/// The server.
pub(crate) struct Target {
    pub(crate) address: String,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

struct Shared {
    decide: Mutex<Decide>,
    refuses: AtomicBool,
    /// Each request, with whether it was answered with a success.
    requests: Mutex<Vec<(Request, bool)>>,
    connections: Mutex<Vec<TcpStream>>,
    /// Connections that clients have closed although they had no answer.
    closed: Mutex<usize>,
}

impl Target {
    pub(crate) fn new(decide: impl Fn(&Request) -> Deed + Send + 'static) -> Self {
        let shared = Shared {
            decide: Mutex::new(Box::new(decide)),
            refuses: AtomicBool::new(false),
            requests: Mutex::default(),
            connections: Mutex::default(),
            closed: Mutex::default(),
        };
        let mut this = Self { address: "127.0.0.1:0".to_owned(), shared: shared.into(), listening: None };
        this.listen();
        this
    }

    /// Listens again where it has listened before.
    fn listen(&mut self) {
        let listener = TcpListener::bind(&self.address).unwrap();
        self.address = listener.local_addr().unwrap().to_string();
        let shared = self.shared.clone();
        self.listening = Some(thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.refuses.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, shared) = (stream.unwrap(), shared.clone());
                shared.connections().push(stream.try_clone().unwrap());
                thread::spawn(move || shared.serve(stream));
            }
        }));
    }

    /// From now on it does something else.
    pub(crate) fn does(&mut self, decide: impl Fn(&Request) -> Deed + Send + 'static) {
        *self.shared.decide.lock().unwrap() = Box::new(decide);
        if self.shared.refuses.swap(false, Ordering::SeqCst) {
            self.listen();
        }
    }

    /// From now on nothing listens here, and open connections are cut.
    pub(crate) fn refuse(&mut self) {
        self.shared.refuses.store(true, Ordering::SeqCst);
        // The listener waits for a connection.
        drop(TcpStream::connect(&self.address));
        self.listening.take().unwrap().join().unwrap();
        for connection in self.shared.connections().drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().iter().map(|(request, _)| request.clone()).collect()
    }

    pub(crate) fn calls(&self) -> usize {
        self.shared.requests.lock().unwrap().len()
    }

    /// How often each payload was answered with a success.
    pub(crate) fn delivered(&self) -> BTreeMap<String, usize> {
        let mut delivered = BTreeMap::new();
        for (request, _) in self.shared.requests.lock().unwrap().iter().filter(|(_, done)| *done) {
            *delivered.entry(request.text()).or_default() += 1;
        }
        delivered
    }

    /// Connections that the client has closed without an answer.
    pub(crate) fn closed(&self) -> usize {
        *self.shared.closed.lock().unwrap()
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.connections.lock().unwrap()
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = Request::read(&mut reader) {
            let deed = (self.decide.lock().unwrap())(&request);
            let is_done = matches!(deed, Deed::Answer(200..=299) | Deed::Say(_));
            self.requests.lock().unwrap().push((request, is_done));
            let answer = match deed {
                Deed::Answer(status) => format!("HTTP/1.1 {status} X\r\nContent-Length: 4\r\n\r\nwhy?"),
                Deed::Say(answer) => answer,
                Deed::Hang => {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    if stream.read(&mut [0]).is_ok_and(|read| read == 0) {
                        *self.closed.lock().unwrap() += 1;
                    }
                    return;
                }
            };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}
