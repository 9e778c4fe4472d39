//! What the database has, where no daemon tells.

use kvqueue_queue::{Counts, Queue};
use serde_json::{Value, json};

use super::{Line, Mood, QueueFigures, print, table};
use crate::cli::{client::Client, globals::Globals, output};

/// So many queues are looked at; a database may have any number.
const MOST: usize = 1_000;

/// Prints the counts of the configured queues, and of those that were pushed to; and why there is no more to be said.
pub(super) fn show(globals: &Globals, why: &str) -> anyhow::Result<()> {
    let client = Client::open(globals)?;
    let names = names(&client)?;
    let mut found = Vec::with_capacity(names.len());
    for name in &names {
        found.push((name, counts(&client, name)?));
    }
    if globals.json {
        let queues: Vec<_> = found.iter().map(|(name, counts)| object(name, *counts)).collect();
        // As a daemon says it, as far as anything can be said.
        output::line(true, b"", &json!({ "phase": null, "not_ready": [why], "queues": queues }))?;
        return Ok(());
    }
    output::note(format_args!("kvqueue: {why}"));
    let figures: Vec<_> = found.iter().map(|(name, counts)| QueueFigures::of(name, *counts)).collect();
    match figures.is_empty() {
        true => print(&[Line::new("The database has no queues.", Mood::Plain)])?,
        false => print(&table(&figures))?,
    }
    Ok(())
}

fn names(client: &Client) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut names = client.queues()?;
    names.extend(client.config().queues.keys().map(|name| name.clone().into_bytes()));
    names.sort_unstable();
    names.dedup();
    names.truncate(MOST);
    Ok(names)
}

fn counts(client: &Client, name: &[u8]) -> anyhow::Result<Counts> {
    let configured = std::str::from_utf8(name).ok().and_then(|name| client.config().queues.get(name));
    let kind = configured.map(crate::config::QueueConfig::layout).unwrap_or_default();
    let queue = Queue::of_kind(client.prefix(), name, kind)?;
    client.transact(|tr| async {
        let counts = queue.counts(&tr).await;
        (tr, counts)
    })
}

fn object(name: &[u8], counts: Counts) -> Value {
    let Counts { ready, leased, later, dead, done } = counts;
    let mut object = output::about(name, "ready", ready);
    for (key, value) in
        [("leased", json!(leased)), ("later", json!(later)), ("dead", json!(dead)), ("done", json!(done))]
    {
        object[key] = value;
    }
    object
}
