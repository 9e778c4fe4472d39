//! Two daemons on one database, one with a clock that is a month ahead: it ends nothing by its clock, and says that they differ.

#![cfg(target_os = "linux")]

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::support::{Background, Database, Ran, kvqueue, run, wait_until};

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

fn stop(daemon: Background) -> Ran {
    daemon.signal(Signal::TERM);
    daemon.end()
}

#[test]
fn a_daemon_whose_clock_is_ahead_handles_items_that_others_do_not_find_expired() {
    let db = Database::new();
    let library = db.file("ahead.so");
    if !compiled(&library) {
        eprintln!("left out: no C compiler");
        return;
    }
    // The first one sweeps the queue, and handles nothing: it waits for workers over HTTP.
    let mut first = Background::start(daemon(&db, "first.toml", "handler = 'pull'"));
    first.wait_for_event("ready");
    // What is due is made ready by a sweep, which also tells others of its clock.
    run(&db, &["push", "q", "--delay", "1ms", "swept"]).ok();
    wait_until("the first daemon has swept", || {
        run(&db, &["len", "q", "--json"]).ok().contains(r#""waiting":0"#)
    });
    let items: Vec<String> = (0..20).map(|number| format!("item {number}")).collect();
    let mut push = vec!["push", "q", "--ttl", "1h"];
    push.extend(items.iter().map(String::as_str));
    run(&db, &push).ok();
    let handled = db.file("handled");
    let command = format!("cat >> {0}; echo >> {0}", handled.display());
    let exec = format!("handler = 'exec'\nhandler-config.command = ['sh', '-c', '{command}']");
    let mut second = daemon(&db, "second.toml", &exec);
    second.env("LD_PRELOAD", &library);
    let mut second = Background::start(second);
    second.wait_for_event("clock_differs");
    wait_until("all items are handled", || {
        let text = fs::read_to_string(&handled).unwrap_or_default();
        items.iter().all(|item| text.lines().any(|line| line == item))
    });
    let said = stop(second);
    assert_eq!(said.events("item_expired") + said.events("items_expired"), 0, "{said:?}");
    stop(first);
}
