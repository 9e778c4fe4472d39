//! TERM and INT: the first drains, the second ends it at once.

use std::{
    fs,
    io::Write,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::support::{
    Background, Database, Ran, event_field, kvqueue, pipe, run, run_script, run_with_input,
};

/// A daemon with an item in hand: its command has begun, and ends when [`InHand::let_go`] is called.
struct InHand {
    db: Database,
    daemon: Background,
}

impl InHand {
    /// With these lines in the configuration of its queue.
    fn start(shutdown_timeout: &str, queue: &str) -> Self {
        let db = Database::new();
        run(&db, &["push", "q", "one", "two", "three"]).ok();
        for name in ["begun", "go"] {
            pipe(&db, name);
        }
        let config = db.file("kvqueue.toml");
        let text = format!(
            "shutdown-timeout = '{shutdown_timeout}'\n[queues.q]\nhandler = 'exec'\n{queue}\n[queues.q.handler-config]\n\
             command = ['sh', '-c', 'echo $$ > begun; read word < go; cat >> done; echo >> done']"
        );
        fs::write(&config, text).unwrap();
        let mut command = kvqueue(&db, &["run", "--config", config.to_str().unwrap()]);
        command.current_dir(db.directory.path());
        Self { daemon: Background::start(command), db }
    }

    /// Waits until the handler has the first item, and returns the pid of its command.
    fn begun(&self) -> u32 {
        fs::read_to_string(self.db.file("begun")).unwrap().trim().parse().unwrap()
    }

    fn let_go(&self) {
        fs::OpenOptions::new().write(true).open(self.db.file("go")).unwrap().write_all(b"go\n").unwrap();
    }

    fn done(&self) -> String {
        fs::read_to_string(self.db.file("done")).unwrap_or_default()
    }
}

/// The items that are ready, each with the number of its next attempt.
fn attempts(db: &Database) -> Vec<String> {
    let config = db.file("attempts.toml");
    let text = "[queues.q]\nhandler = 'exec'\nconsumers = [ { k = 1 } ]\n[queues.q.handler-config]\n\
                command = ['sh', '-c', 'echo $(cat) $KVQUEUE_ATTEMPT >> attempts']";
    fs::write(&config, text).unwrap();
    let mut command = kvqueue(db, &["run", "--until-empty", "--config", config.to_str().unwrap()]);
    let ran: Ran = command.current_dir(db.directory.path()).output().unwrap().into();
    ran.ok();
    fs::read_to_string(db.file("attempts")).unwrap().lines().map(str::to_owned).collect()
}

fn drains_on(signal: Signal) {
    let mut test = InHand::start("30s", "consumers = [ { k = 2 } ]");
    test.begun();
    test.daemon.signal(signal);
    test.daemon.wait_for_event("draining");
    test.let_go();
    let done = test.db.file("done");
    let ran = test.daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(fs::read_to_string(done).unwrap(), "one\n", "the item in hand is finished");
    assert_eq!(run(&test.db, &["len", "q"]).ok(), "2\n", "the other is given back, and no more are taken");
    assert_eq!(attempts(&test.db), ["two 1", "three 1"]);
}

#[test]
fn term_drains_the_daemon() {
    drains_on(Signal::TERM);
}

#[test]
fn int_drains_the_daemon() {
    drains_on(Signal::INT);
}

#[test]
fn a_second_signal_ends_the_daemon_at_once() {
    let mut test = InHand::start("30s", "");
    let command = test.begun();
    test.daemon.signal(Signal::TERM);
    test.daemon.wait_for_event("draining");
    test.daemon.signal(Signal::TERM);
    assert_eq!(test.done(), "");
    assert_eq!(test.daemon.end().code, Some(128 + 15));
    // Nobody waits for the command: the reaper ends it.
    let begun = Instant::now();
    while !is_over(command) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the command goes on");
        thread::sleep(Duration::from_millis(10));
    }
}

fn is_over(command: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{command}/stat")).unwrap_or_default();
    state.is_empty() || state.contains(") Z ")
}

fn is_killed(command: u32) {
    assert!(is_over(command), "still alive");
}

#[test]
fn at_the_shutdown_timeout_commands_are_killed_and_their_items_released() {
    let test = InHand::start("100ms", "");
    let command = test.begun();
    test.daemon.signal(Signal::TERM);
    let ran = test.daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    is_killed(command);
    assert_eq!(attempts(&test.db), ["one 1", "two 1", "three 1"], "no attempt is spent");
}

#[test]
fn items_are_released_on_a_slow_database() {
    let db = Database::embedded();
    run(&db, &["push", "q", "one"]).ok();
    let mut command = run_script(&db, "sleep 1000", "", &["-v"]);
    command
        .env("KVQUEUE_SHUTDOWN_TIMEOUT", "100ms")
        .env("FDB_EMBEDDED_FAULTS", "seed=1,slow=1.0,slow-ms=1200");
    let mut daemon = Background::start(command);
    daemon.wait_for_event("items_fetched");
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(attempts(&db), ["one 1"]);
}

#[test]
fn at_most_once_items_lost_at_the_shutdown_timeout_fail_the_exit_code() {
    let test = InHand::start("100ms", "delivery = 'at-most-once'\nconsumers = [ { k = 2 } ]");
    let command = test.begun();
    test.daemon.signal(Signal::TERM);
    let ran = test.daemon.end();
    assert!(
        ran.stderr.contains("consumers still at work after the shutdown timeout of 100 ms: 1"),
        "{ran:?}"
    );
    assert!(ran.events("items_lost") > 0, "{ran:?}");
    assert_eq!(ran.code, Some(1));
    is_killed(command);
    assert_eq!(run(&test.db, &["len", "q"]).ok(), "1\n");
}

#[test]
fn with_at_most_once_delivery_all_fetched_items_are_handled() {
    let mut test = InHand::start("30s", "delivery = 'at-most-once'\nconsumers = [ { k = 2 } ]");
    test.begun();
    test.daemon.signal(Signal::TERM);
    test.daemon.wait_for_event("draining");
    test.let_go();
    test.begun();
    test.let_go();
    let done = test.db.file("done");
    assert_eq!(test.daemon.end().code, Some(0));
    assert_eq!(fs::read_to_string(done).unwrap(), "one\ntwo\n");
}

#[test]
fn many_items_are_released_quickly() {
    let db = Database::new();
    let items: String = (0..2_000).map(|number| format!("{number}\n")).collect();
    run_with_input(&db, &["push", "q", "--lines", "-"], items).ok();
    let config = db.file("kvqueue.toml");
    let text = "[queues.q]\nhandler = 'exec'\nconsumers = [ { k = 1000 } ]\n[queues.q.handler-config]\n\
                command = ['sh', '-c', 'echo begun >&2; sleep 0.1; exit 1']";
    fs::write(&config, text).unwrap();
    let mut daemon = Background::start(kvqueue(&db, &["run", "--config", config.to_str().unwrap()]));
    daemon.wait_for_event("item_failed");
    daemon.signal(Signal::TERM);
    let signalled = Instant::now();
    assert_eq!(daemon.end().code, Some(0));
    // Handling them all would take longer than a minute and a half.
    assert!(signalled.elapsed() < Duration::from_secs(20), "{:?}", signalled.elapsed());
    let left: usize = run(&db, &["len", "q"]).ok().trim().parse().unwrap();
    assert!(left >= 1_900, "{left} of 2000 are left");
}

#[test]
fn an_idle_daemon_stops() {
    let db = Database::new();
    let mut command = kvqueue(&db, &["run", "--queue", "q", "--handler", "log", "-v"]);
    command.env("KVQUEUE_SHUTDOWN_TIMEOUT", "1h");
    let mut daemon = Background::start(command);
    daemon.wait_for_event("consumer_idle");
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert!(ran.events("drained") > 0, "{ran:?}");
    assert_eq!(ran.code, Some(0));
}

/// The fetch in flight has too few items for all waiting consumers, and a drain starts no other
/// fetch.
#[test]
fn consumers_waiting_for_a_fetch_stop_when_it_has_too_few_items() {
    // Slow commits are the embedded engine's.
    let db = Database::embedded();
    run(&db, &["push", "q", "one", "two"]).ok();
    let config = db.file("kvqueue.toml");
    let text = "shutdown-timeout = '30s'\nlog.level = 'debug,kvqueue::consumer::fetch=trace'\n[queues.q]\nhandler = 'log'\nconsumers = [ { k = 1, count = 8 } ]";
    fs::write(&config, text).unwrap();
    let mut command = kvqueue(&db, &["run", "--config", config.to_str().unwrap()]);
    command.env("FDB_EMBEDDED_FAULTS", "seed=1,slow=1,slow-ms=1500");
    let mut daemon = Background::start(command);
    // Its commit takes a second and a half.
    let fetching = daemon.wait_for_event("fetch_started");
    assert!(fetching.contains("\"consumers\":8"), "all consumers wait for the same take: {fetching}");
    let told = Instant::now();
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(told.elapsed() < Duration::from_secs(20), "{:?}: {ran:?}", told.elapsed());
    assert_eq!(ran.events("consumer_stopped"), 8, "{ran:?}");
    let at = |text: &str| ran.stderr.find(text).unwrap_or_else(|| panic!("never {text}: {ran:?}"));
    assert!(
        at(&event_field("draining")) < at(&event_field("items_fetched")),
        "the fetch was under way: {ran:?}"
    );
}
