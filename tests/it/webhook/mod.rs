//! The handler `http`: requests and their signatures, what answers do with items, and a target that fails for a while.

mod outage;
pub(crate) mod target;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use self::target::{Deed, Request, Target};
use crate::support::{Database, Ran, Served, kvqueue, run, run_with_input, serve_with, wait_until};

/// A queue `q` whose items are posted to a target.
struct Webhooks {
    db: Database,
    target: Target,
}

impl Webhooks {
    /// With these settings of the queue, and of its handler.
    fn new(queue: &str, handler: &str, decide: impl Fn(&Request) -> Deed + Send + 'static) -> Self {
        let this = Self { db: Database::new(), target: Target::new(decide) };
        this.configure(queue, &format!("url = 'http://{}/hook'\n{handler}", this.target.address));
        this
    }

    fn configure(&self, queue: &str, handler: &str) {
        let text = format!("[queues.q]\nhandler = 'http'\n{queue}\n[queues.q.handler-config]\n{handler}\n");
        fs::write(self.db.file("kvqueue.toml"), text).unwrap();
    }

    fn push<T: AsRef<str>>(&self, items: impl IntoIterator<Item = T>) {
        let lines: String = items.into_iter().map(|item| format!("{}\n", item.as_ref())).collect();
        run_with_input(&self.db, &["push", "q", "--lines", "-"], lines).ok();
    }

    fn command(&self, args: &[&str]) -> Command {
        let config = self.db.file("kvqueue.toml").display().to_string();
        kvqueue(&self.db, &[args, &["--config", &config]].concat())
    }

    fn run_until_empty(&self) -> Ran {
        self.command(&["run", "--until-empty"]).output().unwrap().into()
    }

    fn serve(&self) -> Served {
        serve_with(self.command(&["run"]), false)
    }

    /// The queue's count of items in a state.
    fn count(&self, what: &str) -> u64 {
        let counts: Value = serde_json::from_str(&run(&self.db, &["len", "q", "--json"]).ok()).unwrap();
        counts[what].as_u64().unwrap_or_else(|| panic!("no {what} in {counts}"))
    }

    /// The reasons of the dead letters, sorted.
    fn dead(&self) -> Vec<String> {
        let listed = run(&self.db, &["dead", "list", "q", "--json"]).ok();
        let letters = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut reasons: Vec<_> =
            letters.map(|letter| letter["reason"].as_str().unwrap().to_owned()).collect();
        reasons.sort();
        reasons
    }

    /// Pushes an item, and waits until the target has it.
    fn deliver(&self) -> Request {
        let calls = self.target.calls();
        self.push(["item"]);
        wait_until("it is delivered", || self.target.calls() > calls);
        self.target.requests().swap_remove(calls)
    }
}

/// HMAC-SHA256 by its definition.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let [inner, outer] = [0x36, 0x5c].map(|pad| block.map(|byte| byte ^ pad));
    let hash = Sha256::new().chain_update(inner).chain_update(message).finalize();
    Sha256::new().chain_update(outer).chain_update(hash).finalize().to_vec()
}

/// The signature that a request should have by a key.
fn signature(request: &Request, key: &[u8]) -> String {
    let signed = [request.header("webhook-id"), request.header("webhook-timestamp"), ""].join(".");
    format!("v1,{}", BASE64_STANDARD.encode(hmac(key, &[signed.as_bytes(), &request.body].concat())))
}

fn write_keys(path: &Path, keys: &[[u8; 32]]) {
    let lines: String = keys.iter().map(|key| format!("whsec_{}\n", BASE64_STANDARD.encode(key))).collect();
    let new = path.with_extension("new");
    fs::write(&new, lines).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn a_target_that_asks_for_a_pause_holds_one_key_and_others_go_on() {
    let seen: Arc<Mutex<Vec<(String, u16, Instant)>>> = Arc::default();
    let (begun, notes) = (Instant::now(), seen.clone());
    let queue = "kind = 'keyed'\npoll-interval = '1h'\nconsumers = [{ k = 1, count = 2 }]";
    let hooks = Webhooks::new(queue, "throttle = 'key'", move |request| {
        let (key, mut notes) = (request.header("kvqueue-key").to_owned(), notes.lock().unwrap());
        let first = notes.iter().find(|(of, ..)| *of == key).map_or_else(Instant::now, |(.., at)| *at);
        // It is shorter than the pause that the target asks for.
        let is_busy = key == "slow" && first.elapsed() < Duration::from_millis(1_500);
        notes.push((key, if is_busy { 429 } else { 200 }, Instant::now()));
        match is_busy {
            true => Deed::Say("HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n".to_owned()),
            false => Deed::Answer(200),
        }
    });
    for (key, items) in [("slow", 3), ("quick", 5)] {
        run(&hooks.db, &[&["push", "q", "--kind", "keyed", "--key", key][..], &vec!["x"; items]].concat())
            .ok();
    }
    let served = hooks.serve();
    let answered = |key: &str, status: u16| -> Vec<Duration> {
        let seen = seen.lock().unwrap();
        let of = seen.iter().filter(|(of, with, _)| of == key && *with == status);
        of.map(|(.., at)| *at - begun).collect()
    };
    wait_until("all are delivered", || answered("slow", 200).len() == 3 && answered("quick", 200).len() == 5);
    let (refused, later, quick) = (answered("slow", 429), answered("slow", 200), answered("quick", 200));
    assert!(
        (1..=3).contains(&refused.len()),
        "each item is tried once at most before the pause: {refused:?}"
    );
    assert!(later[0] - refused[0] > Duration::from_millis(2_500), "{refused:?} {later:?}");
    assert!(quick[4] < later[0], "{quick:?} {later:?}");
    assert!(hooks.target.requests().iter().all(|request| request.attempt() == 1));
    served.daemon.signal(Signal::TERM);
    let ended = served.daemon.end();
    assert_eq!((ended.events("handler_unavailable"), ended.events("item_throttled")), (0, refused.len()));
}

#[test]
fn requests_are_signed_and_keys_rotate_while_the_daemon_runs() {
    let (old, new) = ([1; 32], [2; 32]);
    // The path is relative to the directory of the configuration.
    let hooks = Webhooks::new("", "signing-key-file = 'keys'", |_| Deed::Answer(200));
    let keys = hooks.db.file("keys");
    write_keys(&keys, &[old]);
    let mut served = hooks.serve();
    hooks.deliver();
    write_keys(&keys, &[new, old]);
    // The file is looked at when a request is made, once a second.
    wait_until("both keys are in use", || hooks.deliver().header("webhook-signature").contains(' '));
    served.daemon.wait_for_event("webhook_files_read");
    let requests = hooks.target.requests();
    for request in &requests {
        assert_eq!(request.header("webhook-id"), request.header("kvqueue-item"));
        let sent: u64 = request.header("webhook-timestamp").parse().unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert!(now.abs_diff(sent) < 600, "{sent} {now}");
        let by_old = signature(request, &old);
        let both = format!("{} {by_old}", signature(request, &new));
        let found = request.header("webhook-signature");
        assert!(found == by_old || found == both, "{request:?}");
    }
    let last = requests.last().unwrap();
    assert_eq!(
        last.header("webhook-signature"),
        format!("{} {}", signature(last, &new), signature(last, &old))
    );
    // A file that others may read is not used.
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o644)).unwrap();
    let changed = Instant::now();
    while changed.elapsed() < Duration::from_secs(1) {
        hooks.deliver();
    }
    assert!(hooks.deliver().header("webhook-signature").contains(' '));
    served.daemon.wait_for_event("webhook_files_refused");
}

#[test]
fn a_status_decides_what_becomes_of_an_item() {
    let hooks = Webhooks::new("retry = { max-attempts = 2, base = '10ms' }", "outage-after = 0", |request| {
        Deed::Answer(request.text().parse().unwrap())
    });
    hooks.push(["200", "204", "299", "302", "400", "404", "410", "422", "500"]);
    hooks.run_until_empty().ok();
    assert_eq!((hooks.count("done"), hooks.count("dead")), (3, 6));
    let expected = [
        "302 Found",
        "400 Bad Request: why?",
        "404 Not Found: why?",
        "410 Gone: why?",
        "422 Unprocessable Entity: why?",
        "500 Internal Server Error: why?",
    ];
    let dead = hooks.dead();
    assert_eq!(dead.len(), expected.len());
    for (reason, text) in dead.iter().zip(expected) {
        assert!(reason.starts_with(&format!("the target answered {text}")), "{reason}");
    }
    let attempts = |payload: &str| hooks.target.requests().iter().filter(|it| it.text() == payload).count();
    assert_eq!(["410", "422", "400", "404", "500"].map(attempts), [1, 1, 2, 2, 2]);
}

#[test]
fn an_item_that_the_target_always_fails_for_becomes_a_dead_letter() {
    let hooks = Webhooks::new("retry = { max-attempts = 8, base = '10ms' }", "", |request| {
        Deed::Answer(if request.text() == "poison" { 500 } else { 200 })
    });
    hooks.push(["poison"]);
    let alone = hooks.run_until_empty();
    assert_eq!((hooks.count("dead"), hooks.target.calls()), (1, 8));
    assert_eq!(alone.events("handler_unavailable"), 0, "{alone:?}");
    alone.ok();
    run(&hooks.db, &["requeue", "q", "--dead"]).ok();
    hooks.push((0..30).map(|number| number.to_string()));
    let among_others = hooks.run_until_empty();
    assert_eq!((hooks.count("dead"), hooks.count("done")), (1, 30));
    assert_eq!(among_others.events("handler_unavailable"), 0, "{among_others:?}");
    among_others.ok();
}

#[test]
fn items_of_a_batch_have_outcomes_of_their_own() {
    let hooks = Webhooks::new("consumers = [{ k = 10, count = 1 }]", "batch = true", |request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let outcome = |item: &Value| match item["payload"].as_str().unwrap() {
            "bad" => Some(json!({ "id": item["id"], "outcome": "dead", "reason": "not for us" })),
            // It is retried, since it has no outcome.
            "forgotten" if item["attempt"] == 1 => None,
            _ => Some(json!({ "id": item["id"], "outcome": "done" })),
        };
        let outcomes: Vec<_> = body["items"].as_array().unwrap().iter().filter_map(outcome).collect();
        let body = json!({ "outcomes": outcomes }).to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
        Deed::Say(format!("{head}: {}\r\n\r\n{body}", body.len()))
    });
    hooks.push(["a", "bad", "forgotten", "b"]);
    hooks.run_until_empty().ok();
    assert_eq!(hooks.dead(), ["not for us"]);
    assert_eq!((hooks.count("done"), hooks.target.calls()), (3, 2));
}

#[test]
fn a_proxy_of_the_environment_is_used_only_if_it_is_asked_for() {
    let proxy = Target::new(|_| Deed::Answer(200));
    let hooks = Webhooks::new("", "", |_| Deed::Answer(200));
    let run_with_proxy = || {
        hooks.push(["item"]);
        let mut command = hooks.command(&["run", "--until-empty"]);
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env(name, format!("http://{}", proxy.address));
        }
        command.env_remove("NO_PROXY").env_remove("no_proxy").env_remove("REQUEST_METHOD");
        Ran::from(command.output().unwrap()).ok();
        (hooks.target.calls(), proxy.calls())
    };
    assert_eq!(run_with_proxy(), (1, 0));
    hooks.configure("", "url = 'http://target.invalid/hook'\nproxy = 'environment'");
    assert_eq!(run_with_proxy(), (1, 1));
    assert_eq!(proxy.requests()[0].line, "POST http://target.invalid/hook HTTP/1.1");
}

#[test]
fn targets_that_no_proxy_names_are_reached_without_a_proxy() {
    let proxy = Target::new(|_| Deed::Answer(200));
    let hooks = Webhooks::new("", "", |_| Deed::Answer(200));
    hooks.configure("", &format!("url = 'http://{}/hook'\nproxy = 'environment'", hooks.target.address));
    let command = |args: &[&str], http_proxy: &str, no_proxy: &str| -> Ran {
        let mut command = hooks.command(args);
        for name in ["http_proxy", "ALL_PROXY", "all_proxy", "no_proxy", "REQUEST_METHOD"] {
            command.env_remove(name);
        }
        command.env("HTTP_PROXY", http_proxy).env("NO_PROXY", no_proxy).output().unwrap().into()
    };
    let through = format!("http://{}", proxy.address);
    for (no_proxy, is_direct) in [("*", true), ("127.0.0.0/8", true), ("127.0.0.2, example.com", false)] {
        let before = (hooks.target.calls(), proxy.calls());
        hooks.push(["item"]);
        command(&["run", "--until-empty"], &through, no_proxy).ok();
        let calls = (hooks.target.calls() - before.0, proxy.calls() - before.1);
        assert_eq!(calls, if is_direct { (1, 0) } else { (0, 1) }, "{no_proxy}");
    }
    let error = command(&["config", "check"], "::garbage::", "").failed(78);
    assert!(error.contains("HTTP_PROXY") && error.contains("http://HOST:PORT"), "{error}");
    // The value is not shown: it may have a password.
    assert!(!error.contains("garbage"), "{error}");
}

#[test]
fn a_stop_closes_connections_and_releases_their_items() {
    let hooks = Webhooks::new("", "", |_| Deed::Hang);
    hooks.push(["item"]);
    let mut command = hooks.command(&["run"]);
    command.env("KVQUEUE_SHUTDOWN_TIMEOUT", "200ms");
    let served = serve_with(command, false);
    wait_until("the item is posted", || hooks.target.calls() == 1);
    served.daemon.signal(Signal::TERM);
    served.daemon.end().ok();
    wait_until("the connection is closed", || hooks.target.closed() == 1);
    let item: Value = serde_json::from_str(&run(&hooks.db, &["peek", "q", "--json"]).ok()).unwrap();
    assert_eq!(item["attempts"], 0, "no attempt is spent: {item}");
}

#[test]
fn config_check_reports_errors_and_warnings() {
    let hooks = Webhooks::new("", "", |_| Deed::Answer(200));
    let check = |handler: &str, more: &[&str]| -> Ran {
        hooks.configure("", handler);
        hooks.command(&[&["config", "check"], more].concat()).output().unwrap().into()
    };
    let problem = |handler: &str, part: &str| {
        let error = check(handler, &[]).failed(78);
        let begin = "queues.q.handler-config: handler \"http\": ";
        assert!(error.contains(begin) && error.contains(part), "{part} is not in: {error}");
    };
    problem("", "missing field `url`; write url = ");
    problem(
        "url = 'https://example'\nsigning-key-file = 'nowhere'",
        "nowhere\": it cannot be read: No such file",
    );
    problem("url = 'http://10.0.0.1'\nforbid-private-addresses = true", "it is a private address");
    check("url = 'http://127.0.0.1'", &["--strict"]).ok();
    let warned = check("url = 'http://192.0.2.1/hook'", &[]);
    assert!(warned.stderr.contains("items are sent unencrypted to 192.0.2.1; use https"), "{warned:?}");
    warned.ok();
    check("url = 'http://192.0.2.1/hook'", &["--strict"]).failed(78);
}

#[test]
fn the_body_of_an_answer_is_the_result_if_the_queue_asks_for_it() {
    // The second attempt of the item whose answer is cut off has a whole one.
    let webhooks = Webhooks::new(
        "history = '1h'\nretry.base = '100ms'\nconsumers = 1",
        "timeout = '2s'\nconnect-timeout = '1s'\noutage-after = 0\nresult = 'body'",
        |request| {
            let answer = |length: usize, body: &str| {
                Deed::Say(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"))
            };
            match (&*request.text(), request.attempt()) {
                ("long", _) => answer(90_001, &"r".repeat(90_001)),
                ("cut", 1) => Deed::Say(
                    "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\ncut".to_owned(),
                ),
                ("dead", _) => Deed::Answer(410),
                (body, _) => answer(body.len() + 2, &format!("> {body}")),
            }
        },
    );
    webhooks.push(["one", "long", "cut", "dead"]);
    let ran = webhooks.run_until_empty();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let listed = run(&webhooks.db, &["history", "q", "--json"]).ok();
    let mut results: Vec<String> = listed
        .lines()
        .map(|line| {
            let id = serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
            let shown = run(&webhooks.db, &["item", "show", "q", &id, "--json"]).ok();
            let item: Value = serde_json::from_str(&shown).unwrap();
            let of = |key: &str| item.get(key).map(Value::to_string).unwrap_or_default();
            format!("{} {}{}", of("state"), of("result"), of("result_too_long"))
        })
        .collect();
    results.sort();
    assert_eq!(
        results,
        ["\"dead\" ", "\"finished\" \"> cut\"", "\"finished\" \"> one\"", "\"finished\" true"]
    );
}
