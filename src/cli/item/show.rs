//! `kvqueue item show`

use anyhow::bail;
use kvqueue_queue::ItemView;

use super::{
    super::{client::Client, globals::Globals, output, output::time},
    One,
};
use crate::{
    exit::Exit,
    json::{self, enqueued_at, failures},
    why::Why,
};

/// Print all that is known of an item, whatever its state: what it waits for, how its attempts ended, its payload
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
        let found = client.transact(|tr| async {
            let found = Why::read(&queue, &tr, &id).await;
            (tr, found)
        })?;
        let Some(why) = found else {
            let queue = self.one.target.queue.display();
            bail!("queue {queue:?} has no item {id}: it has ended, or was never there")
        };
        let mut object = json::view_with_limit(&why.view, self.one.target.max_attempts(&client));
        why.insert(&mut object);
        output::line(globals.json, &text(&why), &object)?;
        match &why.view.item {
            Ok(_) => Ok(Exit::Done),
            Err(error) => bail!("cannot show the payload of item {id}: {error}"),
        }
    }
}

/// All fields of an item as lines, then an empty line and the payload.
fn text(why: &Why) -> Vec<u8> {
    let view = &why.view;
    let mut lines = vec![
        ("id", view.id.to_string()),
        ("state", view.state.to_string()),
        ("why", why.sentence()),
        ("attempts", view.attempts().to_string()),
    ];
    lines.extend(view.due.map(|due| ("due", time(due))));
    lines.extend(view.lease.map(|lease| ("lease", lease.id.to_string())));
    lines.extend(about(view));
    let payload = match &view.item {
        Ok(item) => &item.payload[..],
        Err(_) => b"",
    };
    lines.push((
        "payload",
        match &view.item {
            Ok(_) => format!("{} bytes", payload.len()),
            Err(_) => "cannot be read".to_owned(),
        },
    ));
    let mut text: Vec<u8> =
        lines.iter().flat_map(|(name, value)| format!("{name:13}{value}\n").into_bytes()).collect();
    text.push(b'\n');
    text.extend_from_slice(payload);
    text
}

/// The lines about what was pushed with an item, and about its attempts.
fn about(view: &ItemView) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    lines.extend(view.id.key().map(|key| ("key", key.escape_ascii().to_string())));
    lines.extend(enqueued_at(view).map(|at| ("pushed", time(at))));
    let Some(meta) = view.item.as_ref().ok().and_then(|item| item.meta.as_deref()) else { return lines };
    if meta.crashes > 0 {
        lines.push(("crashes", meta.crashes.to_string()));
    }
    for (failure, before_retry) in failures(meta) {
        let before = if before_retry { ", before it was retried," } else { "" };
        let attempt = match failure.attempt {
            0 => "no attempt".to_owned(),
            number => format!("attempt {number}"),
        };
        let text = format!("{attempt}{before} at {}: {}", time(failure.at), failure.reason);
        lines.push(("failure", text));
    }
    lines.extend(meta.attributes.iter().map(|(name, value)| ("attribute", format!("{name}={value}"))));
    lines.extend(meta.content_type.clone().map(|text| ("content type", text)));
    lines.extend(meta.trace_parent.clone().map(|text| ("trace parent", text)));
    lines.extend(meta.expires.map(|at| ("expires", time(at))));
    lines.extend(meta.unique.as_ref().map(|key| ("unique key", key.escape_ascii().to_string())));
    lines
}
