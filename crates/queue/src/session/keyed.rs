//! Fetching from a keyed queue: from the keys that come first, within the limits of their scopes.

use std::time::Duration;

use foundationdb::Transaction;
use mutant::bound;

use super::choose::Chosen;
use super::fetch::Goal;
use super::{FetchOptions, Session};
use crate::approach::Extent;
use crate::error::QueueError;
use crate::keys::keyed::KeyedSpace;
use crate::ops::keyed::fetch::{Wanted, choose};
use crate::ops::keyed::lanes::{Look, Others, Taker};
use crate::rng::Rng;
use crate::suspects::Suspicion;

/// How many keys a fetch chooses from at random after a first conflict. Each further one doubles it.
const FIRST_SCATTER: usize = 32;
/// The most keys that a fetch chooses from at random.
const MAX_SCATTER: usize = 1_024;
/// After so many fetches without a conflict half as many keys are chosen from.
const CALM: u32 = 64;

/// At how many pages of parked keys a fetch that finds no item looks again, after a change of the rules. The next fetch goes on at once.
fn max_looks() -> usize {
    bound("looks-of-a-fetch", 100)
}

/// How the session's fetches avoid conflicts.
#[derive(Debug, Default)]
pub(super) struct Avoidance {
    /// From how many keys they choose at random, so that they conflict less with fetches of other processes.
    scatter: usize,
    /// Which gate of limited scopes they take.
    gate: u64,
    /// Whether they leave keys in the index whose last items they take, so that they conflict less with pushes.
    lazy: bool,
    /// Whether the attempt under way takes keys out of the index.
    ends_keys: bool,
    /// Whether the attempt under way takes slots of the queue that other sessions may be about to take.
    takes_slots_of_others: bool,
    /// Whether they leave such slots alone, unless these stay free: they have lost a race for some.
    leaves_slots: bool,
    /// The slots that the last fetch has left alone.
    look: Option<Look>,
    /// Fetches without a conflict since it last changed.
    calm: u32,
    /// At how many pages of parked keys the fetch under way has looked again, without finding an item.
    looks: usize,
}

impl Avoidance {
    pub(super) fn new(rng: &mut Rng) -> Avoidance {
        Avoidance { gate: rng.next(), ..Avoidance::default() }
    }

    /// The attempt under way has conflicted, with a push if it takes keys out of the index; otherwise with another session.
    pub(super) fn conflicted(&mut self, rng: &mut Rng) {
        self.gate = rng.next();
        if self.ends_keys {
            self.lazy = true;
        } else {
            self.leaves_slots |= self.takes_slots_of_others;
            self.scatter = (self.scatter * 2).clamp(FIRST_SCATTER, MAX_SCATTER);
        }
        self.calm = 0;
    }

    pub(super) fn committed(&mut self) {
        self.calm += 1;
        if self.calm >= CALM {
            self.scatter = if self.scatter > FIRST_SCATTER { self.scatter / 2 } else { 0 };
            self.lazy = false;
            self.leaves_slots = false;
            self.look = None;
            self.calm = 0;
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionId;

    #[test]
    fn fetches_scatter_after_conflicts_and_return_to_the_front() {
        let (mut avoidance, mut rng) = (Avoidance::default(), Rng::of(SessionId([7; 16])));
        avoidance.conflicted(&mut rng);
        assert_eq!((avoidance.scatter, avoidance.lazy), (FIRST_SCATTER, false));
        (0..20).for_each(|_| avoidance.conflicted(&mut rng));
        assert_eq!(avoidance.scatter, MAX_SCATTER);
        (0..CALM * 6).for_each(|_| avoidance.committed());
        assert_eq!(avoidance.scatter, 0);
    }

    #[test]
    fn fetches_leave_the_slots_of_others_alone_after_a_conflict_with_another_session() {
        let mut rng = Rng::of(SessionId([7; 16]));
        let mut avoidance =
            Avoidance { takes_slots_of_others: true, ends_keys: true, ..Avoidance::default() };
        // With a push.
        avoidance.conflicted(&mut rng);
        assert!(!avoidance.leaves_slots);
        avoidance.ends_keys = false;
        avoidance.conflicted(&mut rng);
        assert!(avoidance.leaves_slots);
        (0..CALM).for_each(|_| avoidance.committed());
        assert!(!avoidance.leaves_slots);
        let mut avoidance = Avoidance::default();
        avoidance.conflicted(&mut rng);
        assert!(!avoidance.leaves_slots);
    }

    #[test]
    fn fetches_leave_empty_keys_in_the_index_after_conflicts_with_pushes() {
        let mut avoidance = Avoidance { ends_keys: true, ..Avoidance::default() };
        avoidance.conflicted(&mut Rng::of(SessionId([7; 16])));
        assert_eq!((avoidance.scatter, avoidance.lazy), (0, true));
        (0..CALM).for_each(|_| avoidance.committed());
        assert!(!avoidance.lazy);
    }
}
