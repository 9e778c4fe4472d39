//! `kvqueue item show`

use anyhow::bail;
use kvqueue_queue::{EndedItem, ItemId, ItemState, MAX_RESULT, Progress, Queue};
use serde_json::Value;

use super::{
    super::{
        client::Client, globals::Globals, holders::Holders, item_text, output, output::time, target::Target,
    },
    One,
};
use crate::{
    exit::Exit,
    item_history,
    json::{self, enqueued_at},
    text::visible,
    why::Why,
};

/// Print all that is known of an item, whatever its state: what it waits for, how its attempts ended, its payload; of one that has ended, what the history has
#[derive(Debug, clap::Args)]
#[command(override_usage = "kvqueue item show [OPTIONS] <QUEUE> <ID>\n       \
    kvqueue item show [OPTIONS] <QUEUE> --unique <KEY>")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    one: One,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.one.target.find_there(&client)?;
        let id = self.one.id(&client, &queue)?;
        match State::read(globals, &client, &self.one.target, &queue, &id)? {
            Some(state) => state.print(globals),
            None => bail!(gone(&self.one.target, &id)),
        }
    }
}

/// The queue has no such item, and had none as far as is known.
pub(super) fn gone(target: &Target, id: &ItemId) -> String {
    format!("queue {:?} has no item {id}: it has ended, or was never there", target.queue.display())
}

/// What is known of an item, to be printed.
pub(super) struct State {
    text: Vec<u8>,
    object: Value,
    /// Whether it is a dead letter, or has ended.
    pub(super) has_ended: bool,
    /// Why a part of it cannot be printed.
    problem: Option<String>,
}

impl State {
    /// Reads it; `None` if neither the queue nor its history has such an item.
    pub(super) fn read(
        globals: &Globals,
        client: &Client,
        target: &Target,
        queue: &Queue,
        id: &ItemId,
    ) -> anyhow::Result<Option<Self>> {
        let found = client.transact(|tr| async {
            let found = Why::read(queue, &tr, id).await;
            (tr, found)
        })?;
        let Some(why) = found else {
            let ended = client.transact(|tr| async {
                let ended = item_history::read(queue, &tr, id).await;
                (tr, ended)
            })?;
            return Ok(ended.map(|(item, result)| Self::of_ended(&item, result.as_deref())));
        };
        let mut object = json::view_with_limit(&why.view, target.max_attempts(client));
        why.insert(&mut object);
        let holders =
            why.view.lease.map(|_| Holders::ask(globals, client, &target.queue)).unwrap_or_default();
        holders.insert(why.view.lease.as_ref(), &mut object);
        let problem = why.view.item.as_ref().err();
        let problem = problem.map(|error| format!("cannot show the payload of item {id}: {error}"));
        let has_ended = why.view.state == ItemState::Dead;
        Ok(Some(Self { text: text(&why, &holders), object, has_ended, problem }))
    }

    /// An item that was there and has left its queue, of which no more is known.
    pub(super) fn left(id: &ItemId) -> Self {
        let text = item_text::fields(&[("id", id.to_string()), ("state", "finished".to_owned())]);
        Self { text: text.trim_end().into(), object: json::left(id), has_ended: true, problem: None }
    }

    fn of_ended(item: &EndedItem, result: Option<&[u8]>) -> Self {
        let mut text: Vec<u8> = ended_text(item).trim_end().into();
        if let Some(result) = result {
            text.extend_from_slice(b"\n\n");
            text.extend_from_slice(&item_text::for_reader(result));
        }
        Self { text, object: json::ended_with(item, result), has_ended: true, problem: None }
    }

    pub(super) fn print(&self, globals: &Globals) -> anyhow::Result<Exit> {
        output::line(globals.json, &self.text, &self.object)?;
        match &self.problem {
            None => Ok(Exit::Done),
            Some(problem) => bail!(problem.clone()),
        }
    }
}

/// What is kept of an ended item, as lines.
fn ended_text(item: &EndedItem) -> String {
    let mut lines = vec![
        ("id", item.id.to_string()),
        ("state", "finished".to_owned()),
        ("outcome", item.ending.to_string()),
        ("attempts", item.attempts.to_string()),
    ];
    lines.extend(item.id.key().map(|key| ("key", key.escape_ascii().to_string())));
    lines.extend(item.pushed.map(|at| ("pushed", time(at))));
    lines.extend(item.started.map(|at| ("started", time(at))));
    lines.push(("ended", time(item.ended)));
    lines.extend(item_history::took(item).map(|took| ("took", took)));
    lines.extend(item.worker.clone().map(|worker| ("worker", worker)));
    lines.extend(item.reason.clone().map(|reason| ("reason", reason)));
    lines.extend(item.attributes.iter().map(|(name, value)| ("attribute", format!("{name}={value}"))));
    lines.extend(item.result.map(|len| match len > MAX_RESULT {
        true => ("result", format!("more than {MAX_RESULT} bytes, not kept")),
        false => ("result", format!("{len} bytes")),
    }));
    item_text::fields(&lines)
}

/// As in `50 %, halfway, at TIME`.
fn progress_text(Progress { at, percent, message }: &Progress) -> String {
    let percent = percent.map(|percent| format!("{percent} %, ")).unwrap_or_default();
    let message = if message.is_empty() { String::new() } else { format!("{}, ", visible(message)) };
    format!("{percent}{message}at {}", time(*at))
}

/// All fields of an item as lines, then an empty line and the payload.
fn text(why: &Why, holders: &Holders) -> Vec<u8> {
    let view = &why.view;
    let running = view.item.as_ref().ok().filter(|_| view.lease.is_some());
    let attempts = match running {
        Some(item) => ("attempt", format!("{}, under way", item.attempt)),
        None => ("attempts", view.attempts().to_string()),
    };
    let mut lines = vec![
        ("id", view.id.to_string()),
        ("state", view.state.to_string()),
        ("why", why.sentence()),
        attempts,
    ];
    lines.extend(view.due.map(|due| ("due", time(due))));
    lines.extend(view.lease.map(|lease| ("worker", holders.of(&lease))));
    lines.extend(view.lease.map(|lease| ("lease", lease.id.to_string())));
    lines.extend(view.progress.as_ref().map(|progress| ("progress", progress_text(progress))));
    let meta = view.item.as_ref().ok().and_then(|item| item.meta.as_deref());
    lines.extend(item_text::about(&view.id, meta, enqueued_at(view)));
    item_text::text(lines, view.item.as_ref().ok().map(|item| &item.payload[..]))
}
