//! An idle daemon: hardly ever awake, and awake within milliseconds when there is something to do.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::{self, DirEntry},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::support::{Background, Database, PATIENCE, helper, kvqueue, run, run_with_input};

/// How long an idle daemon is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// How often the threads of an idle daemon may wake in that span. It looks at clocks and files some ten times a second.
const WAKEUPS: u64 = 250;

/// How often each of a process's threads has gone to sleep.
fn sleeps(pid: u32) -> HashMap<OsString, u64> {
    let of = |thread: DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((thread.file_name(), line.trim().parse().ok()?))
    };
    fs::read_dir(format!("/proc/{pid}/task")).unwrap().filter_map(|thread| of(thread.ok()?)).collect()
}

/// Expects that the threads of a process wake no more often than this in five seconds. How much processor time that takes depends on what
/// else the machine does.
pub(crate) fn expect_wakeups(pid: u32, most: u64) {
    let before = sleeps(pid);
    // Not to wait for something: the span that is measured.
    thread::sleep(LOOK);
    let before = |thread| before.get(&thread).copied().unwrap_or_default();
    let woken: u64 = sleeps(pid).into_iter().map(|(thread, now)| now - before(thread)).sum();
    println!("the daemon's threads woke {woken} times in {LOOK:?}");
    assert!(woken <= most, "they woke {woken} times in {LOOK:?}");
}

#[test]
fn an_idle_daemon_hardly_wakes() {
    let db = Database::new();
    let args = ["run", "--queue", "q", "--handler", "log", "--consumers", "4", "-v"];
    let mut daemon = Background::start(kvqueue(&db, &args));
    (0..4).for_each(|_| drop(daemon.wait_for_event("consumer_idle")));
    expect_wakeups(daemon.pid(), WAKEUPS);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

/// Of a process's memory, what the kernel says under this name, in kilobytes.
pub(crate) fn memory(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// The engine keeps old versions for five seconds and must free their memory afterwards.
#[test]
fn memory_of_a_busy_period_is_freed() {
    let db = Database::embedded();
    let mut daemon = Background::start(kvqueue(&db, &["run", "--queue", "q", "--handler", "log"]));
    daemon.wait_for_event("ready");
    let before = memory(daemon.pid(), "VmRSS");
    let lines = format!("{}\n", "x".repeat(2_000)).repeat(20_000);
    run_with_input(&db, &["push", "other", "--lines", "-"], lines).ok();
    // What is there lies in the engine's cache.
    run(&db, &["delete", "other", "--yes"]).ok();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (now, most) = (memory(daemon.pid(), "VmRSS") - before, memory(daemon.pid(), "VmHWM") - before);
        assert!(most > 30_000, "too little was pushed to tell: {most} kB");
        if now < most / 3 {
            println!("{most} kB above {before}, and {now} afterwards");
            break;
        }
        assert!(Instant::now() < deadline, "{now} kB above {before} are left of {most}");
        thread::sleep(Duration::from_millis(100));
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

/// Consumers that are idle together.
const CONSUMERS: usize = 8;

#[test]
fn one_watch_serves_all_consumers_and_misses_no_push() {
    let db = Database::new();
    let consumers = CONSUMERS.to_string();
    let args = ["run", "--queue", "q", "--handler", "log", "--consumers", &consumers, "-v"];
    let mut command = kvqueue(&db, &args);
    // A push that no watch tells of is not found in the time that a test has.
    command.env("KVQUEUE_QUEUES__Q__POLL_INTERVAL", "1h").env("KVQUEUE_QUEUES__Q__HANDLER", "log");
    let mut daemon = Background::start(command);
    (0..CONSUMERS).for_each(|_| drop(daemon.wait_for_event("consumer_idle")));
    assert_eq!(daemon.events("watch_armed"), 1);
    for number in 0..20 {
        run(&db, &["push", "q", &format!("item-{number}-")]).ok();
        daemon.wait_for(&format!("item-{number}-"));
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn a_push_wakes_as_many_consumers_as_it_has_items() {
    let db = Database::new();
    let mut command = helper(&db, "idle::together");
    command.arg(CONSUMERS.to_string());
    let mut daemon = Background::start(command);
    // Some are idle again before others have said that they are done.
    let until_idle = |daemon: &mut Background, times| {
        while daemon.events("consumer_idle") < times {
            daemon.wait_for_event("consumer_idle");
        }
    };
    let until_handled = |daemon: &mut Background, times| {
        while daemon.said("handled together") < times {
            daemon.wait_for("handled together");
        }
    };
    for round in 1..=3 {
        until_idle(&mut daemon, round * CONSUMERS);
        run(&db, &[&["push", "q"], &["item"; CONSUMERS][..]].concat()).ok();
        until_handled(&mut daemon, round * CONSUMERS);
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

/// From an acknowledged push to the handler: a watch, a fetch with its flush to disk, and two
/// threads.
#[test]
fn an_idle_daemon_wakes_within_milliseconds() {
    let db = Database::new();
    let out = Background::start(helper(&db, "idle::wake")).end().ok();
    let line = out.lines().find(|line| line.starts_with("wake ")).unwrap_or_else(|| panic!("{out}"));
    let push = out.lines().find(|line| line.starts_with("push ")).unwrap();
    println!("{line}\n{push}");
    let (_, rest) = line.split_once("p50_us=").unwrap();
    let median: u64 = rest.split_whitespace().next().unwrap().parse().unwrap();
    assert!(median < 50_000, "half of the wakes took longer than {median} us");
}
