//! Waiting until an item has ended, for a request over HTTP and for a command.

use std::time::Duration;

use kvqueue_queue::{ItemPlace, ItemWatch};
use tokio::time::{Instant, sleep, sleep_until};

/// The shortest time between two looks at an item that stays on its lease: each change of the lease wakes the waiter. It doubles with each look.
const PAUSE: Duration = Duration::from_millis(10);

/// The longest such time.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How long to wait after a watch that the database has refused.
const REFUSED: Duration = Duration::from_millis(500);

/// A wait for the end of an item.
#[derive(Debug, Default)]
pub(crate) struct ItemWait {
    /// Where the last look has found it.
    place: Option<ItemPlace>,
    pause: Duration,
}

impl ItemWait {
    /// Whether a look has found the item. If it is gone now, it has ended, or was moved to another queue.
    pub(crate) fn has_seen(&self) -> bool {
        self.place.is_some()
    }

    /// Waits until the item has ended: a look finds a dead letter, or no item. A `look` is a transaction of
    /// [`Queue::watch_item`](kvqueue_queue::Queue::watch_item), at the place that it gets. Cancel safe.
    pub(crate) async fn ended<E>(
        &mut self,
        mut look: impl AsyncFnMut(Option<ItemPlace>) -> Result<ItemWatch, E>,
    ) -> Result<(), E> {
        loop {
            let began = Instant::now();
            let ItemWatch::Open { watch, place } = look(self.place).await? else { return Ok(()) };
            self.found(place);
            let fired = watch.await;
            sleep_until(began + self.pause).await;
            if fired.is_err() {
                sleep(REFUSED).await;
            }
        }
    }

    /// A look has found the item here.
    fn found(&mut self, place: ItemPlace) {
        let is_same = place.lease().is_some() && self.place == Some(place);
        self.pause = if is_same { (2 * self.pause).clamp(PAUSE, LONGEST_PAUSE) } else { Duration::ZERO };
        self.place = Some(place);
    }
}
