//! Storing a group, and what came of all.

use anyhow::anyhow;
use kvqueue_queue::{PushEffect, PushError, PushOptions, Queue, RetryPolicy, retry};
use serde_json::Value;
use uuid::Uuid;

use super::group::Group;
use crate::{
    cli::{
        client::{Client, frozen},
        output,
    },
    database::Refused,
};

/// The result of a group's transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    /// Items that are in by it, or were before.
    added: usize,
    /// Whether they were before.
    before: bool,
}

/// Stores a group, unless it was stored before. An attempt of unknown outcome is simply repeated: its idempotency key tells.
pub(super) fn store(
    client: &Client,
    queue: &Queue,
    group: &Group,
    max_payload: usize,
) -> anyhow::Result<Stored> {
    let options = PushOptions::default()
        .with_idempotency_key(group.idempotency_key.clone())
        .with_max_payload(max_payload);
    let policy = RetryPolicy::default();
    let done = retry::run_adding(client.db(), &policy, |tr| {
        let options = &options;
        async move {
            let mut pusher = queue.pusher(&tr).seeded(Uuid::now_v7().into_bytes());
            let placed = match pusher.restore(&group.items, options).await {
                Ok(placed) => Ok(Ok(placed)),
                Err(PushError::Queue(error)) if error.frozen().is_none() => Err(error),
                Err(error) => Ok(Err(error)),
            };
            drop(pusher);
            (tr, placed)
        }
    });
    let done = client.wait(client.answer(done))?.map_err(|error| match error.is_out_of_space() {
        true => anyhow!(
            "this group and those after it were not imported: {}",
            Refused::why(&client.config().database).text()
        ),
        false => anyhow::Error::new(error).context("the database refused"),
    })?;
    let refused = |error: PushError| match error.frozen() {
        Some(pause) => frozen(queue, pause, Some("this group and those after it were not imported")),
        None => error.into(),
    };
    let (placed, is_sure) = (done.value.map_err(refused)?, done.attempts.unknown == 0);
    let repetition = placed.is_repetition();
    let added = placed.items(None).filter(|item| item.effect != PushEffect::Duplicate).count();
    // After an unknown outcome it is this command's own attempt that is found.
    Ok(Stored { added, before: repetition && is_sure })
}

/// The result of an import.
#[derive(Debug, Default)]
pub(super) struct ImportCounts {
    /// Items that this import stored.
    pub(super) imported: u64,
    /// Items that were in by an earlier import of the same export.
    pub(super) before: u64,
    /// Items left out, since others have their unique keys.
    pub(super) duplicates: u64,
}

impl ImportCounts {
    pub(super) fn add(&mut self, group: &Group, stored: Stored) {
        let added = stored.added as u64;
        if stored.before {
            self.before += added;
        } else {
            self.imported += added;
        }
        self.duplicates += (group.items.len() as u64).saturating_sub(added);
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("imported {}", output::items_of(self.imported));
        if self.before > 0 {
            text += &format!(", {} were imported before", self.before);
        }
        text
    }

    /// For programs.
    pub(super) fn object(&self, queue: &[u8]) -> Value {
        let mut object = output::about(queue, "imported", self.imported);
        object["imported_before"] = self.before.into();
        object["duplicates"] = self.duplicates.into();
        object
    }

    pub(super) fn failure(&self, error: anyhow::Error) -> anyhow::Error {
        let done = self.imported + self.before;
        error.context(format!(
            "the import failed behind {}; repeat it, and it goes on from there",
            output::items_of(done)
        ))
    }
}
