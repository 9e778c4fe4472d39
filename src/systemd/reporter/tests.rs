use std::{os::unix::net::UnixDatagram, sync::Weak};

use tempfile::TempDir;

use super::*;

/// systemd, a status, and the reporter between them.
struct Scene {
    systemd: UnixDatagram,
    status: Arc<DaemonStatus>,
    reporter: Arc<Reporter>,
    _directory: TempDir,
}

impl Scene {
    fn new(pings: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let status = DaemonStatus::new("embedded:data");
        let notifier = Notifier::to(path.as_os_str()).unwrap();
        let reporter = Arc::new(Reporter::new(notifier, pings, status.clone()));
        let listener: Weak<Reporter> = Arc::downgrade(&reporter);
        assert!(status.listen(move |phase| listener.upgrade().unwrap().phase(phase)));
        Self { systemd, status, reporter, _directory: directory }
    }

    /// The messages since the last call; times are replaced by dots.
    fn received(&self) -> Vec<String> {
        let mut text = [0; 4096];
        let mut received = Vec::new();
        while let Ok(length) = self.systemd.recv(&mut text) {
            let message = String::from_utf8_lossy(&text[..length]).into_owned();
            let lines = message.lines().map(|line| match line.split_once('=') {
                Some((key @ ("MONOTONIC_USEC" | "EXTEND_TIMEOUT_USEC"), value)) => {
                    assert!(value.parse::<u64>().unwrap() > 0);
                    format!("{key}=..")
                }
                _ => line.to_owned(),
            });
            received.push(lines.collect::<Vec<_>>().join(" "));
        }
        received
    }
}

const READY: &str = "READY=1 STATUS=0 queues, 0 consumers, 0 in flight, 0 items/s";

const RELOADING: &str = "RELOADING=1 MONOTONIC_USEC=.. STATUS=reloading the configuration";

#[test]
fn each_phase_is_notified_in_one_message() {
    let scene = Scene::new(false);
    let Scene { status, reporter, .. } = &scene;
    reporter.round(None);
    assert_eq!(scene.received(), ["STATUS=waiting for the database"]);
    status.phase(Phase::Ready);
    status.phase(Phase::Reloading);
    status.phase(Phase::Ready);
    status.phase(Phase::Reloading);
    status.refused("no".to_owned());
    status.phase(Phase::Ready);
    let refused = format!("{READY}; reload refused: no");
    assert_eq!(scene.received(), [READY, RELOADING, READY, RELOADING, &refused]);
}

#[test]
fn only_timeout_extensions_follow_a_stop() {
    let scene = Scene::new(false);
    scene.status.phase(Phase::Ready);
    scene.status.phase(Phase::Reloading);
    scene.status.draining(Duration::from_secs(30));
    scene.status.phase(Phase::Ready);
    let stopping = "STOPPING=1 EXTEND_TIMEOUT_USEC=.. STATUS=draining: 0 in flight, 30 s left";
    assert_eq!(scene.received(), [READY, RELOADING, stopping]);
    scene.reporter.round(None);
    assert_eq!(scene.received(), Vec::<String>::new(), "a second after it at the earliest");
}

#[test]
fn timeout_extensions_are_repeated_up_to_a_bound() {
    let scene = Scene::new(false);
    scene.status.draining(Duration::from_secs(10));
    let start = Instant::now();
    let asked = |seconds| {
        let mut sent = scene.reporter.sent.lock().unwrap();
        let state = scene.reporter.extension(&mut sent, start + Duration::from_secs(seconds))?;
        let micros: u64 = state.to_string().rsplit_once('=').unwrap().1.parse().unwrap();
        Some(micros.div_ceil(1_000_000))
    };
    assert_eq!([4, 5, 6, 11].map(asked), [None, Some(15), None, Some(10)]);
    assert_eq!([16, 21, 22, 99].map(asked), [Some(5), None, None, None]);
}

#[test]
fn the_watchdog_is_fed_while_nothing_is_stuck() {
    let scene = Scene::new(true);
    scene.reporter.round(None);
    scene.reporter.round(None);
    assert_eq!(scene.received(), ["WATCHDOG=1 STATUS=waiting for the database", "WATCHDOG=1"]);
    scene.reporter.sent.lock().unwrap().status_at = None;
    scene.reporter.round(Some("this is stuck"));
    scene.reporter.round(Some("this is stuck"));
    assert_eq!(scene.received(), ["STATUS=this is stuck"]);
}

#[test]
fn a_reload_before_readiness_sends_no_reload_messages() {
    let scene = Scene::new(false);
    scene.status.phase(Phase::Reloading);
    scene.status.phase(Phase::Ready);
    scene.status.phase(Phase::Ready);
    assert_eq!(scene.received(), [READY]);
}
