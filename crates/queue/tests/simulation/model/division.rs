//! What a queue with partitions promises: where pushes go, and how far fetched items may be out of order.

use std::iter;

use kvqueue_queue::ItemId;

use super::take::Waiting;
use super::{At, Model, Verdict, promise};
use crate::image::Division;

/// For how many versions a session relies on how the queue was divided.
const DIVISION_KNOWN: u64 = 100_000;
/// For how many versions a session relies on which items were first in each partition.
const HEADS_KNOWN: u64 = 50_000;

impl Model {
    pub(super) fn divided(&mut self, division: Division, at: At) -> Verdict {
        let most = self.divisions.last().map_or(1, |(_, last)| last.most).max(division.count);
        promise!(division.most == most, "{division:?} has another most than {most}");
        promise!(self.frozen.is_none(), "the queue was divided while it was frozen");
        self.divisions.push((at.commit, division));
        Ok(())
    }

    /// Pushes go to partitions that there are.
    pub(super) fn check_partitions<'i>(&self, ids: impl Iterator<Item = &'i ItemId>) -> Verdict {
        let count = self.divisions.last().map_or(1, |(_, division)| division.count);
        for id in ids {
            promise!(id.partition() < count, "{id} was pushed, and pushes use {count} partitions");
        }
        Ok(())
    }

    /// The divisions that a session may go by at a version; `None`: that there was none.
    pub(super) fn known_divisions(&self, version: u64) -> impl Iterator<Item = Option<Division>> {
        let until = |version: u64| self.divisions.partition_point(|(commit, _)| *commit <= version);
        let (first, end) = (until(version.saturating_sub(DIVISION_KNOWN)), until(version));
        let before = first.checked_sub(1).map(|at| self.divisions[at].1);
        let since = self.divisions[first..end].iter().map(|(_, division)| Some(*division));
        iter::once(before).chain(since)
    }

    /// No item is taken that is younger by more than the disorder than one that has been ready for a while. Items that a process may not
    /// have count as if they were being handled.
    pub(super) fn check_disorder(
        &self,
        items: &[ItemId],
        then: &[&Waiting],
        division: Division,
        at: At,
    ) -> Verdict {
        let index = |version: u64| self.past.partition_point(|(commit, _)| *commit <= version) - 1;
        let recent = &self.past[index(at.read.saturating_sub(HEADS_KNOWN))..=index(at.read)];
        let has_stayed =
            |id: &ItemId| recent.iter().all(|(_, seen)| seen.waiting.iter().any(|waiting| waiting.id == *id));
        let known = then.iter().filter(|it| it.crashes == 0 && it.id.partition() < division.most);
        let Some(oldest) = known.map(|waiting| &waiting.id).find(|id| has_stayed(id)) else { return Ok(()) };
        let until = version(oldest).saturating_add(division.max_disorder);
        for id in items {
            promise!(
                version(id) <= until,
                "{id} was taken, which is younger than {oldest} by more than {}",
                division.max_disorder
            );
        }
        Ok(())
    }
}

fn version(id: &ItemId) -> u64 {
    id.stamp().map_or(0, |stamp| stamp.version())
}
