//! Workers that lease items over HTTP.

use std::{
    io::Write,
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Address, Database, Reply, Served, freeze, kvqueue, run, run_with_input, serve, serve_with, wait_until,
};

const PULL: &str = "[queues.q]\nhandler = 'pull'\nretry.max-attempts = 2\nlease = '1s'\n";

/// A worker at one daemon.
struct Worker(Address);

impl Worker {
    fn at(served: &Served) -> Self {
        Self(served.at.clone())
    }

    fn lease(&self, body: &Value) -> Reply {
        self.0.post("/api/v1/queues/q/lease", body)
    }

    /// The lease, and the items as payload and attempt.
    #[track_caller]
    fn leased(&self, max: usize) -> (String, Vec<Value>) {
        let answer = self.lease(&json!({"max": max, "lease_ms": 30_000})).is(200);
        (answer["lease"].as_str().unwrap_or_default().to_owned(), answer["items"].as_array().unwrap().clone())
    }

    fn extend(&self, lease: &str) -> Reply {
        self.0.request("POST", &format!("/api/v1/queues/q/leases/{lease}/extend")).send()
    }

    fn acknowledge(&self, lease: &str, body: &Value) -> Reply {
        self.0.post(&format!("/api/v1/queues/q/leases/{lease}/acknowledge"), body)
    }
}

fn payloads(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["payload"].as_str().unwrap()).collect()
}

fn outcome(item: &Value, outcome: &str) -> Value {
    json!({"id": item["id"], "outcome": outcome})
}

/// Asserts that a worker can do nothing with a lease by this id.
#[track_caller]
fn is_not_its_lease(worker: &Worker, id: &str, items: &[Value]) {
    assert_eq!(worker.extend(id).error(409), "lease_lost", "{id}");
    let outcomes: Vec<_> = items.iter().map(|item| outcome(item, "done")).collect();
    for body in [json!({"outcomes": outcomes}), json!({"release_rest": true})] {
        assert_eq!(worker.acknowledge(id, &body).error(409), "lease_lost", "{id}");
    }
}

#[test]
fn a_worker_cannot_guess_the_lease_of_another_worker() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b"]).ok();
    let (served, other) = (serve(&db, PULL), serve(&db, PULL));
    let worker = Worker::at(&served);
    let [(first, items), (second, _)] = [worker.leased(1), worker.leased(1)];
    let [session, number, signature] = first.split('-').collect::<Vec<_>>()[..] else { panic!("{first}") };
    let (own, own_signature) = second.rsplit_once('-').unwrap();
    assert!(own.starts_with(session) && own_signature != signature, "{first}, {second}");
    let zeros = "0".repeat(signature.len());
    for at in [&worker, &Worker::at(&other)] {
        for guess in [own_signature, &zeros] {
            is_not_its_lease(at, &format!("{session}-{number}-{guess}"), &items);
        }
        is_not_its_lease(at, &format!("{session}-{number}"), &items);
    }
    // Its worker can still change it, at any daemon of the database.
    assert_eq!(Worker::at(&other).extend(&first).is(200)["open"], 1);
    let done = json!({"outcomes": [outcome(&items[0], "done")]});
    assert_eq!(worker.acknowledge(&first, &done).is(200)["acknowledged"], 1);
}

#[test]
fn a_worker_over_http_cannot_change_the_lease_of_a_consumer() {
    let db = Database::new();
    run(&db, &["push", "busy", "a"]).ok();
    let busy = "[queues.busy]\nhandler = 'exec'\nhandler-config.command = ['sleep', '60']\n";
    let served = serve(&db, busy);
    let running = || served.at.get("/api/v1/queues/busy/items?state=running").is(200)["items"].clone();
    wait_until("the item runs", || running().as_array().is_some_and(|items| !items.is_empty()));
    let lease = running()[0]["lease"].clone();
    let path =
        format!("/api/v1/queues/busy/leases/{}-{}", lease["session"].as_str().unwrap(), lease["number"]);
    assert_eq!(served.at.request("POST", &format!("{path}/extend")).send().error(409), "lease_lost");
    let release = served.at.post(&format!("{path}/acknowledge"), &json!({"release_rest": true}));
    assert_eq!(release.error(409), "lease_lost");
}

#[test]
fn http_workers_have_the_outcomes_of_handlers() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b", "c", "d", "e"]).ok();
    let served = serve(&db, PULL);
    let worker = Worker::at(&served);
    let (lease, items) = worker.leased(9);
    assert_eq!(payloads(&items), ["a", "b", "c", "d", "e"]);
    assert!(items.iter().all(|item| item["attempt"] == 1), "{items:?}");
    assert!(items.iter().all(|item| item["enqueued_at"].is_string()), "{items:?}");
    assert_eq!(worker.leased(9).1, [] as [Value; 0]);
    assert_eq!(worker.extend(&lease).is(200), json!({"lease": lease, "open": 5}));
    let body = json!({"outcomes": [
        outcome(&items[0], "done"),
        {"id": items[1]["id"], "outcome": "retry", "after_ms": 0, "reason": "not yet"},
        {"id": items[2]["id"], "outcome": "dead", "reason": "never"},
    ]});
    assert_eq!(worker.acknowledge(&lease, &body).is(200), json!({"acknowledged": 3, "open": 2}));
    // The answer was lost, and the worker asks again.
    assert_eq!(worker.acknowledge(&lease, &body).is(200), json!({"acknowledged": 0, "open": 2}));
    let rest = json!({"outcomes": [outcome(&items[3], "done")], "release_rest": true});
    assert_eq!(worker.acknowledge(&lease, &rest).is(200), json!({"acknowledged": 2, "open": 0}));
    // So does a worker that did not hear of the end.
    assert_eq!(worker.acknowledge(&lease, &rest).is(200), json!({"acknowledged": 0, "open": 0}));
    assert_eq!(worker.extend(&lease).error(409), "lease_lost");
    let (lease, items) = worker.leased(9);
    assert_eq!(payloads(&items), ["b", "e"]);
    assert_eq!((&items[0]["attempt"], &items[1]["attempt"]), (&json!(2), &json!(1)));
    // The last attempt has failed.
    let body = json!({"outcomes": [outcome(&items[0], "retry"), outcome(&items[1], "done")]});
    worker.acknowledge(&lease, &body).is(200);
    let dead = served.at.get("/api/v1/queues/q/dead").is(200);
    let mut reasons: Vec<_> =
        dead["letters"].as_array().unwrap().iter().map(|it| it["reason"].as_str().unwrap()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["never", "the worker gave no reason"]);
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn an_acknowledgement_has_the_next_lease() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b", "c"]).ok();
    let served = serve(&db, PULL);
    let worker = Worker::at(&served);
    let (lease, items) = worker.leased(1);
    let next = json!({"max": 5, "lease_ms": 30_000});
    for wrong in [json!({"max": 0}), json!({"wait_ms": 60_001}), json!({"items": 1}), json!(5)] {
        let body = json!({"outcomes": [outcome(&items[0], "done")], "next": wrong});
        assert_eq!(worker.acknowledge(&lease, &body).error(400), "bad_request", "{wrong}");
    }
    let body = json!({"outcomes": [outcome(&items[0], "done")], "next": next});
    let answer = worker.acknowledge(&lease, &body).is(200);
    assert_eq!((&answer["acknowledged"], &answer["open"]), (&json!(1), &json!(0)));
    let (lease, items) =
        (answer["next"]["lease"].as_str().unwrap(), answer["next"]["items"].as_array().unwrap());
    assert_eq!((payloads(items), &answer["next"]["expires_in_ms"]), (vec!["b", "c"], &json!(30_000)));
    // It waits for the next item; the outcomes do not.
    thread::scope(|scope| {
        let body = json!({"outcomes": [outcome(&items[0], "done"), outcome(&items[1], "done")],
            "next": {"wait_ms": 20_000}});
        let waiting = scope.spawn(move || worker.acknowledge(lease, &body).is(200));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !run(&db, &["len", "q", "--json"]).ok().contains("\"done\":3") {
            assert!(Instant::now() < deadline, "the outcomes were not written");
            thread::sleep(Duration::from_millis(50));
        }
        run(&db, &["push", "q", "d"]).ok();
        assert_eq!(waiting.join().unwrap()["next"]["items"][0]["payload"], "d");
    });
}

#[test]
fn an_acknowledgement_may_be_as_long_as_a_push() {
    let db = Database::new();
    let lines: String = (0..100).map(|number| format!("{number}\n")).collect();
    run_with_input(&db, &["push", "q", "--lines", "-"], lines).ok();
    let served = serve(&db, PULL);
    let worker = Worker::at(&served);
    let (lease, items) = worker.leased(100);
    let reason = "ä".repeat(900);
    let dead = |item: &Value| json!({"id": item["id"], "outcome": "dead", "reason": reason});
    let body = json!({"outcomes": items.iter().map(dead).collect::<Vec<_>>()});
    assert!(body.to_string().len() > 150_000);
    assert_eq!(worker.acknowledge(&lease, &body).is(200), json!({"acknowledged": 100, "open": 0}));
}

#[test]
fn an_extension_may_report_the_progress_of_every_item_of_a_lease() {
    let db = Database::new();
    let lines: String = (0..1_000).map(|number| format!("{number}\n")).collect();
    run_with_input(&db, &["push", "q", "--lines", "-"], lines).ok();
    let served = serve(&db, PULL);
    let worker = Worker::at(&served);
    let (lease, items) = worker.leased(1_000);
    let message = "ä".repeat(100);
    let report = |item: &Value| json!({"id": item["id"], "percent": 50, "message": message});
    let body = json!({"progress": items.iter().map(report).collect::<Vec<_>>()});
    assert!(body.to_string().len() > 200_000);
    let path = format!("/api/v1/queues/q/leases/{lease}/extend");
    assert_eq!(worker.0.post(&path, &body).is(200)["open"], 1_000);
}

#[test]
fn a_lease_is_released_if_its_expired_items_cannot_be_ended() {
    let db = Database::new();
    let batch = run(&db, &["batch", "new", "--then", "q:all is done"]).ok();
    run(&db, &["push", "w", "--ttl", "1ms", "--batch", batch.trim(), "expired"]).ok();
    run(&db, &["push", "w", "lives"]).ok();
    // The batch of a frozen queue counts no ends.
    freeze(&db);
    let mut served = serve(&db, "log.level = 'debug'\n[queues.w]\nhandler = 'pull'\nlease = '1h'\n");
    let wanted = json!({"max": 2, "wait_ms": 1_500});
    let answer = served.at.post("/api/v1/queues/w/lease", &wanted).is(200);
    assert_eq!(answer, json!({"lease": null, "items": []}));
    wait_until("both items are ready again, long before the lease would expire", || {
        let ready = served.at.get("/api/v1/queues/w/items").is(200);
        let attempts = ready["items"].as_array().unwrap().iter().map(|item| item["attempt"].as_u64());
        attempts.collect::<Vec<_>>() == [Some(1); 2]
    });
    served.daemon.signal(Signal::TERM);
    served.daemon.wait_for_event("drained");
    let failures = served.daemon.events("expiry_failed");
    assert!((1..=4).contains(&failures), "it was tried {failures} times while the worker waited");
}

#[test]
fn a_lease_is_as_long_as_configured() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b"]).ok();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nlease = '13h'\n");
    let worker = Worker::at(&served);
    let answer = worker.lease(&json!({})).is(200);
    assert_eq!(answer["expires_in_ms"], 13 * 3_600_000);
    assert!(answer["waited_ms"].as_u64() < Some(5_000), "{answer}");
    assert_eq!(worker.lease(&json!({"lease_ms": 86_400_001})).error(400), "bad_request");
}

#[test]
fn a_push_wakes_a_worker_that_waits() {
    let db = Database::new();
    run(&db, &["push", "q", "first"]).ok();
    let served = serve(&db, PULL);
    let worker = Worker::at(&served);
    let (_, items) = worker.leased(1);
    assert_eq!(payloads(&items), ["first"]);
    let began = Instant::now();
    assert_eq!(worker.lease(&json!({"wait_ms": 300})).is(200), json!({"lease": null, "items": []}));
    assert!(began.elapsed() >= Duration::from_millis(300));
    let (pushed, taken) = thread::scope(|scope| {
        let waiting: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| worker.lease(&json!({"wait_ms": 20_000, "lease_ms": 30_000})).is(200)))
            .collect();
        thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        for payload in ["one", "two", "three"] {
            run(&db, &["push", "q", payload]).ok();
        }
        let answers: Vec<Value> = waiting.into_iter().map(|it| it.join().unwrap()).collect();
        (began.elapsed(), answers)
    });
    // Nobody waits for another look.
    assert!(pushed < Duration::from_secs(10), "{pushed:?}");
    let mut taken: Vec<_> = taken.iter().map(|it| it["items"][0]["payload"].as_str().unwrap()).collect();
    taken.sort_unstable();
    assert_eq!(taken, ["one", "three", "two"]);
}

/// Leases items and finishes each, until none is ready.
fn work_until_empty(worker: &Worker) {
    loop {
        let (lease, items) = worker.leased(1);
        let Some(item) = items.first() else { return };
        worker.acknowledge(&lease, &json!({"outcomes": [outcome(item, "done")]})).is(200);
    }
}

/// Pushes items of a few keys through the address.
fn push_keyed(at: &Address, payload: &str, n: usize) {
    let items: Vec<_> = (0..n).map(|at| json!({"payload": payload, "key": format!("k{}", at % 5)})).collect();
    at.post("/api/v1/queues/q/items", &json!({"items": items})).is(201);
}

/// Two daemons. The second one leaves the only free slot of the queue, which has items, to the first: it has lost a race for one. The first one has this lease.
/// `None`: it has not lost one, or their sessions share a lane.
fn daemon_that_leaves_a_slot(db: &Database) -> Option<([Served; 2], String, Vec<Value>)> {
    let path = db.file("kvqueue.toml");
    std::fs::write(&path, "[queues.q]\nhandler = 'pull'\nkind = 'keyed'\nlease = '30s'\n").unwrap();
    let served = [(); 2].map(|()| {
        let mut command = kvqueue(db, &["run", "--config", path.to_str().unwrap()]);
        // A slot that is left to others is left for good.
        command.env("KVQUEUE_BOUNDS", "lane-idle=600000000");
        serve_with(command, false)
    });
    // The first one hosts the database, and so seldom loses a race.
    let [first, second] = served.each_ref().map(Worker::at);
    for _ in 0..5 {
        push_keyed(&first.0, "x", 100);
        thread::scope(|scope| {
            for worker in [&first, &second].into_iter().flat_map(|worker| [worker; 6]) {
                scope.spawn(|| work_until_empty(worker));
            }
        });
        push_keyed(&first.0, "x", 10);
        let (lease, items) = first.leased(7);
        // The slot that is left becomes one of the first daemon, unless that has lost a race, too.
        let (other, one) = first.leased(1);
        if let Some(one) = one.first() {
            first.acknowledge(&other, &json!({"outcomes": [outcome(one, "done")]})).is(200);
        }
        let (other, one) = second.leased(1);
        let Some(one) = one.first() else { return Some((served, lease, items)) };
        second.acknowledge(&other, &json!({"outcomes": [outcome(one, "done")]})).is(200);
        first.acknowledge(&lease, &json!({"release_rest": true})).is(200);
        run(db, &["pop", "q", "-k", "1000", "--kind", "keyed"]).ok();
    }
    None
}

/// A worker waits at a daemon that leaves the only free slot to another one. Then the items are removed, and that daemon finds the queue empty.
#[test]
fn a_push_wakes_a_worker_whose_daemon_has_waited_for_a_slot_before() {
    let db = Database::new();
    run(&db, &["limits", "set", "q", "--queue", "--running", "8", "--create"]).ok();
    let found = (0..5).find_map(|_| daemon_that_leaves_a_slot(&db));
    let (served, lease, items) = found.expect("a daemon loses a race");
    let [first, second] = served.each_ref().map(Worker::at);
    let wait = json!({"max": 1, "lease_ms": 30_000, "wait_ms": 20_000});
    thread::scope(|scope| {
        let waiting = scope.spawn(|| second.lease(&wait).is(200));
        // It asks before the queue is empty.
        thread::sleep(Duration::from_millis(300));
        run(&db, &["pop", "q", "-k", "1000", "--kind", "keyed"]).ok();
        let done: Vec<_> = items.iter().map(|item| outcome(item, "done")).collect();
        first.acknowledge(&lease, &json!({"outcomes": done})).is(200);
        // The daemon looks once more. All slots are free, and there are no items.
        assert_eq!(second.leased(1).1, Vec::<Value>::new());
        let began = Instant::now();
        push_keyed(&first.0, "end", 1);
        let answer = waiting.join().unwrap();
        assert_eq!(answer["items"][0]["payload"], "end");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

/// How many requests for items of queue `q` wait at a daemon.
fn waiting(served: &Served) -> u64 {
    served.at.get("/api/v1/queues/q").is(200)["workers"]["waiting"].as_u64().unwrap()
}

/// A worker asks for items, and waits for them for 20 s. It returns when the daemon has the request.
fn ask(served: &Served) -> TcpStream {
    let body = json!({"wait_ms": 20_000}).to_string();
    let head = format!(
        "POST /api/v1/queues/q/lease HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        served.at.tcp(),
        body.len()
    );
    let before = waiting(served);
    let mut stream = TcpStream::connect(served.at.tcp()).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    wait_until("the worker waits", || waiting(served) > before);
    stream
}

/// A start counts for the rate of a queue, also if the item is released at once.
#[test]
fn nothing_starts_for_a_worker_that_has_gone() {
    let db = Database::new();
    run(&db, &["limits", "set", "q", "*", "--rate", "1/1h", "--create"]).ok();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nkind = 'keyed'\n");
    let worker = Worker::at(&served);
    thread::scope(|scope| {
        ask(&served).shutdown(Shutdown::Both).unwrap();
        let waiting = scope.spawn(|| worker.lease(&json!({"wait_ms": 10_000})).is(200));
        push_keyed(&served.at, "one", 1);
        assert_eq!(waiting.join().unwrap()["items"][0]["payload"], "one");
    });
}

#[test]
fn each_worker_gets_the_lease_that_it_asked_for_although_items_of_another_have_expired() {
    let db = Database::new();
    run(&db, &["pause", "q", "--create"]).ok();
    let served = serve(&db, PULL);
    let worker = Worker::at(&served);
    let wanted = json!({"max": 5, "lease_ms": 5_000, "wait_ms": 30_000});
    thread::scope(|scope| {
        let first = scope.spawn(|| worker.lease(&json!({"lease_ms": 60_000, "wait_ms": 5_000})).is(200));
        wait_until("one worker waits", || waiting(&served) == 1);
        let second = scope.spawn(|| worker.lease(&wanted).is(200));
        wait_until("both workers wait", || waiting(&served) == 2);
        run(&db, &["push", "q", "expires", "--ttl", "1ms"]).ok();
        run(&db, &["push", "q", "lives"]).ok();
        // Both are served by one fetch.
        run(&db, &["resume", "q"]).ok();
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert_eq!(first, json!({"lease": null, "items": []}));
        assert_eq!(
            (&second["items"][0]["payload"], &second["expires_in_ms"]),
            (&json!("lives"), &json!(5_000))
        );
    });
}

#[test]
fn a_request_finds_the_slot_that_has_become_free_just_before() {
    let db = Database::new();
    run(&db, &["limits", "set", "q", "--queue", "--running", "1", "--create"]).ok();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nkind = 'keyed'\nlease = '30s'\n");
    let worker = Worker::at(&served);
    push_keyed(&served.at, "x", 20);
    let (mut lease, mut items) = worker.leased(1);
    for number in 0..10 {
        // The daemon has found the queue full.
        assert_eq!(worker.lease(&json!({"wait_ms": 20})).is(200)["lease"], Value::Null);
        let body = json!({"outcomes": [outcome(&items[0], "done")], "next": {"max": 1}});
        let answer = worker.acknowledge(&lease, &body).is(200);
        let next = &answer["next"];
        assert_eq!(next["items"].as_array().map(Vec::len), Some(1), "{number}: {answer}");
        (lease, items) =
            (next["lease"].as_str().unwrap().to_owned(), next["items"].as_array().unwrap().clone());
    }
}

#[test]
fn a_disconnected_worker_spends_no_attempt() {
    let db = Database::new();
    let served = serve(&db, PULL);
    // Both wait before one goes: the daemon forgets a worker that has gone when the next one asks.
    let workers = [Shutdown::Both, Shutdown::Write].map(|how| (ask(&served), how));
    for (worker, how) in &workers {
        worker.shutdown(*how).unwrap();
    }
    thread::sleep(Duration::from_millis(100));
    run(&db, &["push", "q", "here"]).ok();
    let worker = Worker::at(&served);
    let answer = worker.lease(&json!({"wait_ms": 5_000})).is(200);
    assert_eq!((&answer["items"][0]["payload"], &answer["items"][0]["attempt"]), (&json!("here"), &json!(1)));
}

#[test]
fn a_lease_outlives_its_daemon_and_expires_with_its_worker() {
    let db = Database::new();
    run(&db, &["push", "q", "kept", "lost"]).ok();
    let first = serve(&db, PULL);
    let (kept, items) = Worker::at(&first).leased(1);
    let short = Worker::at(&first).lease(&json!({"lease_ms": 1_000})).is(200);
    let second = serve(&db, PULL);
    first.daemon.signal(Signal::KILL);
    drop(first);
    let worker = Worker::at(&second);
    worker.extend(&kept).is(200);
    worker.acknowledge(&kept, &json!({"outcomes": [outcome(&items[0], "done")]})).is(200);
    let again = worker.lease(&json!({"wait_ms": 30_000})).is(200);
    assert_eq!((&again["items"][0]["payload"], &again["items"][0]["attempt"]), (&json!("lost"), &json!(2)));
    let late = short["lease"].as_str().unwrap();
    let body = json!({"outcomes": [outcome(&short["items"][0], "done")]});
    assert_eq!(worker.acknowledge(late, &body).error(409), "lease_lost");
}

#[test]
fn a_paused_queue_leases_nothing() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    let served = serve(&db, PULL);
    let worker = Worker::at(&served);
    run(&db, &["pause", "q"]).ok();
    thread::sleep(Duration::from_millis(500));
    assert_eq!(worker.lease(&json!({"wait_ms": 1_500})).is(200)["lease"], Value::Null);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| worker.lease(&json!({"wait_ms": 20_000})).is(200));
        thread::sleep(Duration::from_millis(300));
        run(&db, &["resume", "q"]).ok();
        assert_eq!(waiting.join().unwrap()["items"][0]["payload"], "one");
    });
}

#[test]
fn wrong_requests_of_workers_are_refused() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    let served = serve(&db, PULL);
    let worker = Worker::at(&served);
    for wrong in [
        json!({"max": 0}),
        json!({"max": 1_001}),
        json!({"wait_ms": 60_001}),
        json!({"lease_ms": 999}),
        json!({"lease_ms": 86_400_001}),
        json!({"items": 1}),
    ] {
        assert_eq!(worker.lease(&wrong).error(400), "bad_request", "{wrong}");
    }
    let (lease, items) = worker.leased(1);
    for wrong in [
        json!({"outcomes": [{"id": items[0]["id"], "outcome": "finished"}]}),
        json!({"outcomes": [{"id": items[0]["id"], "outcome": "retry", "after_ms": 31_536_000_001_u64}]}),
        json!({"outcomes": [{"id": "nonsense", "outcome": "done"}]}),
        json!({"outcomes": [{"id": items[0]["id"], "outcome": "done", "after_ms": 5}]}),
    ] {
        assert_eq!(worker.acknowledge(&lease, &wrong).error(400), "bad_request", "{wrong}");
    }
    let twice = json!({"outcomes": [outcome(&items[0], "done"), outcome(&items[0], "done")]});
    for unknown in [twice, json!({"outcomes": [{"id": "x00", "outcome": "done"}]})] {
        assert_eq!(worker.acknowledge(&lease, &unknown).error(404), "not_found", "{unknown}");
    }
    assert_eq!(worker.acknowledge(&lease, &json!({})).is(200), json!({"acknowledged": 0, "open": 1}));
    assert_eq!(worker.extend("nonsense").error(400), "bad_request");
    assert_eq!(worker.extend(&format!("{}-1", "0".repeat(32))).error(409), "lease_lost");
    let config = db.file("wrong.toml");
    for (text, key) in [("consumers = 2", "consumers"), ("delivery = 'at-most-once'", "delivery")] {
        std::fs::write(&config, format!("[queues.q]\nhandler = 'pull'\n{text}\n")).unwrap();
        let refused = run(&db, &["config", "check", "--config", config.to_str().unwrap()]);
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.stderr.contains(&format!("queues.q.{key}")), "{refused:?}");
    }
}
