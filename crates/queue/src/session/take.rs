//! Taking items, each at most once.

use std::num::NonZeroUsize;

use foundationdb::{Database, Transaction};

use super::{Session, unsettled::Effect};
use crate::error::{QueueError, TakeError};
use crate::item::Item;
use crate::ops::{take, token};
use crate::retry::{Attempts, Retry};
use crate::watch::Watch;

/// What a take came to: items, or a watch to wait on.
#[derive(Debug)]
pub struct Taken {
    /// The items, in order. They have left the queue.
    pub items: Vec<Item>,
    /// Present exactly if there are no items: resolves after the next push. Without it, take again at once; there may be
    /// more.
    pub watch: Option<Watch>,
    /// What it went through.
    pub attempts: Attempts,
}

/// How an attempt goes on.
enum Step {
    /// An earlier take had committed; its items are in `recovered`, and this transaction is not needed.
    Recovered,
    /// The transaction removes items, or marks that there are none after an unknown outcome.
    Marked(Option<Watch>),
    /// The transaction only reads: there is nothing to take.
    Empty(Watch),
}

impl Session {
    /// Removes and returns the first `k` items, or as many as there are; with none, returns a watch.
    ///
    /// Two sessions that take at the same time conflict; pushes and takes do not. The watch was made in a
    /// transaction that saw the queue empty, and that committed.
    pub async fn take(&mut self, db: &Database, k: NonZeroUsize) -> Result<Taken, TakeError> {
        if !self.recovered.is_empty() {
            return Ok(self.hand_recovered(k, Attempts::default()));
        }
        let (mut retry, mut tr) = Retry::begin(db, &self.policy)?;
        loop {
            let prepared = self.prepare_take(&tr, k).await;
            let (watch, marked) = match prepared {
                Err(error) => {
                    tr = retry.after_body(tr, error).await?;
                    continue;
                }
                Ok(Step::Recovered) => return Ok(self.hand_recovered(k, retry.attempts)),
                Ok(Step::Marked(watch)) => (watch, true),
                Ok(Step::Empty(watch)) => (Some(watch), false),
            };
            tr = match tr.commit().await {
                Ok(_committed) => {
                    let items = if marked { self.taken() } else { Vec::new() };
                    return Ok(Taken { items, watch, attempts: retry.attempts });
                }
                Err(error) => {
                    if marked {
                        self.unsettled.failed(*error);
                    }
                    retry.after_commit(error).await?
                }
            };
        }
    }

    /// Writes the take into a transaction.
    async fn prepare_take(&mut self, tr: &Transaction, k: NonZeroUsize) -> Result<Step, QueueError> {
        self.settle(tr).await?;
        if !self.recovered.is_empty() {
            return Ok(Step::Recovered);
        }
        let space = self.queue.space().clone();
        let items = take::take(&space, tr, k).await?;
        // The watch reads `npush`, so in a transaction that writes it would conflict with every push. A take that found
        // something goes without; the next one, finding nothing, writes nothing.
        let watch = items.is_empty().then(|| self.queue.watch(tr));
        match watch {
            Some(watch) if self.unsettled.is_empty() => Ok(Step::Empty(watch)),
            watch => {
                // Also without items: after this mark no attempt from before can still remove any.
                let attempt = self.next_attempt();
                token::mark(&space, tr, self.id, attempt)?;
                self.unsettled.note(attempt, Effect::Took(items));
                Ok(Step::Marked(watch))
            }
        }
    }

    /// What the attempt that just committed had removed.
    fn taken(&mut self) -> Vec<Item> {
        match self.unsettled.committed() {
            Some(Effect::Took(items)) => items,
            Some(Effect::Pushed) | None => Vec::new(),
        }
    }

    fn hand_recovered(&mut self, k: NonZeroUsize, attempts: Attempts) -> Taken {
        let n = k.get().min(self.recovered.len());
        Taken { items: self.recovered.drain(..n).collect(), watch: None, attempts }
    }
}
