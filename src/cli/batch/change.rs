//! `kvqueue batch commit` and `cancel`

use anyhow::Context;
use kvqueue_queue::{RetryPolicy, item_batch::BatchCommit};
use serde_json::json;

use super::Which;
use crate::{
    batches::{BatchCancel, counts_object},
    cli::{
        client::{Client, frozen},
        globals::Globals,
        output,
    },
    consumer::clock,
    exit::Exit,
};

/// Commit a batch after the last push: it calls back when all its members have ended
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Commit a batch after the last push: it calls back when all its members have ended.\n\n\
    A committed batch gets no more members. To commit it once more changes nothing. A batch without members calls back at once."
)]
pub(in crate::cli) struct Commit {
    #[command(flatten)]
    which: Which,
}

/// Cancel a batch: it does not call back, and its members go on
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Cancel {
    #[command(flatten)]
    which: Which,
}

impl Commit {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let (queue, id) = (self.which.home(&client)?, &self.which.id);
        let policy = RetryPolicy::default();
        let done = client.wait(client.answer(queue.finish_batch(client.db(), &policy, id, clock::now())));
        let effect = match done.context("the batch may be committed all the same; commit it once more")? {
            Ok(effect) => effect,
            Err(error) => {
                return Err(match error.error.frozen() {
                    Some(pause) => frozen(&queue, pause, None),
                    None => anyhow::Error::new(error).context("cannot commit the batch"),
                });
            }
        };
        let text = match effect {
            BatchCommit::Committed => "is committed",
            BatchCommit::WasCommitted => "was committed before",
            BatchCommit::Gone => return Err(self.which.gone()),
        };
        let object = json!({ "id": id.to_string(), "changed": effect == BatchCommit::Committed });
        output::line(globals.json, format!("batch {id} {text}").as_bytes(), &object)?;
        Ok(Exit::Done)
    }
}

impl Cancel {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let (queue, id) = (self.which.home(&client)?, &self.which.id);
        client.check_not_frozen(&queue)?;
        let (audit, record) = client.record()?;
        let (audit, record) = (&audit, &record.about(queue.name()).with("batch", id.to_string()));
        let (queue, cancel) = (&queue, &BatchCancel::new(id));
        let counts = client.transact(|tr| async move {
            let counts = cancel.write(&tr, queue, audit, record).await;
            (tr, counts)
        })?;
        let Some(counts) = counts else { return Err(self.which.gone()) };
        let text = format!(
            "batch {id} is cancelled; {} of its {} members have not ended, and go on",
            counts.open(),
            counts.members
        );
        let object = json!({ "id": id.to_string(), "counts": counts_object(&counts) });
        output::line(globals.json, text.as_bytes(), &object)?;
        Ok(Exit::Done)
    }
}
