//! What systemd is told, and when.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use sd_notify::NotifyState;

use super::{
    notifier::{Notifier, Otherwise},
    status::{self, Rate},
};
use crate::{
    lifecycle::DRAIN_TAIL,
    status::{DaemonStatus, Phase},
};

/// The status line changes at most so often, but for a new phase.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// systemd is asked for more time so often in a drain...
const EXTEND_EVERY: Duration = Duration::from_secs(5);

/// ...and for so much.
const EXTEND_BY: Duration = Duration::from_secs(15);

/// A drain may take so much longer than it should before no more time is asked for.
const SLACK: Duration = Duration::from_secs(5);

/// Tells systemd. The status's listener and the watchdog's task each have it say their part.
#[derive(Debug)]
pub(super) struct Teller {
    notifier: Notifier,
    /// Whether systemd waits for the watchdog's word.
    fed: bool,
    status: Arc<DaemonStatus>,
    said: Mutex<Said>,
}

/// What was said last.
#[derive(Debug)]
struct Said {
    phase: Phase,
    status: String,
    status_at: Option<Instant>,
    extended_at: Option<Instant>,
    rate: Rate,
}

/// What the beginning of a phase means to systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Ready,
    Reloading,
    Stopping,
}

/// What systemd is to hear when a phase begins after another. It hears of no reload before it has heard that the daemon is ready, and of
/// nothing after a stop.
fn turn(before: Phase, now: Phase) -> Option<Turn> {
    match (before, now) {
        (Phase::Draining, _) | (_, Phase::Starting) | (Phase::Starting, Phase::Reloading) => None,
        (_, Phase::Draining) => Some(Turn::Stopping),
        (Phase::Starting | Phase::Reloading, Phase::Ready) => Some(Turn::Ready),
        (Phase::Ready | Phase::Reloading, Phase::Reloading) => Some(Turn::Reloading),
        (Phase::Ready, Phase::Ready) => None,
    }
}

impl Teller {
    pub(super) fn new(notifier: Notifier, fed: bool, status: Arc<DaemonStatus>) -> Self {
        let said = Said {
            phase: Phase::Starting,
            status: String::new(),
            status_at: None,
            extended_at: None,
            rate: Rate::default(),
        };
        Self { notifier, fed, status, said: Mutex::new(said) }
    }

    /// A phase begins.
    pub(super) fn phase(&self, phase: Phase) {
        let mut said = self.said.lock().expect("nothing panics while it holds the lock");
        let Some(turn) = turn(said.phase, phase) else { return };
        said.phase = phase;
        let now = Instant::now();
        let mut message = match turn {
            Turn::Ready => vec![NotifyState::Ready],
            Turn::Reloading => reloading(),
            Turn::Stopping => vec![NotifyState::Stopping],
        };
        message.extend(self.extension(&mut said, now));
        let status = self.status(&mut said, now, None);
        message.push(NotifyState::Status(&status));
        self.notifier.tell(&message, Otherwise::Keep);
        (said.status_at, said.status) = (Some(now), status);
    }

    /// The watchdog's task has gone round: nothing is stuck, or this is.
    pub(super) fn round(&self, stuck: Option<&str>) {
        let mut said = self.said.lock().expect("nothing panics while it holds the lock");
        let now = Instant::now();
        let mut message = Vec::new();
        if self.fed && stuck.is_none() {
            message.push(NotifyState::Watchdog);
        }
        message.extend(self.extension(&mut said, now));
        let status = said.status_at.is_none_or(|at| now - at >= STATUS_EVERY);
        let status = status.then(|| self.status(&mut said, now, stuck));
        let status = status.filter(|status| *status != said.status);
        if let Some(status) = &status {
            message.push(NotifyState::Status(status));
        }
        if message.is_empty() {
            return;
        }
        let told = self.notifier.tell(&message, Otherwise::Drop);
        if let (true, Some(status)) = (told, status) {
            (said.status_at, said.status) = (Some(now), status);
        }
    }

    fn status(&self, said: &mut Said, now: Instant, stuck: Option<&str>) -> String {
        let snapshot = self.status.snapshot();
        let rate = said.rate.at(now, snapshot.queues.iter().map(|queue| queue.finished).sum());
        let drain_left = self.status.drain_ends().map(|ends| ends.saturating_duration_since(now));
        status::line(&snapshot, rate, drain_left, stuck)
    }

    /// In a drain, from time to time: that it may take longer than systemd waits for a stop.
    fn extension(&self, said: &mut Said, now: Instant) -> Option<NotifyState<'static>> {
        let ends = self.status.drain_ends()?.checked_add(DRAIN_TAIL + SLACK)?;
        if said.extended_at.is_some_and(|at| now - at < EXTEND_EVERY) {
            return None;
        }
        let time = EXTEND_BY.min(ends.saturating_duration_since(now));
        if time.is_zero() {
            return None;
        }
        said.extended_at = Some(now);
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        Some(NotifyState::ExtendTimeoutUsec(micros))
    }
}

/// systemd takes the reload for the one that it asked for by the time.
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
