//! Which items a take may have.

use kvqueue_queue::{ItemId, LeaseId};

use super::event::Terms;
use super::{At, Lease, Model, Place, Verdict, Waiting, promise};

impl Model {
    pub(super) fn leased(&mut self, id: LeaseId, items: &[ItemId], terms: Terms, at: At) -> Verdict {
        promise!(!self.handed.contains_key(&id), "lease {id:?} was taken twice");
        let later = (LeaseId { number: id.number + 1, ..id })..=(LeaseId { number: u64::MAX, ..id });
        let overtaken = self.handed.range(later).next();
        promise!(
            overtaken.is_none(),
            "{id:?} was taken behind {overtaken:?}, which its session had begun later"
        );
        self.check_order(items, terms, at)?;
        let mut held = Vec::new();
        for item in items {
            held.push((item.clone(), self.moved(item, Place::Leased(id))?.stored()));
        }
        self.handed.insert(id, held.clone());
        let held = held.into_iter().map(|(id, stored)| (id, Some(stored))).collect();
        self.counters.npop += items.len() as u64;
        self.leases.insert(id, Lease { deadline: at.read + terms.length, length: terms.length, items: held });
        Ok(())
    }

    pub(super) fn taken(&mut self, items: &[ItemId], terms: Terms, at: At) -> Verdict {
        self.check_order(items, terms, at)?;
        for item in items {
            self.moved(item, Place::Taken)?;
        }
        self.counters.npop += items.len() as u64;
        Ok(())
    }

    /// Items are taken in order: what a take has is a run of what was ready when it looked, as long as it may be, and nothing
    /// was between its first and its last when it committed.
    fn check_order(&self, items: &[ItemId], terms: Terms, at: At) -> Verdict {
        promise!(!items.is_empty(), "a take wrote, and took nothing");
        let then = self.past.iter().rev().find(|(commit, _)| *commit <= at.read);
        let then = then.map(|(_, waiting)| waiting.as_slice()).unwrap_or_default();
        let skipped = then.iter().position(|waiting| waiting.id == items[0]);
        let Some(skipped) = skipped else {
            return Err(format!("{} was taken, which was not ready", items[0]));
        };
        promise!(!terms.front || skipped == 0, "{} was taken before {}", items[0], then[0].id);
        let expected: Vec<_> = run(&then[skipped..], terms.k).collect();
        promise!(
            items.iter().eq(expected.iter().copied()),
            "{items:?} were taken where {expected:?} were in turn"
        );

        let now = self.waiting();
        let at = now.iter().position(|waiting| waiting.id == items[0]);
        let still = at.map(|at| now[at..].iter().take(items.len()).map(|waiting| &waiting.id));
        promise!(
            still.is_some_and(|still| still.eq(items)),
            "{items:?} were taken, and something had changed there"
        );
        Ok(())
    }

    /// An item at its next place.
    pub(super) fn moved(&mut self, id: &ItemId, next: Place) -> Result<&mut super::Item, String> {
        let item = self.items.get_mut(id).ok_or_else(|| format!("{id} was invented"))?;
        item.becomes(next).map_err(|how| format!("{id}: {how}"))?;
        Ok(item)
    }
}

/// What a take has of items that wait one behind the other: up to `k`, and a suspect alone.
fn run(waiting: &[Waiting], k: usize) -> impl Iterator<Item = &ItemId> {
    let suspect = waiting.iter().position(|waiting| waiting.suspect).unwrap_or(waiting.len());
    waiting.iter().take(k.min(suspect.max(1))).map(|waiting| &waiting.id)
}
