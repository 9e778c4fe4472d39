//! Where a push goes: to the database, or to a daemon whose URL is in place of it.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use kvqueue_queue::{BatchLimits, MAX_PUSHES, NewItem, PushEffect, PushError, PushOptions, Session};
use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use super::report::PushCounts;
use crate::{
    cli::{
        DataError, UsageError,
        api_client::{ApiClient, AskError},
        client::{Client, frozen},
        output,
    },
    database::Refused,
    operations::push::{EffectName, ItemFields, MOST_ATTRIBUTES, PushAnswer},
};

pub(super) enum Way {
    Database { client: Box<Client>, session: Box<Session>, options: PushOptions },
    Daemon { daemon: Box<ApiClient>, path: String, fields: Box<ItemFields>, key: PushKey },
}

/// The idempotency key of a push over HTTP. Without one of its own each has a new one, so that a request can be repeated whose connection broke.
pub(super) struct PushKey {
    own: Option<String>,
    command: Uuid,
    pushes: u64,
}

impl PushKey {
    pub(super) fn new(own: Option<String>) -> Self {
        Self { own, command: Uuid::now_v7(), pushes: 0 }
    }

    fn next(&mut self) -> String {
        self.pushes += 1;
        self.own.clone().unwrap_or_else(|| format!("kvqueue-push-{}-{}", self.command, self.pushes))
    }
}

/// How often a push over HTTP is tried, and the pause between.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

impl Way {
    /// How much is pushed at a time.
    pub(super) fn limits(&self) -> BatchLimits {
        let limits = BatchLimits::default();
        match self {
            Self::Database { .. } => limits,
            Self::Daemon { fields, .. } => {
                let most = MOST_ATTRIBUTES / fields.attributes.len().max(1);
                BatchLimits { max_items: limits.max_items.min(most), ..limits }
            }
        }
    }

    /// Pushes some items at once.
    pub(super) async fn push(&mut self, items: &[NewItem], counts: &mut PushCounts) -> anyhow::Result<()> {
        match self {
            Self::Database { client, session, options } => {
                match client.answer(session.push_items(client.db(), items, options)).await {
                    Ok(Ok(pushed)) => {
                        counts.add(pushed.repeated, pushed.each().map(|it| (it.effect, it.id)));
                        Ok(())
                    }
                    Ok(Err(error)) => Err(failure(client, session, error, (counts, items.len()))),
                    Err(error) => Err(anyhow::Error::new(error).context(unsure(counts, items.len()))),
                }
            }
            Self::Daemon { daemon, path, fields, key } => {
                let items: Vec<_> =
                    items.iter().map(|item| fields.clone().with_payload(&item.payload)).collect();
                let is_own = key.own.is_none();
                let body = json!({ "items": items, "idempotency_key": key.next() });
                let answer = repeated(daemon, path, &body).await;
                let answer = answer.map_err(|error| {
                    let context = match error.is_certain() {
                        true => format!("the push of {} failed", behind(counts, items.len())),
                        false => unsure(counts, items.len()),
                    };
                    anyhow::Error::new(error).context(context)
                })?;
                let PushAnswer { ids, effects, already, .. } = serde_json::from_value(answer)
                    .context("the daemon answers in a way that this program does not know")?;
                let each = effects.into_iter().zip(ids).map(|(effect, id)| {
                    let effect = match effect {
                        // By an earlier try of this push.
                        EffectName::Repeated if is_own => PushEffect::Added,
                        effect => effect.into(),
                    };
                    (effect, id.and_then(|id| id.parse().ok()))
                });
                counts.add(already && !is_own, each);
                Ok(())
            }
        }
    }

    /// The most items of a push that is not divided.
    pub(super) fn most(&self) -> usize {
        match self {
            Self::Database { .. } => MAX_PUSHES,
            Self::Daemon { .. } => self.limits().max_items,
        }
    }

    /// Ends the session of pushes.
    pub(super) fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Database { client, session, .. } => {
                let closed = client.ask(session.close(client.db()));
                closed.map(drop).context("pushed, but the session is not closed")
            }
            Self::Daemon { .. } => Ok(()),
        }
    }
}

/// The answer to a push, which is tried again if it may succeed then.
async fn repeated(daemon: &ApiClient, path: &str, body: &Value) -> Result<Value, AskError> {
    let (mut tries, began) = (1, Instant::now());
    loop {
        let answer = daemon.answer("POST", path, Some(body)).await;
        let has_time = daemon.timeout().is_none_or(|timeout| began.elapsed() + PAUSE < timeout);
        match answer {
            Err(error) if tries < TRIES && has_time && may_succeed(&error) => tries += 1,
            answer => return answer,
        }
        sleep(PAUSE).await;
    }
}

/// Whether a push may succeed if it is tried again at once. Where nobody listens it will not.
fn may_succeed(error: &AskError) -> bool {
    match error {
        AskError::Refused { status, .. } => *status >= 500 || matches!(status, 408 | 429),
        error => error.is_transient() && !error.is_certain(),
    }
}

/// Whether a daemon has refused a push because an item, or all of them, are too long.
pub(super) fn is_too_long(error: &anyhow::Error) -> bool {
    error.downcast_ref::<AskError>().is_some_and(AskError::is_too_long)
}

impl From<EffectName> for PushEffect {
    fn from(effect: EffectName) -> Self {
        match effect {
            EffectName::Added => Self::Added,
            EffectName::Duplicate => Self::Duplicate,
            EffectName::Replaced => Self::Replaced,
            EffectName::Repeated => Self::Repeated,
        }
    }
}

/// This number of items, and what was pushed before them.
fn behind(counts: &PushCounts, items: usize) -> String {
    match counts.acknowledged {
        0 => output::items_of(items),
        done => format!("{} after the {done} pushed before", output::items_of(items)),
    }
}

/// The number of items of a push of unknown outcome.
fn unsure(counts: &PushCounts, items: usize) -> String {
    format!("the push of {} failed; these may be in the queue all the same", behind(counts, items))
}

fn failure(
    client: &Client,
    session: &Session,
    error: PushError,
    (counts, items): (&PushCounts, usize),
) -> anyhow::Error {
    let done = counts.acknowledged;
    if let Some(pause) = error.frozen().filter(|_| !error.is_maybe_committed()) {
        let before = (done > 0).then(|| format!("{done} were pushed before, nothing since"));
        return frozen(session.queue(), pause, before.as_deref());
    }
    if let Some(reused) = error.idempotency_key_reused() {
        return DataError(reused.to_string()).into();
    }
    if let Some(refused) = error.batch_refused() {
        return match done {
            0 => anyhow!("{refused}; nothing was pushed"),
            _ => anyhow!("{refused}; {done} were pushed before, nothing since"),
        };
    }
    match error {
        PushError::Retry(error) if error.is_out_of_space() => anyhow!(
            "cannot push {}: {}",
            behind(counts, items),
            Refused::why(&client.config().database).text(),
        ),
        PushError::Retry(_) | PushError::Queue(_) | PushError::TransactionTooLarge { .. } => {
            let context = match error.is_maybe_committed() {
                true => unsure(counts, items),
                false => format!("the push of {} failed", behind(counts, items)),
            };
            anyhow::Error::new(error).context(context)
        }
        // The shared fields exceed a limit.
        refused => UsageError(refused.to_string()).into(),
    }
}
