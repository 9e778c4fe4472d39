//! Whatever clients do, the daemon works on, and answers others afterwards.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::LOG;
use crate::idle::memory;
use crate::support::{
    Address, Background, Database, PATIENCE, Random, helper, run, run_with_input, serve, serve_with,
};

/// How long the daemon is watched, without and with them.
const WATCHED: Duration = Duration::from_secs(4);

/// So often they are tried. In each round they may slow the daemon down to half its rate, since they use the same
/// processors; in the best one to four fifths.
const ROUNDS: usize = 3;

/// How much memory they may have the daemon take, in kilobytes: all bodies together (64 MiB), what is read of them, and
/// what connections need.
const MEMORY: u64 = 256 << 10;

/// Connections that do nothing.
const SILENT: usize = 1_000;

/// Items finished so far; the database knows.
fn done(db: &Database) -> u64 {
    let counts: Value = serde_json::from_str(&run(db, &["--json", "len", "q"]).ok()).unwrap();
    counts["done"].as_u64().unwrap()
}

/// Items a second, for a while.
fn rate(db: &Database) -> f64 {
    let (before, began) = (done(db), Instant::now());
    thread::sleep(WATCHED);
    (done(db) - before) as f64 / began.elapsed().as_secs_f64()
}

/// Connections, and the sockets that wait for them. Files come and go with the database.
fn open_sockets(daemon: &Background) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.filter(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:")).count()
}

/// A client of no good will, until told to stop.
fn attack(at: &str, stop: &AtomicBool, pause: Duration, mut client: impl FnMut(&mut TcpStream) -> bool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(at) else { continue };
        // Neither being kept waiting nor being cut off is a surprise.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
        let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
        while client(&mut stream) && !stop.load(Ordering::Relaxed) {
            thread::sleep(pause);
        }
        thread::sleep(pause);
    }
}

/// A head that never ends, a byte at a time, on many connections.
fn slow_heads(at: &str, stop: &AtomicBool) {
    let mut streams: Vec<Option<TcpStream>> = (0..200).map(|_| None).collect();
    while !stop.load(Ordering::Relaxed) {
        for stream in &mut streams {
            if stream.as_mut().is_none_or(|open| open.write_all(b"X").is_err()) {
                *stream = TcpStream::connect(at).ok();
                let _ = stream.as_mut().map(|open| open.write_all(b"GET / HTTP/1.1\r\nX-A: "));
            }
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// A head that is all right so far.
fn head(at: &str, line: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: {at}\r\n")
}

fn long_head(at: &str, stream: &mut TcpStream) -> bool {
    let line = format!("X-Long: {}\r\n", "x".repeat(4_000));
    let _ = stream.write_all(head(at, "GET /livez").as_bytes());
    let _ = (0..64).try_for_each(|_| stream.write_all(line.as_bytes()));
    let _ = stream.read(&mut [0; 100]);
    false
}

/// The first call sends the head, the next ones more and more of the body.
fn endless_body(at: &str) -> impl FnMut(&mut TcpStream) -> bool {
    let head = head(at, "POST /api/v1/queues/q/items")
        + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = [format!("{:x}\r\n", 64 << 10).into_bytes(), vec![b' '; 64 << 10], b"\r\n".to_vec()].concat();
    let mut begun = false;
    move |stream| {
        let sent = if begun { stream.write_all(&chunk) } else { stream.write_all(head.as_bytes()) };
        begun = sent.is_ok();
        begun
    }
}

/// A well-formed push of a megabyte whose every item is two characters.
fn tiny_items(at: &str, stream: &mut TcpStream) -> bool {
    let body = format!("{{\"items\":[{}{{}}]}}", "{},".repeat(350_000));
    let head = head(at, "POST /api/v1/queues/q/items")
        + &format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    let _ = stream.read(&mut [0; 100]);
    false
}

/// Any bytes at all, and heads with some of them in their paths, names and values.
fn garbage(at: &str, random: &mut Random, stream: &mut TcpStream) -> bool {
    let bytes = |random: &mut Random, most| -> Vec<u8> {
        (0..random.below(most)).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
    };
    let (a, b, c) = (bytes(random, 30), bytes(random, 30), bytes(random, 300));
    let text = match random.below(4) {
        0 => c,
        1 => {
            [b"GET /api/v1/queues/", &a[..], b"/items?", &b, b" HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat()
        }
        2 => [head(at, "GET /livez").as_bytes(), &a, b": ", &b, b"\r\n\r\n"].concat(),
        _ => {
            let head = head(at, "POST /api/v1/queues/%c3%a9%00/items");
            [head.as_bytes(), b"Content-Type: application/json\r\nContent-Length: 20\r\n\r\n", &c].concat()
        }
    };
    let _ = stream.write_all(&text);
    let _ = stream.read(&mut [0; 100]);
    false
}

/// Workers that wait for leases of many queues and give up, and changes of leases that never were.
fn false_worker(at: &str, random: &mut Random, stream: &mut TcpStream) -> bool {
    let queue = format!("/api/v1/queues/none-{}", random.below(2_000));
    let lease = format!("{:032x}-{}", random.below(u64::MAX), 1 + random.below(1_000));
    let outcomes = vec!["{\"id\":\"00004b1dd04f5c8000000000\",\"outcome\":\"done\"}"; 1_000].join(",");
    let wait = "{\"max\":1000,\"wait_ms\":60000}";
    let (path, body) = match random.below(8) {
        0 => (format!("{queue}/lease"), wait.to_owned()),
        1 => (format!("{queue}/lease"), "{\"max\":1e300,\"lease_ms\":-1}".to_owned()),
        2 => (format!("{queue}/leases/{lease}/acknowledge"), format!("{{\"outcomes\":[{outcomes}]}}")),
        3 => (format!("{queue}/leases/{lease}/acknowledge"), format!("{{\"next\":{wait}}}")),
        4 => (format!("{queue}/leases/{}/acknowledge", "9".repeat(4_000)), "{}".to_owned()),
        5 => (format!("{queue}/leases/..%2f..%2fitems/extend"), "{}".to_owned()),
        6 => (format!("{queue}/../q/lease"), wait.to_owned()),
        _ => (format!("{queue}/leases/{lease}/extend"), "[".repeat(30_000)),
    };
    let head = head(at, &format!("POST {path}"))
        + &format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    let _ = stream.read(&mut [0; 100]);
    false
}

/// Whether the other end of a connection over IPv4 is still in a process's hands: the system's table gives its inode.
fn is_held(stream: &TcpStream) -> bool {
    let port = |address: std::net::SocketAddr| format!(":{:04X}", address.port());
    let (theirs, ours) = (port(stream.peer_addr().unwrap()), port(stream.local_addr().unwrap()));
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().any(|row| {
        let columns: Vec<_> = row.split_whitespace().collect();
        columns[1].ends_with(&theirs) && columns[2].ends_with(&ours) && columns[9] != "0"
    })
}

/// Asks for much, and reads nothing of it.
fn unread(at: &str, stream: &mut TcpStream) -> bool {
    let request = head(at, "GET /api/v1/openapi.json") + "\r\n";
    stream.write_all(request.repeat(50).as_bytes()).is_ok()
}

/// All of them at once, while `watch` watches.
fn besieged<T>(at: &str, random: &mut Random, watch: impl FnOnce() -> T) -> T {
    let stop = &AtomicBool::new(false);
    let ms = Duration::from_millis;
    thread::scope(|scope| {
        scope.spawn(move || slow_heads(at, stop));
        for _ in 0..3 {
            scope.spawn(move || attack(at, stop, ms(50), |stream| long_head(at, stream)));
            scope.spawn(move || attack(at, stop, ms(20), endless_body(at)));
            scope.spawn(move || attack(at, stop, ms(100), |stream| unread(at, stream)));
            scope.spawn(move || attack(at, stop, ms(100), |stream| tiny_items(at, stream)));
            let (mut one, mut other) = (random.branch(), random.branch());
            scope.spawn(move || attack(at, stop, ms(10), |stream| garbage(at, &mut one, stream)));
            scope.spawn(move || attack(at, stop, ms(10), |stream| false_worker(at, &mut other, stream)));
        }
        scope.spawn(move || silent(at, stop));
        let watched = watch();
        stop.store(true, Ordering::Relaxed);
        watched
    })
}

/// Connections that nothing comes on.
fn silent(at: &str, stop: &AtomicBool) {
    let (at, soon) = (at.parse().unwrap(), Duration::from_millis(100));
    let connections: Vec<_> = (0..SILENT)
        .take_while(|_| !stop.load(Ordering::Relaxed))
        .filter_map(|_| TcpStream::connect_timeout(&at, soon).ok())
        .collect();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(10));
    }
    drop(connections);
}

#[test]
fn hostile_clients_do_not_lower_the_processing_rate() {
    let db = Database::new();
    // Enough for all of the time.
    run_with_input(&db, &["push", "q", "--lines", "-"], "x\n".repeat(20_000)).ok();
    let mut served = serve_with(helper(&db, "http::hostile::daemon"), true);
    let Address::Tcp(at) = served.at.clone() else { panic!("it listens on TCP") };
    let files = open_sockets(&served.daemon);
    let mut random = Random::new();
    let before = memory(served.daemon.pid(), "VmHWM");
    let shares = [(); ROUNDS].map(|()| {
        let alone = rate(&db);
        let with_them = besieged(&at, &mut random, || rate(&db));
        println!("{alone:.0} items a second without them, {with_them:.0} with them");
        with_them / alone
    });
    let (worst, best) =
        shares.iter().fold((f64::MAX, 0.0_f64), |(low, high), it| (it.min(low), it.max(high)));
    assert!(worst >= 0.5 && best >= 0.8, "shares of the rate that were left: {shares:?}");
    let taken = memory(served.daemon.pid(), "VmHWM") - before;
    assert!(taken <= MEMORY, "they had it take {taken} kB");
    // They are gone; what they leave behind goes within the limits.
    let began = Instant::now();
    while served.at.get("/livez").status != 200 || open_sockets(&served.daemon) > files + 5 {
        assert!(began.elapsed() < PATIENCE, "{} files, {files} before", open_sockets(&served.daemon));
        thread::sleep(Duration::from_millis(50));
    }
    let began = Instant::now();
    served.at.get("/livez").is(200);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    served.daemon.signal(rustix::process::Signal::TERM);
    served.daemon.wait_for_event("drained");
}

/// Connections of strangers, more than there are places.
const STRANGERS: usize = 150;

/// How long a client with a token waits at most.
const SOON: Duration = Duration::from_secs(2);

/// Takes every place that there is, again and again: with connections that are kept alive by requests that need no token,
/// with silent ones, and with wrong tokens. Counts the rounds.
fn strangers(at: &str, stop: &AtomicBool, rounds: &AtomicUsize) {
    let wrong = format!("Authorization: Bearer kvq_{}_{}\r\n\r\n", "0".repeat(16), "1".repeat(48));
    let asks = [head(at, "GET /livez") + "\r\n", String::new(), head(at, "GET /api/v1/status") + &wrong];
    let address = at.parse().unwrap();
    let mut streams: Vec<Option<TcpStream>> = (0..STRANGERS).map(|_| None).collect();
    while !stop.load(Ordering::Relaxed) {
        for (number, stream) in streams.iter_mut().enumerate() {
            let is_over = stream.as_mut().is_none_or(|open| {
                let answer = open.read(&mut [0; 1_000]);
                answer.map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |read| read == 0)
            });
            if is_over {
                *stream = TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
            }
            if let Some(open) = stream {
                let _ = open.set_nonblocking(true);
                let _ = open.write_all(asks[number % asks.len()].as_bytes());
            }
        }
        rounds.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(200));
    }
}

/// The status of the answer to a request, if it comes soon.
fn ask(stream: &mut TcpStream, request: &str) -> Option<u16> {
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let end = loop {
        if let Some(end) = answer.windows(4).position(|it| it == b"\r\n\r\n") {
            break end;
        }
        let mut part = [0; 4_096];
        let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
        answer.extend_from_slice(&part[..read]);
    };
    let head = str::from_utf8(&answer[..end]).unwrap().to_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    while answer.len() < end + 4 + length.parse::<usize>().unwrap() {
        let mut part = [0; 4_096];
        let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
        answer.extend_from_slice(&part[..read]);
    }
    head.split(' ').nth(1)?.parse().ok()
}

/// The same on a connection of its own.
fn ask_once(at: &str, request: &str) -> Option<u16> {
    ask(&mut TcpStream::connect_timeout(&at.parse().unwrap(), SOON).ok()?, request)
}

#[test]
fn strangers_on_all_connections_keep_neither_operators_nor_health_checks_out() {
    let db = Database::new();
    let served = serve(&db, &format!("http.require-token = true\nhttp.max-connections = 16\n{LOG}"));
    let at = served.at.tcp();
    let token = run(&db, &["token", "new", "operator", "--scope", "admin"]).ok();
    let with_token =
        format!("{}Authorization: Bearer {}\r\n\r\n", head(at, "GET /api/v1/status"), token.trim());
    let live = head(at, "GET /livez") + "\r\n";
    let mut kept = TcpStream::connect(at).unwrap();
    assert_eq!(ask(&mut kept, &with_token), Some(200));
    let (stop, rounds) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let (kept_answers, new_answers, health_answers) = thread::scope(|scope| {
        scope.spawn(|| strangers(at, stop, rounds));
        let began = Instant::now();
        while rounds.load(Ordering::Relaxed) < 3 && began.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        let until = rounds.load(Ordering::Relaxed) + 3;
        let mut answers = (Vec::new(), Vec::new(), Vec::new());
        while answers.0.len() < 20 || (rounds.load(Ordering::Relaxed) < until && began.elapsed() < PATIENCE) {
            answers.0.push(ask(&mut kept, &with_token));
            answers.1.push(ask_once(at, &with_token));
            answers.2.push(ask_once(at, &live));
            if answers.1.iter().filter(|answer| answer.is_none()).count() > 5 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        answers
    });
    assert!(kept_answers.iter().all(|answer| *answer == Some(200)), "{kept_answers:?}");
    // A stranger may take the place of a connection before its request arrives, so one in five may fail.
    for answers in [new_answers, health_answers] {
        let right = answers.iter().filter(|answer| **answer == Some(200)).count();
        assert!(right * 5 >= answers.len() * 4, "{answers:?}");
    }
    let metrics = with_token.replace("/api/v1/status", "/metrics");
    assert_eq!(ask(&mut kept, &metrics), Some(200));
}

#[test]
fn an_answer_closes_the_connection_of_a_client_without_a_valid_token() {
    let db = Database::new();
    let served = serve(&db, &format!("http.require-token = true\nhttp.keep-alive = '3s'\n{LOG}"));
    let at = served.at.tcp();
    let token = run(&db, &["token", "new", "operator", "--scope", "read"]).ok();
    let with = |path: &str, token: &str| format!("{}Authorization: Bearer {token}\r\n\r\n", head(at, path));
    // Whether the connection is open after an answer, and then how long without a request.
    let open_for = |request: &str, status| {
        let mut stream = TcpStream::connect(at).unwrap();
        assert_eq!(ask(&mut stream, request), Some(status), "{request}");
        let answered = Instant::now();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        answered.elapsed()
    };
    // The server's clock moves twice a second.
    let keep_alive = Duration::from_secs(2);
    assert!(open_for(&with("GET /api/v1/status", token.trim()), 200) >= keep_alive);
    assert!(open_for(&with("GET /livez", token.trim()), 200) >= keep_alive);
    for path in ["GET /livez", "GET /"] {
        assert!(open_for(&(head(at, path) + "\r\n"), 200) < keep_alive, "{path}");
    }
    assert!(open_for(&(head(at, "GET /api/v1/status") + "\r\n"), 401) < keep_alive);
    assert!(open_for(&with("GET /api/v1/status", "wrong"), 401) < keep_alive);
    let open = serve(&db, &format!("http.keep-alive = '3s'\n{LOG}"));
    let mut stream = TcpStream::connect(open.at.tcp()).unwrap();
    let live = head(open.at.tcp(), "GET /livez") + "\r\n";
    assert!(ask(&mut stream, &live) == Some(200) && ask(&mut stream, &live) == Some(200));
}

#[test]
fn a_response_that_the_client_does_not_read_is_abandoned() {
    let db = Database::new();
    let served = super::served(&db);
    let Address::Tcp(at) = &served.at else { panic!("it listens on TCP") };
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // Until the daemon reads no more requests, because it cannot send any more answers.
    while unread(at, &mut stream) {}
    assert!(is_held(&stream), "it waits for its client");
    let began = Instant::now();
    while is_held(&stream) {
        assert!(began.elapsed() < PATIENCE, "it is still open");
        thread::sleep(Duration::from_millis(100));
    }
    drop(stream);
}
