//! What a session knows of the partitions of its queue.

use std::sync::Arc;

use crate::keys::Space;
use crate::keys::partitions::{Deal, Record};
use crate::model::rng::Rng;
use crate::model::stamp::Stamp;
use crate::ops::partitions;
use crate::ops::push::Pusher;
use mutant::mutant;

/// For how many versions a session relies on how the queue was divided. A tenth of a second.
pub(super) const DIVISION_KNOWN: u64 = 100_000;

/// For how many versions a session relies on which items were first in each partition. A twentieth of a second.
pub(super) const HEADS_KNOWN: u64 = 50_000;

/// The shortest unit of patience, in versions: the time that a commit takes on a machine that is not busy, and twice as long again.
pub(super) const PATIENCE: u64 = 15_000;

/// A unit of patience is so many times as long as a commit takes.
pub(super) const COMMITS: u64 = 3;

/// The longest unit of patience, in versions. An item may lie eight times as long in a partition whose session is gone.
pub(super) const MAX_UNIT: u64 = 250_000;

/// A session that has lost leaves items alone for up to so many units in partitions that it does not know. Sessions differ in that, so that
/// they do not all come at once.
pub(super) const SPREAD: u64 = 4;

/// The longest patience is so many units, and up to twice as many.
pub(super) const MOST: u64 = 4;

/// A shorter patience is none.
pub(super) const MIN_PATIENCE: u64 = 2_000;

/// What a session knows of its queue's partitions.
#[derive(Debug, Default)]
pub(super) struct KnownPartitions {
    /// The record, and the version that it was read at.
    pub(super) division: Option<(Option<Record>, u64)>,
    /// The spaces of all partitions, if there are several.
    pub(super) spaces: Vec<Arc<Space>>,
    pub(super) heads: Option<Heads>,
    /// The last item that the fetch under way takes, and its partition.
    pub(super) behind: Option<(u8, Stamp)>,
    /// Where the session fetches.
    pub(super) at: Option<u8>,
    /// For how many versions it leaves the first item of each partition alone; `None`: it has neither won nor lost there.
    pub(super) patience: Vec<Option<u64>>,
    /// The same in partitions where it has neither won nor lost.
    pub(super) reserve: u64,
    /// The first item of each partition, and the version at which the session saw it there first.
    pub(super) seen: Vec<Option<(Stamp, u64)>>,
    /// How many versions pass until a fetch of its has committed, on average.
    pub(super) commit_time: u64,
    /// The version at which the fetch under way reads.
    pub(super) reads_at: u64,
    /// How many pushes there were.
    pub(super) pushes: u64,
}

/// The first item of each partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heads {
    /// The version that they were read at.
    pub(super) at: u64,
    pub(super) of: Vec<Option<Stamp>>,
}

/// Where a fetch looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartitionChoice {
    /// In this partition, for items of versions up to this one.
    Partition(u8, u64),
    /// There may be items, and they are too fresh for it.
    Wait,
    /// No partition has an item for it.
    None,
}

impl Heads {
    /// The version of the oldest ready item, or an earlier one.
    pub(super) fn oldest(&self) -> u64 {
        // What has come into an empty partition is younger than the look.
        let versions = self.of.iter().map(|head| head.map_or(self.at, |stamp| stamp.version()));
        versions.min().unwrap_or(self.at)
    }
}

impl KnownPartitions {
    /// How many pushes there were; counts one.
    pub(super) fn next_turn(&mut self, rng: &mut Rng) -> u64 {
        if self.pushes == 0 {
            // Sessions begin at different partitions.
            self.pushes = rng.next() >> 1;
        }
        self.pushes += 1;
        self.pushes
    }

    /// Whether it is known that the queue has no partitions.
    pub(super) fn is_plain(&self, version: u64) -> bool {
        matches!(self.known(version), Some(None))
    }

    /// A push has found out how the queue is divided.
    pub(super) fn pushed(&mut self, pusher: &Pusher<'_>, version: u64) {
        if pusher.deal() == Some(Deal::PLAIN) && self.spaces.is_empty() && self.known(version).is_none() {
            self.division = Some((None, version));
        }
    }

    pub(super) fn known(&self, version: u64) -> Option<Option<Record>> {
        let (record, read_at) = self.division?;
        (read_at..read_at.saturating_add(DIVISION_KNOWN)).contains(&version).then_some(record)
    }

    pub(super) fn learn(&mut self, space: &Space, record: Option<Record>, version: u64) {
        let most = record.map_or(1, |record| usize::from(record.most));
        if most == 1 {
            (self.spaces, self.heads) = (Vec::new(), None);
        } else if self.spaces.len() != most {
            self.spaces = partitions::all(space, record);
            self.patience.resize(most, None);
            self.seen.resize(most, None);
            self.heads = None;
        }
        self.division = Some((record, version));
    }

    /// What patience is measured in. Another session needs this long at least to get an item.
    pub(super) fn unit(&self) -> u64 {
        (COMMITS * self.commit_time).clamp(PATIENCE, MAX_UNIT)
    }

    pub(super) fn patience(&self, i: u8) -> u64 {
        self.patience.get(usize::from(i)).copied().flatten().unwrap_or(self.reserve)
    }

    /// The fetch under way has failed; whether it has lost against another.
    pub(super) fn failed(&mut self, lost: bool, rng: &mut Rng) {
        (self.heads, self.behind) = (None, None);
        if lost && let Some(at) = self.at.take() {
            let unit = self.unit();
            let mut up_to = |units: u64| rng.next() % (units * unit);
            if self.reserve == 0 {
                self.reserve = unit + up_to(SPREAD);
            }
            let patience = (2 * self.patience(at) + unit + up_to(1)).min(MOST * unit + up_to(MOST));
            self.learn_patience(at, patience);
            // It begins to wait now.
            if let Some(seen) = self.seen.get_mut(usize::from(at)) {
                *seen = None;
            }
        }
    }

    /// The fetch under way has committed, with items. `version` returns the version of the commit, if it is known.
    pub(super) fn committed(&mut self, version: impl FnOnce() -> Option<u64>) {
        if let (Some(heads), Some((partition, stamp))) = (&mut self.heads, self.behind.take()) {
            heads.of[usize::from(partition)] = Some(stamp);
        }
        if let Some(at) = self.at {
            let took = version()
                .map_or(self.commit_time, |version| version.saturating_sub(self.reads_at).min(MAX_UNIT));
            self.commit_time = if self.commit_time == 0 { took } else { (7 * self.commit_time + took) / 8 };
            self.learn_patience(at, lessened(self.patience(at), 2));
            self.reserve = lessened(self.reserve, 8);
        }
    }

    pub(super) fn learn_patience(&mut self, i: u8, patience: u64) {
        if let Some(known) = self.patience.get_mut(usize::from(i)) {
            *known = Some(patience);
        }
    }

    /// Notes since when each first item is the first.
    pub(super) fn see(&mut self, heads: &Heads, version: u64) {
        for (seen, head) in self.seen.iter_mut().zip(&heads.of) {
            let is_same = |(stamp, at): &(Stamp, u64)| Some(*stamp) == *head && *at <= version;
            *seen = seen.take().filter(is_same).or(head.map(|head| (head, version)));
        }
    }

    /// Chooses a partition.
    pub(super) fn choose(
        &mut self,
        heads: &Heads,
        version: u64,
        max_disorder: u64,
        rng: &mut Rng,
    ) -> PartitionChoice {
        let until = heads.oldest().saturating_add(max_disorder);
        let until = if mutant("disorder-unbounded") { u64::MAX } else { until };
        let with_items = (0..).zip(&heads.of).filter_map(|(i, head)| Some((i, head.as_ref()?.version())));
        let eligible: Vec<(u8, u64)> = with_items.filter(|(_, head)| *head <= until).collect();
        self.see(heads, version);
        self.reads_at = version;
        let patience = |i: u8| self.patience(i);
        let since = |i: u8| self.seen.get(usize::from(i)).copied().flatten().map_or(version, |(_, at)| at);
        let is_over = |i: &u8| since(*i).saturating_add(patience(*i)) <= version;
        let allowed: Vec<u8> = eligible.iter().map(|(i, _)| *i).filter(is_over).collect();
        let Some(least) = allowed.iter().map(|i| patience(*i)).min() else {
            return if eligible.is_empty() { PartitionChoice::None } else { PartitionChoice::Wait };
        };
        let at = match self.at.filter(|at| allowed.contains(at)) {
            Some(at) => at,
            None => {
                let best: Vec<u8> = allowed.into_iter().filter(|i| patience(*i) == least).collect();
                best[rng.below(best.len())]
            }
        };
        self.at = Some(at);
        PartitionChoice::Partition(at, until)
    }
}

/// A patience that becomes less by a part of it.
pub(super) fn lessened(patience: u64, part: u64) -> u64 {
    let less = patience - patience / part;
    if less < MIN_PATIENCE { 0 } else { less }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::session_id::SessionId;

    const NOW: u64 = 1_000_000_000;
    const LOOSE: u64 = u64::MAX;

    fn partitions() -> (KnownPartitions, Rng) {
        let partitions =
            KnownPartitions { patience: vec![None; 2], seen: vec![None; 2], ..KnownPartitions::default() };
        (partitions, Rng::of(SessionId([1; 16])))
    }

    /// First items, each by its version.
    fn heads<const N: usize>(versions: [u64; N]) -> Heads {
        let stamp = |version: u64| {
            let mut transaction = [0; 10];
            transaction[..8].copy_from_slice(&version.to_be_bytes());
            Some(Stamp::new(transaction, 0))
        };
        Heads { at: NOW, of: versions.into_iter().map(stamp).collect() }
    }

    #[test]
    fn a_session_that_never_lost_does_not_wait() {
        let (mut partitions, mut rng) = partitions();
        for version in NOW..NOW + 100 {
            let choice = partitions.choose(&heads([version, version]), version, LOOSE, &mut rng);
            assert!(matches!(choice, PartitionChoice::Partition(..)));
            partitions.committed(|| Some(version + 1_000));
        }
        assert_eq!((partitions.commit_time, partitions.unit(), partitions.reserve), (1_000, PATIENCE, 0));
    }

    #[test]
    fn a_session_that_lost_leaves_new_items_alone_for_a_while() {
        let (mut partitions, mut rng) = partitions();
        let first = heads([1, 1]);
        let PartitionChoice::Partition(at, _) = partitions.choose(&first, NOW, LOOSE, &mut rng) else {
            panic!("it waits")
        };
        partitions.failed(true, &mut rng);
        assert_eq!(partitions.choose(&first, NOW, LOOSE, &mut rng), PartitionChoice::Wait);
        let (there, elsewhere) = (partitions.patience(at), partitions.patience(1 - at));
        assert!((PATIENCE..(1 + SPREAD) * PATIENCE).contains(&elsewhere));
        assert!(there <= 2 * MOST * PATIENCE);
        // Other items are first now, and it waits again.
        let second = heads([2, 2]);
        assert_eq!(partitions.choose(&second, NOW + 2 * there, LOOSE, &mut rng), PartitionChoice::Wait);
        let over = NOW + 2 * there + elsewhere;
        assert_eq!(partitions.choose(&second, over - 1, LOOSE, &mut rng), PartitionChoice::Wait);
        assert_eq!(
            partitions.choose(&second, over, LOOSE, &mut rng),
            PartitionChoice::Partition(1 - at, u64::MAX)
        );
        partitions.committed(|| None);
        assert_eq!(partitions.patience(1 - at), elsewhere - elsewhere / 2);
    }

    #[test]
    fn patience_grows_with_the_time_of_a_commit_and_has_an_end() {
        let (mut partitions, mut rng) = partitions();
        for commit_time in [1, 10_000, 1_000_000] {
            partitions.commit_time = commit_time;
            let unit = partitions.unit();
            assert!(
                (PATIENCE..=MAX_UNIT).contains(&unit)
                    && (unit == COMMITS * commit_time || commit_time != 10_000)
            );
            for _ in 0..20 {
                partitions.at = Some(0);
                partitions.failed(true, &mut rng);
            }
            assert!((MOST * unit..2 * MOST * unit).contains(&partitions.patience(0)));
        }
        for _ in 0..100 {
            partitions.at = Some(0);
            partitions.committed(|| None);
        }
        assert_eq!((partitions.patience(0), partitions.reserve), (0, 0));
    }

    #[test]
    fn a_partition_whose_first_item_is_too_young_is_left_out() {
        let (mut partitions, mut rng) = partitions();
        for _ in 0..20 {
            let choice = partitions.choose(&heads([100, 111]), NOW, 10, &mut rng);
            assert_eq!(choice, PartitionChoice::Partition(0, 110));
            partitions.at = None;
        }
    }
}
