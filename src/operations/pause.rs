//! Pausing a queue, for all daemons or for one, and letting it go on.

use std::cell::Cell;

use clap::Args;
use kvqueue_queue::{MAX_REASON, Pause, Queue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Answer, Method, Needs, Operation, Refusal, Route, Site, Text, Visit, is_false, names::QueueName,
};
use crate::{
    audit::Action,
    base::{clock, json::time},
};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<PauseQueue>();
    visit.operation::<ResumeQueue>();
}

/// Pause a queue: all daemons leave its items where they are, until it is resumed
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Args)]
#[command(long_about = "Pause a queue: all daemons leave its items where they are, until it is resumed.\n\n\
    Pushes go on. Items that were fetched before are still handled and acknowledged. Scheduled items become ready when they are due. The pause is kept in the database, and outlives daemons. `pop` takes items all the same. A queue that is paused already \
    gets the new reason.")]
pub(crate) struct PauseQueue {
    /// The queue
    #[serde(flatten)]
    queue: QueueName,
    /// Why, for other operators; at most 500 bytes
    #[serde(default)]
    #[schemars(length(max = 500))]
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Only for the running daemon, until it ends or resumes the queue
    #[serde(default, skip_serializing_if = "is_false")]
    #[arg(long, conflicts_with_all = ["reason", "create"])]
    pub(crate) local: bool,
    /// Also if neither the database nor the configuration has the queue: before the first push to it
    #[serde(default, skip_serializing_if = "is_false")]
    #[arg(long)]
    create: bool,
}

/// Resume a paused queue: all daemons take its items again
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Args)]
pub(crate) struct ResumeQueue {
    /// The queue
    #[serde(flatten)]
    queue: QueueName,
    /// Also if it is frozen: if `migrate` moves its items, or has moved them
    #[serde(default, skip_serializing_if = "is_false")]
    #[arg(long)]
    frozen: bool,
    /// Only for the running daemon: end its own pause
    #[serde(default, skip_serializing_if = "is_false")]
    #[arg(long, conflicts_with = "frozen")]
    pub(crate) local: bool,
}

/// A queue that is paused, or goes on.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PauseState {
    #[serde(flatten)]
    queue: QueueName,
    paused: bool,
    /// Since when it is paused for all daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// Why it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whether it was paused for all daemons before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was_paused: Option<bool>,
    /// Whether this is for one daemon alone.
    #[serde(default, skip_serializing_if = "is_false")]
    local: bool,
    /// Whether a daemon that was asked has it paused for itself.
    #[serde(default, skip_serializing_if = "is_false")]
    paused_locally: bool,
}

impl Answer for PauseState {
    fn note(&self) -> Option<String> {
        let queue = &self.queue;
        self.paused_locally.then(|| {
            format!("a daemon has it paused for itself alone; to have that take its items: kvqueue resume {queue} --local")
        })
    }

    fn text(&self) -> Text {
        let Self { queue, paused, was_paused, local, paused_locally, .. } = self;
        let done = if *paused { "paused" } else { "resumed" };
        Text::Line(match (local, was_paused, paused_locally) {
            (true, ..) => format!("{done} {queue} in this daemon"),
            (_, Some(false), true) => format!("{queue} was not paused for all daemons"),
            (_, Some(false), false) => format!("{queue} was not paused"),
            _ => format!("{done} {queue}"),
        })
    }
}

impl Operation for PauseQueue {
    const ROUTE: Route = Route::change(
        Action::new(
            "queue.pause",
            "pause a queue",
            "`reason`; `local` and `daemon` for a pause of one daemon",
        ),
        Method::Put,
        "/api/v1/queues/{queue}/pause",
    )
    .with_notes("The body may be left out. With `local` only this daemon pauses it");
    type Answer = PauseState;

    fn needs(&self) -> Needs<'_> {
        Needs::Queue { name: &self.queue, create: self.create }
    }

    fn check(&self) -> Result<(), Refusal> {
        match self.reason.len() {
            ..=MAX_REASON => Ok(()),
            len => Err(Refusal::bad(format!("the reason has {len} bytes, at most {MAX_REASON} are kept"))),
        }
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<PauseState> {
        let Self { queue: name, reason, .. } = self;
        if self.local {
            return locally(site, name, true).await;
        }
        let queue = &site.any_queue(name)?;
        site.expect_queue(queue, Some(self.create)).await?;
        let pause = &Pause { at: clock::now(), frozen: false, reason: reason.clone() };
        let record = site.record().about(queue.name());
        let record = if reason.is_empty() { record } else { record.with("reason", reason.as_str()) };
        let before = site.change(record, async |tr, audit| {
            let before = queue.paused(tr).await?;
            // A pause that is repeated does not fill the audit trail.
            if !is_frozen(before.as_ref()) && !is_same(before.as_ref(), pause) {
                queue.pause(tr, pause);
                audit.write(tr);
            }
            Ok(before)
        });
        let before = before.await?;
        check_not_frozen(queue, before.as_ref())?;
        let since = before.filter(|before| is_same(Some(before), pause)).map_or(pause.at, |before| before.at);
        let (since, reason) = (Some(time(since)), Some(reason.clone()));
        Ok(PauseState { queue: name.clone(), paused: true, since, reason, ..PauseState::default() })
    }
}

impl Operation for ResumeQueue {
    const ROUTE: Route = Route::change(
        Action::new(
            "queue.resume",
            "resume a paused queue",
            "`frozen`: the queue of a migration; `local` and `daemon`",
        ),
        Method::Delete,
        "/api/v1/queues/{queue}/pause",
    )
    .with_notes(
        "`local=true` for what was paused for this daemon; `frozen=true` also if a migration has frozen it",
    );
    type Answer = PauseState;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<PauseState> {
        let Self { queue: name, frozen: also_frozen, local } = self;
        if *local {
            return locally(site, name, false).await;
        }
        let queue = &site.any_queue(name)?;
        site.expect_queue(queue, None).await?;
        let record = site.record().about(queue.name()).with("frozen", *also_frozen);
        let was_paused = Cell::new(false);
        let before = site.change(record, async |tr, audit| {
            let before = queue.paused(tr).await?;
            was_paused.set(was_paused.get() || before.is_some());
            if before.is_some() && (*also_frozen || !is_frozen(before.as_ref())) {
                queue.resume(tr);
                audit.write(tr);
            }
            Ok(before)
        });
        let before = before.await?;
        if !also_frozen {
            check_not_frozen(queue, before.as_ref())?;
        }
        let was_paused = Some(was_paused.get());
        Ok(PauseState {
            queue: name.clone(),
            was_paused,
            paused_locally: site.pausing_daemon(&name.0).is_some(),
            ..PauseState::default()
        })
    }
}

/// Pauses or resumes the queue in this daemon alone.
async fn locally(site: &dyn Site, queue: &QueueName, paused: bool) -> anyhow::Result<PauseState> {
    site.pause_here(&queue.0, paused).await?;
    Ok(PauseState { queue: queue.clone(), paused, local: true, ..PauseState::default() })
}

fn is_frozen(pause: Option<&Pause>) -> bool {
    pause.is_some_and(|pause| pause.frozen)
}

/// Whether the queue is paused for the same reason already.
fn is_same(before: Option<&Pause>, pause: &Pause) -> bool {
    before.is_some_and(|before| !before.frozen && before.reason == pause.reason)
}

fn check_not_frozen(queue: &Queue, before: Option<&Pause>) -> Result<(), Refusal> {
    match before.filter(|pause| pause.frozen) {
        Some(pause) => Err(Refusal::frozen(&queue.name().escape_ascii().to_string(), pause)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::site::tests::TestSite;

    #[tokio::test]
    async fn a_pause_that_is_repeated_leaves_one_record_and_the_time_of_the_first() {
        let site = TestSite::new();
        let queue = QueueName(b"q".to_vec());
        let pause = async |reason: &str| {
            let pause =
                PauseQueue { queue: queue.clone(), reason: reason.to_owned(), local: false, create: true };
            pause.run(&site).await.unwrap().since
        };
        let resume = async || {
            let resume = ResumeQueue { queue: queue.clone(), frozen: false, local: false };
            resume.run(&site).await.map(|state| state.was_paused)
        };
        let (first, again) = (pause("a").await, pause("a").await);
        assert_eq!(first, again);
        assert!(pause("b").await >= first);
        assert_eq!(resume().await.unwrap(), Some(true));
        // It is nowhere now.
        assert_eq!(resume().await.unwrap_err().downcast::<Refusal>().unwrap().code, "no_queue");
        assert_eq!(site.records().await, 3);
    }
}
