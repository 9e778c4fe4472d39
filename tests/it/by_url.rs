//! What a machine can do that has the program and a token alone: `--database` is the URL of a daemon.

use std::{fs, process::Command, thread, time::Duration};

use serde_json::{Value, json};

use crate::support::{Database, Ran, Served, kvqueue, object, run, serve};

const QUEUES: &str = "[queues.q]\nhandler = 'pull'\nhistory = '1h'\n[queues.done]\nhandler = 'pull'\n[queues.small]\nhandler = 'pull'\nmax-payload = '1 KiB'\n[queues.keyed]\nhandler = 'pull'\nkind = 'keyed'\n";

/// A daemon, its database, and a database that is its URL.
struct Far {
    db: Database,
    served: Served,
    url: Database,
    token: String,
}

impl Far {
    fn new() -> Self {
        let db = Database::new();
        let served = serve(&db, QUEUES);
        let scopes = ["--scope", "push", "--scope", "read", "--scope", "admin", "--scope", "work"];
        let new = object(&db, &[&["token", "new", "all"], &scopes[..]].concat());
        let url = Database::at(format!("http://{}", served.at.tcp()), String::new());
        Self { db, served, url, token: new["token"].as_str().unwrap().to_owned() }
    }

    /// A command by the URL.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = kvqueue(&self.url, words);
        command.env("KVQUEUE_TOKEN", &self.token);
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        self.command(words).output().unwrap().into()
    }

    fn object(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[words, &["--json"]].concat()).ok()).unwrap()
    }
}

#[test]
fn items_are_pushed_with_all_that_goes_with_them() {
    let far = Far::new();
    let said = far.object(&[
        "push",
        "q",
        "a",
        "b",
        "--attr",
        "k=v",
        "--content-type",
        "text/plain",
        "--delay",
        "1h",
    ]);
    assert_eq!((&said["acknowledged"], said["ids"].as_array().unwrap().len()), (&json!(2), 2));
    let same = |there: &[&str]| {
        let mut items = [far.object(there), object(&far.db, there)];
        // The clock has gone on, and the daemon's configuration has more than the command's.
        let varies = ["why", "max_attempts"];
        let strip = |item: &mut Value| {
            item.as_object_mut().unwrap().retain(|name, _| !varies.contains(&name.as_str()));
        };
        items.iter_mut().for_each(strip);
        let [far, near] = items;
        assert_eq!(far, near, "{there:?}");
        near
    };
    let id = said["ids"][0].as_str().unwrap();
    let shown = same(&["item", "show", "q", id]);
    assert_eq!((&shown["attributes"], &shown["state"]), (&json!({"k": "v"}), &json!("scheduled")));
    // Bytes that are no text, as payload and as keys.
    let file = far.db.file("bytes");
    fs::write(&file, b"\xff\x00a").unwrap();
    let file = file.to_str().unwrap();
    let said = far.object(&["push", "keyed", "--file", file, "--key", "tenant", "--unique", "once"]);
    let id = said["ids"][0].as_str().unwrap();
    let shown = same(&["item", "show", "keyed", id, "--kind", "keyed"]);
    assert_eq!(
        (&shown["payload_base64"], &shown["key"], &shown["unique"]),
        (&json!("/wBh"), &json!("tenant"), &json!("once"))
    );
    let again = far.object(&["push", "keyed", "other", "--key", "tenant", "--unique", "once"]);
    assert_eq!((&again["acknowledged"], &again["duplicates"]), (&json!(0), &json!(1)));
    for repeated in [false, true] {
        let said = far.object(&["push", "q", "x", "y", "--idempotency-key", "one"]);
        assert_eq!(said["repeated"], repeated, "{said}");
    }
    let reused = far.run(&["push", "q", "z", "--idempotency-key", "one"]).failed(65);
    assert!(reused.contains("the push of 1 item failed") && reused.contains("other items"), "{reused}");
    let refused = far.run(&["push", "q", "x", "--kind", "keyed"]).failed(2);
    assert!(refused.contains("leave out --kind"), "{refused}");
    let refused = far.run(&["push", "q", "x", "--priority", "3"]).failed(1);
    assert!(refused.ends_with("this queue has none; leave it at 0\n"), "{refused}");
}

#[test]
fn a_long_input_is_pushed_in_its_order_and_an_item_that_is_too_long_is_named() {
    let far = Far::new();
    let input = far.db.file("lines");
    let lines: Vec<_> = (0..2_500).map(|number| format!("line {number}\n")).collect();
    fs::write(&input, lines.concat()).unwrap();
    // A push over HTTP has 10,000 attributes at most.
    let attributes: Vec<_> = (0..30).map(|number| format!("a{number}=v")).collect();
    let mut words = vec!["push", "q", "--lines", input.to_str().unwrap()];
    attributes.iter().for_each(|attribute| words.extend(["--attr", attribute]));
    assert_eq!(far.run(&words).ok(), "pushed 2500 items\n");
    assert_eq!(
        (far.run(&["len", "q"]).ok(), run(&far.db, &["len", "q"]).ok()),
        ("2500\n".into(), "2500\n".into())
    );
    let peeked = far.run(&["peek", "q", "-k", "3000"]).ok();
    assert!(peeked == lines.concat(), "all pages, in their order");
    let long = far.db.file("long");
    fs::write(&long, "x".repeat(100_000)).unwrap();
    far.run(&["push", "done", "--file", long.to_str().unwrap()]).ok();
    // A list has 65,536 bytes of each payload at most, and says so; one item has all.
    let cut = far.run(&["peek", "done"]).failed(1);
    assert!(cut.contains("a daemon gives the first 65536 of the 100000 bytes of item"), "{cut}");
    // A list goes on behind it, also on further pages, and says so in the end.
    let rest: Vec<_> = (0..150).map(|number| number.to_string()).collect();
    far.run(&["push", "done"].into_iter().chain(rest.iter().map(String::as_str)).collect::<Vec<_>>()).ok();
    for words in [
        &["peek", "done", "-k", "999", "--json"][..],
        &["peek", "done", "--state", "ready", "-k", "999", "--json"],
    ] {
        let listed = far.run(words);
        assert_eq!((listed.code, listed.stdout.lines().count()), (Some(1), 151), "{words:?}");
        assert!(listed.stderr.contains("a daemon gives the first 65536"), "{}", listed.stderr);
    }
    let listed = far.run(&["peek", "done", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!((&listed["bytes"], &listed["cut"]), (&json!(100_000), &json!(true)));
    let shown = far.object(&["item", "show", "done", listed["id"].as_str().unwrap()]);
    assert_eq!(shown["payload"].as_str().unwrap().len(), 100_000);
    let mixed = far.db.file("mixed");
    fs::write(&mixed, ["short\n", &"y".repeat(2_000), "\nshort too\n"].concat()).unwrap();
    let ran = far.run(&["push", "small", "--lines", mixed.to_str().unwrap()]);
    assert!(ran.code == Some(65) && ran.stdout.starts_with("pushed 2 items\n"), "{ran:?}");
    assert!(
        ran.stderr.contains("an item of 2000 bytes not pushed: the queue has a lower max-payload"),
        "{ran:?}"
    );
    let many: Vec<_> = (0..1_001).map(|_| "x\n").collect();
    fs::write(&mixed, many.concat()).unwrap();
    let refused =
        far.run(&["push", "q", "--idempotency-key", "k", "--lines", mixed.to_str().unwrap()]).failed(2);
    assert!(refused.contains("up to 1000 items"), "{refused}");
    fs::write(&long, "x".repeat((8 << 20) + 1)).unwrap();
    far.run(&["push", "done", "--file", long.to_str().unwrap()]).failed(65);
}

/// Hands requests on to a daemon, and breaks a connection after each request that it has handed on for the first time.
fn breaking_proxy(to: std::net::SocketAddr) -> std::net::SocketAddr {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut is_broken = false;
        for client in listener.incoming() {
            let (mut client, mut daemon) = (client.unwrap(), TcpStream::connect(to).unwrap());
            is_broken = !is_broken;
            let is_broken = is_broken;
            thread::spawn(move || {
                let mut buffer = vec![0; 1 << 20];
                let read = client.read(&mut buffer).unwrap();
                // The daemon accepts its own name only.
                let request =
                    String::from_utf8_lossy(&buffer[..read]).replace(&at.to_string(), &to.to_string());
                daemon.write_all(request.as_bytes()).unwrap();
                let answered = daemon.read(&mut buffer).unwrap();
                if !is_broken {
                    client.write_all(&buffer[..answered]).ok();
                }
            });
        }
    });
    at
}

#[test]
fn a_push_whose_connection_breaks_is_done_once_and_another_change_is_not_repeated() {
    let far = Far::new();
    let at = breaking_proxy(far.served.at.tcp().parse().unwrap());
    let broken = Far { url: Database::at(format!("http://{at}"), String::new()), ..far };
    assert!(broken.run(&["push", "q", "a", "b"]).ok().starts_with("pushed 2 items"));
    assert_eq!(run(&broken.db, &["len", "q"]).ok(), "2\n");
    let id = object(&broken.db, &["peek", "q"])["id"].as_str().unwrap().to_owned();
    let said = broken.run(&["item", "cancel", "q", &id]).failed(69);
    assert!(said.contains("broke before the answer, so it may be done all the same"), "{said}");
    assert_eq!(run(&broken.db, &["len", "q"]).ok(), "1\n", "it was done");
    // The next connection holds, and the one after it breaks. Nothing was to be done.
    broken.run(&["peek", "q"]).ok();
    let said = broken.run(&["peek", "q"]).failed(69);
    assert!(!said.contains("may be done"), "{said}");
}

#[test]
fn one_item_is_followed_from_its_push_to_its_end() {
    let far = Far::new();
    let id = far.object(&["push", "q", "x", "--attr", "customer=ann"])["ids"][0].as_str().unwrap().to_owned();
    assert_eq!(far.run(&["list"]).ok(), "done\nkeyed\nq\nsmall\n");
    let said = far.run(&["why", "q", &id]).ok();
    assert!(said.contains("it waits for its turn"), "{said}");
    assert_eq!(far.run(&["item", "wait", "q", &id, "--for", "100ms"]).code, Some(75));
    let ended = thread::scope(|scope| {
        let mut wait = far.command(&["item", "wait", "q", &id, "--json"]);
        let waiting = scope.spawn(move || Ran::from(wait.output().unwrap()));
        thread::sleep(Duration::from_millis(300));
        run(&far.db, &["pop", "q"]).ok();
        waiting.join().unwrap()
    });
    let ended: Value = serde_json::from_str(&ended.ok()).unwrap();
    assert_eq!((&ended["state"], &ended["outcome"]), (&json!("finished"), &json!("taken")));
    let history = far.object(&["history", "q", "--attribute", "customer=ann"]);
    assert_eq!(history, ended);
    let gone = far.run(&["item", "show", "q", &"0".repeat(24)]).failed(1);
    assert!(gone.contains("has no item") && gone.contains("it has ended, or was never there"), "{gone}");
    let absent = far.run(&["len", "nowhere"]).failed(1);
    assert!(absent.contains("there is no queue \"nowhere\""), "{absent}");
    drop(far.served);
}

#[test]
fn batches_and_schedules_are_made_and_followed() {
    let far = Far::new();
    let batch = far.run(&["batch", "new", "--then", "done:all", "--deadline", "1h"]).ok();
    let batch = batch.trim();
    far.run(&["push", "q", "a", "b", "--batch", batch]).ok();
    assert_eq!(far.object(&["batch", "show", batch])["counts"]["members"], 2);
    assert_eq!(far.run(&["batch", "commit", batch]).ok(), format!("batch {batch} is committed\n"));
    let ids = far.run(&["peek", "q", "-k", "2", "--json"]).ok();
    let ids = ids
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned());
    let ids: Vec<_> = ids.collect();
    let after =
        ["push", "done", "then", "--after", &format!("q:{}", ids[0]), "--after", &format!("q:{}", ids[1])];
    let waits = far.object(&after);
    assert_eq!(waits["waits_for"], 2, "{waits}");
    let listed = far.run(&["batch", "list", "done", "--json"]).ok();
    assert_eq!(listed.lines().count(), 2);
    let cancelled = far.run(&["batch", "cancel", waits["id"].as_str().unwrap()]).ok();
    assert!(cancelled.contains("is cancelled; 2 of its 2 members have not ended"), "{cancelled}");
    let missing = format!("q:{}", "0".repeat(24));
    let missing = far.run(&["push", "done", "then", "--after", &missing]).failed(1);
    assert!(missing.contains("--missing-ok"), "{missing}");

    let added = far.run(&["schedule", "add", "q", "nightly", "x", "--cron", "0 3 * * *"]).ok();
    assert!(
        added.starts_with("schedule nightly of queue q is added: at 03:00 every day, UTC; next at "),
        "{added}"
    );
    far.run(&["schedule", "add", "done", "often", "y", "--every", "365d"]).ok();
    for words in [
        &["schedule", "list"][..],
        &["schedule", "show", "q", "nightly"],
        &["schedule", "next", "q", "nightly", "--json"],
    ] {
        assert_eq!(far.run(words).ok(), run(&far.db, words).ok(), "{words:?}");
    }
    far.run(&["schedule", "fire", "q", "nightly"]).ok();
    assert_eq!(far.object(&["schedule", "history", "q", "nightly"])["outcome"], "fired_by_hand");
    far.run(&["schedule", "remove", "q", "nightly"]).ok();
    let gone = far.run(&["schedule", "show", "q", "nightly"]).failed(1);
    assert!(gone.contains("queue \"q\" has no schedule \"nightly\""), "{gone}");
}
