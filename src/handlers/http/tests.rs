//! Calls of the handler, against servers that behave in a way of their own.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use kvqueue_queue::from_millis;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer,
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::{
    base::tls::install_provider,
    testing::{Kit, Sample},
};

/// Nothing takes that long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request as a server got it.
#[derive(Debug)]
struct Request {
    line: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    /// The next one of a connection; none if the client has closed it.
    fn read(stream: &mut impl Read) -> Option<Self> {
        let mut stream = BufReader::with_capacity(1, stream);
        let mut line = || {
            let mut line = String::new();
            (stream.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
        };
        let first = line()?;
        let mut headers = HashMap::new();
        while let Some((name, value)) = line()?.split_once(": ") {
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
        stream.read_exact(&mut body).ok()?;
        Some(Self { line: first, headers, body })
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

/// Gives each connection to `serve`, on a thread of its own. Returns the address.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

/// Answers every request of every connection with these bytes, and passes the requests on.
fn answering(answer: impl Into<Vec<u8>>) -> (String, Receiver<Request>) {
    let answers = Mutex::new(vec![answer.into()]);
    each_with(move |_| answers.lock().unwrap()[0].clone())
}

/// The same, with an answer for each request.
fn each_with(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> (String, Receiver<Request>) {
    let (sender, requests) = channel();
    let address = listen(move |mut stream| {
        while let Some(request) = Request::read(&mut stream) {
            let answer = answer(&request);
            // A test may not look at its requests.
            let _ = sender.send(request);
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    });
    (address, requests)
}

fn status(status: u16) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")
}

fn json_answer(body: &Value) -> String {
    let body = body.to_string();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn webhook(settings: &str) -> Arc<Webhook> {
    Arc::new(Webhook::from_config(&settings.parse().unwrap()).unwrap())
}

/// Of a handler that posts to this address.
fn kit(address: &str, more: &str) -> Kit {
    Kit::new(webhook(&format!("url = 'http://{address}/hook?a=b'\n{more}")))
}

fn batch_kit(address: &str, more: &str) -> Kit {
    Kit::batch(webhook(&format!("url = 'http://{address}/'\nbatch = true\n{more}")))
}

/// The reason of a failed attempt.
#[track_caller]
fn retried(outcome: Outcome) -> String {
    let Outcome::Retry(reason) = outcome else { panic!("{outcome:?}") };
    reason
}

/// The reason why nothing can be handled.
#[track_caller]
fn unavailable(outcome: Outcome) -> String {
    let Outcome::Unavailable(reason) = outcome else { panic!("{outcome:?}") };
    reason
}

#[tokio::test]
async fn a_request_has_the_payload_and_what_is_known_of_the_item() {
    let (address, requests) = answering(status(204));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let sample = Sample::new(b"\xff\x00payload")
        .attempt(3)
        .attribute("to", "ann")
        .attribute("odd name", "€ \"b\"\r\n")
        .content_type("text/plain")
        .trace_parent(parent)
        .enqueued_at(from_millis(1_700_000_000_000));
    let kit = kit(&address, "").queue("50% off");
    assert_eq!(kit.handle(sample).await, Outcome::Done);
    let request = requests.recv().unwrap();
    assert_eq!((&*request.line, &request.body[..]), ("POST /hook?a=b HTTP/1.1", &b"\xff\x00payload"[..]));
    let expected = [
        ("content-type", "text/plain"),
        ("kvqueue-queue", "50%25%20off"),
        ("kvqueue-item", "000000000000000000000000"),
        ("kvqueue-attempt", "3"),
        ("kvqueue-enqueued-at", "1700000000000"),
        ("traceparent", parent),
        ("user-agent", concat!("kvqueue/", env!("CARGO_PKG_VERSION"))),
        ("webhook-id", "000000000000000000000000"),
    ];
    for (name, value) in expected {
        assert_eq!(request.header(name), value, "{name}");
    }
    let attributes: Value = serde_json::from_str(request.header("kvqueue-attributes")).unwrap();
    assert_eq!(attributes, json!({ "to": "ann", "odd name": "€ \"b\"\r\n" }));
    assert!(!request.headers.contains_key("webhook-signature"), "{request:?}");
    assert_eq!(kit.handle(Sample::new("").content_type("no\nheader")).await, Outcome::Done);
    let request = requests.recv().unwrap();
    assert_eq!(request.header("content-type"), "application/octet-stream");
    assert_eq!(request.header("kvqueue-attributes"), "{}");
}

#[tokio::test]
async fn attributes_that_a_server_may_refuse_for_their_length_are_left_out() {
    let (address, requests) = answering(status(204));
    let kit = kit(&address, "");
    // With its name, quotes and braces, 4,096 bytes and one more.
    for (length, is_sent) in [(4_088, true), (4_089, false)] {
        assert_eq!(kit.handle(Sample::new("").attribute("a", "x".repeat(length))).await, Outcome::Done);
        let headers = requests.recv().unwrap().headers;
        assert_eq!(headers.contains_key("kvqueue-attributes"), is_sent, "{headers:?}");
        let omitted = headers.get("kvqueue-attributes-omitted").map(String::as_str);
        assert_eq!(omitted, (!is_sent).then_some("4097"));
    }
    // In ASCII each of them is six bytes.
    assert_eq!(kit.handle(Sample::new("").attribute("a", "é".repeat(1_000))).await, Outcome::Done);
    assert_eq!(requests.recv().unwrap().header("kvqueue-attributes-omitted"), "6008");
}

#[tokio::test]
async fn answers_about_an_item_are_no_outage_once_the_target_has_worked() {
    let (address, _requests) = each_with(|request| {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        status(text.parse().unwrap()).into()
    });
    let is_outage = |outcome: &Outcome| matches!(outcome, Outcome::UnavailableAfter(..));
    for (code, is_about_the_item) in [
        (400, true),
        (402, true),
        (413, true),
        (431, true),
        (401, false),
        (403, false),
        (404, false),
        (408, false),
        (425, false),
        (429, false),
        (302, false),
        (500, false),
    ] {
        let kit = kit(&address, "outage-after = 3");
        let code = code.to_string();
        let fail = async || kit.handle_all([&code; 9]).await.pop().unwrap();
        // As from a wrong port: nothing has ever been accepted.
        assert!(is_outage(&fail().await), "{code} before a success");
        assert_eq!(kit.handle("200").await, Outcome::Done);
        assert_eq!(is_outage(&fail().await), !is_about_the_item, "{code} after a success");
        kit.handle_all(["503"; 3]).await;
        assert!(is_outage(&kit.handle(&code).await), "{code} in an outage spends no attempt");
    }
}

#[tokio::test]
async fn requests_share_a_connection() {
    let (sender, connections) = channel();
    let address = listen(move |mut stream| {
        sender.send(()).unwrap();
        while Request::read(&mut stream).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    let kit = kit(&address, "");
    assert_eq!(kit.handle_all(["a", "b", "c"]).await, vec![Outcome::Done; 3]);
    assert_eq!(connections.try_iter().count(), 1);
}

#[tokio::test]
async fn an_answer_names_the_pause() {
    let (address, _requests) = answering("HTTP/1.1 429 X\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nslow");
    let outcome = kit(&address, "").handle("").await;
    let reason = "the target answered 429 Too Many Requests: slow".to_owned();
    assert_eq!(outcome, Outcome::RetryAfter(Duration::from_secs(7), reason));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (address, requests) =
        answering("HTTP/1.1 308 X\r\nLocation: http://127.0.0.1:1/new\r\nContent-Length: 0\r\n\r\n");
    let reason = retried(kit(&address, "").handle("").await);
    assert!(reason.contains("308") && reason.contains("\"http://127.0.0.1:1/new\""), "{reason}");
    assert_eq!(requests.try_iter().count(), 1);
}

#[tokio::test]
async fn connections_that_are_cut_are_failures_of_their_items() {
    let cuts = [
        "",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\n",
        "no HTTP at all\r\n\r\n",
        "HTTP/1.1 500 X\r\nContent-Length: 100\r\n\r\ncut off",
    ];
    for cut in cuts {
        let address = listen(move |mut stream| {
            Request::read(&mut stream);
            stream.write_all(cut.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Both).unwrap();
        });
        let reason = retried(kit(&address, "").handle("").await);
        let is_answer = reason == "the target answered 500 Internal Server Error: cut off";
        assert!(
            is_answer == cut.contains("500") && (is_answer || reason.starts_with("no answer: ")),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn after_a_status_of_success_the_body_does_not_matter() {
    let bodies = ["Content-Length: 100\r\n\r\ncut off", "Transfer-Encoding: chunked\r\n\r\nno chunk", "\r\n"];
    for body in bodies {
        // The connection stays open for as long as the client has it.
        let address = listen(move |mut stream| {
            Request::read(&mut stream);
            write!(stream, "HTTP/1.1 200 OK\r\n{body}").unwrap();
            let _ = stream.read(&mut [0]);
        });
        let began = Instant::now();
        assert_eq!(kit(&address, "").handle("").await, Outcome::Done);
        assert!(began.elapsed() < PATIENCE);
    }
}

#[tokio::test]
async fn no_more_of_an_answer_is_read_than_the_bound() {
    let (sender, sent) = channel();
    let address = listen(move |mut stream| {
        Request::read(&mut stream);
        stream.write_all(b"HTTP/1.1 500 X\r\nContent-Length: 1000000000\r\n\r\nwhy: ").unwrap();
        let written = (0..100_000).take_while(|_| stream.write_all(&[b'x'; 10_000]).is_ok()).count();
        sender.send(written * 10_000).unwrap();
    });
    let reason = retried(kit(&address, "max-response = '100kB'").handle("").await);
    assert!(reason.starts_with("the target answered 500 Internal Server Error: why: xxx"), "{reason}");
    assert!(reason.len() < 500, "{}", reason.len());
    // What the sockets of both sides buffer comes on top.
    let sent = sent.recv_timeout(PATIENCE).unwrap();
    assert!(sent < 50_000_000, "{sent} bytes");
}

/// A server that reads a request and does nothing more. It reports when the client closes the
/// connection.
fn hanging() -> (String, Receiver<()>) {
    let (sender, closed) = channel();
    let address = listen(move |mut stream| {
        Request::read(&mut stream);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        if stream.read(&mut [0]).is_ok_and(|read| read == 0) {
            let _ = sender.send(());
        }
    });
    (address, closed)
}

#[tokio::test]
async fn a_target_that_hangs_is_given_up_and_its_connection_closed() {
    let (address, closed) = hanging();
    let settings = "timeout = '100ms'";
    let reason = retried(kit(&address, settings).handle("").await);
    assert!(reason.starts_with("no answer in 1"), "{reason}");
    closed.recv_timeout(PATIENCE).unwrap();
    // The handler ends the call, not the daemon, whose reason would not be about the target.
    let reason = retried(kit(&address, "").handler_timeout(Duration::from_millis(200)).handle("").await);
    assert!(reason.starts_with("no answer in "), "{reason}");
    closed.recv_timeout(PATIENCE).unwrap();
}

#[tokio::test]
async fn a_cancelled_item_closes_its_connection() {
    let (address, closed) = hanging();
    let kit = kit(&address, "").cancel_after(Duration::from_millis(100));
    assert_eq!(kit.handle("").await, Outcome::Release);
    closed.recv_timeout(PATIENCE).unwrap();
}

#[tokio::test]
async fn an_item_that_is_cancelled_after_a_status_of_success_is_done() {
    let (sender, answered) = channel();
    let address = listen(move |mut stream| {
        Request::read(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n").unwrap();
        let _ = sender.send(());
        let _ = stream.read(&mut [0]);
    });
    let (kit, began) = (kit(&address, ""), Instant::now());
    let token = kit.cancelled();
    let cancels = thread::spawn(move || {
        answered.recv_timeout(PATIENCE).unwrap();
        // The client reads the head meanwhile; it waits for the body for a second.
        thread::sleep(Duration::from_millis(200));
        token.cancel();
    });
    assert_eq!(kit.handle("").await, Outcome::Done);
    cancels.join().unwrap();
    assert!(began.elapsed() < PATIENCE);
}

#[tokio::test]
async fn without_a_connection_the_handler_cannot_work() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let reason = unavailable(kit(&unused.to_string(), "").handle("").await);
    assert_eq!(reason, format!("cannot connect to {unused}: Connection refused (os error 111)"));
    let reason = unavailable(kit("no-such-host.invalid", "").handle("").await);
    assert!(reason.starts_with("cannot connect to no-such-host.invalid:80: "), "{reason}");
    // A listener that never answers the TLS handshake.
    let address = listen(|mut stream| drop(stream.read(&mut [0; 10_000]).map(|_| thread::sleep(PATIENCE))));
    let (ca, _) = Authority::new();
    let settings =
        format!("url = 'https://{address}'\nca-file = '{}'\nconnect-timeout = '100ms'", ca.path("ca"));
    let reason = unavailable(Kit::new(webhook(&settings)).handle("").await);
    assert!(reason.starts_with(&format!("cannot connect to {address}: ")), "{reason}");
}

#[tokio::test]
async fn a_private_address_is_not_connected_to() {
    let (address, requests) = answering(status(200));
    let port = address.rsplit_once(':').unwrap().1;
    let settings = format!("url = 'http://localhost:{port}'\nforbid-private-addresses = true");
    let reason = unavailable(Kit::new(webhook(&settings)).handle("").await);
    assert!(reason.contains("localhost has the private address "), "{reason}");
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn a_proxy_gets_the_request() {
    let (address, requests) = answering(status(200));
    let settings = format!("url = 'http://target.invalid/hook'\nproxy = 'http://{address}'");
    assert_eq!(Kit::new(webhook(&settings)).handle("").await, Outcome::Done);
    assert_eq!(requests.recv().unwrap().line, "POST http://target.invalid/hook HTTP/1.1");
}

#[tokio::test]
async fn failures_of_several_items_are_an_outage_until_a_success() {
    let (address, _requests) =
        each_with(|request| status(if request.body == b"good" { 200 } else { 503 }).into());
    let kit = kit(&address, "outage-after = 3");
    let fails = async |place| kit.handle_all((0..place).map(|_| "bad")).await.pop().unwrap();
    // One item is never an outage. With `handle_all`, items have different ids.
    for _ in 0..10 {
        retried(kit.handle("bad").await);
    }
    let outcome = fails(3).await;
    assert!(matches!(outcome, Outcome::UnavailableAfter(..)), "{outcome:?}");
    assert!(matches!(kit.handle("bad").await, Outcome::UnavailableAfter(..)));
    assert_eq!(kit.handle("good").await, Outcome::Done);
    retried(fails(2).await);
}

#[tokio::test]
async fn a_batch_is_one_request_and_its_answer_has_the_outcomes() {
    let (address, requests) = each_with(|request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let id = |index: usize| body["items"][index]["id"].clone();
        let outcomes = json!([
            { "id": id(0), "outcome": "done" },
            { "id": id(1), "outcome": "dead", "reason": "bad" },
            { "id": id(2), "outcome": "retry", "after_ms": 5_000.0 },
            { "id": id(3), "outcome": "release" },
            { "id": id(4), "outcome": "finished" },
            { "id": id(5), "outcome": 7 },
            { "id": id(6), "outcome": "retry", "after_ms": 1e12 },
            { "id": id(8), "outcome": "done" },
            { "id": id(8), "outcome": "dead", "reason": "or not" },
            { "id": "unknown", "outcome": "done" },
        ]);
        json_answer(&json!({ "outcomes": outcomes })).into()
    });
    let kit = batch_kit(&address, "").queue("emails");
    let first = Sample::new("a").enqueued_at(from_millis(1_700_000_000_000));
    let more = ["b", "c", "d", "e", "f", "g", "h", "i"].map(Sample::new);
    let outcomes = kit.handle_all([first].into_iter().chain(more)).await;
    assert_eq!(
        outcomes[..4],
        [
            Outcome::Done,
            Outcome::dead("bad"),
            Outcome::RetryAfter(Duration::from_secs(5), "the worker gave no reason".to_owned()),
            Outcome::Release
        ]
    );
    for (outcome, part) in outcomes[4..].iter().zip([
        "`finished`",
        "cannot be read",
        "after_ms is at most",
        "has no outcome",
        "has two outcomes",
    ]) {
        let reason = retried(outcome.clone());
        assert!(reason.contains(part), "{reason}");
    }
    let request = requests.recv().unwrap();
    assert_eq!(
        (request.header("content-type"), request.header("kvqueue-queue")),
        ("application/json", "emails")
    );
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["queue"], "emails");
    let first = json!({
        "id": "000000000000000000000000",
        "attempt": 1,
        "payload": "a",
        "enqueued_at": "2023-11-14T22:13:20.000Z",
    });
    assert_eq!((&body["items"][0], body["items"].as_array().unwrap().len()), (&first, 9));
}

#[tokio::test]
async fn a_batch_without_outcomes_in_the_answer_is_done() {
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 15\r\n\r\n{\"outcomes\":[]}";
    let answers =
        [status(204), json_answer(&json!({ "ok": true })), json_answer(&json!("ok")), text.to_owned()];
    for answer in answers {
        let (address, _requests) = answering(answer);
        assert_eq!(batch_kit(&address, "").handle_all(["a", "b"]).await, vec![Outcome::Done; 2]);
    }
}

#[tokio::test]
async fn a_batch_whose_outcomes_are_not_known_is_retried() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let answers = [
        (format!("{head}Content-Length: 8\r\n\r\n{{\"outcom"), "the answer is not JSON"),
        (format!("{head}Content-Length: 99\r\n\r\n{{\"outcomes\""), "the answer was cut off"),
        (json_answer(&json!({ "outcomes": { "a": 1 } })), "is not a list"),
        (json_answer(&json!({ "text": "x".repeat(2_000) })), "more bytes than max-response"),
        (status(500), "500 Internal Server Error"),
    ];
    for (answer, part) in answers {
        let address = listen(move |mut stream| {
            Request::read(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let outcomes = batch_kit(&address, "max-response = '1KiB'").handle_all(["a", "b"]).await;
        for outcome in outcomes {
            let reason = retried(outcome);
            assert!(reason.contains(part), "{reason}");
        }
    }
}

#[tokio::test]
async fn batches_with_successful_answers_that_cannot_be_read_are_an_outage() {
    let (address, _requests) = each_with(|_| json_answer(&json!({ "outcomes": 1 })).into());
    let kit = batch_kit(&address, "outage-after = 2");
    retried(kit.handle(Sample::new("").place(1)).await);
    let outcome = kit.handle(Sample::new("").place(2)).await;
    assert!(matches!(outcome, Outcome::UnavailableAfter(..)), "{outcome:?}");
}

/// An authority of certificates, and a folder with the files of its tests.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// With its certificate in the file `ca`, and the key of `localhost` and its certificate for a
    /// server.
    fn new() -> (Self, Arc<ServerConfig>) {
        Self::of_server(false)
    }

    fn of_server(asks_client: bool) -> (Self, Arc<ServerConfig>) {
        install_provider();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let this = Self { folder: tempfile::tempdir().unwrap(), issuer };
        this.write("ca", &this.issuer.pem(), 0o644);
        let (certificate, key) = this.issue("localhost");
        let config = if asks_client {
            let mut roots = RootCertStore::empty();
            roots.add(this.issuer.der().clone()).unwrap();
            ServerConfig::builder()
                .with_client_cert_verifier(WebPkiClientVerifier::builder(roots.into()).build().unwrap())
        } else {
            ServerConfig::builder().with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        (this, Arc::new(config))
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// A server with TLS that answers 200. Returns its port.
fn tls(config: Arc<ServerConfig>) -> String {
    let address = listen(move |stream| {
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
        while Request::read(&mut stream).is_some() {
            stream.write_all(status(200).as_bytes()).unwrap();
        }
    });
    address.rsplit_once(':').unwrap().1.to_owned()
}

async fn handled(settings: String) -> Outcome {
    Kit::new(webhook(&settings)).handle("").await
}

#[tokio::test]
async fn certificates_are_verified() {
    let (authority, config) = Authority::new();
    let port = tls(config);
    let ca = authority.path("ca");
    assert_eq!(handled(format!("url = 'https://localhost:{port}'\nca-file = '{ca}'")).await, Outcome::Done);
    let reason = unavailable(handled(format!("url = 'https://127.0.0.1:{port}'\nca-file = '{ca}'")).await);
    assert!(reason.contains("certificate"), "{reason}");
    let (other, _) = Authority::new();
    let settings = format!("url = 'https://localhost:{port}'\nca-file = '{}'", other.path("ca"));
    let reason = unavailable(handled(settings).await);
    assert!(reason.contains("invalid peer certificate"), "{reason}");
}

#[tokio::test]
async fn a_client_certificate_is_shown() {
    let (authority, config) = Authority::of_server(true);
    let port = tls(config);
    let settings = format!("url = 'https://localhost:{port}'\nca-file = '{}'", authority.path("ca"));
    let refused = handled(settings.clone()).await;
    assert!(!matches!(refused, Outcome::Done), "{refused:?}");
    let (certificate, key) = authority.issue("kvqueue");
    authority.write("certificate", &certificate.pem(), 0o644);
    authority.write("key", &key.serialize_pem(), 0o644);
    let settings = format!(
        "{settings}\nclient-certificate = '{}'\nclient-key = '{}'",
        authority.path("certificate"),
        authority.path("key")
    );
    let error = Webhook::from_config(&settings.parse().unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("client-key = ") && error.contains("chmod o="), "{error}");
    authority.write("key", &key.serialize_pem(), 0o600);
    assert_eq!(handled(settings).await, Outcome::Done);
}

#[test]
fn a_file_without_certificates_is_refused() {
    let (authority, _) = Authority::new();
    for (text, part) in [("", "it has no certificate"), ("-----BEGIN CERTIFICATE-----\nx", "ca-file = ")] {
        authority.write("ca", text, 0o644);
        let settings = format!("url = 'https://localhost'\nca-file = '{}'", authority.path("ca"));
        let error = Webhook::from_config(&settings.parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains(part) && error.ends_with("name a file with certificates in PEM"), "{error}");
    }
}
