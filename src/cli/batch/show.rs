//! `kvqueue batch show` and `list`

use std::{ffi::OsString, num::NonZeroUsize, os::unix::ffi::OsStrExt};

use kvqueue_queue::{
    Queue,
    item_batch::{BatchView, NewBatch},
};

use super::Which;
use crate::{
    batches::{batch_object, counts, state},
    cli::{UsageError, client::Client, completions, globals::Globals, item_text, output},
    exit::Exit,
    text::visible,
};

/// Print a batch: how many members have ended, and what is pushed in the end
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    #[command(flatten)]
    which: Which,
}

/// Print the batches whose callbacks go to a queue
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// The queue of the callbacks
    #[arg(add = completions::queue())]
    queue: OsString,
}

/// How many batches are read in a transaction.
const PAGE: NonZeroUsize = NonZeroUsize::new(50).expect("50 is not 0");

impl Show {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let (queue, id) = (&self.which.home(&client)?, &self.which.id);
        let found = client.transact(|tr| async move {
            let found = queue.batch(&tr, id).await;
            (tr, found)
        })?;
        let Some(view) = found else { return Err(self.which.gone()) };
        output::line(globals.json, &text(&view), &batch_object(&view))?;
        Ok(Exit::Done)
    }
}

/// All fields of a batch as lines, then an empty line and the payload of the callback.
fn text(view: &BatchView) -> Vec<u8> {
    let BatchView { id, created, committed, batch: NewBatch { callback, deadline }, counts: of } = view;
    let mut lines = vec![
        ("id", id.to_string()),
        ("queue", id.home().escape_ascii().to_string()),
        ("state", state(view).to_owned()),
        ("created", output::time(*created)),
    ];
    lines.extend(committed.map(|at| ("committed", output::time(at))));
    lines.extend(deadline.map(|at| ("deadline", output::time(at))));
    lines.extend(counts(of).map(|(name, n)| (name, n.to_string())));
    lines.extend(callback.attributes.iter().map(|(name, value)| ("attribute", format!("{name}={value}"))));
    lines.extend(callback.content_type.clone().map(|text| ("content type", text)));
    lines.extend(callback.key.as_ref().map(|key| ("key", key.escape_ascii().to_string())));
    lines.extend((callback.priority != 0).then(|| ("priority", callback.priority.to_string())));
    lines.push(("payload", format!("{} bytes", callback.payload.len())));
    item_text::text(&lines, Some(&callback.payload))
}

impl List {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = &Queue::new(client.prefix(), self.queue.as_bytes())
            .map_err(|error| UsageError(error.to_string()))?;
        client.note_if_absent(queue)?;
        let mut last = None;
        loop {
            let after = last.as_ref();
            let page = client.transact(|tr| async move {
                let page = queue.batches_after(&tr, after, PAGE).await;
                (tr, page)
            })?;
            let Some(end) = page.last() else { return Ok(Exit::Done) };
            last = Some(end.id.clone());
            output::lines(globals.json, page.iter().map(|view| (line(view), batch_object(view))))?;
        }
    }
}

/// A batch in one line.
fn line(view: &BatchView) -> String {
    let BatchView { id, batch, counts, .. } = view;
    let ended = format!("{} of {} ended", counts.ended(), counts.members);
    let deadline = batch.deadline.map(|at| format!(", deadline {}", output::time(at))).unwrap_or_default();
    let payload = String::from_utf8_lossy(&batch.callback.payload);
    format!("{id}  {}, {ended}{deadline}  {}", state(view), output::one_line(&visible(&payload), 40))
}
