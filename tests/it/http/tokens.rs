//! Access tokens: what each scope allows, on every route of the document.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::LOG;
use crate::support::{Database, Request, Served, first_id, kvqueue, run, serve, wait_until};

/// How long a daemon is asked while its database is silent.
const SILENT: Duration = Duration::from_secs(6);

const SCOPES: [&str; 4] = ["push", "work", "read", "admin"];

/// A daemon that asks for tokens.
fn served(db: &Database) -> Served {
    serve(db, &format!("http.require-token = true\n{LOG}[queues.q2]\nhandler = 'log'\n"))
}

/// A new token.
pub(super) fn token(db: &Database, name: &str, scopes: &[&str], queues: &[&str]) -> String {
    let mut args = vec!["token", "new", name];
    scopes.iter().for_each(|scope| args.extend(["--scope", scope]));
    queues.iter().for_each(|queue| args.extend(["--queue", queue]));
    run(db, &args).ok().trim().to_owned()
}

pub(super) fn with(request: Request, token: &str) -> Request {
    request.header("Authorization", &format!("Bearer {token}"))
}

/// The operations of the document: method, path with `q` as the queue, scope.
fn operations() -> Vec<(String, String, Option<String>)> {
    let document: Value = serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{queue}", "q").replace("{id}", "x00").replace("{name}", "nobody");
        let path = path.replace("{lease}", &format!("{}-1", "0".repeat(32)));
        let path = path.replace("{batch}", &format!("q-{}", "0".repeat(32)));
        for (method, operation) in methods.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters")
        {
            let scope = operation["x-kvqueue-scope"].as_str().map(str::to_owned);
            found.push((method.to_uppercase(), path.clone(), scope));
        }
    }
    // The stream of events does not end, so `exchange` would wait for it.
    found.retain(|(_, path, _)| path != "/api/v1/events");
    assert!(found.len() > 25);
    found
}

#[test]
fn each_scope_allows_its_routes_and_no_others() {
    let db = Database::new();
    let served = served(&db);
    let tokens = SCOPES.map(|scope| (scope, token(&db, scope, &[scope], &[])));
    for (method, path, wanted) in operations() {
        let ask = |token: &str| with(served.at.request(&method, &path), token).send();
        for (scope, token) in &tokens {
            let reply = ask(token);
            let is_allowed = wanted.as_deref().is_none_or(|wanted| *scope == wanted || *scope == "admin");
            let is_refused = reply.status == 403 && reply.json()["error"]["code"] == "forbidden";
            assert_eq!(is_refused, !is_allowed, "{method} {path} with {scope}: {reply:?}");
            assert_ne!(reply.status, 401, "{method} {path} with {scope}");
        }
    }
}

#[test]
fn a_token_allows_only_its_queues() {
    let db = Database::new();
    let served = served(&db);
    let admin = token(&db, "some", &["admin"], &["q"]);
    for (method, path, scope) in operations() {
        let Some(_) = scope else { continue };
        let of = |path: &str| with(served.at.request(&method, path), &admin).send();
        let reply = of(&path);
        if path.starts_with("/api/v1/queues/q") {
            assert_ne!(reply.status, 403, "{method} {path}: {reply:?}");
            let other = path.replacen("/queues/q", "/queues/q2", 1);
            assert_eq!(of(&other).error(403), "forbidden", "{method} {other}");
        } else {
            assert_eq!(reply.error(403), "forbidden", "{method} {path}");
        }
    }
    // Moving takes a token for both queues.
    let to = |queue: &str| {
        let body = json!({"to": queue, "limit": 1});
        with(served.at.request("POST", "/api/v1/queues/q/move").json(&body), &admin).send()
    };
    assert_eq!(to("q2").error(403), "forbidden");
    let both = token(&db, "both", &["admin"], &["q*"]);
    let body = json!({"to": "q2", "limit": 1});
    with(served.at.request("POST", "/api/v1/queues/q/move").json(&body), &both).send().is(200);
}

#[test]
fn a_token_ends_when_it_is_revoked_or_expires() {
    let db = Database::new();
    let served = served(&db);
    let status = |token: &str| with(served.at.request("GET", "/api/v1/status"), token).send();
    assert_eq!(served.at.get("/api/v1/status").error(401), "unauthorized");
    served.at.get("/livez").is(200);
    let first = token(&db, "first", &["read"], &[]);
    status(&first).is(200);
    let taken = run(&db, &["token", "new", "first", "--scope", "read"]);
    assert!(taken.code == Some(1) && taken.stderr.contains("there is a token first already"), "{taken:?}");
    run(&db, &["token", "revoke", "first"]).ok();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(status(&first).error(401), "unauthorized");
    let none = run(&db, &["token", "revoke", "first"]);
    assert!(none.code == Some(1) && none.stderr.contains("kvqueue token list"), "{none:?}");
    let short = run(&db, &["token", "new", "short", "--scope", "read", "--expires", "3s"]).ok();
    status(short.trim()).is(200);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(status(short.trim()).error(401), "unauthorized");
    let listed: Value = serde_json::from_str(&run(&db, &["token", "list", "--json"]).ok()).unwrap();
    assert_eq!((&listed["name"], &listed["expired"]), (&json!("short"), &json!(true)));
    assert!(listed["last_used"].is_string() && !listed.to_string().contains(short.trim()), "{listed}");
}

#[test]
fn an_operator_creates_and_revokes_tokens_over_http() {
    let db = Database::new();
    let served = served(&db);
    let admin = token(&db, "admin", &["admin"], &[]);
    let post = |body: &Value| with(served.at.request("POST", "/api/v1/tokens").json(body), &admin).send();
    let body = json!({"name": "shop", "scopes": ["push"], "queues": ["q"], "expires": "60s"});
    let made = post(&body).is(200);
    let shop = made["token"].as_str().unwrap();
    assert_eq!(post(&body).error(409), "name_taken");
    for wrong in [
        json!({"name": "a b", "scopes": ["push"]}),
        json!({"name": "a", "scopes": []}),
        json!({"name": "a", "scopes": ["root"]}),
        json!({"name": "a", "scopes": ["push"], "queues": []}),
        json!({"name": "a", "scopes": ["push"], "expires": "0s"}),
        json!({"name": "a", "scopes": ["push"], "until": 1}),
    ] {
        assert_eq!(post(&wrong).error(400), "bad_request", "{wrong}");
    }
    let items = json!({"items": [{"payload": "x"}]});
    let push = || with(served.at.request("POST", "/api/v1/queues/q/items").json(&items), shop).send();
    push().is(201);
    let listed = with(served.at.request("GET", "/api/v1/tokens"), &admin).send().is(200);
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains("kvq_"), "{listed}");
    with(served.at.request("DELETE", "/api/v1/tokens/shop"), &admin).send().is(200);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(push().error(401), "unauthorized");
}

#[test]
fn commands_send_the_token_of_their_environment() {
    let db = Database::new();
    let served = served(&db);
    let at = served.at.tcp();
    let status = |token: Option<&str>| {
        let mut command = kvqueue(&db, &["status", "--at", at]);
        if let Some(token) = token {
            command.env("KVQUEUE_TOKEN", token);
        }
        command.output().unwrap()
    };
    assert!(!status(None).status.success());
    assert!(status(Some(&token(&db, "me", &["read"], &[]))).status.success());
}

#[test]
fn a_request_that_waits_gets_no_items_after_its_token_was_revoked() {
    let db = Database::new();
    let served = serve(&db, "http.require-token = true\n[queues.p]\nhandler = 'pull'\n");
    let (worker, reader) = (token(&db, "worker", &["work"], &[]), token(&db, "reader", &["read"], &[]));
    let lease = with(served.at.request("POST", "/api/v1/queues/p/lease"), &worker);
    let lease = lease.json(&json!({ "max": 10, "wait_ms": 60_000, "lease_ms": 86_400_000 }));
    let waiting = thread::spawn(move || lease.send());
    wait_until("the worker waits", || {
        let workers = with(served.at.request("GET", "/api/v1/workers"), &reader).send().is(200);
        workers["workers"].as_array().is_some_and(|workers| workers.len() == 1)
    });
    run(&db, &["token", "revoke", "worker"]).ok();
    let status = || with(served.at.request("GET", "/api/v1/status"), &worker).send().status;
    wait_until("the daemon knows", || status() == 401);
    run(&db, &["push", "p", "secret"]).ok();
    let reply = waiting.join().unwrap();
    assert_eq!(reply.error(401), "unauthorized");
    wait_until("the item is ready again", || run(&db, &["len", "p"]).ok().trim() == "1");
}

#[test]
fn a_wait_for_an_item_tells_nothing_after_its_token_was_revoked() {
    let db = Database::new();
    let served = serve(&db, "http.require-token = true\n[queues.p]\nhandler = 'pull'\n");
    let reader = token(&db, "reader", &["read"], &[]);
    run(&db, &["push", "p", "secret"]).ok();
    let path = format!("/api/v1/queues/p/items/{}?wait_ms=60000", first_id(&db, "p"));
    let wait = with(served.at.request("GET", &path), &reader);
    let waiting = thread::spawn(move || wait.send());
    // Refused at once would do, too.
    thread::sleep(Duration::from_millis(200));
    run(&db, &["token", "revoke", "reader"]).ok();
    let status = || with(served.at.request("GET", "/api/v1/status"), &reader).send().status;
    wait_until("the daemon knows", || status() == 401);
    run(&db, &["pop", "p"]).ok();
    assert_eq!(waiting.join().unwrap().error(401), "unauthorized");
}

#[test]
fn health_tells_texts_only_to_clients_that_may_read() {
    let db = Database::new();
    let queue = "[queues.hidden]\nhandler = 'exec'\nhandler-config.command = ['/nonexistent/program']\n";
    let served = serve(&db, &format!("http.require-token = true\n{queue}"));
    let (reader, pusher) = (token(&db, "reader", &["read"], &[]), token(&db, "pusher", &["push"], &[]));
    run(&db, &["push", "hidden", "x"]).ok();
    let ready = |secret: Option<&str>| {
        let request = served.at.request("GET", "/readyz");
        secret.map_or_else(|| request.clone(), |secret| with(request.clone(), secret)).send().is(200)
    };
    wait_until("the handler cannot work", || ready(None)["warning_count"] == 1);
    // The daemon learns of a token when it is used where one is needed.
    with(served.at.request("GET", "/api/v1/status"), &reader).send().is(200);
    assert!(ready(Some(&reader))["warnings"][0].as_str().unwrap().contains("hidden"));
    for secret in [None, Some(&*pusher), Some("kvq_wrong"), Some("wrong")] {
        let expected = json!({ "ready": true, "reason_count": 0, "warning_count": 1 });
        assert_eq!(ready(secret), expected, "{secret:?}");
    }
}

#[test]
fn a_new_token_is_accepted_while_many_clients_send_wrong_ones() {
    let db = Database::new();
    let served = served(&db);
    let status = |token: &str| with(served.at.request("GET", "/api/v1/status"), token).send().status;
    // More than the daemon keeps waiting for their answers.
    let wrong = format!("kvq_{}_{}", "0".repeat(16), "1".repeat(48));
    let (stop, refused) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let answers: Vec<_> = thread::scope(|scope| {
        for _ in 0..48 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    refused.fetch_add(usize::from(status(&wrong) == 429), Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
        wait_until("all places are taken", || refused.load(Ordering::Relaxed) >= 10);
        let new = |number| status(&token(&db, &format!("new-{number}"), &["read"], &[]));
        let answers = (0..5).map(new).collect();
        stop.store(true, Ordering::Relaxed);
        answers
    });
    assert_eq!(answers, [200; 5]);
}

#[test]
fn known_tokens_are_accepted_while_the_database_is_silent() {
    let db = Database::new();
    if !db.prefix.is_empty() {
        println!("skipped: a test suspends the host of an embedded database, and not a cluster");
        return;
    }
    let host = serve(&db, LOG);
    let guest = served(&db);
    let reader = token(&db, "reader", &["read"], &[]);
    let read = |path: &str| with(guest.at.request("GET", path), &reader).send();
    assert_eq!(read("/metrics").status, 200);
    host.daemon.suspend();
    wait_until("the database is silent", || {
        let reply = read("/metrics");
        assert_eq!(reply.status, 200, "{reply:?}");
        String::from_utf8_lossy(&reply.body).contains("\nkvqueue_database_up 0\n")
    });
    // This answer does not need the database.
    let (began, mut slow) = (Instant::now(), Vec::new());
    while began.elapsed() < SILENT {
        let asked = Instant::now();
        assert_eq!(read("/api/v1/openapi.json").status, 200);
        slow.extend(Some(asked.elapsed()).filter(|took| *took >= Duration::from_millis(300)));
    }
    assert!(slow.len() <= 1, "more than one request waited for a silent database: {slow:?}");
    assert_eq!(read("/api/v1/status").status, 200);
    host.daemon.signal(rustix::process::Signal::CONT);
}
