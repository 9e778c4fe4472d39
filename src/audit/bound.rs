//! Which records go when there are too many: those of the actor that has the most, and of these the ones about its queue with the most. So nobody pushes
//! the records of others out of the trail. Pure.

use std::collections::BTreeMap;

use super::Record;

/// The actor and the queue of a record. Records that cannot be read have no actor.
pub(crate) type Share = (Option<String>, String);

/// How many records there are of each share.
#[derive(Debug, Default)]
pub(crate) struct Census(BTreeMap<Option<String>, BTreeMap<String, u64>>);

/// How many of the oldest records of each share go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excess(BTreeMap<Share, u64>);

impl Census {
    pub(crate) fn add(&mut self, record: Option<&Record>) {
        let (actor, queue) = share(record);
        *self.0.entry(actor).or_default().entry(queue).or_default() += 1;
    }

    /// What goes, so that `most` records are left.
    pub(crate) fn excess(&self, most: u64) -> Excess {
        let actors: Vec<u64> = self.0.values().map(|queues| queues.values().sum()).collect();
        let of_actor = fair(&actors, most);
        let mut excess = BTreeMap::new();
        for (actor, queues) in &self.0 {
            let counts: Vec<u64> = queues.values().copied().collect();
            let of_queue = fair(&counts, of_actor);
            for (queue, count) in queues.iter().filter(|(_, count)| **count > of_queue) {
                excess.insert((actor.clone(), queue.clone()), count - of_queue);
            }
        }
        Excess(excess)
    }
}

impl Excess {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this record goes, which is the oldest of its share that is left.
    pub(crate) fn takes(&mut self, record: Option<&Record>) -> bool {
        let share = share(record);
        let Some(left) = self.0.get_mut(&share) else { return false };
        *left -= 1;
        if *left == 0 {
            self.0.remove(&share);
        }
        true
    }
}

fn share(record: Option<&Record>) -> Share {
    record.map_or((None, String::new()), |record| (Some(record.actor()), record.queue()))
}

/// The highest bound of each count with which their sum is at most `most`; what is below the bound stays whole.
fn fair(counts: &[u64], most: u64) -> u64 {
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    let mut left = most;
    for (index, count) in counts.iter().enumerate() {
        let each = left / (counts.len() - index) as u64;
        if *count > each {
            return each;
        }
        left -= count;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Action, Who};

    fn record(token: &str, queue: &str) -> Record {
        Record::new(Action::OF_A_TEST, Who::Token { name: token.to_owned() }).about(queue.as_bytes())
    }

    #[test]
    fn a_bound_is_as_high_as_the_sum_allows() {
        assert_eq!(fair(&[1, 5, 3], 9), u64::MAX);
        assert_eq!(fair(&[1, 5, 3], 8), 4);
        assert_eq!(fair(&[100, 1, 100], 21), 10);
        assert_eq!((fair(&[7], 0), fair(&[], 0)), (0, u64::MAX));
    }

    #[test]
    fn the_actor_with_the_most_records_loses_its_own_and_of_these_of_the_fullest_queue() {
        let (mut census, mut records) = (Census::default(), Vec::new());
        records.extend((0..3).map(|_| record("b", "q")));
        records.extend((0..90).map(|n| record("a", if n % 9 == 0 { "y" } else { "x" })));
        records.iter().for_each(|it| census.add(Some(it)));
        census.add(None);
        assert!(census.excess(94).is_empty());
        let mut excess = census.excess(54);
        let gone = records.iter().filter(|it| excess.takes(Some(it))).count();
        assert_eq!((gone, excess), (40, Excess::default()));
        let mut excess = census.excess(54);
        assert!(
            !excess.takes(Some(&record("b", "q")))
                && !excess.takes(Some(&record("a", "y")))
                && !excess.takes(None)
        );
        assert!(excess.takes(Some(&record("a", "x"))));
    }

    #[test]
    fn many_queues_give_an_actor_no_larger_share() {
        let mut census = Census::default();
        (0..50).for_each(|n| census.add(Some(&record("a", &format!("q{n}")))));
        (0..10).for_each(|_| census.add(Some(&record("b", "x"))));
        let Excess(excess) = census.excess(20);
        assert!(excess.keys().all(|(actor, _)| actor.as_deref() == Some("token a")), "{excess:?}");
        assert_eq!(excess.values().sum::<u64>(), 50);
    }
}
