//! `kvqueue recount`

use anyhow::bail;
use kvqueue_queue::{Counted, IndexFaults, Kind, Recount, RetryPolicy};
use serde_json::{Value, json};

use super::{client::Client, globals::Globals, output, target::Target};
use crate::{audit::Action, base::exit::Exit};

/// Compare a queue's counters with its items, and correct them
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Compare a queue's counters with its items, and correct them. Counters go wrong where a program pushes without counting, or counts \
    items that it does not push; `len`, the page and the metrics show what the counters say. Producers and consumers may go on meanwhile.\n\n\
    In a keyed queue it also looks for keys whose items no fetch finds, and for limits with a wrong count of running items, and corrects both.\n\n\
    Items are counted in one transaction, which has five seconds: about ten million items fit. If there are more, nothing is changed, and the exit code is 1."
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Compare and change nothing; exit with 1 if they differ
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    pub(super) fn audited(&self) -> Option<Action> {
        (!self.dry_run).then_some(Action::QUEUE_RECOUNT)
    }

    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find_there(&client)?;
        let policy = RetryPolicy::default();
        let found = if self.dry_run {
            client.ask(queue.compare(client.db(), &policy))?
        } else {
            client.check_not_frozen(&queue)?;
            client.store(|record| record.about(queue.name()))?;
            client.ask(queue.recount(client.db(), &policy))?
        };
        let name = self.target.queue.display();
        let Some(found) = found else {
            bail!(
                "cannot count queue \"{name}\": it has more items than can be counted in the five seconds of a transaction; nothing was changed"
            )
        };
        let mut object = output::about(queue.name(), "right", found.is_right());
        object["corrected"] = json!(!found.is_right() && !self.dry_run);
        for (state, counted) in states(&found) {
            object[state] = counted
                .map_or(Value::Null, |it| json!({ "by_counters": it.by_counters, "by_rows": it.by_rows }));
        }
        if let Some(IndexFaults { lost_keys, wrong_scopes }) = found.index {
            object["index"] = json!({ "lost_keys": lost_keys, "wrong_scopes": wrong_scopes });
        }
        let text = match (found.is_right(), self.dry_run) {
            (true, _) if queue.kind() == Kind::Keyed && found.index.is_none() => {
                format!(
                    "the counters of {name} are right; its keys are too many to be compared, or a lease cannot be read"
                )
            }
            (true, _) => format!("the counters of {name} are right"),
            (false, true) => format!("the counters of {name} are wrong: {}", differences(&found)),
            (false, false) => format!("corrected the counters of {name}: {}", differences(&found)),
        };
        output::line(globals.json, text.as_bytes(), &object)?;
        Ok(if self.dry_run && !found.is_right() { Exit::Failed } else { Exit::Done })
    }
}

fn states(found: &Recount) -> [(&'static str, Option<Counted>); 3] {
    [("ready", found.ready), ("waiting", Some(found.waiting)), ("dead", Some(found.dead))]
}

/// The counters that differ from the rows, with both numbers, and what is wrong with the index of a keyed queue.
pub(super) fn differences(found: &Recount) -> String {
    let differs = |(state, counted): (&str, Option<Counted>)| {
        let Counted { by_counters, by_rows } = counted?;
        (by_counters != by_rows)
            .then(|| format!("{by_counters} {state} by its counters, {by_rows} by its items"))
    };
    let counters = states(found).into_iter().filter_map(differs);
    let IndexFaults { lost_keys, wrong_scopes } = found.index.unwrap_or_default();
    let index = [
        ("keys that fetches do not find", lost_keys),
        ("scopes (queue, tenants, keys) with a wrong count of running items", wrong_scopes),
    ];
    let index = index.into_iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what}: {n}"));
    counters.chain(index).collect::<Vec<_>>().join("; ")
}
