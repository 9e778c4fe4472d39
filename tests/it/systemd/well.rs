//! The watchdog's pings go on while the daemon waits for a handler, for pushes, or for the database.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::WATCHDOG;
use crate::support::{Background, Database, NotifySocket, helper, kvqueue, pings, run};

/// A daemon that soon takes somebody for stuck, ready, and its systemd.
pub(super) fn impatient(db: &Database) -> (NotifySocket, Background) {
    let systemd = NotifySocket::new(db);
    let mut command = helper(db, "systemd::well::impatient");
    systemd.watch(&mut command, Some(WATCHDOG));
    let daemon = Background::start(command);
    systemd.until("READY=1");
    (systemd, daemon)
}

/// That it is fed for so long, as often as it should be, give or take what a busy machine does.
pub(super) fn is_fed_for(systemd: &NotifySocket, time: Duration) {
    systemd.forget();
    let said = systemd.all_within(time);
    let most = usize::try_from(time.as_millis() * 3 / WATCHDOG.as_millis()).unwrap();
    assert!(pings(&said) >= most / 2, "{said:?}");
    assert!(said.iter().all(|said| !said.contains("stuck")), "{said:?}");
}

#[test]
fn neither_an_idle_daemon_nor_a_slow_handler_stops_the_pings() {
    let db = Database::new();
    let (systemd, mut daemon) = impatient(&db);
    is_fed_for(&systemd, Duration::from_secs(4));
    run(&db, &["push", "q", "item"]).ok();
    daemon.wait_for("begun");
    is_fed_for(&systemd, Duration::from_secs(4));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn an_unreachable_database_does_not_stop_the_watchdog_pings() {
    let db = Database::embedded();
    let mut host = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    host.wait_for_event("ready");
    let systemd = NotifySocket::new(&db);
    let mut command = helper(&db, "systemd::well::takes_one_after_the_other");
    systemd.watch(&mut command, Some(WATCHDOG));
    let mut daemon = Background::start(command);
    systemd.until("READY=1");
    host.suspend();
    // The takes fail one after the other, each after ten seconds: the second has waited for longer than is put up with.
    let away = Instant::now();
    is_fed_for(&systemd, Duration::from_secs(5));
    daemon.wait_for_event("fetch_failed");
    is_fed_for(&systemd, Duration::from_secs(25).saturating_sub(away.elapsed()));
    let (status, _) = systemd.until("waiting for the database");
    assert!(status.contains("STATUS=1 queue, 4 consumers, "), "{status}");
    host.signal(Signal::CONT);
    run(&db, &["push", "q", "item"]).ok();
    daemon.wait_for("payload=item");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}
