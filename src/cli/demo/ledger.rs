//! Who consumed what.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use bytes::Bytes;
use kvqueue_queue::Item;
use tokio::sync::watch;

use crate::handlers::{Context, Handler, Outcome};

/// The events of the demo so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// Payloads by consumer, in order.
    pub(super) consumed: BTreeMap<u64, Vec<Bytes>>,
}

impl Page {
    /// Items consumed by all.
    pub(super) fn items(&self) -> usize {
        self.consumed.values().map(Vec::len).sum()
    }
}

/// The demo's handler writes in it.
#[derive(Clone)]
pub(super) struct Ledger {
    page: Arc<Mutex<Page>>,
    changed: watch::Sender<()>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self { page: Arc::default(), changed: watch::Sender::new(()) }
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
