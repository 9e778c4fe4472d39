//! Notes about queues that do not exist: a misspelt name finds nothing, which is not an error.

use std::time::Duration;

use foundationdb::{Database, Transaction};
use futures::{StreamExt, TryStreamExt, stream};
use kvqueue_queue::{Queue, QueueError, RetryPolicy, retry};
use tokio::time::timeout;

use crate::{
    config::{Config, nearest},
    database::{QUEUES_AT_A_TIME, queue_names},
    telemetry::listed,
};

/// The most names that are compared with a misspelt one.
const MOST: usize = 1_000;

/// The longest delay of a daemon's start.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the database has nothing of a queue: nothing was pushed to it, or it was deleted.
pub(crate) async fn is_absent(tr: &Transaction, queue: &Queue) -> Result<bool, QueueError> {
    queue.exists(tr).await.map(|exists| !exists)
}

/// The names of queues in the database, up to [`MOST`].
async fn names(tr: &Transaction, prefix: &[u8]) -> Result<Vec<String>, QueueError> {
    let names = queue_names(tr, prefix, b"", None, MOST, |name| std::str::from_utf8(name).is_ok()).await?;
    Ok(names.into_iter().filter_map(|name| String::from_utf8(name).ok()).take(MOST).collect())
}

/// The text about a queue that is named, if neither the database nor the configuration has it. It tells of another queue only if
/// `may_tell` allows its name.
pub(crate) async fn note(
    tr: &Transaction,
    config: &Config,
    queue: &Queue,
    may_tell: impl Fn(&str) -> bool,
) -> Result<Option<String>, QueueError> {
    let name = String::from_utf8_lossy(queue.name());
    // A pause may come before the first push.
    let is_known = config.queues.contains_key(&*name) || queue.paused(tr).await?.is_some();
    if is_known || !is_absent(tr, queue).await? {
        return Ok(None);
    }
    let names = names(tr, config.prefix.as_bytes()).await?;
    let known = names.iter().chain(config.queues.keys()).map(String::as_str);
    let near = nearest(&name, known.filter(|name| may_tell(name)));
    let fix = match near {
        Some(near) => format!("did you mean {near:?}?"),
        None => "`kvqueue list` shows which there are".to_owned(),
    };
    Ok(Some(format!("there is no queue \"{}\"; {fix}", queue.name().escape_ascii())))
}

/// Logs which of a daemon's queues nothing was pushed to, each with the queue of the database that may be meant. It ignores errors: the
/// commands that need the database report them.
pub(crate) async fn log(db: &Database, config: &Config) {
    let policy = RetryPolicy::default();
    let found = retry::run(db, &policy, |tr| async {
        let found = absent(&tr, config).await;
        (tr, found)
    });
    let Ok(Ok(found)) = timeout(PATIENCE, found).await else { return };
    if !found.value.is_empty() {
        let queues = listed(&found.value);
        tracing::info!(event = "queues_absent", queues, "nothing has been pushed to these queues yet");
    }
}

async fn absent(tr: &Transaction, config: &Config) -> Result<Vec<String>, QueueError> {
    let queues = config.queues.iter().map(async |(name, settings)| {
        // The daemon has checked it.
        let queue = Queue::of_kind(config.prefix.as_bytes(), name.as_bytes(), settings.layout());
        let Ok(queue) = queue else { return Ok(None) };
        Ok(is_absent(tr, &queue).await?.then_some(name))
    });
    let absent: Vec<_> = stream::iter(queues)
        .buffered(QUEUES_AT_A_TIME)
        .try_filter_map(async |name: Option<&String>| Ok::<_, QueueError>(name))
        .try_collect()
        .await?;
    if absent.is_empty() {
        return Ok(Vec::new());
    }
    let mut names = names(tr, config.prefix.as_bytes()).await?;
    names.retain(|name| !config.queues.contains_key(name));
    let described = |name: &String| match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("{name} (did you mean {near:?}?)"),
        None => name.clone(),
    };
    Ok(absent.into_iter().map(described).collect())
}
