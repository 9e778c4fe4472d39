//! The queues of the database, if no daemon answers.

use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use kvqueue_queue::{Counts, Pause, Queue};
use serde_json::json;

use super::{Line, Mood, QueueFigures, Table, figures::Space, print, text::disk};
use crate::{
    base::json,
    cli::{client::Client, globals::Globals, output},
    config::QueueConfig,
    database::{QUEUES_AT_A_TIME, origin, queue_names, refusal},
};

/// The most queues that are counted, next to those of the configuration; a database may have any number.
const MOST: usize = 1_000;

/// How many queues one transaction counts. A configured queue has one for itself: some kinds are counted item by item.
const PAGE: usize = 16;

/// Prints the counts of the configured queues and of all queues that have items, and why the daemon's status is missing.
/// `spent` is how long the daemon has been waited for, which counts for `--timeout`.
pub(super) fn show(globals: &Globals, spent: Duration, why: &str) -> anyhow::Result<()> {
    let client = Client::open_after(globals, spent).with_context(|| why.to_owned())?;
    let (names, more) = names(&client)?;
    let mut found = Vec::with_capacity(names.len());
    let is_other = |name: &Vec<u8>| configured(&client, name).is_none();
    let others_together = names.chunk_by(|a, b| is_other(a) && is_other(b));
    for page in others_together.flat_map(|names| names.chunks(PAGE)) {
        found.extend(page.iter().zip(look(&client, page)?));
    }
    if globals.json {
        let queues = found.into_iter();
        let queues: Vec<_> =
            queues.map(|(name, (counts, pause))| json::counts(name, counts, pause)).collect();
        // As a daemon says it, as far as anything can be said.
        let mut object = json!({ "phase": null, "not_ready": [why], "queues": queues, "more_queues": more });
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
    let rest = more.then(|| {
        let text = format!(
            "The database has more queues than the {} that are shown; kvqueue list names all.",
            figures.len()
        );
        Line::new(text, Mood::Quiet)
    });
    let disk = space(&client).iter().flat_map(disk).collect::<Vec<_>>();
    print(&[disk, queues, rest.into_iter().collect()].concat())?;
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

/// The names of the configured queues and of the first others, and whether there are more.
fn names(client: &Client) -> anyhow::Result<(Vec<Vec<u8>>, bool)> {
    let is_other = |name: &Vec<u8>| configured(client, name).is_none();
    let mut names = client.transact(|tr| async {
        let names = queue_names(&tr, client.prefix(), b"", None, MOST, is_other).await;
        (tr, names)
    })?;
    let more = names.len() > MOST;
    names.truncate(MOST);
    names.extend(client.config().queues.keys().map(|name| name.clone().into_bytes()));
    names.sort_unstable();
    Ok((names, more))
}

fn configured<'c>(client: &'c Client, name: &[u8]) -> Option<&'c QueueConfig> {
    client.config().queues.get(std::str::from_utf8(name).ok()?)
}

fn look(client: &Client, names: &[Vec<u8>]) -> anyhow::Result<Vec<(Counts, Option<Pause>)>> {
    let queue = |name: &Vec<u8>| {
        let kind = configured(client, name).map(QueueConfig::layout).unwrap_or_default();
        Queue::of_kind(client.prefix(), name, kind)
    };
    let queues = &names.iter().map(queue).collect::<Result<Vec<_>, _>>()?;
    client.transact(|tr| async {
        let found = queues.iter().map(async |queue| Ok((queue.counts(&tr).await?, queue.paused(&tr).await?)));
        let found = stream::iter(found).buffered(QUEUES_AT_A_TIME).try_collect().await;
        (tr, found)
    })
}
