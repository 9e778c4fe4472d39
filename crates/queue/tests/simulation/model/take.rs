//! Which items a take may have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kvqueue_queue::{End, ItemId, Kind, LeaseId, Stamp};

use super::event::Terms;
use super::line::PICK_UP;
use super::{At, Lease, Model, Place, Seen, Verdict, promise};
use crate::image::{Division, key_of};

/// A ready item, as takes see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) id: ItemId,
    /// How often a worker may have died of it.
    pub(super) crashes: u32,
}

impl Model {
    pub(super) fn leased(
        &mut self,
        id: LeaseId,
        items: &[ItemId],
        terms: Terms,
        served: Option<Stamp>,
        at: At,
    ) -> Verdict {
        promise!(!self.handed.contains_key(&id), "lease {id:?} was taken twice");
        // Who serves itself takes under another name than it has asked by.
        let for_another = served.and_then(|stamp| self.line.get(&stamp)).is_some_and(|want| want.lease == id);
        match served {
            Some(stamp) => self.served(stamp, Some(id), at)?,
            None => self.next_attempt(id)?,
        }
        self.check_order(items, terms, served.is_some(), at)?;
        let mut held = Vec::new();
        for item in items {
            held.push((item.clone(), self.moved(item, Place::Leased(id))?.stored()));
        }
        self.handed.insert(id, held.clone());
        let held = held.into_iter().map(|(id, stored)| (id, Some(stored))).collect();
        let deadline = at.read + if for_another { PICK_UP } else { terms.length };
        self.leases.insert(
            id,
            Lease { served: for_another, deadline, length: terms.length, items: held, progress: None },
        );
        Ok(())
    }

    pub(super) fn taken_for_good(
        &mut self,
        items: &[ItemId],
        terms: Terms,
        served: Option<Stamp>,
        at: At,
    ) -> Verdict {
        if let Some(stamp) = served {
            self.served(stamp, None, at)?;
        }
        let mut items = items.to_vec();
        items.sort_unstable_by_key(|id| self.order(id));
        if self.takes_last() {
            items.reverse();
        }
        self.check_order(&items, terms, served.is_some(), at)?;
        items.iter().try_for_each(|item| self.moved(item, Place::Taken).map(drop))
    }

    /// Attempts of a session commit in their order: one that was given up does not commit behind a later one.
    pub(super) fn next_attempt(&mut self, id: LeaseId) -> Verdict {
        let last = self.attempts.insert(id.session, id.number);
        promise!(
            last < Some(id.number),
            "attempt {id:?} committed behind {last:?}, which its session began later"
        );
        Ok(())
    }

    /// Equally suspect items are taken in order: a take has what was ready when it looked, and nothing has
    /// changed there when it commits.
    fn check_order(&mut self, items: &[ItemId], terms: Terms, is_served: bool, at: At) -> Verdict {
        promise!(!items.is_empty(), "a take wrote, and took nothing");
        if self.kind == Kind::Keyed {
            return self.check_keys(items, terms, at);
        }
        let seen = self.seen_at(at.read).waiting.iter().filter(|waiting| !self.taken.contains(&waiting.id));
        let then: Vec<&Waiting> = seen.collect();
        // Requests are from before the queue was divided, and are served as in a plain queue.
        let known = if is_served { vec![None] } else { self.known_divisions(at.read).collect() };
        let verdicts = known.into_iter().map(|division| self.check_turn(items, &then, terms, division, at));
        let skipped = verdicts.reduce(Result::or).unwrap_or(Ok(0))?;
        for partition in items.iter().map(ItemId::partition).collect::<BTreeSet<u8>>() {
            self.check_unchanged(items, &then, partition)?;
        }
        self.jumps += u64::from(skipped > 0);
        self.parted += u64::from(items[0].partition() > 0);
        self.taken.extend(items.iter().cloned());
        Ok(())
    }

    /// A take has the first items of the queue, or of a partition; or it passes items over, and has the next ones. Returns how many it passed over.
    fn check_turn(
        &self,
        items: &[ItemId],
        then: &[&Waiting],
        terms: Terms,
        division: Option<Division>,
        at: At,
    ) -> Result<usize, String> {
        let division = division.filter(|division| division.most > 1);
        let partition = items[0].partition();
        let is_in_reach = |waiting: &&&Waiting| match division {
            None => waiting.id.partition() == 0,
            Some(Division { max_disorder: 0, most, .. }) => waiting.id.partition() < most,
            Some(_) => waiting.id.partition() == partition,
        };
        let all = then;
        let then: Vec<&Waiting> = then.iter().filter(is_in_reach).copied().collect();
        let skipped = then.iter().position(|waiting| waiting.id == items[0]);
        let Some(skipped) = skipped else {
            return Err(format!("{} was taken, which was not ready", items[0]));
        };
        // While the process has suspects, a take begins behind the items that it passed over before. Items that came back there wait a little.
        let remembers = terms.crashes == 0 && !matches!(self.kind, Kind::Priority(..));
        let is_front = terms.front || division.is_some();
        let begin = if is_front && !remembers { 0 } else { skipped };
        let expected = picked(&then[begin..], terms);
        // A take does not read on for more, where it passes over some.
        let passes = begin.checked_sub(1).is_some_and(|before| then[before].crashes > terms.crashes)
            || expected.iter().zip(&then[begin..]).any(|(id, waiting)| **id != waiting.id);
        // A take from a partition ends where items are too young.
        let may_end = passes || division.is_some_and(|division| division.max_disorder > 0);
        let fits = if may_end { items.len() <= expected.len() } else { items.len() == expected.len() };
        promise!(
            fits && items.iter().zip(&expected).all(|(item, id)| item == *id),
            "{items:?} were taken where {expected:?} were in turn, of {:?}",
            &then[begin..]
        );
        if let Some(division) = division.filter(|division| division.max_disorder > 0) {
            self.check_disorder(items, all, division, at)?;
        }
        Ok(skipped)
    }

    /// Where a take from a FIFO queue has removed items, nothing has changed since it looked: that is one range in each partition.
    fn check_unchanged(&self, items: &[ItemId], then: &[&Waiting], partition: u8) -> Verdict {
        if self.kind != Kind::Fifo {
            return Ok(());
        }
        let here = |id: &ItemId| id.partition() == partition;
        let now: Vec<Waiting> = self.waiting().into_iter().filter(|waiting| here(&waiting.id)).collect();
        let place = |id: &ItemId| now.iter().position(|waiting| waiting.id == *id);
        let then = then.iter().filter(|waiting| here(&waiting.id));
        let then: Vec<&&Waiting> = then.skip_while(|waiting| !items.contains(&waiting.id)).collect();
        for pair in then.windows(2).filter(|pair| items.contains(&pair[1].id)) {
            let [before, id] = [&pair[0].id, &pair[1].id].map(place);
            let still = !items.contains(&pair[0].id) || before.map(|at| at + 1) == id;
            promise!(still && id.is_some(), "{items:?} were taken, and something has changed there");
        }
        Ok(())
    }

    /// Of each key the first items are taken, and none is passed over. All are equally suspect.
    fn check_keys(&mut self, items: &[ItemId], terms: Terms, at: At) -> Verdict {
        let seen = self.seen_at(at.read).waiting.iter().filter(|waiting| !self.taken.contains(&waiting.id));
        let mut then: BTreeMap<Vec<u8>, VecDeque<&Waiting>> = BTreeMap::new();
        for waiting in seen {
            then.entry(key_of(&waiting.id)?).or_default().push_back(waiting);
        }
        let mut class = None;
        for id in items {
            let first = then.get_mut(&key_of(id)?).and_then(VecDeque::pop_front);
            promise!(
                first.is_some_and(|first| first.id == *id),
                "{id} was taken, and {first:?} was the first of its key"
            );
            let crashes = first.map_or(0, |first| first.crashes);
            promise!(crashes <= terms.crashes, "{id} was taken, which crashed {crashes} times");
            let same = *class.get_or_insert(crashes.min(2));
            promise!(same == crashes.min(2), "{id} was taken together with others that crashed {same} times");
        }
        let most = [terms.k, terms.k / 16, 1][class.unwrap_or(0) as usize].max(1);
        promise!(items.len() <= most, "{} items were taken, and {most} may be", items.len());
        self.taken.extend(items.iter().cloned());
        Ok(())
    }

    /// The ready items in the order in which they are taken.
    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let ready = self.items.iter().filter(|(_, item)| item.place == Place::Ready);
        let mut waiting: Vec<Waiting> =
            ready.map(|(id, item)| Waiting { id: id.clone(), crashes: item.meta.crashes }).collect();
        waiting.sort_by_key(|waiting| self.order(&waiting.id));
        if self.takes_last() {
            waiting.reverse();
        }
        waiting
    }

    /// The place of an item in the order: in a FIFO queue its stamp, whatever its partition.
    pub(super) fn order(&self, id: &ItemId) -> (Option<Stamp>, ItemId) {
        (id.stamp().filter(|_| self.kind == Kind::Fifo), id.clone())
    }

    fn takes_last(&self) -> bool {
        matches!(self.kind, Kind::Priority(End::Max, _))
    }

    /// What takes saw at a version.
    pub(super) fn seen_at(&self, version: u64) -> &Seen {
        let last = self.past.partition_point(|(commit, _)| *commit <= version);
        &self.past[last - 1].1
    }
}

/// What a take has of items that wait one behind the other: up to `k`; a sixteenth of that if they have crashed once; and an item that
/// crashed more often. The first that is not too suspect decides which of the three.
fn picked<'w>(waiting: &[&'w Waiting], terms: Terms) -> Vec<&'w ItemId> {
    let first = waiting.iter().map(|waiting| waiting.crashes).find(|crashes| *crashes <= terms.crashes);
    let class = first.unwrap_or(0).min(2);
    let most = [terms.k, terms.k / 16, 1][class as usize].max(1);
    let same = waiting.iter().filter(|waiting| waiting.crashes.min(2) == class);
    same.take(most).map(|waiting| &waiting.id).collect()
}
