//! Queues of the database that the daemon does not work on: what was pushed to a wrong name is among them.

use serde::Deserialize;
use serde_json::Value;

use super::{Figures, Line, Mood, fitting};
use crate::cli::daemon::{AskError, Daemon};

/// All queues of a daemon's database.
const ALL: &str = "/api/v1/queues?all=true";

/// So many of them are named.
const NAMED: usize = 5;

/// Longer names are cut.
const NAME: usize = 40;

/// A queue that is in the database alone.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Other {
    queue: String,
    ready: i64,
}

/// Asks a daemon for the queues of its database that it does not work on.
pub(super) fn ask(daemon: &Daemon, figures: &Figures) -> Result<Vec<Value>, AskError> {
    let mut answer = daemon.get(ALL)?;
    let mut queues = answer["queues"].as_array_mut().map(std::mem::take).unwrap_or_default();
    queues.retain(|it| figures.queues.iter().all(|own| it["queue"] != *own.queue));
    Ok(queues)
}

/// How many there are, and those with most items ready.
pub(super) fn line(others: &[Value]) -> Option<Line> {
    let mut queues: Vec<Other> = others.iter().filter_map(|it| Deserialize::deserialize(it).ok()).collect();
    queues.sort_by_key(|it| std::cmp::Reverse(it.ready));
    let named =
        queues.iter().take(NAMED).map(|it| format!("{} {} ready", fitting(&it.queue, NAME), it.ready));
    let named = named.collect::<Vec<_>>().join(", ");
    let (count, more) = (queues.len(), queues.len().saturating_sub(NAMED));
    let plural = if count == 1 { "" } else { "s" };
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let mood = if queues.first()?.ready > 0 { Mood::Warn } else { Mood::Quiet };
    Some(Line::new(format!("{count} other queue{plural} in the database: {named}{more}"), mood))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(ready: &[i64]) -> Option<String> {
        let queue =
            |(at, ready): (usize, &i64)| json!({ "queue": format!("q{at}"), "ready": ready, "later": 0 });
        let queues: Vec<_> = ready.iter().enumerate().map(queue).collect();
        line(&queues).map(|line| line.show(false, 200))
    }

    #[test]
    fn those_with_most_items_are_named() {
        assert_eq!(shown(&[]), None);
        assert_eq!(shown(&[1]).unwrap(), "1 other queue in the database: q0 1 ready");
        let many = shown(&[0, 0, 7, 1, 0, 0, 2]).unwrap();
        assert_eq!(
            many,
            "7 other queues in the database: q2 7 ready, q6 2 ready, q3 1 ready, q0 0 ready, q1 0 ready and 2 more"
        );
    }
}
