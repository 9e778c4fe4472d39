//! Two daemons on one database, one with a clock that is a month ahead: it ends nothing by its clock, and says that they differ.

#![cfg(target_os = "linux")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use futures::executor::block_on;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Background, Database, Served, kvqueue, run, serve, wait_until};

/// A library that is loaded before libc: the clock of the day is 31 days ahead.
const AHEAD: &str = "
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += 31 * 86400;
    return result;
}
";

/// Makes that library. False where there is a linker and no compiler.
fn compiled(to: &Path) -> bool {
    let source = to.with_extension("c");
    fs::write(&source, AHEAD).unwrap();
    let compile = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([to, &source])
        .stderr(Stdio::null())
        .status();
    compile.is_ok_and(|status| status.success())
}

fn daemon(db: &Database, name: &str, handler: &str) -> Command {
    let config = db.file(name);
    fs::write(&config, format!("[queues.q]\n{handler}\n")).unwrap();
    kvqueue(db, &["run", "--config", config.to_str().unwrap()])
}

/// Whether a sweeper of `q` has written down what its clock says: the row `(q, "clocks")`.
fn has_reading(db: &Database) -> bool {
    let tr = db.open().create_trx().unwrap();
    block_on(tr.get(b"\x01q\x00\x01clocks\x00", true)).unwrap().is_some()
}

/// A daemon, and what a second one needs whose clock is ahead.
struct Two {
    db: Database,
    first: Served,
    library: PathBuf,
}

impl Two {
    /// `None` without a C compiler. The first one sweeps the queue, and handles nothing: it waits for workers over HTTP.
    fn new() -> Option<Self> {
        let db = Database::embedded();
        let library = db.file("ahead.so");
        if !compiled(&library) {
            eprintln!("left out: no C compiler");
            return None;
        }
        let first = serve(&db, "[queues.q]\nhandler = 'pull'\nlease = '1s'\n");
        Some(Self { db, first, library })
    }

    /// Starts the second one.
    fn second(&self) -> Background {
        let command = format!("cat >> {0}; echo >> {0}", self.db.file("handled").display());
        let exec = format!("handler = 'exec'\nhandler-config.command = ['sh', '-c', '{command}']");
        let mut second = daemon(&self.db, "second.toml", &exec);
        second.env("LD_PRELOAD", &self.library);
        Background::start(second)
    }

    /// Pushes items that expire in an hour, and returns them.
    fn push(&self) -> Vec<String> {
        let items: Vec<String> = (0..20).map(|number| format!("item {number}")).collect();
        let mut push = vec!["push", "q", "--create", "--ttl", "1h"];
        push.extend(items.iter().map(String::as_str));
        run(&self.db, &push).ok();
        items
    }

    /// The second one handles these items, and says that the clocks differ. There are `leased` others.
    fn check_handled(&self, mut second: Background, items: &[String], leased: u64) {
        second.wait_for_event("clock_differs");
        // Handled or expired.
        wait_until("the items have ended", || {
            let counts: Value = serde_json::from_str(&run(&self.db, &["len", "q", "--json"]).ok()).unwrap();
            (&counts["ready"], &counts["running"]) == (&json!(0), &json!(leased))
        });
        second.signal(Signal::TERM);
        let said = second.end();
        let handled = fs::read_to_string(self.db.file("handled")).unwrap_or_default();
        let missing: Vec<_> =
            items.iter().filter(|item| handled.lines().all(|line| line != **item)).collect();
        assert!(missing.is_empty(), "not handled: {missing:?}");
        assert_eq!(said.events("item_expired") + said.events("items_expired"), 0, "{said:?}");
    }
}

#[test]
fn a_daemon_whose_clock_is_ahead_handles_items_that_others_do_not_find_expired() {
    let Some(two) = Two::new() else { return };
    run(&two.db, &["push", "q", "held"]).ok();
    // What a worker has is looked at again and again, so the first daemon takes duty, and writes down what its clock says.
    let lease = json!({ "max": 1, "lease_ms": 600_000 });
    two.first.at.post("/api/v1/queues/q/lease", &lease).is(200);
    wait_until("the first daemon writes down what its clock says", || has_reading(&two.db));
    let items = two.push();
    let second = two.second();
    two.check_handled(second, &items, 1);
}

#[test]
fn a_daemon_whose_clock_is_ahead_asks_first_in_a_queue_that_is_made_after_its_start() {
    let Some(two) = Two::new() else { return };
    let mut second = two.second();
    second.wait_for_event("ready");
    let items = two.push();
    two.check_handled(second, &items, 0);
}
