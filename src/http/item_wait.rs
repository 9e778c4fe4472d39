//! Requests that wait for the end of an item.

use std::{future::pending, sync::Arc, time::Duration};

use kvqueue_queue::{ItemId, ItemPlace, Queue};
use tokio::time::{Instant, sleep, sleep_until};

use super::{api_request::ApiRequest, error::ApiError, peer::Peer};
use crate::database::item_wait::ItemWait;

/// How often a request looks whether its client has closed the connection.
const CHECK: Duration = Duration::from_secs(2);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The item was a dead letter, or was not there.
    Ended,
    /// The time is over, the client has gone, or the daemon stops.
    Over,
}

/// Waits until the item has ended, or until a time.
pub(super) async fn wait(
    request: &ApiRequest,
    (queue, id): (&Queue, &ItemId),
    wait: &mut ItemWait,
    until: Instant,
) -> Result<Waited, ApiError> {
    let app = &request.app;
    let place = app.item_waits.places.try_acquire();
    let _place = place.map_err(|_| ApiError::Busy("too many requests wait for items"))?;
    let look = async |place: Option<ItemPlace>| {
        let _permit = app.item_waits.looks.acquire().await;
        let look = app.backend.run(|tr| async move {
            let found = queue.watch_item(&tr, id, place).await;
            (tr, found)
        });
        look.await
    };
    let waited = tokio::select! {
        ended = wait.ended(look) => ended.map(|()| Waited::Ended),
        () = sleep_until(until) => Ok(Waited::Over),
        () = app.backend.stopping.cancelled() => Ok(Waited::Over),
        () = gone(request.peer()) => Ok(Waited::Over),
    };
    request.check_still_known().await?;
    waited
}

/// Resolves when the client has closed its end of the connection.
async fn gone(peer: Option<&Arc<Peer>>) {
    let Some(peer) = peer else { return pending().await };
    while !peer.is_gone() {
        sleep(CHECK).await;
    }
}
