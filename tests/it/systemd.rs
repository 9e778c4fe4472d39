//! systemd: the unit is right, and the daemon says when it is ready.

use std::{os::unix::net::UnixDatagram, process::Command};

use rustix::process::Signal;

use crate::support::{Background, Database, PATIENCE, kvqueue};

#[test]
fn it_tells_when_it_is_ready_and_when_it_stops() {
    let db = Database::new();
    let path = db.file("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = kvqueue(&db, &["run", "--queue", "q", "--handler", "log"]);
    command.env("NOTIFY_SOCKET", &path);
    let daemon = Background::start(command);
    let told = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    };
    assert_eq!(told(), "READY=1");
    daemon.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn the_unit_is_right() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("systemd-analyze is not installed, so the unit is not verified");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("kvqueue.service");
    let text = include_str!("../../systemd/kvqueue.service")
        .replace("/usr/local/bin/kvqueue", env!("CARGO_BIN_EXE_kvqueue"));
    std::fs::write(&unit, text).unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn the_unit_waits_longer_than_the_grace() {
    let unit = include_str!("../../systemd/kvqueue.service");
    let stop: u64 =
        unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap().parse().unwrap();
    // Handlers and consumers have two seconds after the grace.
    assert!(stop > kvqueue::Config::default().grace.as_secs() + 2);
}
