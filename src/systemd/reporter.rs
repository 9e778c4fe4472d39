//! Decides what to report to systemd, and when.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use sd_notify::NotifyState;

use super::{
    notifier::{Notifier, OnFull},
    status_line::{self, Rate},
};
use crate::{
    lifecycle::DRAIN_TAIL,
    status::{DaemonStatus, Phase},
};

/// The shortest time between two changes of the status line, except at a new phase.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// How often systemd is asked for more time in a drain...
const EXTEND_EVERY: Duration = Duration::from_secs(5);

/// ...and for how much.
const EXTEND_BY: Duration = Duration::from_secs(15);

/// How much longer than it should a drain may take before systemd is not asked for more time.
const SLACK: Duration = Duration::from_secs(5);

/// Reports to systemd. The status's listener reports phases, the watchdog's task reports rounds.
#[derive(Debug)]
pub(super) struct Reporter {
    notifier: Notifier,
    /// Whether systemd expects pings.
    pings: bool,
    status: Arc<DaemonStatus>,
    sent: Mutex<Sent>,
}

/// The last message.
#[derive(Debug)]
struct Sent {
    phase: Phase,
    status: String,
    status_at: Option<Instant>,
    extended_at: Option<Instant>,
    rate: Rate,
}

/// The message to systemd when a phase begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transition {
    Ready,
    Reloading,
    Stopping,
}

/// The message to systemd when a phase begins after another. It gets no reload before the daemon is ready, and
/// nothing after a stop.
fn transition(before: Phase, now: Phase) -> Option<Transition> {
    match (before, now) {
        (Phase::Draining, _) | (_, Phase::Starting) | (Phase::Starting, Phase::Reloading) => None,
        (_, Phase::Draining) => Some(Transition::Stopping),
        (Phase::Starting | Phase::Reloading, Phase::Ready) => Some(Transition::Ready),
        (Phase::Ready | Phase::Reloading, Phase::Reloading) => Some(Transition::Reloading),
        (Phase::Ready, Phase::Ready) => None,
    }
}

impl Reporter {
    pub(super) fn new(notifier: Notifier, pings: bool, status: Arc<DaemonStatus>) -> Self {
        let sent = Sent {
            phase: Phase::Starting,
            status: String::new(),
            status_at: None,
            extended_at: None,
            rate: Rate::default(),
        };
        Self { notifier, pings, status, sent: Mutex::new(sent) }
    }

    /// A phase begins.
    pub(super) fn phase(&self, phase: Phase) {
        let mut sent = self.sent.lock().expect("nothing panics while it holds the lock");
        let Some(transition) = transition(sent.phase, phase) else { return };
        sent.phase = phase;
        let now = Instant::now();
        let mut message = match transition {
            Transition::Ready => vec![NotifyState::Ready],
            Transition::Reloading => reloading(),
            Transition::Stopping => vec![NotifyState::Stopping],
        };
        message.extend(self.extension(&mut sent, now));
        let status = self.status(&mut sent, now, None);
        message.push(NotifyState::Status(&status));
        self.notifier.send(&message, OnFull::Keep);
        (sent.status_at, sent.status) = (Some(now), status);
    }

    /// A round of the watchdog's task is over: nothing is stuck, or this is.
    pub(super) fn round(&self, stuck: Option<&str>) {
        let mut sent = self.sent.lock().expect("nothing panics while it holds the lock");
        let now = Instant::now();
        let mut message = Vec::new();
        if self.pings && stuck.is_none() {
            message.push(NotifyState::Watchdog);
        }
        message.extend(self.extension(&mut sent, now));
        let status = sent.status_at.is_none_or(|at| now - at >= STATUS_EVERY);
        let status = status.then(|| self.status(&mut sent, now, stuck));
        let status = status.filter(|status| *status != sent.status);
        if let Some(status) = &status {
            message.push(NotifyState::Status(status));
        }
        if message.is_empty() {
            return;
        }
        let sent_now = self.notifier.send(&message, OnFull::Drop);
        if let (true, Some(status)) = (sent_now, status) {
            (sent.status_at, sent.status) = (Some(now), status);
        }
    }

    fn status(&self, sent: &mut Sent, now: Instant, stuck: Option<&str>) -> String {
        let summary = self.status.summary();
        let rate = sent.rate.at(now, summary.finished);
        let drain_left = self.status.drain_ends().map(|ends| ends.saturating_duration_since(now));
        status_line::line(&summary, rate, drain_left, stuck)
    }

    /// In a drain, from time to time: a request to wait longer for the stop.
    fn extension(&self, sent: &mut Sent, now: Instant) -> Option<NotifyState<'static>> {
        let ends = self.status.drain_ends()?.checked_add(DRAIN_TAIL + SLACK)?;
        if sent.extended_at.is_some_and(|at| now - at < EXTEND_EVERY) {
            return None;
        }
        let time = EXTEND_BY.min(ends.saturating_duration_since(now));
        if time.is_zero() {
            return None;
        }
        sent.extended_at = Some(now);
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        Some(NotifyState::ExtendTimeoutUsec(micros))
    }
}

/// By the time systemd recognises the reload that it asked for.
fn reloading() -> Vec<NotifyState<'static>> {
    let time = NotifyState::monotonic_usec_now().inspect_err(|error| {
        tracing::warn!(
            event = "clock_unreadable",
            %error,
            "cannot read the monotonic clock; systemd may not follow the reload"
        );
    });
    [NotifyState::Reloading].into_iter().chain(time).collect()
}

#[cfg(test)]
mod tests;
