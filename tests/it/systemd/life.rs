//! From the start to the stop.

use std::{
    fs,
    io::Write,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::WATCHDOG;
use crate::support::{Background, Database, NotifySocket, kvqueue, pings, pipe, run, run_script};

/// Takes one item in hand, says so, and is done with it when it is let go.
const SLOW: &str = "echo begun > begun; read word < go; cat >> done; echo >> done";

fn seconds_of(message: &str) -> u64 {
    let value = message.split("EXTEND_TIMEOUT_USEC=").nth(1).unwrap().split(' ').next().unwrap();
    value.parse::<u64>().unwrap() / 1_000_000
}

#[test]
fn ready_watchdog_and_stop_as_systemd_sees_them() {
    let db = Database::new();
    run(&db, &["push", "q", "item"]).ok();
    pipe(&db, "begun");
    pipe(&db, "go");
    let systemd = NotifySocket::new(&db);
    let mut command = run_script(&db, SLOW, "", &[]);
    systemd.watch(&mut command, Some(WATCHDOG));
    command.env("STATE_DIRECTORY", db.directory.path());
    let daemon = Background::start(command);

    let (ready, before) = systemd.until("READY=1");
    assert!(before.iter().all(|said| !said.contains("ING=1")), "{before:?}");
    assert!(ready.starts_with("READY=1 STATUS=1 queue, 1 consumer, "), "{ready}");
    assert_eq!(fs::read_to_string(db.file("begun")).unwrap(), "begun\n");
    // A handler at work, and nothing else to do.
    systemd.forget();
    let said = systemd.all_within(WATCHDOG * 3);
    assert!((6..=10).contains(&pings(&said)), "{said:?}");

    daemon.signal(Signal::TERM);
    let told = Instant::now();
    let (stopping, before) = systemd.until("STOPPING=1");
    assert!(before.iter().all(|said| !said.contains("READY") && !said.contains("EXTEND")), "{before:?}");
    assert!(stopping.contains("STATUS=draining: ") && stopping.contains(" s left"), "{stopping}");
    assert_eq!(seconds_of(&stopping), 15);
    let (extended, before) = systemd.until("EXTEND_TIMEOUT_USEC=");
    // The shutdown timeout is ten seconds.
    assert!((10..=15).contains(&seconds_of(&extended)), "{extended}");
    assert!(pings(&before) >= 10 && told.elapsed() < Duration::from_secs(9), "{before:?}");
    fs::OpenOptions::new().write(true).open(db.file("go")).unwrap().write_all(b"go\n").unwrap();
    let ran = daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said = systemd.all_within(Duration::ZERO);
    assert!(said.iter().all(|said| !said.contains("READY=1")), "{said:?}");
    assert_eq!(fs::read_to_string(db.file("done")).unwrap(), "item\n");
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn the_watchdog_is_fed_before_the_database_answers() {
    // A process that lets others into its directory, where all reads fail.
    let db = Database::embedded();
    let mut host = kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]);
    host.env("FDB_EMBEDDED_FAULTS", "seed=1,process-behind=1");
    let mut host = Background::start(host);
    host.wait_for_event("database_silent");
    let systemd = NotifySocket::new(&db);
    let mut command = kvqueue(&db, &["run", "--queue", "q", "--handler", "log"]);
    systemd.watch(&mut command, Some(WATCHDOG));
    let daemon = Background::start(command);
    systemd.until("STATUS=waiting for the database");
    let said = systemd.all_within(WATCHDOG * 3);
    assert!(pings(&said) >= 6 && said.iter().all(|said| !said.contains("READY=1")), "{said:?}");
    // The daemon has the directory itself now.
    host.signal(Signal::KILL);
    systemd.until("READY=1");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn no_watchdog_pings_are_sent_without_a_watchdog() {
    let db = Database::new();
    let systemd = NotifySocket::new(&db);
    let mut command = kvqueue(&db, &["run", "--queue", "q", "--handler", "log"]);
    systemd.watch(&mut command, None);
    let daemon = Background::start(command);
    systemd.until("READY=1");
    daemon.signal(Signal::TERM);
    let (_, before) = systemd.until("STOPPING=1");
    assert_eq!(pings(&before), 0, "{before:?}");
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn a_vanished_service_manager_is_logged_once_and_delays_no_item() {
    let db = Database::new();
    let systemd = NotifySocket::new(&db);
    let mut command = kvqueue(&db, &["run", "--queue", "q", "--handler", "stdout"]);
    systemd.watch(&mut command, Some(WATCHDOG));
    let mut daemon = Background::start(command);
    systemd.until("READY=1");
    drop(systemd);
    daemon.wait_for_event("notify_failed");
    run(&db, &["push", "q", "item"]).ok();
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.events("notify_failed"), 1, "{ran:?}");
}

#[test]
fn commands_do_not_inherit_systemd_variables() {
    let db = Database::new();
    run(&db, &["push", "q", "item"]).ok();
    let systemd = NotifySocket::new(&db);
    let script = "env | grep -c -e NOTIFY_SOCKET -e WATCHDOG > said; exit 0";
    let mut command = run_script(&db, script, "", &["--until-empty"]);
    systemd.watch(&mut command, Some(WATCHDOG));
    Background::start(command).end().ok();
    assert_eq!(fs::read_to_string(db.file("said")).unwrap(), "0\n");
}
