//! Taking items, each at most once.

use std::num::NonZeroUsize;
use std::time::Duration;

use foundationdb::{Database, Transaction};

use super::choose::Chosen;
use super::lease::By;
use super::{FetchOptions, Session, request, unresolved::Effect};
use crate::approach::Approach;
use crate::error::{FetchError, QueueError};
use crate::item::Item;
use crate::ops::claim::forget;
use crate::ops::lease::row;
use crate::ops::scan::Row;
use crate::ops::version::committed_at;
use crate::ops::{kinds, lease, scan, token};
use crate::retry::{Attempts, NOT_COMMITTED, Retry, RetryError};
use crate::watch::Watch;

/// What a take came to: items, or a watch to wait on.
#[derive(Debug)]
#[must_use = "the items have left the queue: what is dropped is lost"]
pub struct Taken {
    /// The items, in order. They have left the queue. There may be more than `k` where the session had asked to be served with more, by a
    /// take that then failed.
    pub items: Vec<Item>,
    /// Present exactly if there are no items and a watch was asked for: resolves after the next push. Where there are items, take
    /// again at once; there may be more.
    pub watch: Option<Watch>,
    /// The database version at which the items left the queue; `None` if there are none, or if an earlier take had removed them.
    pub version: Option<u64>,
    /// What it went through.
    pub attempts: Attempts,
}

/// How an attempt goes on.
enum TakeStep {
    /// An earlier take had committed; its items are in `recovered`, and this transaction is not needed.
    Recovered,
    /// The transaction removes items.
    Removes(By),
    /// The transaction only reads: there is nothing to take.
    Empty(Option<Watch>),
    /// It is not this take's turn; it waits for this key.
    Waits(Vec<u8>),
    /// The transaction is one of several that the take needs.
    Steps(request::RequestStep),
}

impl Session {
    /// Removes and returns the first `k` items, or as many as there are; with none, returns a watch.
    ///
    /// Two sessions that take at the same time conflict; pushes and takes do not. The watch was made in a
    /// transaction that saw the queue empty, and that committed.
    pub async fn take(&mut self, db: &Database, k: NonZeroUsize) -> Result<Taken, FetchError> {
        self.take_with(db, &mut FetchOptions::new(k, Duration::ZERO, &mut Approach::Front).with_watch(true))
            .await
    }

    /// As [`Session::take`], by another approach than from the front, and with a watch only if `take` asks for it.
    pub async fn take_with(
        &mut self,
        db: &Database,
        take: &mut FetchOptions<'_>,
    ) -> Result<Taken, FetchError> {
        if !self.recovered.is_empty() {
            return Ok(self.hand_recovered(take.k, Attempts::default()));
        }
        let taken = self.take_until_done(db, take).await;
        if taken.is_err() {
            self.give_up(db).await;
        }
        taken.map_err(|error| FetchError::refused(error, take.k.get()))
    }

    async fn take_until_done(
        &mut self,
        db: &Database,
        take: &mut FetchOptions<'_>,
    ) -> Result<Taken, RetryError> {
        let (mut retry, mut tr) = Retry::begin(db, &self.policy)?;
        let mut aside = Vec::new();
        loop {
            let prepared = self.prepare_take(&tr, take).await;
            tr = match prepared {
                Err(error) => self.after_take(db, &mut retry, tr, error, &mut aside).await?,
                Ok(TakeStep::Recovered) => return Ok(self.hand_recovered(take.k, retry.attempts)),
                Ok(TakeStep::Empty(watch)) => match tr.commit().await {
                    Err(error) => retry.after_commit(error).await?,
                    Ok(_committed) => {
                        // No attempt of unknown outcome had committed by then, and none will: what it read is gone.
                        self.unresolved.void();
                        let attempts = retry.attempts;
                        let watch = watch.map(|watch| watch.paced(db));
                        return Ok(Taken { items: Vec::new(), watch, version: None, attempts });
                    }
                },
                Ok(TakeStep::Waits(key)) => retry.wait(db, tr, &key).await?,
                Ok(TakeStep::Steps(step)) => self.commit_step(&mut retry, tr, step, take).await?,
                Ok(TakeStep::Removes(by)) => match tr.commit().await {
                    Err(error) => {
                        self.unresolved.failed(*error);
                        if error.code() == NOT_COMMITTED {
                            take.lost(by);
                        }
                        retry.after_commit(error).await?
                    }
                    Ok(committed) => {
                        let items = self.taken();
                        self.asked.clear();
                        take.won(&items, by);
                        let (version, attempts) = (committed_at(&committed), retry.attempts);
                        return Ok(Taken { items, watch: None, version, attempts });
                    }
                },
            };
        }
    }

    /// Writes the take into a transaction.
    async fn prepare_take(
        &mut self,
        tr: &Transaction,
        take: &mut FetchOptions<'_>,
    ) -> Result<TakeStep, QueueError> {
        self.resolve(tr).await?;
        if !self.recovered.is_empty() {
            return Ok(TakeStep::Recovered);
        }
        match self.choose(tr, take, 0).await? {
            // The watch reads `npush`, so in a transaction that writes it would conflict with every push. A take that
            // found something goes without; the next one, finding nothing, writes nothing.
            Chosen::Empty => Ok(TakeStep::Empty(self.watch_empty(tr, take).await?)),
            Chosen::Waits(key) => Ok(TakeStep::Waits(key)),
            Chosen::Steps(step) => Ok(TakeStep::Steps(step)),
            Chosen::Rows(rows, seen) => self.put_token(tr, &rows, By::Itself { seen }).await,
            Chosen::Served(id, mut header, held) => {
                let rows: Vec<Row> = held.iter().map(row).collect();
                header.acknowledged.fill();
                lease::update(self.queue.space(), tr, id, &header);
                self.put_token(tr, &rows, By::Others).await
            }
        }
    }

    /// The watch of a take that found nothing, if it wants one: before it waits, it makes sure that there are no items of another kind.
    pub(super) async fn watch_empty(
        &self,
        tr: &Transaction,
        take: &FetchOptions<'_>,
    ) -> Result<Option<Watch>, QueueError> {
        if !take.watch {
            return Ok(None);
        }
        kinds::check_elsewhere(self.queue.space(), tr).await?;
        Ok(Some(self.queue.watch(tr)))
    }

    /// Ends the items of rows that the transaction removes, and leaves what tells that it has.
    async fn put_token(&mut self, tr: &Transaction, rows: &[Row], by: By) -> Result<TakeStep, QueueError> {
        let space = self.queue.space().clone();
        let items = scan::items(&space, tr, rows).await?;
        rows.iter().try_for_each(|row| forget(&space, tr, row))?;
        let attempt = self.next_attempt();
        token::mark(&space, tr, self.id, attempt)?;
        self.unresolved.note(attempt, Effect::Took(items));
        Ok(TakeStep::Removes(by))
    }

    /// What the attempt that just committed had removed.
    fn taken(&mut self) -> Vec<Item> {
        match self.unresolved.committed() {
            Some(Effect::Took(items)) => items,
            Some(Effect::Pushed(_)) | None => Vec::new(),
        }
    }

    fn hand_recovered(&mut self, k: NonZeroUsize, attempts: Attempts) -> Taken {
        let n = k.get().min(self.recovered.len());
        Taken { items: self.recovered.drain(..n).collect(), watch: None, version: None, attempts }
    }
}
