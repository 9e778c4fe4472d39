//! A daemon whose log nobody reads, or nobody can read.

use std::{
    fs,
    io::{BufRead, BufReader, PipeReader, pipe},
    os::unix::net::UnixStream,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Address, Database, PATIENCE, kvqueue, run_with_input};

/// A daemon whose stderr is a pipe.
struct Stalled {
    child: Child,
    stderr: Option<PipeReader>,
    at: Address,
    _db: Database,
}

impl Stalled {
    /// Handles these items, and writes all that it logs into a pipe that nobody reads.
    fn start(format: &str, level: &str, items: &[String]) -> Self {
        let db = Database::new();
        run_with_input(&db, &["push", "q", "--lines", "-"], items.join("\n") + "\n").ok();
        let (config, socket) = (db.file("kvqueue.toml"), db.file("http"));
        let text = format!(
            "shutdown-timeout = '2s'\nlog.format = '{format}'\nlog.level = '{level}'\nhttp.listen = 'unix:{}'\n\
             [queues.q]\nhandler = 'log'\nconsumers = [ {{ k = 100, count = 2 }} ]",
            socket.display()
        );
        fs::write(&config, text).unwrap();
        let (stderr, write) = pipe().unwrap();
        let mut command = kvqueue(&db, &["run", "--config", config.to_str().unwrap()]);
        command.env_remove("KVQUEUE_HTTP__LISTEN");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(write).spawn().unwrap();
        Self { child, stderr: Some(stderr), at: Address::Unix(socket), _db: db }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it is true.
    fn until(&mut self, what: &str, is_true: impl Fn(&Address) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Address::Unix(path) = &self.at else { unreachable!("it listens on a path") };
            if UnixStream::connect(path).is_ok() && is_true(&self.at) {
                return;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "not {what}: {ended:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn until_handled(&mut self, items: u64) {
        let finished = move |at: &Address| {
            let queue = at.get("/api/v1/queues/q");
            queue.status == 200 && queue.json()["finished"] == items
        };
        self.until("all items are handled", finished);
    }

    /// Tells it to stop, and waits for its end. Returns its exit code, and how long that took.
    fn stop(&mut self) -> (Option<i32>, Duration) {
        let began = Instant::now();
        self.signal(Signal::TERM);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), began.elapsed());
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn items(number: usize, payload: &str) -> Vec<String> {
    (0..number).map(|number| format!("{number}{payload}")).collect()
}

/// A container's log driver may stop reading, as may `less` in `kvqueue run 2>&1 | less`.
#[test]
fn an_unread_log_blocks_neither_items_nor_the_stop() {
    for format in ["human", "json"] {
        let mut daemon = Stalled::start(format, "info", &items(3_000, ""));
        daemon.until_handled(3_000);
        daemon.signal(Signal::USR1);
        assert_eq!(daemon.at.get("/readyz").status, 200);
        let (code, took) = daemon.stop();
        assert_eq!(code, Some(0), "{format}");
        // The daemon has no items. One second is for the log.
        assert!(took < Duration::from_secs(4), "{format}: {took:?}");
    }
}

#[test]
fn dropped_messages_are_counted_and_reported_when_the_log_is_read_again() {
    let mut daemon = Stalled::start("json", "info", &items(15_000, &"x".repeat(200)));
    daemon.until_handled(15_000);
    let dropped = |at: &Address| {
        let text = String::from_utf8(at.get("/metrics").body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("kvqueue_log_dropped_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let counted = dropped(&daemon.at);
    assert!(counted > 100, "{counted}");
    let lines = BufReader::new(daemon.stderr.as_ref().unwrap().try_clone().unwrap()).lines();
    let (mut logged, mut reported) = (0, 0);
    for line in lines {
        let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        logged += u64::from(event["event"] == "item_logged");
        if event["event"] == "log_dropped" {
            reported += event["messages"].as_u64().unwrap();
            break;
        }
    }
    assert_eq!(reported, counted);
    // Each item was logged or dropped, and so were a few other messages.
    assert!((15_000..15_100).contains(&(logged + counted)), "{logged} + {counted}");
    assert_eq!(dropped(&daemon.at), counted);
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_closed_log_blocks_neither_items_nor_the_stop() {
    let mut daemon = Stalled::start("human", "info", &items(300, ""));
    daemon.stderr = None;
    daemon.until_handled(300);
    daemon.signal(Signal::USR1);
    let (code, took) = daemon.stop();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(4), "{took:?}");
}
