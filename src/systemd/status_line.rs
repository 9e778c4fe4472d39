//! The line that `systemctl status` shows. Pure.

use std::time::{Duration, Instant};

use crate::status::{Phase, Summary};

/// The most characters of a line: systemd cuts messages at 4 KiB.
const LONGEST: usize = 400;

/// The shortest time that a rate is measured over.
const OVER: Duration = Duration::from_secs(1);

/// Items a second, from a count that grows.
#[derive(Debug, Default)]
pub(super) struct Rate {
    counted: Option<(Instant, u64)>,
    rate: f64,
}

impl Rate {
    /// The rate when the count is this.
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

/// The line. `drain_left` is the rest of a drain, `stuck` the stuck part.
pub(super) fn line(
    summary: &Summary,
    rate: f64,
    drain_left: Option<Duration>,
    stuck: Option<&str>,
) -> String {
    let in_flight = summary.in_flight;
    let line = match (stuck, summary.phase) {
        (Some(stuck), _) => stuck.to_owned(),
        (None, Phase::Starting) => "waiting for the database".to_owned(),
        (None, Phase::Reloading) => "reloading the configuration".to_owned(),
        (None, Phase::Draining) => match drain_left.map(|left| left.as_secs_f64().ceil()) {
            Some(left) if left > 0.0 => format!("draining: {in_flight} in flight, {left} s left"),
            _ => format!("draining: {in_flight} in flight, the shutdown timeout is over"),
        },
        (None, Phase::Ready) => ready(summary, rate),
    };
    one_line(&line)
}

fn ready(summary: &Summary, rate: f64) -> String {
    let Summary { queues, paused, consumers, backing_off, in_flight, database_error, refused, .. } = summary;
    let mut line = count(*queues, "queue");
    if *paused > 0 {
        line.push_str(&format!(" ({paused} paused)"));
    }
    let consumers = count(*consumers, "consumer");
    line.push_str(&format!(", {consumers}, {in_flight} in flight, {} items/s", short(rate)));
    if *backing_off > 0 {
        line.push_str(&format!("; {} waiting for the database", count(*backing_off, "consumer")));
    }
    if let Some(error) = database_error {
        line.push_str(&format!("; the database does not answer: {error}"));
    }
    if let Some(reason) = refused {
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

/// Without line breaks: a second line would be another message to systemd.
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
