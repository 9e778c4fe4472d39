//! Queues in which nothing is to move.

use anyhow::bail;
use kvqueue_queue::Queue;

use super::{client::Client, output::time};
use crate::pause::why_frozen;

/// Makes sure that a queue is not frozen, as it is while it is migrated, and afterwards at the source: what changed there then could be left behind.
pub(super) fn check(client: &Client, queue: &Queue) -> anyhow::Result<()> {
    let pause = client.transact(|tr| async {
        let pause = queue.paused(&tr).await;
        (tr, pause)
    })?;
    let Some(pause) = pause.filter(|pause| pause.frozen) else { return Ok(()) };
    let (name, since) = (queue.name().escape_ascii(), time(pause.at));
    let reason = why_frozen(&pause);
    bail!(
        "queue \"{name}\" is frozen since {since}: {reason}; nothing was done (use it where it is moved to, or try again when it is resumed)"
    )
}
