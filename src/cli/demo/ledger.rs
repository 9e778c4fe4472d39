//! Who consumed what.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use bytes::Bytes;
use kvqueue_queue::Item;
use tokio::sync::watch;

use crate::{
    actors::Observer,
    consumer::state::{Event, Found},
    handlers::{Context, Handler, Outcome},
};

/// What has happened so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// Payloads by consumer, in order.
    pub(super) consumed: BTreeMap<u64, Vec<Bytes>>,
    /// Consumers that wait for a push.
    pub(super) idle: BTreeSet<u64>,
}

impl Page {
    /// Items consumed by all.
    pub(super) fn items(&self) -> usize {
        self.consumed.values().map(Vec::len).sum()
    }
}

/// The demo's handler writes in it, and so does the observer of its consumers.
#[derive(Clone)]
pub(super) struct Ledger {
    page: Arc<Mutex<Page>>,
    changed: watch::Sender<()>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self { page: Arc::default(), changed: watch::Sender::new(()) }
    }

    /// Notes which consumers are idle.
    pub(super) fn observer(&self) -> Observer {
        let ledger = self.clone();
        Arc::new(move |consumer, event| {
            ledger.write(|page| match event {
                Event::Took(Found::Nothing) => page.idle.insert(consumer),
                _ => page.idle.remove(&consumer),
            });
            true
        })
    }

    /// Waits until the page is as wanted, and returns it.
    pub(super) async fn until(&self, mut wanted: impl FnMut(&Page) -> bool) -> Page {
        let mut changes = self.changed.subscribe();
        loop {
            {
                let page = self.page();
                if wanted(&page) {
                    return page.clone();
                }
            }
            changes.changed().await.expect("the ledger holds the sender");
        }
    }

    fn write<T>(&self, note: impl FnOnce(&mut Page) -> T) {
        note(&mut self.page());
        self.changed.send_replace(());
    }

    /// The page as it is now.
    pub(super) fn page(&self) -> MutexGuard<'_, Page> {
        self.page.lock().expect("nothing panics while it holds the page")
    }
}

#[async_trait]
impl Handler for Ledger {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        self.write(|page| page.consumed.entry(context.consumer).or_default().push(item.payload.clone()));
        Outcome::Done
    }
}
