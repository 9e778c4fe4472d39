//! Who may ask for what.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use serde_json::json;

use super::LOG;
use crate::support::{Address, Background, Database, kvqueue, run, serve, serve_with};

const SECRET: &str = "0123456789abcdef";

/// A file with the secret.
fn token_file(db: &Database, mode: u32) -> String {
    let path = db.file("token");
    fs::write(&path, format!("{SECRET}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn config(db: &Database, text: &str) -> String {
    let path = db.file("kvqueue.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_daemon_listens_beyond_loopback_only_with_tokens_and_encryption() {
    let db = Database::new();
    let path = config(&db, LOG);
    let run = |listen: &str, path: &str| {
        let mut command = kvqueue(&db, &["run", "--config", path]);
        command.env("KVQUEUE_HTTP__LISTEN", listen).output().unwrap()
    };
    let refused = run("0.0.0.0:0", &path);
    assert_eq!(refused.status.code(), Some(78));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("tokens would be sent to it unencrypted"), "{said}");
    let path = config(&db, &format!("http.allow-plaintext = true\nhttp.require-token = false\n{LOG}"));
    let refused = run("0.0.0.0:0", &path);
    assert_eq!(refused.status.code(), Some(78));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("nobody would have to send a token"));
    // A secret that everybody may read is refused.
    let token = token_file(&db, 0o644);
    let path = config(&db, &format!("http.allow-plaintext = true\nhttp.token-file = '{token}'\n{LOG}"));
    let refused = run("0.0.0.0:0", &path);
    assert_eq!(refused.status.code(), Some(78));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("chmod o="));
    token_file(&db, 0o600);
    let mut command = kvqueue(&db, &["run", "--config", &path]);
    command.env("KVQUEUE_HTTP__LISTEN", "0.0.0.0:0");
    let mut daemon = Background::start(command);
    daemon.wait_for_event("listening");
}

#[test]
fn the_token_is_needed_for_everything_but_health() {
    let db = Database::new();
    let token = token_file(&db, 0o600);
    let served = serve(&db, &format!("http.token-file = '{token}'\n{LOG}"));
    served.at.get("/livez").is(200);
    served.at.get("/readyz").is(200);
    let status = served.at.request("GET", "/api/v1/status");
    let refused = status.send();
    assert_eq!(refused.header("WWW-Authenticate"), Some("Bearer"));
    assert_eq!(refused.error(401), "unauthorized");
    let began = Instant::now();
    let wrong = status.clone().header("Authorization", "Bearer 0123456789abcdeX").send();
    assert_eq!(wrong.error(401), "unauthorized");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(served.at.get("/nothing").error(401), "unauthorized");
    status.header("Authorization", &format!("Bearer {SECRET}")).send().is(200);
}

#[test]
fn foreign_host_names_are_refused_on_loopback() {
    let db = Database::new();
    let served = serve(&db, &format!("http.origins = ['https://q.example']\n{LOG}"));
    let ask = |host: &str| served.at.request("GET", "/livez").header("Host", host).send();
    assert_eq!(ask("evil.example").error(403), "host");
    ask("q.example").is(200);
}

#[test]
fn a_unix_socket_is_for_its_group_and_removed_with_the_daemon() {
    let db = Database::new();
    let path = db.file("http.sock");
    let served = serve(&db, &format!("http.listen = 'unix:{}'\n{LOG}", path.display()));
    served.at.get("/livez").is(200);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    served.daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(served.daemon.end().code, Some(0));
    assert!(!path.exists());
}

#[test]
fn a_start_fails_if_the_configured_address_is_taken() {
    let db = Database::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = kvqueue(&db, &["run", "--config", &config(&db, LOG)]);
    let ended =
        command.env("KVQUEUE_HTTP__LISTEN", taken.local_addr().unwrap().to_string()).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8(ended.stderr).unwrap().contains("set http.listen to another address"));
}

#[test]
fn the_default_address_never_keeps_a_daemon_from_its_work() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    // Perhaps somebody else on this machine has it: that is as good.
    let _taken = TcpListener::bind("127.0.0.1:7420");
    let mut command = kvqueue(&db, &["run", "--config", &config(&db, LOG)]);
    command.env_remove("KVQUEUE_HTTP__LISTEN");
    let mut daemon = Background::start(command);
    daemon.wait_for_event("http_not_started");
    daemon.wait_for_event("ready");
    // Without this `kvqueue status` would ask another daemon, and nothing would have said why.
    let mut command = kvqueue(&db, &["run", "--quiet", "--config", &config(&db, LOG)]);
    command.env_remove("KVQUEUE_HTTP__LISTEN");
    Background::start(command).wait_for_event("http_not_started");
    // One that is to end by itself does not even try.
    let mut command = kvqueue(&db, &["run", "--until-empty", "--config", &config(&db, LOG)]);
    let ended = command.env_remove("KVQUEUE_HTTP__LISTEN").output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert!(!String::from_utf8(ended.stderr).unwrap().contains("HTTP"));
}

#[test]
fn every_response_has_security_headers() {
    let db = Database::new();
    let path = config(&db, LOG);
    let served = serve_with(kvqueue(&db, &["run", "--config", &path]), false);
    for path in ["/livez", "/nothing", "/api/v1/queues/%ff"] {
        let reply = served.at.get(path);
        assert_eq!(reply.header("X-Content-Type-Options"), Some("nosniff"), "{reply:?}");
        assert!(reply.header("Content-Security-Policy").unwrap().starts_with("default-src 'none'"));
        assert_eq!(reply.header("Cache-Control"), Some("no-store"));
        assert_eq!(reply.header("Access-Control-Allow-Origin"), None);
    }
}

#[test]
fn read_only_refuses_all_changes() {
    let db = Database::new();
    let served = serve(&db, &format!("http.read-only = true\n{LOG}"));
    let items = "/api/v1/queues/q/items";
    assert_eq!(served.at.post(items, &json!({"items": [{"payload": "x"}]})).error(403), "read_only");
    assert_eq!(served.at.request("DELETE", "/api/v1/queues/q/pause").send().error(403), "read_only");
    served.at.get(items).is(200);
}

#[test]
fn cross_site_requests_are_refused() {
    let db = Database::new();
    let served = serve(&db, &format!("http.origins = ['https://q.example']\n{LOG}"));
    let path = "/api/v1/queues/other/items";
    let push = || served.at.request("POST", path).json(&json!({"items": [{"payload": "x"}]}));
    assert_eq!(push().header("Origin", "https://evil.example").send().error(403), "cross_site");
    assert_eq!(push().header("Origin", "null").send().error(403), "cross_site");
    assert_eq!(push().header("Sec-Fetch-Site", "cross-site").send().error(403), "cross_site");
    // What a form can send.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let reload =
            served.at.request("POST", "/api/v1/queues/other/dead/purge").header("Content-Type", kind);
        assert_eq!(reload.send().error(415), "content_type");
    }
    assert_eq!(run(&db, &["len", "other"]).ok().trim(), "0");
    push().header("Origin", "https://q.example").header("Sec-Fetch-Site", "cross-site").send().is(201);
    let Address::Tcp(own) = &served.at else { panic!("it listens on TCP") };
    push().header("Origin", &format!("http://{own}")).header("Sec-Fetch-Site", "same-origin").send().is(201);
    // A page of another site cannot use up what is there for readers, either, such as places for events.
    for path in [path, "/api/v1/status", "/api/v1/events", "/metrics"] {
        let read = || served.at.request("GET", path);
        let refused = read().header("Origin", "https://evil.example").send();
        assert_eq!(refused.header("Access-Control-Allow-Origin"), None);
        assert_eq!(refused.error(403), "cross_site", "{path}");
        assert_eq!(read().header("Sec-Fetch-Site", "cross-site").send().error(403), "cross_site", "{path}");
    }
    served.at.request("GET", path).header("Sec-Fetch-Site", "same-origin").send().is(200);
    served.at.request("GET", "/livez").header("Sec-Fetch-Site", "cross-site").send().is(200);
}

#[test]
fn the_log_has_no_payloads_names_or_secrets() {
    const MARK: &str = "mark-that-nobody-logs";
    let db = Database::new();
    let token = token_file(&db, 0o600);
    let path = config(&db, &format!("http.token-file = '{token}'\n[log]\nlevel = 'trace'\n{LOG}"));
    let served = serve_with(kvqueue(&db, &["run", "--config", &path]), false);
    let secret = format!("Bearer {SECRET}");
    let ask = |method: &str, path: &str| served.at.request(method, path).header("Authorization", &secret);
    let items = format!("/api/v1/queues/{MARK}/items");
    let item = json!({"payload": MARK, "unique": MARK, "attributes": {MARK: MARK}});
    let pushed = ask("POST", &items).json(&json!({"items": [item], "idempotency_key": MARK})).send().is(201);
    ask("GET", &format!("{items}?after={}", pushed["ids"][0].as_str().unwrap())).send().is(200);
    ask("GET", &format!("{items}?{MARK}={MARK}")).send().is(400);
    ask("POST", &items).json(&json!({"items": [{"payload": 1, MARK: MARK}]})).send().is(400);
    ask("POST", &items).header("Content-Type", "application/json").body(MARK).send().is(400);
    ask("GET", &format!("/{MARK}")).header("X-Mark", MARK).send().is(404);
    served.at.request("GET", "/metrics").header("Authorization", &format!("Bearer {MARK}")).send().is(401);
    served.daemon.signal(rustix::process::Signal::TERM);
    let ended = served.daemon.end();
    assert!(ended.stderr.contains("/api/v1/queues/{queue}/items"), "requests are logged");
    for text in [MARK, SECRET] {
        let line = ended.stderr.lines().find(|line| line.contains(text));
        assert_eq!(line, None, "{text}");
    }
}
