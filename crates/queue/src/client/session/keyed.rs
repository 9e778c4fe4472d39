//! Fetching from a keyed queue: from the keys that come first, within the limits of their scopes.

use std::time::Duration;

use foundationdb::Transaction;

use super::FetchOptions;
use super::Session;
use super::plan::Chosen;
use crate::client::session::options::Goal;
use crate::keys::keyed::KeyedSpace;
use crate::model::error::QueueError;
use crate::model::place::Extent;
use crate::model::suspicion::Suspicion;
use crate::ops::keyed::fetch::{Wanted, choose};
use crate::ops::keyed::lanes::{Others, Taker};
use mutant::bound;

/// At how many pages of parked keys a fetch that finds no item looks again, after a change of the rules. The next fetch goes on at once.
fn max_looks() -> usize {
    bound("looks-of-a-fetch", 100)
}

impl Session {
    /// Chooses by the positions of keys, and removes what was chosen.
    pub(super) async fn choose_by_key(
        &mut self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        take: &FetchOptions<'_>,
        goal: Goal<'_>,
    ) -> Result<Chosen, QueueError> {
        let (space, on_lease) = (self.queue.space().clone(), goal.is_lease());
        loop {
            let wanted = Wanted {
                k: take.k,
                on_lease,
                suspects: goal.first().map_or(take.k, |first| first.min(take.k)),
                allows: self.allows(on_lease),
                lazy: self.avoidance.lazy,
                scatter: self.avoidance.scatter,
                taker: Taker {
                    session: self.id,
                    gate: self.avoidance.gate,
                    others: match self.avoidance.leaves_slots {
                        true => Others::Leave(self.avoidance.look.clone()),
                        false => Others::Take,
                    },
                },
            };
            let choice = choose(&space, keyed, tr, wanted, &mut self.rng).await?;
            if !choice.is_empty() || !choice.tidies() {
                self.avoidance.looks = 0;
            } else if choice.looks_again() && self.avoidance.looks >= max_looks() {
                self.avoidance.looks = 0;
                return Ok(Chosen::Empty(Some(Duration::ZERO)));
            }
            if let Some(slots) = choice.full().filter(|_| !choice.tidies()) {
                if slots.leaves_some() {
                    self.avoidance.look = Some(slots.look(self.avoidance.look.take()));
                }
                return Ok(Chosen::Full(choice.look_again_in(), slots.watched_row(keyed)));
            }
            self.avoidance.ends_keys = choice.ends_keys();
            self.avoidance.takes_slots_of_others = choice.takes_slots_of_others();
            if choice.is_empty() && !choice.tidies() && self.avoidance.scatter > 0 {
                // It has looked at a few keys only.
                self.avoidance.scatter = 0;
                continue;
            }
            if choice.is_empty() && !choice.tidies() {
                return Ok(Chosen::Empty(choice.look_again_in()));
            }
            if on_lease && choice.suspicion() > Suspicion::None {
                self.ward = self.quarantine.enter(&space.ready, choice.suspicion());
                if self.ward.is_none() {
                    // Others of this process have got suspects meanwhile.
                    continue;
                }
            }
            self.avoidance.looks += usize::from(choice.looks_again());
            choice.write(&space, keyed, tr).await?;
            return Ok(match choice.is_empty() {
                true => Chosen::Tidied,
                false => Chosen::Rows(choice.into_rows(), Extent::Unknown),
            });
        }
    }
}
