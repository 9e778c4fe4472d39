//! What handlers have reported about the items of a lease since its last extension.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use kvqueue_queue::{ItemId, Progress};

use crate::base::clock;

/// Shared by the calls of handlers, which report, and the keeper of their lease, whose next extension writes it. Of each item the last report counts.
#[derive(Debug, Default)]
pub(crate) struct ProgressNews {
    /// Whether there is any: most handlers report nothing.
    any: AtomicBool,
    news: Mutex<BTreeMap<ItemId, Progress>>,
}

impl ProgressNews {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ItemId, Progress>> {
        self.news.lock().expect("nothing panics while it holds the lock")
    }

    /// Removes all reports.
    pub(crate) fn take(&self) -> BTreeMap<ItemId, Progress> {
        if !self.any.swap(false, Ordering::AcqRel) {
            return BTreeMap::new();
        }
        std::mem::take(&mut *self.lock())
    }
}

/// By which the progress of one item is reported. Without a lease the reports go nowhere.
#[derive(Clone, Debug)]
pub(crate) struct ProgressReporter {
    item: ItemId,
    news: Option<Arc<ProgressNews>>,
}

impl ProgressReporter {
    pub(crate) fn new(item: ItemId, news: Option<Arc<ProgressNews>>) -> Self {
        Self { item, news }
    }

    pub(crate) fn report(&self, percent: Option<u8>, message: &str) {
        let Some(news) = &self.news else { return };
        let progress = Progress::new(clock::now(), percent, message);
        news.lock().insert(self.item.clone(), progress);
        news.any.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use crate::{handlers::progress::*, testing::Sample};

    #[test]
    fn the_last_report_of_each_item_is_taken_once() {
        let news = Arc::<ProgressNews>::default();
        let id = Sample::new("").build().id;
        let reporter = ProgressReporter::new(id.clone(), Some(news.clone()));
        assert!(news.take().is_empty());
        reporter.report(Some(1), "begun");
        reporter.report(Some(200), "ended");
        let taken = news.take();
        assert_eq!((taken.len(), taken[&id].percent, &*taken[&id].message), (1, Some(100), "ended"));
        assert!(news.take().is_empty());
        ProgressReporter::new(id, None).report(None, "nowhere");
    }
}
