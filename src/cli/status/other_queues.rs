//! Queues of the database that the daemon does not work on: what was pushed to a wrong name is among them.

use serde::Deserialize;
use serde_json::Value;

use super::{Figures, LONGEST_NAME, Line, Mood, figures::Paused, fitting};
use crate::cli::api_client::{ApiClient, AskError};

/// All queues of a daemon's database.
const ALL: &str = "/api/v1/queues?all=true";

/// The most that are named.
const NAMED: usize = 5;

/// A queue that is in the database alone.
#[derive(Debug, Deserialize)]
struct Other {
    queue: String,
    ready: i64,
    paused: Option<Paused>,
}

impl Other {
    fn line(&self) -> String {
        let paused = match &self.paused {
            None => "",
            Some(Paused { frozen: true, .. }) => " (frozen)",
            Some(_) => " (paused)",
        };
        format!("{} {} ready{paused}", fitting(&self.queue, LONGEST_NAME), self.ready)
    }
}

/// Other queues, by name.
#[derive(Debug, Default)]
pub(super) struct Others {
    pub(super) queues: Vec<Value>,
    /// Whether there are more behind them.
    pub(super) more: bool,
}

/// Asks a daemon for the queues of its database that it does not work on, as many as it lists at once.
pub(super) fn ask(daemon: &ApiClient, figures: &Figures) -> Result<Others, AskError> {
    let mut answer = daemon.get(ALL)?;
    let mut queues = answer["queues"].as_array_mut().map(std::mem::take).unwrap_or_default();
    queues.retain(|it| figures.queues.iter().all(|own| it["queue"] != *own.queue));
    Ok(Others { queues, more: answer["next"].is_string() })
}

/// How many there are. Paused queues are named first, then queues with the most ready items.
pub(super) fn line(others: &Others) -> Option<Line> {
    let found = others.queues.iter();
    let mut queues: Vec<Other> = found.filter_map(|it| Deserialize::deserialize(it).ok()).collect();
    queues.sort_by_key(|it| std::cmp::Reverse((it.paused.is_some(), it.ready)));
    let named = queues.iter().take(NAMED).map(Other::line).collect::<Vec<_>>().join(", ");
    let (count, more) = (queues.len(), queues.len().saturating_sub(NAMED));
    let plural = if count == 1 { "" } else { "s" };
    let at_least = if others.more { "more than " } else { "" };
    let more = if more == 0 { String::new() } else { format!(" and {at_least}{more} more") };
    let first = queues.first()?;
    let mood = if first.paused.is_some() || first.ready > 0 { Mood::Warn } else { Mood::Quiet };
    Some(Line::new(format!("{at_least}{count} other queue{plural} in the database: {named}{more}"), mood))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(ready: &[i64]) -> Option<String> {
        let queue =
            |(at, ready): (usize, &i64)| json!({ "queue": format!("q{at}"), "ready": ready, "delayed": 0 });
        let queues: Vec<_> = ready.iter().enumerate().map(queue).collect();
        line(&Others { queues, more: false }).map(|line| line.show(false, 200))
    }

    #[test]
    fn other_queues_with_the_most_items_are_listed() {
        assert_eq!(shown(&[]), None);
        assert_eq!(shown(&[1]).unwrap(), "1 other queue in the database: q0 1 ready");
        let many = shown(&[0, 0, 7, 1, 0, 0, 2]).unwrap();
        assert_eq!(
            many,
            "7 other queues in the database: q2 7 ready, q6 2 ready, q3 1 ready, q0 0 ready, q1 0 ready and 2 more"
        );
    }

    #[test]
    fn paused_queues_are_named_first() {
        let pause = |frozen: bool| json!({ "since": 1, "reason": "bills", "frozen": frozen });
        let queues = [
            json!({ "queue": "a", "ready": 7, "paused": null }),
            json!({ "queue": "b", "ready": 0, "paused": pause(false) }),
            json!({ "queue": "c", "ready": 2, "paused": pause(true) }),
        ];
        let line = line(&Others { queues: queues.into(), more: true }).unwrap().show(false, 200);
        assert_eq!(
            line,
            "more than 3 other queues in the database: c 2 ready (frozen), b 0 ready (paused), a 7 ready"
        );
    }
}
