//! Which consumers of a queue stay, which leave, and when others take their places. Pure.
//!
//! A new set of consumers does not stand beside the old one: a consumer that is new begins when there are fewer in the queue than are
//! wanted, those that are leaving included. So one consumer stays one, and where there are many, those that are quick to leave make room
//! while a slow one finishes.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

/// A consumer that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Living<S> {
    pub(super) id: u64,
    pub(super) spec: S,
    /// It takes nothing more.
    pub(super) leaving: bool,
}

/// The places of a queue's consumers, and those who wait for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slots<S> {
    places: usize,
    pending: VecDeque<S>,
}

/// What is to be done about those who live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change<S> {
    /// Of these consumers, those that are to leave.
    pub(super) leave: Vec<u64>,
    /// New ones to begin now.
    pub(super) start: Vec<S>,
}

impl<S: Clone + Eq + Hash> Slots<S> {
    /// These are wanted instead of those that there are. Who is among both stays. The rest begins as there is room: now, and later as
    /// [`Slots::freed`] says. Takes time in proportion to the number of both.
    pub(super) fn converge(living: &[Living<S>], wanted: Vec<S>) -> (Self, Change<S>) {
        let places = wanted.len();
        let mut vacant = HashMap::<S, usize>::new();
        wanted.iter().for_each(|spec| *vacant.entry(spec.clone()).or_default() += 1);
        let mut kept = HashMap::<&S, usize>::new();
        let mut leave = Vec::new();
        for member in living.iter().filter(|member| !member.leaving) {
            match vacant.get_mut(&member.spec).filter(|places| **places > 0) {
                Some(places) => {
                    *places -= 1;
                    *kept.entry(&member.spec).or_default() += 1;
                }
                None => leave.push(member.id),
            }
        }
        // Of several equal specs the first ones stay.
        let begins = |spec: &S| match kept.get_mut(spec).filter(|kept| **kept > 0) {
            Some(kept) => {
                *kept -= 1;
                false
            }
            None => true,
        };
        let pending = wanted.into_iter().filter(begins);
        let mut slots = Self { places, pending: pending.collect() };
        let start = slots.freed(living.len());
        (slots, Change { leave, start })
    }

    /// Those to begin where so many live.
    pub(super) fn freed(&mut self, living: usize) -> Vec<S> {
        let room = self.places.saturating_sub(living).min(self.pending.len());
        self.pending.drain(..room).collect()
    }

    /// Whether all that are wanted have begun.
    pub(super) fn is_filled(&self) -> bool {
        self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// The consumers of a queue, and what is known of their places.
    #[derive(Clone)]
    struct Queue {
        living: Vec<Living<u8>>,
        slots: Slots<u8>,
        next: u64,
    }

    impl Queue {
        fn new() -> Self {
            let (slots, _) = Slots::converge(&[], Vec::new());
            Self { living: Vec::new(), slots, next: 1 }
        }

        fn start(&mut self, specs: Vec<u8>) {
            for spec in specs {
                self.living.push(Living { id: self.next, spec, leaving: false });
                self.next += 1;
            }
        }

        fn converge(&mut self, wanted: &[u8]) {
            let (slots, change) = Slots::converge(&self.living, wanted.to_vec());
            self.slots = slots;
            for member in &mut self.living {
                member.leaving |= change.leave.contains(&member.id);
            }
            self.start(change.start);
        }

        fn end(&mut self, place: usize) {
            self.living.remove(place);
            let start = self.slots.freed(self.living.len());
            self.start(start);
        }

        /// Those that go on, in order.
        fn staying(&self) -> Vec<u8> {
            let mut specs: Vec<_> = self.living.iter().filter(|it| !it.leaving).map(|it| it.spec).collect();
            specs.sort_unstable();
            specs
        }
    }

    fn sorted(mut specs: Vec<u8>) -> Vec<u8> {
        specs.sort_unstable();
        specs
    }

    #[test]
    fn one_stays_one() {
        let mut queue = Queue::new();
        queue.converge(&[1]);
        queue.converge(&[2]);
        assert_eq!((queue.living.len(), queue.staying()), (1, vec![]));
        // Another change, before the first was carried out.
        queue.converge(&[3]);
        queue.end(0);
        assert_eq!(queue.staying(), [3]);
        assert!(queue.slots.is_filled());
    }

    #[test]
    fn of_ten_nine_change_while_one_is_slow() {
        let mut queue = Queue::new();
        queue.converge(&[1; 10]);
        queue.converge(&[2; 10]);
        (0..9).for_each(|_| queue.end(0));
        assert_eq!((queue.living.len(), queue.staying()), (10, vec![2; 9]));
    }

    #[test]
    fn who_is_wanted_before_and_after_stays() {
        let mut queue = Queue::new();
        queue.converge(&[1, 1, 2]);
        queue.converge(&[2, 1, 3]);
        let ids: Vec<_> = queue.living.iter().filter(|it| !it.leaving).map(|it| it.id).collect();
        assert_eq!(ids, [1, 3]);
        queue.converge(&[]);
        assert!(queue.staying().is_empty() && queue.slots.is_filled());
    }

    proptest! {
        /// Whatever is wanted when, and whoever ends when: there are never more than there were, or are wanted; whoever is told to leave
        /// was not wanted; and once those that leave are gone, those that are wanted are there.
        #[test]
        fn it_ends_at_what_is_wanted(steps in vec((vec(0_u8..4, 0..6), vec(any::<prop::sample::Index>(), 0..8)), 1..6)) {
            let mut queue = Queue::new();
            for (wanted, ends) in steps {
                let before = queue.living.len();
                queue.converge(&wanted);
                prop_assert!(queue.living.len() <= before.max(wanted.len()));
                for end in ends {
                    let leaving: Vec<_> = (0..queue.living.len()).filter(|it| queue.living[*it].leaving).collect();
                    if !leaving.is_empty() {
                        queue.end(leaving[end.index(leaving.len())]);
                        prop_assert!(queue.living.len() <= before.max(wanted.len()));
                    }
                }
                let mut rest = queue.clone();
                while let Some(place) = rest.living.iter().position(|it| it.leaving) {
                    rest.end(place);
                }
                prop_assert_eq!(rest.staying(), sorted(wanted));
                prop_assert!(rest.slots.is_filled());
            }
        }
    }
}
