//! The status as an event: written once for all clients that follow it, and no more often than a person can read.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use serde::Serialize;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use crate::status::DaemonStatus;

/// The shortest time between two events.
const LEAST: Duration = Duration::from_millis(500);

/// The longest time between two events. The durations in the status grow without a change that wakes the viewers, and an event also
/// shows a client that the daemon is alive.
const MOST: Duration = Duration::from_secs(2);

/// Holds the newest event. A slow client misses older events.
#[derive(Debug)]
pub(super) struct Ticker {
    newest: watch::Sender<Bytes>,
}

impl Default for Ticker {
    fn default() -> Self {
        Self { newest: watch::Sender::new(Bytes::new()) }
    }
}

impl Ticker {
    /// Receives events from now on.
    pub(super) fn events(&self) -> watch::Receiver<Bytes> {
        self.newest.subscribe()
    }

    /// Writes events while somebody looks at the status.
    pub(super) async fn run(&self, status: &DaemonStatus) -> Infallible {
        let (mut changes, mut viewers) = (status.changed(), status.viewers.count_changes());
        loop {
            // Both senders are the status's.
            let _ = viewers.wait_for(|viewers| *viewers > 0).await;
            let began = Instant::now();
            changes.mark_unchanged();
            self.newest.send_replace(snapshot(status));
            sleep_until(began + LEAST).await;
            let _ = timeout_at(began + MOST, changes.changed()).await;
        }
    }
}

/// The status as an event.
pub(super) fn snapshot(status: &DaemonStatus) -> Bytes {
    event("snapshot", &status.snapshot())
}

/// An event of the kind that `EventSource` reads.
pub(super) fn event(name: &str, data: &impl Serialize) -> Bytes {
    // On one line: it has no line breaks but in texts, where they are escaped.
    let data = serde_json::to_string(data).expect("views have no keys but texts");
    format!("event: {name}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn events_are_sent_to_viewers_at_a_bounded_rate() {
        let (status, ticker) = (DaemonStatus::new("embedded:test"), Arc::new(Ticker::default()));
        let mut events = ticker.events();
        let running = {
            let (status, ticker) = (status.clone(), ticker.clone());
            tokio::spawn(async move { ticker.run(&status).await })
        };
        let next = async |events: &mut watch::Receiver<Bytes>| {
            let began = Instant::now();
            events.changed().await.unwrap();
            events.borrow_and_update();
            began.elapsed()
        };
        status.touch();
        assert!(tokio::time::timeout(LEAST * 2, next(&mut events)).await.is_err(), "nobody looks");
        let viewer = status.viewers.add();
        assert!(next(&mut events).await < LEAST);
        status.touch();
        let after = next(&mut events).await;
        assert!((LEAST..MOST).contains(&after), "{after:?}");
        assert!(next(&mut events).await >= MOST, "nothing changed");
        drop(viewer);
        running.abort();
    }
}
