//! Promises for each kind of queue and each way to work: what outcomes do with items, that attempts are counted alike, that a stop spends
//! none and a crash spends one, and that a cancelled item ends. Each test goes through all kinds of queues with one way to work.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Address, Background, Database, Served, clean, kvqueue, run, serve_with, wait_until};
use crate::webhook::target::{Deed, Request, Target};

/// What each handler does with an item, by its payload. It notes each call, with the attempt.
const SCRIPT: &str = r#"
payload=$(cat)
echo "$payload $KVQUEUE_ATTEMPT" >> "calls.$KVQUEUE_QUEUE"
case $payload in
flaky) test "$KVQUEUE_ATTEMPT" -gt 1 || exit 1 ;;
bad) exit 65 ;;
broken) exit 1 ;;
slow) while ! test -e go; do sleep 0.02; done; echo slow >> "finished.$KVQUEUE_QUEUE" ;;
esac
"#;

/// The same in Python: as a resident process of `exec`, or over HTTP if it gets an address and a queue.
const PYTHON: &str = r#"
import json, os, sys, time

class Bad(Exception):
    pass

def handle(queue, payload, attempt, should_stop=lambda: False):
    with open(f"calls.{queue}", "a") as file:
        file.write(f"{payload} {attempt}\n")
    if payload == "bad":
        raise Bad
    if payload == "broken" or (payload == "flaky" and attempt == 1):
        raise ValueError("no")
    if payload == "slow":
        while not os.path.exists("go"):
            if should_stop():
                return
            time.sleep(0.02)
        with open(f"finished.{queue}", "a") as file:
            file.write("slow\n")

def over_http(url, queue):
    import kvqueue_worker
    def one(item):
        try:
            handle(queue, item.payload.decode(), item.attempt, item.should_stop)
        except Bad:
            raise kvqueue_worker.Dead("bad")
    kvqueue_worker.work(url, queue, one, lease=2)

def resident():
    print(json.dumps({"kvqueue": 1}), flush=True)
    queue = json.loads(sys.stdin.readline())["queue"]
    for line in sys.stdin:
        item = json.loads(line)
        if "id" not in item:
            continue
        outcome = {"id": item["id"], "outcome": "done"}
        try:
            handle(queue, item["payload"], item["attempt"])
        except Bad:
            outcome = {"id": item["id"], "outcome": "dead", "reason": "bad"}
        except ValueError:
            outcome = {"id": item["id"], "outcome": "retry", "reason": "no"}
        print(json.dumps(outcome), flush=True)

over_http(*sys.argv[1:]) if len(sys.argv) > 1 else resident()
"#;

/// Each kind of queue: a name, the lines of its table, and the options of a push.
const KINDS: [(&str, &str, &[&str]); 6] = [
    ("fifo", "", &[]),
    ("divided", "partitions = 4", &[]),
    ("recipe", "kind = 'recipe'", &["--kind", "recipe"]),
    ("priority", "kind = 'priority'", &["--kind", "priority"]),
    ("keyed", "kind = 'keyed'", &["--kind", "keyed", "--key"]),
    ("ordered", "kind = 'keyed'", &["--kind", "keyed", "--key"]),
];

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// A command for each item.
    Exec,
    /// A process that stays.
    Resident,
    Webhook,
    /// `kvqueue work`.
    Work,
    /// The client for Python.
    Client,
}

impl Way {
    /// Whether workers of their own lease items over HTTP.
    fn is_pull(self) -> bool {
        matches!(self, Way::Work | Way::Client)
    }
}

/// Who works: a daemon, and the workers that lease over HTTP.
struct Working {
    daemon: Served,
    workers: Vec<Background>,
}

impl Working {
    /// The processes that have the items: the workers if there are any, and else the daemon.
    fn holders(&self) -> Vec<&Background> {
        if self.workers.is_empty() { vec![&self.daemon.daemon] } else { self.workers.iter().collect() }
    }

    /// Waits for the end of all that work. The daemon of workers is killed: it has no items of its own.
    fn end(self) {
        if !self.workers.is_empty() {
            self.workers.into_iter().for_each(|worker| drop(worker.end()));
            self.daemon.daemon.signal(Signal::KILL);
        }
        self.daemon.daemon.end();
    }
}

struct Ways {
    way: Way,
    db: Database,
    _target: Option<Target>,
}

impl Ways {
    fn new(way: Way) -> Self {
        let db = Database::new();
        let directory = db.directory.path().to_owned();
        let target = (way == Way::Webhook).then(|| Target::new(move |request| answer(&directory, request)));
        fs::write(db.file("worker.py"), PYTHON).unwrap();
        let mut text = String::from("http.require-token = false\nshutdown-timeout = '300ms'\n");
        let consumers = if way.is_pull() { "" } else { "consumers = [{ k = 1, count = 2 }]" };
        for (name, table, _) in KINDS {
            let handler = match (way, &target) {
                (Way::Exec, _) => format!("handler = 'exec'\nhandler-config.command = ['sh', '-c', '''{SCRIPT}''']"),
                (Way::Resident, _) => "handler = 'exec'\nhandler-config = { command = ['python3', 'worker.py'], mode = 'worker' }".into(),
                (Way::Webhook, Some(target)) => format!(
                    "handler = 'http'\nhandler-config = {{ url = 'http://{}/{name}', dead-status = [422] }}",
                    target.address
                ),
                _ => "handler = 'pull'".into(),
            };
            text += &format!(
                "[queues.{name}]\nlease = '2s'\n{consumers}\n\
                 retry = {{ max-attempts = 3, base = '10ms' }}\n{table}\n{handler}\n"
            );
        }
        fs::write(db.file("kvqueue.toml"), text).unwrap();
        run(&db, &["limits", "set", "ordered", "*", "--ordered", "--create"]).ok();
        Self { way, db, _target: target }
    }

    fn push(&self, payload: &str, options: &[&str]) {
        for (name, _, of_kind) in KINDS {
            let mut words = [&["push", name, payload], options, of_kind].concat();
            if of_kind.last() == Some(&"--key") {
                words.push(payload);
            }
            run(&self.db, &words).ok();
        }
    }

    fn begin(&self) -> Working {
        let config = self.db.file("kvqueue.toml").display().to_string();
        let mut command = kvqueue(&self.db, &["run", "--config", &config]);
        command.current_dir(self.db.directory.path()).env("KVQUEUE_LOG__FORMAT", "json");
        let daemon = serve_with(command, false);
        let mut workers = Vec::new();
        if self.way.is_pull() {
            let Address::Tcp(address) = &daemon.at else { panic!("it listens on {:?}", daemon.at) };
            let url = format!("http://{address}");
            workers.extend(KINDS.map(|(name, ..)| Background::start(self.worker(&url, name))));
        }
        Working { daemon, workers }
    }

    fn worker(&self, url: &str, queue: &str) -> Command {
        let mut command = match self.way {
            Way::Work => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_kvqueue"));
                command.args(["work", queue, "--url", url, "--lease", "2s", "--shutdown-timeout", "300ms"]);
                command.args(["--", "sh", "-c", SCRIPT]);
                command
            }
            _ => {
                let mut command = Command::new("python3");
                command.args(["worker.py", url, queue]);
                command.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python"));
                command.env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
        };
        clean(&mut command, &self.db);
        command.current_dir(self.db.directory.path());
        command
    }

    /// The lines of the file of each queue, sorted.
    fn lines(&self, file: &str) -> BTreeMap<&'static str, Vec<String>> {
        let of = |name: &str| {
            let text = fs::read_to_string(self.db.file(&format!("{file}.{name}"))).unwrap_or_default();
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        KINDS.iter().map(|(name, ..)| (*name, of(name))).collect()
    }

    fn expect_calls(&self, calls: &[&str]) {
        for (name, found) in self.lines("calls") {
            assert_eq!(found, calls, "calls of {name}");
        }
    }

    fn wait_for_calls(&self, calls: usize) {
        wait_until("the handlers are called", || self.lines("calls").values().all(|of| of.len() >= calls));
    }

    /// Waits until no item of any queue is ready, waits or runs.
    fn wait_for_the_end(&self) {
        wait_until("all items have ended", || {
            KINDS.iter().all(|(name, _, options)| {
                let kind = options.get(..2).unwrap_or_default();
                let counts = run(&self.db, &[&["len", name, "--json"], kind].concat()).ok();
                let counts: Value = serde_json::from_str(&counts).unwrap();
                ["ready", "running", "waiting"].iter().all(|state| counts[state] == 0)
            })
        });
    }

    /// The payloads of the dead letters of a queue with their attempts, sorted.
    fn dead(&self, queue: &str) -> Vec<(String, u64)> {
        let listed = run(&self.db, &["dead", "list", queue, "--json"]).ok();
        let letter = |line: &str| {
            let letter: Value = serde_json::from_str(line).unwrap();
            let id = letter["id"].as_str().unwrap();
            let config = self.db.file("kvqueue.toml").display().to_string();
            let shown = run(&self.db, &["dead", "show", queue, id, "--json", "--config", &config]).ok();
            let shown: Value = serde_json::from_str(&shown).unwrap();
            (shown["payload"].as_str().unwrap().to_owned(), letter["attempts"].as_u64().unwrap())
        };
        let mut letters: Vec<_> = listed.lines().map(letter).collect();
        letters.sort();
        letters
    }
}

/// What the target of webhooks does, as the script does it.
fn answer(directory: &Path, request: &Request) -> Deed {
    let queue = request.line.split(['/', ' ']).nth(2).unwrap();
    let note = |file: &str, line: String| {
        let path = directory.join(format!("{file}.{queue}"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, text + &line + "\n").unwrap();
    };
    let (payload, attempt) = (request.text(), request.attempt());
    note("calls", format!("{payload} {attempt}"));
    match &*payload {
        "flaky" if attempt == 1 => Deed::Answer(500),
        "bad" => Deed::Answer(422),
        "broken" => Deed::Answer(500),
        "slow" if !directory.join("go").exists() => Deed::Hang,
        "slow" => {
            note("finished", payload);
            Deed::Answer(204)
        }
        _ => Deed::Answer(204),
    }
}

fn outcomes_do_the_same(way: Way) {
    let ways = Ways::new(way);
    ["ok", "flaky", "bad", "broken"].into_iter().for_each(|payload| ways.push(payload, &[]));
    ways.push("late", &["--ttl", "1ms"]);
    let _working = ways.begin();
    ways.wait_for_the_end();
    ways.expect_calls(&["bad 1", "broken 1", "broken 2", "broken 3", "flaky 1", "flaky 2", "ok 1"]);
    for (name, ..) in KINDS {
        assert_eq!(ways.dead(name), [("bad".to_owned(), 1), ("broken".to_owned(), 3)], "{name}");
    }
}

fn an_end_of_who_works(way: Way, signal: Signal, next_attempt: u32) {
    let ways = Ways::new(way);
    ways.push("slow", &[]);
    let working = ways.begin();
    ways.wait_for_calls(1);
    working.holders().iter().for_each(|holder| holder.signal(signal));
    // The client has no shutdown timeout: it waits for its handlers.
    let finishes = way == Way::Client && signal == Signal::TERM;
    if finishes {
        fs::write(ways.db.file("go"), "").unwrap();
    }
    working.end();
    fs::write(ways.db.file("go"), "").unwrap();
    let _working = ways.begin();
    ways.wait_for_the_end();
    let again = format!("slow {next_attempt}");
    let calls = if finishes { vec!["slow 1"] } else { vec!["slow 1", &again] };
    ways.expect_calls(&calls);
    for (name, ..) in KINDS {
        assert_eq!(ways.dead(name), [], "{name}");
    }
}

fn a_cancelled_item_ends(way: Way) {
    let ways = Ways::new(way);
    ways.push("slow", &[]);
    let _working = ways.begin();
    ways.wait_for_calls(1);
    for (name, _, options) in KINDS {
        let kind = options.get(..2).unwrap_or_default();
        run(&ways.db, &[&["item", "cancel", name, "--all", "--yes"], kind].concat()).ok();
    }
    ways.wait_for_the_end();
    // A worker learns of it when it extends its lease, after a third of it; a daemon within a second.
    ways.push("ok", &[]);
    ways.push("ok", &[]);
    ways.wait_for_calls(3);
    fs::write(ways.db.file("go"), "").unwrap();
    ways.wait_for_the_end();
    ways.expect_calls(&["ok 1", "ok 1", "slow 1"]);
    for (name, finished) in ways.lines("finished") {
        assert!(finished.is_empty(), "the handler of {name} went on");
    }
}

/// A module for each way to work, with all of its tests.
macro_rules! ways {
    ($($module:ident: $way:expr,)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn outcomes_and_expiry_do_the_same_in_queues_of_all_kinds() {
                outcomes_do_the_same($way);
            }

            #[test]
            fn a_stop_spends_no_attempt_in_queues_of_all_kinds() {
                an_end_of_who_works($way, Signal::TERM, 1);
            }

            #[test]
            fn a_crash_spends_an_attempt_in_queues_of_all_kinds() {
                an_end_of_who_works($way, Signal::KILL, 2);
            }

            #[test]
            fn a_cancelled_item_ends_in_queues_of_all_kinds() {
                a_cancelled_item_ends($way);
            }
        }
    )*};
}

ways! {
    exec: Way::Exec,
    resident: Way::Resident,
    webhook: Way::Webhook,
    work: Way::Work,
    client: Way::Client,
}
