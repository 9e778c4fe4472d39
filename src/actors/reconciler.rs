//! Which consumers of a queue stay, which leave, and when others take their places. Pure.
//!
//! New consumers do not run in addition to the old ones: a new consumer starts when the queue has fewer consumers
//! than are wanted, including leaving ones. So one consumer stays one. If there are many, the ones that leave fast make room
//! while a slow one finishes.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

/// A running consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningConsumer<S> {
    pub(super) id: u64,
    pub(super) spec: S,
    /// It takes nothing more.
    pub(super) leaving: bool,
}

/// The places of a queue's consumers, and the consumers that wait for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reconciler<S> {
    places: usize,
    pending: VecDeque<S>,
}

/// The changes to the running consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Changes<S> {
    /// The consumers that must leave.
    pub(super) leave: Vec<u64>,
    /// New ones to begin now.
    pub(super) start: Vec<S>,
}

impl<S: Clone + Eq + Hash> Reconciler<S> {
    /// Replaces the running consumers with the wanted ones. A consumer that is among both stays. The others start when there is room: now, or later, see
    /// [`Reconciler::fill_vacancies`]. Takes time in proportion to the number of both.
    pub(super) fn reconcile(running: &[RunningConsumer<S>], wanted: Vec<S>) -> (Self, Changes<S>) {
        let places = wanted.len();
        let mut vacant = HashMap::<S, usize>::new();
        wanted.iter().for_each(|spec| *vacant.entry(spec.clone()).or_default() += 1);
        let mut kept = HashMap::<&S, usize>::new();
        let mut leave = Vec::new();
        for member in running.iter().filter(|member| !member.leaving) {
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
        let mut reconciler = Self { places, pending: pending.collect() };
        let start = reconciler.fill_vacancies(running.len());
        (reconciler, Changes { leave, start })
    }

    /// The consumers to start, given how many run.
    pub(super) fn fill_vacancies(&mut self, running: usize) -> Vec<S> {
        let room = self.places.saturating_sub(running).min(self.pending.len());
        self.pending.drain(..room).collect()
    }

    /// Whether all that are wanted have begun.
    pub(super) fn is_complete(&self) -> bool {
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
        running: Vec<RunningConsumer<u8>>,
        reconciler: Reconciler<u8>,
        next: u64,
    }

    impl Queue {
        fn new() -> Self {
            let (reconciler, _) = Reconciler::reconcile(&[], Vec::new());
            Self { running: Vec::new(), reconciler, next: 1 }
        }

        fn start(&mut self, specs: Vec<u8>) {
            for spec in specs {
                self.running.push(RunningConsumer { id: self.next, spec, leaving: false });
                self.next += 1;
            }
        }

        fn reconcile(&mut self, wanted: &[u8]) {
            let (reconciler, change) = Reconciler::reconcile(&self.running, wanted.to_vec());
            self.reconciler = reconciler;
            for member in &mut self.running {
                member.leaving |= change.leave.contains(&member.id);
            }
            self.start(change.start);
        }

        fn end(&mut self, place: usize) {
            self.running.remove(place);
            let start = self.reconciler.fill_vacancies(self.running.len());
            self.start(start);
        }

        /// The consumers that stay, in order.
        fn staying(&self) -> Vec<u8> {
            let mut specs: Vec<_> = self.running.iter().filter(|it| !it.leaving).map(|it| it.spec).collect();
            specs.sort_unstable();
            specs
        }
    }

    fn sorted(mut specs: Vec<u8>) -> Vec<u8> {
        specs.sort_unstable();
        specs
    }

    #[test]
    fn one_consumer_is_replaced_without_a_second_one_running() {
        let mut queue = Queue::new();
        queue.reconcile(&[1]);
        queue.reconcile(&[2]);
        assert_eq!((queue.running.len(), queue.staying()), (1, vec![]));
        // Another change, before the first was carried out.
        queue.reconcile(&[3]);
        queue.end(0);
        assert_eq!(queue.staying(), [3]);
        assert!(queue.reconciler.is_complete());
    }

    #[test]
    fn nine_of_ten_consumers_are_replaced_while_one_is_still_busy() {
        let mut queue = Queue::new();
        queue.reconcile(&[1; 10]);
        queue.reconcile(&[2; 10]);
        (0..9).for_each(|_| queue.end(0));
        assert_eq!((queue.running.len(), queue.staying()), (10, vec![2; 9]));
    }

    #[test]
    fn a_consumer_wanted_before_and_after_a_change_stays() {
        let mut queue = Queue::new();
        queue.reconcile(&[1, 1, 2]);
        queue.reconcile(&[2, 1, 3]);
        let ids: Vec<_> = queue.running.iter().filter(|it| !it.leaving).map(|it| it.id).collect();
        assert_eq!(ids, [1, 3]);
        queue.reconcile(&[]);
        assert!(queue.staying().is_empty() && queue.reconciler.is_complete());
    }

    proptest! {
        /// In any order of changes and exits there are never more consumers than before or than wanted; a consumer that has to leave
        /// was not wanted. When the leaving consumers have ended, exactly the wanted ones run.
        #[test]
        fn reconciling_ends_with_exactly_the_wanted_consumers(steps in vec((vec(0_u8..4, 0..6), vec(any::<prop::sample::Index>(), 0..8)), 1..6)) {
            let mut queue = Queue::new();
            for (wanted, ends) in steps {
                let before = queue.running.len();
                queue.reconcile(&wanted);
                prop_assert!(queue.running.len() <= before.max(wanted.len()));
                for end in ends {
                    let leaving: Vec<_> = (0..queue.running.len()).filter(|it| queue.running[*it].leaving).collect();
                    if !leaving.is_empty() {
                        queue.end(leaving[end.index(leaving.len())]);
                        prop_assert!(queue.running.len() <= before.max(wanted.len()));
                    }
                }
                let mut rest = queue.clone();
                while let Some(place) = rest.running.iter().position(|it| it.leaving) {
                    rest.end(place);
                }
                prop_assert_eq!(rest.staying(), sorted(wanted));
                prop_assert!(rest.reconciler.is_complete());
            }
        }
    }
}
