//! What an item waits for, in words and as JSON.

use std::time::Duration;

use foundationdb::Transaction;
use kvqueue_queue::{AtLeast, HeldBy, ItemId, ItemView, Pause, Queue, QueueError, Waiting, WaitsOn};
use serde_json::{Map, Value, json};

use super::states::texts;
use crate::{
    base::{clock::now, json, text::visible, times::between},
    config::duration,
};

/// An item, and why it has not been handled yet.
#[derive(Debug)]
pub(super) struct Why {
    pub(super) view: ItemView,
    /// Of a ready item.
    waiting: Option<Waiting>,
    pause: Option<Pause>,
}

impl Why {
    /// Reads it; `None` if the queue has no such item. Conflicts with nothing.
    pub(super) async fn read(
        queue: &Queue,
        tr: &Transaction,
        id: &ItemId,
    ) -> Result<Option<Self>, QueueError> {
        let Some(view) = queue.view_item(tr, id).await? else { return Ok(None) };
        let (waiting, pause) = (queue.waiting(tr, id).await?, queue.paused(tr).await?);
        Ok(Some(Self { view, waiting, pause }))
    }

    /// The reason in words.
    fn sentence(&self) -> String {
        let reason = (texts(self.view.state).why)(self);
        match &self.pause {
            Some(pause) if pause.reason.is_empty() && !pause.frozen => {
                format!("the queue is paused; {reason}")
            }
            Some(pause) => format!("the queue is paused, {}; {reason}", visible(pause.why())),
            None => reason,
        }
    }

    /// As in " after 2 attempts".
    pub(super) fn after_attempts(&self) -> String {
        match self.view.attempts() {
            0 => String::new(),
            1 => " after 1 attempt".to_owned(),
            n => format!(" after {n} attempts"),
        }
    }

    /// When it is ready, if it waits for its time.
    pub(super) fn due(&self) -> String {
        let now = now();
        match self.view.due {
            Some(due) if due > now => {
                let wait = duration::format(whole_seconds(between(now, due)));
                format!("it is ready in {wait}, at {}", json::time(due))
            }
            _ => "its time has come, and the next look of a daemon makes it ready".to_owned(),
        }
    }

    /// How long its lease lasts.
    pub(super) fn running(&self) -> String {
        match self.view.lease.map(|lease| lease.left) {
            Some(Some(left)) => format!(
                "it is running; its lease lasts {} if the worker does not extend it",
                duration::format(whole_seconds(left))
            ),
            _ => "it is running, but its lease has expired; a daemon returns it soon".to_owned(),
        }
    }

    /// What a ready item waits for.
    pub(super) fn ready(&self) -> String {
        let Some(Waiting { on, items_before, keys_before }) = &self.waiting else {
            return "it is ready".to_owned();
        };
        let before = match keys_before {
            Some(keys) => format!(
                "{} and {} before it",
                counted(*items_before, self.of_what()),
                counted(*keys, ["key", "keys"])
            ),
            None => format!("{} before it", counted(*items_before, self.of_what())),
        };
        match on {
            WaitsOn::Turn => format!("it waits for its turn: {before}"),
            WaitsOn::Slot { scope, running, most } => {
                format!("it waits for a slot of {}: {running} of {most} running, {before}", named(scope))
            }
            WaitsOn::Suspects => format!(
                "it waits for a process that has no suspect, since a lease of the first item of its key has expired: {before}"
            ),
            WaitsOn::Hold(HeldBy::Dead(id)) => format!(
                "it waits for item {id} of its key, which is a dead letter; retry or purge that, or unblock the key"
            ),
            WaitsOn::Hold(by) => {
                format!("it waits for item {} of its key, which is tried again first", by.item())
            }
            WaitsOn::Start { scope, wait, throttled } => format!(
                "it waits for the {} of {}: the next start is in {}, {before}",
                if *throttled { "throttle" } else { "rate" },
                named(scope),
                duration::format(whole_millis(*wait))
            ),
        }
    }

    /// What comes before it.
    fn of_what(&self) -> [&'static str; 2] {
        match self.view.id.key() {
            Some(_) => ["item of its key", "items of its key"],
            None => ["item", "items"],
        }
    }

    /// The reason, as fields of the item's JSON.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::from_iter([("why".to_owned(), self.sentence().into())]);
        let Some(Waiting { on, items_before, keys_before }) = &self.waiting else { return fields };
        let mut waiting = match on {
            WaitsOn::Turn => json!({ "on": "turn" }),
            WaitsOn::Slot { scope, running, most } => {
                json!({ "on": "slot", "scope": lossy(scope), "running": running, "most": most })
            }
            WaitsOn::Suspects => json!({ "on": "suspect" }),
            WaitsOn::Hold(by) => json!({ "on": "item", "item": by.item().to_string() }),
            WaitsOn::Start { scope, wait, throttled } => {
                let on = if *throttled { "throttle" } else { "rate" };
                json!({ "on": on, "scope": lossy(scope), "wait_seconds": wait.as_secs_f64() })
            }
        };
        let numbers = [("items_before", Some(items_before)), ("keys_before", keys_before.as_ref())];
        for (name, number) in numbers.into_iter().filter_map(|(name, number)| Some((name, number?))) {
            waiting[name] = json!({ "at_least": number.counted, "exact": number.is_all });
        }
        fields.insert("waiting".to_owned(), waiting);
        fields
    }
}

fn lossy(scope: &[u8]) -> String {
    String::from_utf8_lossy(scope).into_owned()
}

/// A scope, for people.
fn named(scope: &[u8]) -> String {
    match scope {
        [] => "the whole queue".to_owned(),
        _ => visible(&lossy(scope)),
    }
}

fn counted(number: AtLeast, [one, several]: [&str; 2]) -> String {
    let AtLeast { counted, is_all } = number;
    let what = if counted == 1 { one } else { several };
    format!("{}{counted} {what}", if is_all { "" } else { "at least " })
}

fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs().max(1))
}

fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
}
