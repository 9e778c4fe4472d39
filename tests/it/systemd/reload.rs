//! Reloads and pauses, as systemd sees them.

use std::{fs, io::Write, path::PathBuf, time::Duration};

use rustix::process::Signal;

use super::{
    WATCHDOG,
    well::{impatient, is_fed_for},
};
use crate::support::{Background, Database, NotifySocket, kvqueue, pings, pipe, run};

/// A daemon on queue `q`, whose script says when it has begun and waits until it is let go.
struct Service {
    daemon: Background,
    systemd: NotifySocket,
    config: PathBuf,
    db: Database,
}

const QUEUES: &str = "shutdown-timeout = '10s'\n[queues.q]\nhandler = 'exec'\n[queues.q.handler-config]\n\
    command = ['sh', '-c', 'echo begun > begun; read word < go; cat >> done; echo >> done']\n";

impl Service {
    /// As the unit starts it.
    fn start() -> Self {
        let db = Database::new();
        pipe(&db, "begun");
        pipe(&db, "go");
        let (config, systemd) = (db.file("kvqueue.toml"), NotifySocket::new(&db));
        fs::write(&config, QUEUES).unwrap();
        let mut command = kvqueue(&db, &["run", "--config", config.to_str().unwrap()]);
        command.current_dir(db.directory.path()).env("STATE_DIRECTORY", db.directory.path());
        systemd.watch(&mut command, Some(WATCHDOG));
        Self { daemon: Background::start(command), systemd, config, db }
    }

    /// Reloads the daemon as `systemctl reload` does. Returns when the daemon reported the beginning of the reload, by its clock in
    /// microseconds, and that it has ended.
    fn reload(&self, config: &str) -> (u64, String) {
        fs::write(&self.config, config).unwrap();
        self.daemon.signal(Signal::HUP);
        let (reloading, before) = self.systemd.until("RELOADING=1");
        assert!(before.iter().all(|said| !said.contains("READY=1")), "{before:?}");
        let time = reloading.strip_prefix("RELOADING=1 MONOTONIC_USEC=").expect("both in one message");
        let (ready, before) = self.systemd.until("READY=1");
        assert!(before.iter().all(|said| !said.contains("RELOADING=1")), "{before:?}");
        (time.split(' ').next().unwrap().parse().unwrap(), ready)
    }
}

#[test]
fn ready_watchdog_reload_and_stop_as_systemd_sees_them() {
    let service = Service::start();
    let Service { systemd, db, .. } = &service;
    systemd.until("READY=1");
    let (first, ready) = service.reload(&format!("{QUEUES}[queues.r]\nhandler = 'log'\n"));
    assert!(ready.starts_with("READY=1 STATUS=2 queues, 2 consumers, "), "{ready}");
    let (second, ready) = service.reload(QUEUES);
    assert!(ready.starts_with("READY=1 STATUS=1 queue, 1 consumer, "), "{ready}");
    assert!(second > first, "{first} {second}");
    systemd.forget();
    assert!(pings(&systemd.all_within(WATCHDOG * 2)) >= 3);

    run(db, &["push", "q", "item"]).ok();
    assert_eq!(fs::read_to_string(db.file("begun")).unwrap(), "begun\n");
    service.daemon.signal(Signal::TERM);
    let (stopping, _) = systemd.until("STOPPING=1");
    assert!(stopping.contains("EXTEND_TIMEOUT_USEC=15000000"), "{stopping}");
    assert!(stopping.contains("STATUS=draining: "), "{stopping}");
    assert!(pings(&systemd.all_within(WATCHDOG * 2)) >= 3);
    fs::OpenOptions::new().write(true).open(db.file("go")).unwrap().write_all(b"go\n").unwrap();
    let ran = service.daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said = service.systemd.all_within(Duration::ZERO);
    assert!(said.iter().all(|said| !said.contains("READY=1")), "{said:?}");
    assert_eq!(fs::read_to_string(service.db.file("done")).unwrap(), "item\n");
    assert_eq!(run(&service.db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn a_refused_reload_reports_ready_with_the_reason() {
    let service = Service::start();
    service.systemd.until("READY=1");
    let (_, ready) = service.reload(&format!("{QUEUES}[queues.r]\nhandler = 'nonsense'\n"));
    assert!(ready.starts_with("READY=1 STATUS=1 queue, 1 consumer, "), "{ready}");
    assert!(ready.contains("; reload refused: ") && ready.contains("nonsense"), "{ready}");
    let (_, ready) = service.reload(QUEUES);
    assert!(!ready.contains("refused"), "{ready}");
    service.daemon.signal(Signal::TERM);
    assert_eq!(service.daemon.end().code, Some(0));
}

#[test]
fn a_paused_daemon_does_not_stop_the_pings() {
    let db = Database::new();
    let (systemd, mut daemon) = impatient(&db);
    run(&db, &["pause", "q", "--create"]).ok();
    systemd.until("STATUS=1 queue (1 paused), ");
    run(&db, &["push", "q", "item"]).ok();
    is_fed_for(&systemd, Duration::from_secs(4));
    run(&db, &["resume", "q"]).ok();
    daemon.wait_for("begun");
    is_fed_for(&systemd, Duration::from_secs(2));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}
