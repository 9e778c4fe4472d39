//! Orders to a running daemon, over HTTP and by the commands that speak it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::LOG;
use crate::support::{Address, Database, PATIENCE, kvqueue, run, serve_with};

/// A configuration file, and the command that runs a daemon by it.
fn configured(db: &Database, text: &str) -> (std::path::PathBuf, std::process::Command) {
    let path = db.file("kvqueue.toml");
    fs::write(&path, text).unwrap();
    let command = kvqueue(db, &["run", "--config", path.to_str().unwrap()]);
    (path, command)
}

fn at(address: &Address) -> &str {
    match address {
        Address::Tcp(address) => address,
        Address::Unix(_) => panic!("it listens on TCP"),
    }
}

#[test]
fn http_reload_takes_effect_or_reports_the_reason() {
    let db = Database::new();
    let (path, command) = configured(&db, LOG);
    let served = serve_with(command, false);
    let reload = || served.at.request("POST", "/api/v1/reload").send();
    fs::write(&path, format!("{LOG}[queues.more]\nhandler = 'log'\n")).unwrap();
    assert_eq!(reload().is(200)["changed"], json!(["queues.more"]));
    assert_eq!(served.at.get("/api/v1/queues").is(200)["queues"].as_array().unwrap().len(), 2);
    fs::write(&path, "shutdown-timeout = 'soon'").unwrap();
    let refused = reload().is(422);
    assert_eq!(refused["error"]["code"], "refused");
    assert!(refused["error"]["message"].as_str().unwrap().contains("shutdown-timeout"), "{refused}");
    let status = served.at.get("/api/v1/status").is(200);
    assert!(status["config"]["refused"].as_str().unwrap().contains("shutdown-timeout"), "{status}");
    // The command, and its exit codes.
    let command = |at: &str| run(&db, &["reload", "--at", at]);
    assert!(command(at(&served.at)).failed(78).contains("shutdown-timeout"));
    fs::write(&path, LOG).unwrap();
    run(&db, &["pause", "more", "--local", "--at", at(&served.at)]).ok();
    run(&db, &["push", "more", "one", "two"]).ok();
    run(&db, &["push", "more", "three", "--delay", "1h"]).ok();
    assert_eq!(
        command(at(&served.at)).ok(),
        "reloaded; changed: queues.more\n\
         queue more is removed and has 3 items, which this daemon does not process any more\n"
    );
    let told: Value =
        serde_json::from_str(&run(&db, &["--json", "reload", "--at", at(&served.at)]).ok()).unwrap();
    assert_eq!(told, json!({"changed": [], "finishing": [], "left": []}));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(command(&nobody.to_string()).failed(69).contains("is it running?"));
    assert!(run(&db, &["reload", "--at", "off"]).failed(2).contains("--at"));
}

#[test]
fn a_local_pause_affects_one_daemon() {
    let db = Database::new();
    let (_, command) = configured(&db, &format!("{LOG}[queues.'ä/b']\nhandler = 'log'\n"));
    let mut served = serve_with(command, false);
    let pause = |command: &str, queue: &str| run(&db, &[command, queue, "--local", "--at", at(&served.at)]);
    pause("pause", "ä/b").ok();
    let queue = served.at.get("/api/v1/queues/%C3%A4%2Fb").is(200);
    assert_eq!((&queue["paused_locally"], &queue["paused"]), (&json!(true), &json!(null)));
    let push = |queue: &str| run(&db, &["push", queue, "item"]).ok();
    push("ä/b");
    // What comes to the other queue afterwards is handled.
    push("q");
    served.daemon.wait_for_event("item_logged");
    assert_eq!(run(&db, &["len", "ä/b"]).ok().trim(), "1");
    let pause = |command: &str, queue: &str| run(&db, &[command, queue, "--local", "--at", at(&served.at)]);
    pause("resume", "ä/b").ok();
    served.daemon.wait_for_event("item_logged");
    let pause = |command: &str, queue: &str| run(&db, &[command, queue, "--local", "--at", at(&served.at)]);
    assert!(pause("pause", "none").failed(1).contains("does not process a queue \"none\""));
    assert!(run(&db, &["pause", "q", "--at", at(&served.at)]).failed(2).contains("--local"));
}

#[test]
fn idle_consumers_show_a_pause_that_begins_and_ends() {
    let db = Database::new();
    let (_, command) = configured(
        &db,
        "[queues.q]\nhandler = 'log'\nconsumers = [{ count = 4 }]\n[queues.other]\nhandler = 'log'\n",
    );
    let served = serve_with(command, false);
    let states = || -> Vec<Value> {
        let consumers = served.at.get("/api/v1/consumers").is(200)["consumers"].clone();
        let of_q = consumers.as_array().unwrap().iter().filter(|it| it["queue"] == "q");
        of_q.map(|it| it["state"].clone()).collect()
    };
    let until_all_are = |state: &str| {
        let deadline = Instant::now() + PATIENCE;
        while states() != vec![json!(state); 4] {
            assert!(Instant::now() < deadline, "never all {state}: {:?}", states());
            thread::sleep(Duration::from_millis(5));
        }
    };
    let scraped = |sample: &str| {
        let metrics = String::from_utf8(served.at.get("/metrics").body).unwrap();
        assert!(metrics.contains(sample), "{sample} is not in {metrics}");
    };
    for here in [&[][..], &["--local", "--at", at(&served.at)]] {
        until_all_are("idle");
        let create = if here.is_empty() { &["--create"][..] } else { &[] };
        run(&db, &[&["pause", "q"], here, create].concat()).ok();
        until_all_are("paused");
        scraped("kvqueue_consumers{queue=\"q\",state=\"paused\"} 4\n");
        scraped("kvqueue_consumers{queue=\"other\",state=\"paused\"} 0\n");
        run(&db, &[&["resume", "q"], here].concat()).ok();
        until_all_are("idle");
    }
    scraped("kvqueue_consumers{queue=\"q\",state=\"idle\"} 4\n");
}

#[test]
fn a_changed_secret_takes_effect_on_reload() {
    let db = Database::new();
    let token = db.file("token");
    let secret = |text: &str| {
        fs::write(&token, text).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    };
    secret("the-first-of-secrets");
    let http = format!("http.token-file = '{}'\n", token.display());
    let (path, command) = configured(&db, &format!("{http}{LOG}"));
    let served = serve_with(command, false);
    let with = |secret: &str, method: &str, path: &str| {
        served.at.request(method, path).header("Authorization", &format!("Bearer {secret}")).send()
    };
    // The command finds it where the daemon does.
    let reload = ["reload", "--at", at(&served.at), "--config", path.to_str().unwrap()];
    run(&db, &reload).ok();
    // From the answer on the other one holds, whatever becomes of the file.
    let mut known = "the-first-of-secrets".to_owned();
    for number in 0..10 {
        let next = if number == 9 {
            "the-second-of-secrets".to_owned()
        } else {
            format!("one-between-them-{number}")
        };
        secret(&next);
        with(&known, "POST", "/api/v1/reload").is(200);
        secret("the-one-that-nobody-took-up");
        with(&next, "GET", "/api/v1/status").is(200);
        known = next;
    }
    assert_eq!(with("the-first-of-secrets", "GET", "/api/v1/status").error(401), "unauthorized");
    // One that will not do refuses the reload, and the one before stays.
    secret("short");
    assert_eq!(with("the-second-of-secrets", "POST", "/api/v1/reload").error(422), "refused");
    fs::write(&path, format!("{http}http.read-only = true\n{LOG}")).unwrap();
    secret("the-second-of-secrets");
    with("the-second-of-secrets", "POST", "/api/v1/reload").is(200);
    let refused = with("the-second-of-secrets", "POST", "/api/v1/reload").is(403);
    assert_eq!(refused["error"]["code"], "read_only");
    let way_out = format!("`kill -HUP {}`", served.daemon.pid());
    assert!(refused["error"]["fix"].as_str().unwrap().contains(&way_out), "{refused}");
}

#[test]
fn a_changed_secret_takes_effect_when_a_client_sends_it() {
    let db = Database::new();
    let token = db.file("token");
    let secret = |text: &str| {
        fs::write(&token, text).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    };
    secret("the-first-of-secrets");
    let http = format!("http.token-file = '{}'\n", token.display());
    let (path, command) = configured(&db, &format!("{http}{LOG}"));
    let mut served = serve_with(command, false);
    let ask = |secret: &str| {
        let request = served.at.request("GET", "/api/v1/status");
        request.header("Authorization", &format!("Bearer {secret}")).send()
    };
    let command =
        |command: &str| run(&db, &[command, "--at", at(&served.at), "--config", path.to_str().unwrap()]);
    // A wrong one has the file read, too, and keeps nobody else out.
    assert_eq!(ask("none-of-the-secrets").error(401), "unauthorized");
    secret("the-second-of-secrets");
    // The command sends the new one.
    assert_eq!(command("reload").ok(), "reloaded; changed: http.token-file (contents)\n");
    assert_eq!(command("reload").ok(), "reloaded; nothing has changed\n");
    assert_eq!(ask("the-first-of-secrets").error(401), "unauthorized");
    ask("the-second-of-secrets").is(200);
    // The old one is good until somebody sends the new one.
    secret("the-third-of-secrets");
    ask("the-second-of-secrets").is(200);
    ask("the-third-of-secrets").is(200);
    assert_eq!(ask("the-second-of-secrets").error(401), "unauthorized");
    served.daemon.wait_for_event("secret_changed");
    served.daemon.wait_for("\"changed\":\"http.token-file (contents)\"");
    served.daemon.wait_for_event("secret_changed");
}

#[test]
fn a_refusal_has_the_same_exit_code_for_every_way_to_the_daemon() {
    let db = Database::new();
    let [token, other] = ["token", "other"].map(|name| db.file(name));
    for (path, secret) in [(&token, "the-first-of-secrets"), (&other, "the-second-of-secrets")] {
        fs::write(path, secret).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let configured_with = |token: &std::path::Path, more: &str| {
        configured(&db, &format!("http.token-file = '{}'\n{more}{LOG}", token.display()))
    };
    let (path, command) = configured_with(&token, "");
    let served = serve_with(command, false);
    // The command's configuration names another file than the daemon's.
    configured_with(&other, &format!("http.listen = '{}'\n", at(&served.at)));
    let path = path.to_str().unwrap();
    let ask = |args: &[&str]| {
        let mut command = kvqueue(&db, args);
        command.args(["--config", path]).env_remove("KVQUEUE_HTTP__LISTEN");
        crate::support::Ran::from(command.output().unwrap())
    };
    for command in
        [&["status"][..], &["status", "--at", at(&served.at)], &["reload"], &["pause", "q", "--local"]]
    {
        let said = ask(command).failed(69);
        let hint = "if this is the daemon of another database";
        assert!(said.contains("this is not the secret") && said.contains(hint), "{command:?}: {said}");
    }
    let mut with_token = kvqueue(&db, &["status", "--at", at(&served.at), "--config", path]);
    let said: crate::support::Ran =
        with_token.env("KVQUEUE_TOKEN", "the-third-of-secrets").output().unwrap().into();
    assert!(said.failed(69).contains("the token is that of KVQUEUE_TOKEN"));
}

#[test]
fn status_includes_all_earlier_changes() {
    let db = Database::new();
    let (_, command) = configured(&db, LOG);
    let served = serve_with(command, false);
    run(&db, &["pause", "q", "--create"]).ok();
    let mut seen = 0;
    for pushed in 1..=10 {
        run(&db, &["push", "q", "item"]).ok();
        let told = run(&db, &["--json", "status", "--at", at(&served.at)]).ok();
        let queue = &serde_json::from_str::<Value>(&told).unwrap()["queues"][0];
        // On a machine so busy that looks take very long the figures may be older, and say so.
        assert!(queue["ready"] == pushed || queue["looked"].as_f64() > Some(0.0), "{queue}");
        seen += usize::from(queue["ready"] == pushed);
    }
    assert!(seen > 5, "only {seen} of 10 pushes were seen at once");
    let said = run(&db, &["status", "--at", at(&served.at)]).ok();
    assert!(said.lines().any(|line| line.starts_with("q ")), "{said}");
}
