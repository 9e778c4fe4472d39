//! Frozen queues, in which nothing may change.

use anyhow::anyhow;
use kvqueue_queue::{Pause, Queue};

use super::{client::Client, output::time};

/// Makes sure that a queue is not frozen, as it is while it is migrated, and afterwards at the source: a change there could be left behind. Pushes
/// need no such check, since the push itself is refused.
pub(super) fn check(client: &Client, queue: &Queue) -> anyhow::Result<()> {
    let pause = client.transact(|tr| async {
        let pause = queue.paused(&tr).await;
        (tr, pause)
    })?;
    pause.filter(|pause| pause.frozen).map_or(Ok(()), |pause| Err(refused(queue, &pause, "nothing was done")))
}

/// That the queue is frozen; `done` says what was done before.
pub(super) fn refused(queue: &Queue, pause: &Pause, done: &str) -> anyhow::Error {
    let (name, since, why) = (queue.name().escape_ascii(), time(pause.at), pause.why());
    anyhow!(
        "queue \"{name}\" is frozen since {since}: {why}; {done} (use it where it is moved to, or try again when it is resumed)"
    )
}
