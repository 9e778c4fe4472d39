//! The `exec` handler with `mode = "worker"`: processes that stay, what each way of breaking costs, and that none outlives its daemon.

#![cfg(target_os = "linux")]

use std::{collections::BTreeMap, fs, process::Command};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Database, Ran, Served, events, kvqueue, run, run_with_input, serve_with, wait_until};

/// A worker in Python. It notes each start, each item with its attempt, and each cancellation. An item whose payload begins with the
/// name of a fault breaks it at the first attempt.
const WORKER: &str = r#"
import json, os, sys, time

def note(name, text):
    with open(name, "a") as file:
        file.write(text + "\n")

def say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()

note("started", str(os.getpid()))
if os.path.exists("broken"):
    sys.exit("no module")
sys.stdin.readline()
say({"kvqueue": 1})
for line in sys.stdin:
    item = json.loads(line)
    if "cancel" in item:
        continue
    payload = item["payload"]
    if item["attempt"] == 1:
        if payload.startswith("crash"):
            os._exit(3)
        if payload.startswith("chat"):
            print("hello", flush=True)
        if payload.startswith("long"):
            say({"id": "x" * 1500000})
        if payload.startswith(("hang", "chat", "long")):
            time.sleep(1000)
    if payload.startswith("large"):
        ballast = bytearray(os.urandom(1)) * (200 << 20)
    if payload.startswith("wait"):
        note("waits", payload)
        while not os.path.exists("go"):
            time.sleep(0.01)
    if payload.startswith("stuck"):
        note("waits", payload)
        note("cancelled", sys.stdin.readline().strip())
        time.sleep(1000)
    note("noted", payload + " " + str(item["attempt"]))
    if payload.startswith("result"):
        say({"id": item["id"], "outcome": "done", "result": "\x01" * int(payload.split("-")[1])})
        continue
    say({"id": item["id"], "outcome": "done"})
"#;

/// A queue with that worker.
struct Work {
    db: Database,
}

impl Work {
    /// With these lines in the queue's table, and these in the handler's.
    fn new(queue: &str, handler: &str) -> Self {
        let db = Database::new();
        fs::write(db.file("worker.py"), WORKER).unwrap();
        let text = format!(
            "[queues.q]\nhandler = 'exec'\n{queue}\n[queues.q.handler-config]\n\
             command = ['python3', 'worker.py']\nmode = 'worker'\n{handler}\n"
        );
        fs::write(db.file("kvqueue.toml"), text).unwrap();
        Self { db }
    }

    fn push(&self, payloads: impl IntoIterator<Item = String>) {
        let lines: String = payloads.into_iter().map(|payload| payload + "\n").collect();
        run_with_input(&self.db, &["push", "q", "--lines", "-"], lines).ok();
    }

    fn command(&self, options: &[&str]) -> Command {
        let config = self.db.file("kvqueue.toml").display().to_string();
        let mut command = kvqueue(&self.db, &[&["run", "--config", &config], options].concat());
        command.current_dir(self.db.directory.path()).env("KVQUEUE_LOG__FORMAT", "json");
        command
    }

    fn serve(&self) -> Served {
        serve_with(self.command(&[]), false)
    }

    fn run_until_empty(&self) -> Ran {
        self.command(&["--until-empty"]).output().unwrap().into()
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.db.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The attempts that each payload was noted with.
    fn noted(&self) -> BTreeMap<String, Vec<u32>> {
        let mut noted = BTreeMap::<_, Vec<_>>::new();
        for line in self.lines("noted") {
            let (payload, attempt) = line.split_once(' ').unwrap();
            noted.entry(payload.to_owned()).or_default().push(attempt.parse().unwrap());
        }
        noted
    }

    /// The processes of this work that run.
    fn running(&self) -> Vec<String> {
        let runs = |pid: &String| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
        };
        self.lines("started").into_iter().filter(runs).collect()
    }

    /// The queue's count of items in a state.
    fn count(&self, what: &str) -> u64 {
        let counts: Value = serde_json::from_str(&run(&self.db, &["len", "q", "--json"]).ok()).unwrap();
        counts[what].as_u64().unwrap_or_else(|| panic!("no {what} in {counts}"))
    }
}

/// The figure of a metric of the queue.
fn metric(served: &Served, name: &str) -> u64 {
    let text = String::from_utf8(served.at.get("/metrics").body).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn restarts(served: &Served, reason: &str) -> u64 {
    metric(served, &format!("kvqueue_exec_process_restarts_total{{queue=\"q\",reason=\"{reason}\"}}"))
}

#[test]
fn each_way_of_breaking_costs_its_own_item_an_attempt_and_no_other() {
    let work = Work::new(
        "consumers = [{ k = 10, count = 4 }]\nhandler-timeout = '5s'\nretry = { max-attempts = 3, base = '10ms' }",
        "",
    );
    let faults = ["crash", "hang", "chat", "long"];
    work.push((0..2_000).map(|item| match item % 500 {
        at @ (100 | 200 | 300 | 400) => format!("{}{item}", faults[at / 100 - 1]),
        _ => item.to_string(),
    }));
    let ran = work.run_until_empty();
    let failed = ran.events("item_failed");
    ran.ok();
    let noted = work.noted();
    assert_eq!(noted.len(), 2_000);
    for (payload, attempts) in noted {
        let expected = if faults.iter().any(|fault| payload.starts_with(fault)) { [2] } else { [1] };
        assert_eq!(attempts, expected, "{payload}");
    }
    assert_eq!(failed, 16);
    // Each breaks one process. Of the ones that are left, each consumer has one at most.
    let started = work.lines("started").len();
    assert!((17..=20).contains(&started), "{started}");
    assert_eq!((work.count("dead"), work.running()), (0, Vec::new()));
}

#[test]
fn a_result_of_any_length_costs_its_item_no_attempt() {
    let work = Work::new("history = '1h'\nretry.max-attempts = 2", "");
    // JSON writes each of these bytes as six.
    work.push([65_000, 66_000, 90_000, 90_001, 2_000_000].map(|length| format!("result-{length}")));
    let ran = work.run_until_empty();
    assert_eq!(ran.events("result_too_long"), 2, "{ran:?}");
    ran.ok();
    assert!(work.noted().values().all(|attempts| *attempts == [1]), "{:?}", work.noted());
    assert_eq!((work.count("done"), work.count("dead"), work.lines("started").len()), (5, 0, 1));
    // Also that of the line which is too long itself.
    let history = run(&work.db, &["history", "q", "--json"]).ok();
    assert_eq!(history.matches("\"result_too_long\":true").count(), 2, "{history}");
}

#[test]
fn processes_are_replaced_after_their_items_and_when_they_grow() {
    let work = Work::new("", "max-items = 50\nmax-memory = '150MB'");
    work.push((0..200).map(|item| item.to_string()));
    work.push(["large".to_owned(), "last".to_owned()]);
    let served = work.serve();
    wait_until("all items are done", || work.count("done") == 202);
    assert_eq!((restarts(&served, "max-items"), restarts(&served, "max-memory")), (4, 1));
    assert_eq!(work.lines("started").len(), 6);
    wait_until("the old ones have ended", || metric(&served, "kvqueue_exec_processes{queue=\"q\"}") == 1);
    assert_eq!(work.running().len(), 1);
    assert!(work.noted().values().all(|attempts| *attempts == [1]));
}

#[test]
fn a_program_that_dies_at_its_start_costs_no_attempt_until_it_is_mended() {
    let work = Work::new("consumers = [{ k = 10, count = 2 }]\nretry.max-attempts = 1", "");
    work.push((0..100).map(|item| item.to_string()));
    fs::write(work.db.file("broken"), "").unwrap();
    let mut served = work.serve();
    let unavailable = || served.at.get("/api/v1/status").is(200)["queues"][0]["unavailable"].clone();
    wait_until("it has been tried a few times", || unavailable()["tries"].as_u64().unwrap_or(0) >= 3);
    let reason = unavailable()["reason"].as_str().unwrap().to_owned();
    assert_eq!(reason, "python3 ended before it was ready: exit status: 1: no module");
    fs::remove_file(work.db.file("broken")).unwrap();
    wait_until("all items are done", || work.count("done") == 100);
    served.daemon.wait_for_event("handler_available");
    assert_eq!(work.count("dead"), 0);
    assert!(work.noted().values().all(|attempts| *attempts == [1]));
}

#[test]
fn a_stop_lets_processes_finish_their_items_and_leaves_none() {
    let work = Work::new("consumers = [{ k = 10, count = 3 }]", "");
    work.push((0..30).map(|item| format!("wait{item}")));
    let mut served = work.serve();
    wait_until("each process has an item", || work.lines("waits").len() == 3);
    assert_eq!(work.running().len(), 3);
    served.daemon.signal(Signal::TERM);
    served.daemon.wait_for_event("draining");
    fs::write(work.db.file("go"), "").unwrap();
    let ended = served.daemon.end();
    assert_eq!(work.running(), Vec::<String>::new());
    assert_eq!(
        events(&ended.stderr, "worker_broke") + events(&ended.stderr, "worker_killed"),
        0,
        "{ended:?}"
    );
    ended.ok();
    assert_eq!((work.count("done"), work.count("ready")), (3, 27));
    assert_eq!(work.noted().len(), 3);
}

#[test]
fn after_the_shutdown_timeout_an_item_is_cancelled_and_released() {
    let work = Work::new("", "");
    let config = work.db.file("kvqueue.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("shutdown-timeout = '300ms'\n{text}")).unwrap();
    work.push(["stuck".to_owned()]);
    let served = work.serve();
    wait_until("the process has its item", || work.lines("waits").len() == 1);
    served.daemon.signal(Signal::TERM);
    served.daemon.end().ok();
    let cancelled = work.lines("cancelled");
    assert!(cancelled.len() == 1 && cancelled[0].starts_with("{\"cancel\":\""), "{cancelled:?}");
    assert_eq!(work.running(), Vec::<String>::new());
    assert_eq!(work.count("ready"), 1);
    let item: Value = serde_json::from_str(&run(&work.db, &["peek", "q", "--json"]).ok()).unwrap();
    assert!(item["attempt"].as_u64().unwrap_or(1) == 1, "{item}");
}

#[test]
fn a_reload_with_another_command_replaces_the_processes() {
    let work = Work::new("consumers = [{ k = 1, count = 2 }]", "");
    work.push(["wait1".to_owned(), "wait2".to_owned()]);
    let mut served = work.serve();
    wait_until("each process has an item", || work.lines("waits").len() == 2);
    let before = work.running();
    let config = work.db.file("kvqueue.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("'worker.py'", "'worker.py', 'other'")).unwrap();
    served.daemon.signal(Signal::HUP);
    served.daemon.wait_for_event("configuration_reloaded");
    fs::write(work.db.file("go"), "").unwrap();
    work.push(["later".to_owned()]);
    wait_until("all items are done", || work.count("done") == 3);
    wait_until("the processes of the old command have ended", || {
        let now = work.running();
        now.len() == 1 && !before.contains(&now[0])
    });
    assert!(work.noted().values().all(|attempts| *attempts == [1]));
}

#[test]
fn no_process_outlives_a_daemon_that_is_killed() {
    let work = Work::new("consumers = [{ k = 1, count = 2 }]", "");
    work.push(["wait1".to_owned(), "wait2".to_owned()]);
    let served = work.serve();
    wait_until("each process has an item", || work.lines("waits").len() == 2);
    assert_eq!(work.running().len(), 2);
    served.daemon.signal(Signal::KILL);
    wait_until("they have ended", || work.running().is_empty());
}

#[test]
fn a_daemon_that_is_killed_and_restarted_finishes_each_item() {
    let work = Work::new("consumers = [{ k = 10, count = 4 }]\nlease = '2s'\nretry.max-attempts = 10", "");
    work.push((0..2_000).map(|item| item.to_string()));
    for part in [300, 900] {
        let served = work.serve();
        wait_until("some items are done", || work.lines("noted").len() >= part);
        served.daemon.signal(Signal::KILL);
        served.daemon.end();
        wait_until("its processes have ended", || work.running().is_empty());
    }
    work.run_until_empty().ok();
    assert_eq!((work.count("done"), work.count("dead")), (2_000, 0));
    let noted = work.noted();
    assert_eq!(noted.len(), 2_000);
    for (payload, attempts) in noted {
        // A second time only by a later attempt, after the lease has run out.
        assert!(attempts.windows(2).all(|pair| pair[0] < pair[1]), "{payload}: {attempts:?}");
    }
}

/// Runs an example until the queue is empty, and returns what its handler printed about each payload.
fn example(command: &str) -> Vec<String> {
    let work = Work::new("consumers = [{ k = 10, count = 2 }]", "");
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/workers");
    let config = work.db.file("kvqueue.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("['python3', 'worker.py']", &command.replace("DIR", examples));
    fs::write(&config, text).unwrap();
    work.push(["plain", "a \"quoted\" \\ text", "ünï \u{2028} code"].map(str::to_owned));
    let ran = work.run_until_empty();
    assert_eq!(work.count("done"), 3, "{ran:?}");
    let lines = ran.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_items = lines.filter(|line| line["event"] == "command_output");
    let mut printed: Vec<_> = of_items
        .map(|line| {
            let (item, text) = (line["item"].as_str().unwrap(), line["line"].as_str().unwrap());
            assert!(text.starts_with(item), "it is in its item's span: {line}");
            text[item.len()..].trim_start_matches(" 1").trim_start().to_owned()
        })
        .collect();
    printed.sort();
    printed
}

const PRINTED: [&str; 3] = ["a \"quoted\" \\ text", "plain", "ünï \u{2028} code"];

#[test]
fn the_example_in_python() {
    assert_eq!(example("['python3', 'DIR/exec_worker.py']"), PRINTED);
}

/// Without Node the test passes, unless the environment requires it.
#[test]
fn the_example_in_node() {
    if Command::new("node").arg("--version").output().is_err() {
        assert!(std::env::var_os("KVQUEUE_TEST_NODE").is_none(), "node is missing");
        eprintln!("skipped: there is no node");
        return;
    }
    assert_eq!(example("['node', 'DIR/exec_worker.js']"), PRINTED);
}

#[test]
fn the_example_for_shells() {
    let printed = example("['DIR/exec_worker.sh']");
    // It leaves escapes of other characters as they are.
    assert_eq!(printed, PRINTED.map(|text| text.replace('\u{2028}', "\\u2028")));
}
