//! The queues of the database, if no daemon answers.

use std::time::Duration;

use anyhow::Context;
use kvqueue_queue::{Counts, Pause, Queue};
use serde_json::json;

use super::{Line, Mood, QueueFigures, Table, figures::Space, print, text::disk};
use crate::{
    cli::{client::Client, globals::Globals, output},
    database::{origin, refusal},
};

/// The most queues that are counted; a database may have any number.
const MOST: usize = 1_000;

/// Prints the counts of the configured queues and of all queues that have items, and why the daemon's status is missing.
/// `spent` is how long the daemon has been waited for, which counts for `--timeout`.
pub(super) fn show(globals: &Globals, spent: Duration, why: &str) -> anyhow::Result<()> {
    let client = Client::open_after(globals, spent).with_context(|| why.to_owned())?;
    let names = names(&client)?;
    let mut found = Vec::with_capacity(names.len());
    for name in &names {
        found.push((name, look(&client, name)?));
    }
    if globals.json {
        let queues = found.into_iter();
        let queues: Vec<_> =
            queues.map(|(name, (counts, pause))| output::counts(name, "ready", counts, pause)).collect();
        // As a daemon says it, as far as anything can be said.
        let mut object = json!({ "phase": null, "not_ready": [why], "queues": queues });
        if let Some(Space { free, total, min_free, limit_from, reusable, pushes_refused }) = space(&client) {
            let space = json!({
                "free": free, "total": total, "min_free": min_free, "limit_from": limit_from, "reusable": reusable,
                "pushes_refused": pushes_refused
            });
            object["database"] = json!({ "url": client.config().database, "space": space });
        }
        output::line(true, b"", &object)?;
        return Ok(());
    }
    output::note(format_args!("kvqueue: {why}"));
    let figures = found.into_iter().map(|(name, (counts, pause))| QueueFigures::of(name, counts, pause));
    let figures: Vec<_> = figures.collect();
    let queues = match figures.is_empty() {
        true => vec![Line::new("The database has no queues.", Mood::Plain)],
        false => Table::new(&figures, output::width().map_or(usize::MAX, usize::from)).lines(),
    };
    let disk = space(&client).iter().flat_map(disk).collect::<Vec<_>>();
    print(&[disk, queues].concat())?;
    Ok(())
}

/// Of an embedded database, if its file system answers.
fn space(client: &Client) -> Option<Space> {
    let directory = fdb_embedded::embedded_directory(&client.config().database)?;
    let found = fdb_embedded::space::Space::known(&directory).ok()?;
    let pushes_refused = refusal(&directory, &found);
    let (free, total, min_free, reusable) = (found.free, found.total, found.min_free, found.own);
    let limit_from = origin(&found, client.config()).to_owned();
    Some(Space { free, total, min_free, limit_from, reusable, pushes_refused })
}

fn names(client: &Client) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut names = client.queues()?;
    names.extend(client.config().queues.keys().map(|name| name.clone().into_bytes()));
    names.sort_unstable();
    names.dedup();
    names.truncate(MOST);
    Ok(names)
}

fn look(client: &Client, name: &[u8]) -> anyhow::Result<(Counts, Option<Pause>)> {
    let configured = std::str::from_utf8(name).ok().and_then(|name| client.config().queues.get(name));
    let kind = configured.map(crate::config::QueueConfig::layout).unwrap_or_default();
    let queue = Queue::of_kind(client.prefix(), name, kind)?;
    client.transact(|tr| async {
        let found = async { Ok((queue.counts(&tr).await?, queue.paused(&tr).await?)) }.await;
        (tr, found)
    })
}
