//! The line that `systemctl status` shows. Pure.

use std::time::{Duration, Instant};

use crate::status::{ConsumerState, Phase, Snapshot};

/// A line has at most so many characters: systemd cuts messages at 4 KiB.
const LONGEST: usize = 400;

/// A rate is over so long at least.
const OVER: Duration = Duration::from_secs(1);

/// Items a second, from how many there have been.
#[derive(Debug, Default)]
pub(super) struct Rate {
    counted: Option<(Instant, u64)>,
    rate: f64,
}

impl Rate {
    /// The rate when there have been so many.
    pub(super) fn at(&mut self, now: Instant, count: u64) -> f64 {
        let Some((at, before)) = self.counted else {
            self.counted = Some((now, count));
            return 0.0;
        };
        if now - at >= OVER {
            self.rate = count.saturating_sub(before) as f64 / (now - at).as_secs_f64();
            self.counted = Some((now, count));
        }
        self.rate
    }
}

/// The line. `drain_left` is of a drain, `stuck` says what does not move.
pub(super) fn line(
    snapshot: &Snapshot,
    rate: f64,
    drain_left: Option<Duration>,
    stuck: Option<&str>,
) -> String {
    let in_flight: i64 = snapshot.queues.iter().map(|queue| queue.in_flight).sum();
    let line = match (stuck, snapshot.phase) {
        (Some(stuck), _) => stuck.to_owned(),
        (None, Phase::Starting) => "waiting for the database".to_owned(),
        (None, Phase::Reloading) => "reloading the configuration".to_owned(),
        (None, Phase::Draining) => match drain_left.map(|left| left.as_secs_f64().ceil()) {
            Some(left) if left > 0.0 => format!("draining: {in_flight} in flight, {left} s left"),
            _ => format!("draining: {in_flight} in flight, the shutdown timeout is over"),
        },
        (None, Phase::Ready) => ready(snapshot, in_flight, rate),
    };
    one_line(&line)
}

fn ready(snapshot: &Snapshot, in_flight: i64, rate: f64) -> String {
    let paused =
        snapshot.queues.iter().filter(|queue| queue.paused.is_some() || queue.paused_locally).count();
    let waiting =
        snapshot.consumers.iter().filter(|consumer| consumer.stage == ConsumerState::Backoff).count();
    let mut line = count(snapshot.queues.len(), "queue");
    if paused > 0 {
        line.push_str(&format!(" ({paused} paused)"));
    }
    let consumers = count(snapshot.consumers.len(), "consumer");
    line.push_str(&format!(", {consumers}, {in_flight} in flight, {} items/s", short(rate)));
    if waiting > 0 {
        line.push_str(&format!("; {} waiting for the database", count(waiting, "consumer")));
    }
    if let Some(error) = &snapshot.database.error {
        line.push_str(&format!("; the database does not answer: {error}"));
    }
    if let Some(reason) = &snapshot.config.refused {
        line.push_str(&format!("; reload refused: {reason}"));
    }
    line
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// A rate in a few characters.
fn short(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate if rate < 999.5 => format!("{rate:.0}"),
        rate if rate < 999_950.0 => format!("{:.1}k", rate / 1e3),
        rate => format!("{:.1}M", rate / 1e6),
    }
}

/// A second line would be another message to systemd.
fn one_line(text: &str) -> String {
    let mut line: String =
        text.trim().chars().map(|char| if char.is_control() { ' ' } else { char }).take(LONGEST).collect();
    if text.trim().chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests;
