//! Cancelling many items, a page of them at a time.

use foundationdb::{Database, Transaction};

use crate::client::queue::Queue;
use crate::model::cancel::{CancelCounts, CancelFilter};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::meta::Meta;
use crate::model::retry_error::RetryError;
use crate::model::session_id::SessionId;
use crate::model::view::{Cursor, ItemState};
use crate::ops::cancel_page;
use crate::ops::cancel_page::CancelPage;
use crate::run::exactly_once::{Act, Body, Marked};
use crate::run::retry::{RetryPolicy, run};
use crate::run::version::now;

/// How often all states are gone through at most, for items that change their state meanwhile.
const ROUNDS: usize = 10;

/// Cancels items, a page of them at a time.
///
/// It goes through the ready items, the waiting ones, and the running ones. What changes its state meanwhile may be passed over, so it
/// goes through all of these once more until it finds none. What is pushed after the first page is left there, where the ids tell. Nothing
/// needs to be remembered: what is cancelled is gone, so another canceller goes on where one was interrupted.
#[derive(Debug)]
pub struct Canceller {
    queue: Queue,
    filter: CancelFilter,
    marked: Marked,
    /// The states that are left of this round.
    states: Vec<ItemState>,
    behind: Option<Cursor>,
    rounds: usize,
    /// How many items this round has cancelled.
    cancelled: usize,
    /// The version at which it began.
    until: Option<u64>,
}

impl Canceller {
    /// A canceller of the items that match.
    pub fn new(queue: Queue, filter: CancelFilter) -> Canceller {
        let marked = Marked::new(queue.space(), SessionId::new());
        let states = states(&filter);
        Canceller { queue, filter, marked, states, behind: None, rounds: 1, cancelled: 0, until: None }
    }

    /// Cancels the next items in one transaction, exactly once; `None` if there are no more.
    pub async fn page(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
    ) -> Result<Option<CancelCounts>, RetryError> {
        let until = match self.until {
            Some(until) => until,
            None => self.begin(db, policy).await?,
        };
        let Some(&state) = self.states.last() else { return Ok(None) };
        let body =
            PageOf { queue: &self.queue, filter: &self.filter, state, behind: self.behind.as_ref(), until };
        let CancelPage { counts, next } = self.marked.run(db, policy, body).await?;
        self.cancelled += counts.cancelled;
        if next.is_none() {
            self.states.pop();
            // A single state is gone through once.
            if self.states.is_empty()
                && self.filter.state.is_none()
                && self.cancelled > 0
                && self.rounds < ROUNDS
            {
                (self.states, self.cancelled) = (states(&self.filter), 0);
                self.rounds += 1;
            }
        }
        self.behind = next;
        Ok(Some(counts))
    }

    async fn begin(&mut self, db: &Database, policy: &RetryPolicy) -> Result<u64, RetryError> {
        let version = run(db, policy, |tr| async move {
            let version = now(&tr).await;
            (tr, version)
        });
        let version = version.await?.value;
        self.until = Some(version);
        Ok(version)
    }

    /// Ends it. Without that, a mark of a few bytes is left to sweepers.
    pub async fn close(mut self, db: &Database, policy: &RetryPolicy) -> Result<(), RetryError> {
        self.marked.close(db, policy).await
    }
}

/// The states to go through, last one first.
fn states(filter: &CancelFilter) -> Vec<ItemState> {
    match filter.state {
        Some(state) => vec![state],
        // Both kinds of waiting items lie in one range.
        None => vec![ItemState::Running, ItemState::Retrying, ItemState::Ready],
    }
}

/// The transaction of one page.
struct PageOf<'a> {
    queue: &'a Queue,
    filter: &'a CancelFilter,
    state: ItemState,
    behind: Option<&'a Cursor>,
    until: u64,
}

impl Body for PageOf<'_> {
    type Output = CancelPage;

    async fn fill(&mut self, tr: &Transaction) -> Result<Act<CancelPage>, QueueError> {
        let (filter, until) = (self.filter, self.until);
        let is_wanted = |id: &ItemId, meta: &Meta| {
            id.pushed_at().is_none_or(|pushed| pushed <= until) && filter.matches(id, meta)
        };
        let space = self.queue.space();
        let page = match self.state {
            ItemState::Ready => {
                cancel_page::ready(space, tr, self.behind, filter.key.as_deref(), is_wanted).await?
            }
            ItemState::Scheduled | ItemState::Retrying => {
                cancel_page::waiting(space, tr, filter.state, self.behind, is_wanted).await?
            }
            ItemState::Running => cancel_page::running(space, tr, self.behind, is_wanted).await?,
            ItemState::Dead => CancelPage::default(),
        };
        Ok(if page.counts.cancelled > 0 { Act::Write(page) } else { Act::Nothing(page) })
    }
}
