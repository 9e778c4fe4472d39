use super::*;
use crate::{config::Config, status::DaemonStatus};

fn config() -> Config {
    toml::from_str("[queues.a]\nhandler = 'log'\n[queues.b]\nhandler = 'log'").unwrap()
}

/// Two queues and a consumer.
fn status() -> std::sync::Arc<DaemonStatus> {
    let status = DaemonStatus::new("embedded:data");
    status.configure(None, &config());
    status.join(1, &"a".into(), std::num::NonZeroUsize::MIN, 0);
    status
}

fn shown(status: &DaemonStatus, rate: f64) -> String {
    line(&status.summary(), rate, None, None)
}

#[test]
fn status_line_shows_the_phase_and_figures() {
    let status = status();
    assert_eq!(shown(&status, 0.0), "waiting for the database");
    status.phase(Phase::Ready);
    let meters = status.metrics.queue(&"a".into());
    let _held = meters.in_flight.hold(7);
    assert_eq!(shown(&status, 1_234.0), "2 queues, 1 consumer, 7 in flight, 1.2k items/s");
    status.phase(Phase::Reloading);
    assert_eq!(shown(&status, 0.0), "reloading the configuration");
    status.phase(Phase::Draining);
    let draining = |left| line(&status.summary(), 0.0, Some(left), None);
    assert_eq!(draining(Duration::from_millis(11_001)), "draining: 7 in flight, 12 s left");
    assert_eq!(draining(Duration::ZERO), "draining: 7 in flight, the shutdown timeout is over");
}

#[test]
fn status_line_shows_problems() {
    let status = status();
    status.phase(Phase::Ready);
    status.pause_state(&"b".into()).pause_locally(true);
    status.consumers()[0].set(crate::consumer::status::ConsumerState::Backoff);
    status.set_database(Err("timed out".to_owned()));
    status.refused("database:\nneeds a restart".to_owned());
    insta::assert_snapshot!(shown(&status, 0.0), @"2 queues (1 paused), 1 consumer, 0 in flight, 0 items/s; 1 consumer waiting for the database; the database does not answer: timed out; reload refused: database: needs a restart");
    assert_eq!(line(&status.summary(), 0.0, None, Some("this is stuck")), "this is stuck");
}

#[test]
fn status_line_has_no_newlines_and_a_bounded_length() {
    let status = status();
    status.phase(Phase::Ready);
    status.refused("ü\n".repeat(1_000));
    let line = shown(&status, 0.0);
    assert!(!line.contains('\n'));
    assert_eq!(line.chars().count(), LONGEST + 1);
}

#[test]
fn rates_are_shown_with_few_digits() {
    let rates = [0.0, 0.04, 9.949, 9.95, 999.4, 1_000.0, 999_949.0, 2.5e6];
    assert_eq!(rates.map(short), ["0", "0.0", "9.9", "10", "999", "1.0k", "999.9k", "2.5M"]);
}

#[test]
fn a_rate_is_over_a_second_at_least() {
    let (mut rate, start) = (Rate::default(), Instant::now());
    let at = |millis| start + Duration::from_millis(millis);
    assert_eq!(rate.at(at(0), 100), 0.0);
    assert_eq!(rate.at(at(500), 200), 0.0);
    assert_eq!(rate.at(at(2_000), 300), 100.0);
    assert_eq!(rate.at(at(2_500), 900), 100.0);
}
