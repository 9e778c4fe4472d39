//! Two daemons on one database, their queues, and a target of webhooks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Background, Database, Random, helper, run, run_with_input};

/// The queues, one for each way in which items are handled.
pub(super) const QUEUES: [&str; 5] = ["rust", "exact", "command", "hook", "pulled"];

/// How often a target of webhooks notes that it is at work.
const TICK: Duration = Duration::from_millis(50);

/// How long handling an item takes, in ms.
const TAKES: [u64; 2] = [200, 1_500];

/// How long an answer is waited for.
const ANSWER: Duration = Duration::from_secs(10);

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

/// Records of a handler in the test's process.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    pub(super) last: BTreeMap<String, u64>,
    pub(super) ended: BTreeSet<String>,
}

pub(super) struct Arena {
    db: Database,
    /// All items by their ids, each with its queue.
    pub(super) items: BTreeMap<String, &'static str>,
    daemons: Vec<Option<Background>>,
    pub(super) hooked: Arc<Mutex<Ticks>>,
    /// Of the workers over HTTP.
    pub(super) worked: Arc<Mutex<Ticks>>,
}

/// Asks a daemon. None if it does not answer.
pub(super) fn ask(socket: &PathBuf, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

impl Arena {
    pub(super) fn new() -> Self {
        let db = Database::new();
        let hooked = Arc::<Mutex<Ticks>>::default();
        let target = serve_hooks(hooked.clone());
        let log = db.file("log");
        let common = "lease = '2s'\nretry = { max-attempts = 1000, base = '10ms', max = '100ms' }\n";
        let consumers = "consumers = [{ k = 3, count = 2 }, { k = 1, count = 4 }]\n";
        let script = format!(
            "n=$(cat); while [ $n -gt 0 ]; do echo \"$KVQUEUE_ITEM $(date +%s%3N) tick\" >> {0}; sleep 0.1; n=$((n - 100)); done; \
             echo \"$KVQUEUE_ITEM $(date +%s%3N) end\" >> {0}",
            log.display()
        );
        let config = format!(
            "shutdown-timeout = '1s'\n[queues.rust]\nhandler = 'ticks'\n{common}{consumers}\
             [queues.exact]\nhandler = 'ticks'\ndelivery = 'exactly-once'\n{common}{consumers}\
             [queues.command]\nhandler = 'exec'\n{common}{consumers}handler-config.command = {}\n\
             [queues.hook]\nhandler = 'http'\n{common}{consumers}handler-config.url = 'http://{target}/hook'\n\
             [queues.pulled]\nhandler = 'pull'\n{common}",
            json!(["sh", "-c", script])
        );
        fs::write(db.file("daemon.toml"), config).unwrap();
        fs::write(&log, "").unwrap();
        Self { db, items: BTreeMap::new(), daemons: vec![None, None], hooked, worked: Arc::default() }
    }

    pub(super) fn push(&mut self, queue: &'static str, pushed: usize, random: &mut Random) {
        let times = (0..pushed).map(|_| TAKES[0] + random.below(TAKES[1] - TAKES[0]));
        let lines: String = times.map(|time| format!("{time}\n")).collect();
        run_with_input(&self.db, &["push", queue, "--lines", "-"], lines).ok();
        let shown = run(&self.db, &["peek", queue, "--state", "ready", "-k", "100000", "--json"]).ok();
        let items = shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let items: Vec<_> = items.map(|item| (item["id"].as_str().unwrap().to_owned(), queue)).collect();
        assert_eq!(items.len(), pushed);
        self.items.extend(items);
    }

    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        (0..self.daemons.len()).map(|daemon| self.db.file(&format!("{daemon}.sock"))).collect()
    }

    pub(super) fn start(&mut self) {
        (0..self.daemons.len()).for_each(|daemon| self.start_one(daemon));
    }

    fn start_one(&mut self, daemon: usize) {
        let socket = self.db.file(&format!("{daemon}.sock"));
        let _ = fs::remove_file(&socket);
        let mut command = helper(&self.db, "cancels::daemon");
        command.arg(self.db.file("daemon.toml")).arg(self.db.file("log"));
        command.env("KVQUEUE_HTTP__LISTEN", format!("unix:{}", socket.display()));
        let mut started = Background::start(command);
        started.wait_for_event("ready");
        self.daemons[daemon] = Some(started);
    }

    /// Kills a daemon, and starts it again.
    pub(super) fn kill(&mut self, random: &mut Random) {
        let daemon = random.below(self.daemons.len() as u64) as usize;
        if let Some(killed) = self.daemons[daemon].take() {
            killed.signal(Signal::KILL);
            let _ = killed.end();
        }
        self.start_one(daemon);
    }

    /// Asks the daemons in turn until one answers.
    fn get(&self, path: &str) -> Value {
        loop {
            for socket in self.sockets() {
                if let Some((200, answer)) = ask(&socket, "GET", path, &Value::Null) {
                    return answer;
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn of_state(&self, queue: &str, state: &str) -> Vec<String> {
        let page = self.get(&format!("/api/v1/queues/{queue}/items?state={state}&bytes=0"));
        page["items"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    }

    pub(super) fn running(&self, queue: &str) -> Vec<String> {
        self.of_state(queue, "running")
    }

    /// Whether it was cancelled; `None` if that is not known.
    pub(super) fn cancel(&self, queue: &str, id: &str) -> Option<bool> {
        let path = format!("/api/v1/queues/{queue}/items/{id}/cancel");
        match ask(&self.sockets()[usize::from(id.ends_with(['1', '3', '5']))], "POST", &path, &Value::Null)? {
            (200, _) => Some(true),
            (404, _) => Some(false),
            (_, _) => None,
        }
    }

    /// How many items there are in which queue and state.
    pub(super) fn left(&self) -> String {
        let states = ["ready", "scheduled", "retrying", "running", "dead"];
        let all = QUEUES.iter().flat_map(|queue| states.map(|state| (*queue, state)));
        let left = all.map(|(queue, state)| (queue, state, self.of_state(queue, state).len()));
        let left = left.filter(|(_, _, items)| *items > 0);
        left.map(|(queue, state, items)| format!("{items} {state} in {queue}; ")).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left().is_empty()
    }

    /// When each item was handled last, in ms, and which were ended by their handlers.
    pub(super) fn records(&self) -> (BTreeMap<String, u64>, BTreeSet<String>) {
        let (mut last, mut ended) = (BTreeMap::new(), BTreeSet::new());
        let log = fs::read_to_string(self.db.file("log")).unwrap();
        for line in log.lines() {
            let mut words = line.split(' ');
            let (Some(id), Some(at), Some(what)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let at: u64 = at.parse().unwrap();
            let latest = last.entry(id.to_owned()).or_insert(at);
            *latest = at.max(*latest);
            if what == "end" {
                ended.insert(id.to_owned());
            }
        }
        for ticks in [&self.hooked, &self.worked] {
            let ticks = ticks.lock().unwrap();
            last.extend(ticks.last.clone());
            ended.extend(ticks.ended.clone());
        }
        (last, ended)
    }

    /// Stops the daemons, and returns how many effects each item has had.
    pub(super) fn effects(&mut self) -> BTreeMap<String, u64> {
        for daemon in self.daemons.iter_mut().filter_map(Option::take) {
            daemon.signal(Signal::TERM);
            daemon.end().ok();
        }
        let out = Background::start(helper(&self.db, "cancels::effects")).end().ok();
        let effect = |line: &str| {
            let (id, number) = line.split_once(' ').unwrap();
            (id.to_owned(), number.parse().unwrap())
        };
        out.lines().map(effect).collect()
    }
}

/// A target of webhooks that takes as long as the payload says, and notes when it is at work: while its connection is open.
fn serve_hooks(ticks: Arc<Mutex<Ticks>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(stream), ticks) = (stream, ticks.clone()) else { continue };
            thread::spawn(move || while serve_hook(&stream, &ticks).is_some() {});
        }
    });
    address
}

fn serve_hook(stream: &TcpStream, ticks: &Mutex<Ticks>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut id, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("kvqueue-item") => value.clone_into(&mut id),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?;
            }
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut left: u64 = std::str::from_utf8(&body).ok()?.parse().ok()?;
    stream.set_read_timeout(Some(TICK)).ok()?;
    while left > 0 {
        ticks.lock().unwrap().last.insert(id.clone(), now());
        // The client says nothing before it has its answer, unless it closes the connection.
        match (&mut &*stream).read(&mut [0]) {
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            _ => return None,
        }
        left = left.saturating_sub(TICK.as_millis() as u64);
    }
    stream.set_read_timeout(None).ok()?;
    (&mut &*stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()?;
    ticks.lock().unwrap().ended.insert(id);
    Some(())
}
