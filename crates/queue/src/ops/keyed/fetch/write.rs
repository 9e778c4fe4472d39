//! Writing what a fetch has chosen: the items leave the queue, and their keys move in the index.

use std::collections::{BTreeMap, BTreeSet};

use foundationdb::Transaction;
use foundationdb::options::{ConflictRangeType, MutationType};
use futures::future::try_join_all;
use mutant::mutant;

use super::Choice;
use super::candidate::{Candidate, Place};
use super::left::Left;
use crate::keys::keyed::{Cause, KeyedSpace, scopes};
use crate::keys::{Space, after, range};
use crate::model::error::QueueError;
use crate::model::id_layout::key_element;
use crate::model::rng::Rng;
use crate::ops::claim;
use crate::ops::counting::{Becomes, Was, count};
use crate::ops::keyed::changes::choose_parked;
use crate::ops::keyed::parked::Parked;
use crate::ops::keyed::{count_active, count_running, gates, holds, rules, step};
use crate::run::conflict;

impl Choice {
    /// Writes the choice: takes the items, moves the keys.
    pub(crate) async fn write(
        &self,
        space: &Space,
        keyed: &KeyedSpace,
        tr: &Transaction,
    ) -> Result<(), QueueError> {
        let passed_on = self.passed_on(keyed, tr).await?;
        let moving: Vec<_> = self.keys.iter().filter(|candidate| candidate.moves()).collect();
        // Conflicts come first: a transaction does not conflict on what it has itself overwritten.
        if !self.has_holds && moving.iter().any(|candidate| candidate.limits.is_ordered()) {
            holds::conflict_with_all(keyed, tr)?;
        }
        for candidate in &moving {
            self.add_conflicts(space, keyed, tr, candidate)?;
        }
        let started = self.started();
        for (scope, n) in &started {
            let found = self.left.get(*scope).and_then(|left| left.slots);
            if let Some(found) = found {
                gates::exclude(keyed, tr, scope, found.before(*n), *n, self.wanted.taker.gate)?;
            }
        }
        self.paces.write(keyed, tr, &started, &self.waiting()).await?;
        let mut vtime = self.vtime;
        // One kind of record after the other: writes that come in the order of their keys cost less.
        for candidate in &moving {
            tr.clear(&candidate.row);
        }
        for candidate in &moving {
            if !candidate.rows.is_empty() {
                let last = candidate.position.saturating_sub(step(candidate.limits));
                vtime = vtime.max(last);
            }
            candidate.write_place(keyed, tr);
        }
        count_active(keyed, tr, moving.iter().filter(|candidate| candidate.is_back()).count());
        for candidate in &moving {
            claim::remove(space, tr, &candidate.rows)?;
        }
        count(space, tr, Was::Ready, Becomes::Leased, self.items);
        for (scope, n) in started {
            match self.slots.as_ref().filter(|_| scope.is_empty()) {
                Some(slots) => slots.take(keyed, tr, n)?,
                None => count_running(keyed, tr, scope, i64::try_from(n).unwrap_or(i64::MAX)),
            }
        }
        if vtime > self.vtime {
            tr.atomic_op(&keyed.vtime, &vtime.to_le_bytes(), MutationType::Max);
        }
        for parked in &self.parked_before {
            conflict::as_reader(tr, &parked.row)?;
        }
        passed_on.iter().chain(&self.parked_before).for_each(|parked| parked.unpark(keyed, tr));
        count_active(keyed, tr, passed_on.len() + self.parked_before.len());
        match self.page() {
            Some(page) => {
                let who = (self.wanted.taker.session, self.paces.now());
                rules::look_again(keyed, tr, &self.book, page, who).await
            }
            None => Ok(()),
        }
    }

    /// How many items of each scope start.
    fn started(&self) -> BTreeMap<&[u8], u64> {
        let mut started: BTreeMap<&[u8], u64> = BTreeMap::new();
        for candidate in self.keys.iter().filter(|_| self.wanted.on_lease) {
            let n = candidate.rows.len() as u64;
            scopes(&candidate.key)
                .filter(|_| n > 0)
                .for_each(|scope| *started.entry(scope).or_default() += n);
        }
        started
    }

    /// The scopes whose timers keys wait for, as far as the fetch has looked at them.
    pub(super) fn waiting(&self) -> BTreeSet<&[u8]> {
        let mut waiting = BTreeSet::new();
        for candidate in self.keys.iter().filter(|candidate| !candidate.is_over) {
            match (&candidate.blocked, &candidate.place) {
                (Some((Cause::Rate, scope)), _) => _ = waiting.insert(scope.as_slice()),
                (_, Place::Timed(scope)) if !candidate.moves() => _ = waiting.insert(scope.as_slice()),
                _ => {}
            }
        }
        waiting.extend(self.behind.iter().map(Vec::as_slice));
        waiting
    }

    fn add_conflicts(
        &self,
        space: &Space,
        keyed: &KeyedSpace,
        tr: &Transaction,
        candidate: &Candidate,
    ) -> Result<(), QueueError> {
        conflict::as_reader(tr, &candidate.row)?;
        if self.has_holds && candidate.limits.is_ordered() {
            holds::conflict(keyed, tr, &candidate.key, candidate.hold.as_deref())?;
        }
        if let Some((_, item)) = candidate.suspect() {
            let (begin, _) = range(&[space.ready.as_slice(), &key_element(&candidate.key)].concat());
            tr.add_conflict_range(&begin, &after(&space.ready_key(item)), ConflictRangeType::Read)?;
        }
        match &candidate.blocked {
            _ if candidate.hold.is_some() => {}
            _ if candidate.is_over && !mutant("over-without-conflict") => {
                // All items of the key: a returned item may come before the items that are taken.
                let (begin, end) = range(&[space.ready.as_slice(), &key_element(&candidate.key)].concat());
                tr.add_conflict_range(&begin, &end, ConflictRangeType::Read)?;
            }
            Some((Cause::Slot, scope)) if !candidate.is_over && !mutant("parks-without-conflict") => {
                conflict::as_reader(tr, &keyed.free_key(scope))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Parked keys that get the slots which keys were made active for and do not use: they have no item, their items are taken for good,
    /// or another scope has no slot.
    async fn passed_on(&self, keyed: &KeyedSpace, tr: &Transaction) -> Result<Vec<Parked>, QueueError> {
        let mut unused: BTreeMap<&[u8], usize> = BTreeMap::new();
        let is_idle = |candidate: &&Candidate| candidate.rows.is_empty() || !self.wanted.on_lease;
        let idle = self.keys.iter().filter(|candidate| candidate.moves()).filter(is_idle);
        for candidate in idle {
            let has_slots = |scope: &&[u8]| {
                // A key that is over is parked nowhere, so what its scope lacks does not keep its slot.
                let is_parked = !candidate.is_over;
                let is_full = is_parked && candidate.blocked.as_ref().is_some_and(|(_, full)| full == scope);
                !is_full && self.left.get(*scope).is_some_and(Left::has_slots)
            };
            for scope in scopes(&candidate.key).filter(has_slots) {
                *unused.entry(scope).or_default() += 1;
            }
        }
        let mut rng = Rng::seeded(self.wanted.taker.gate);
        let choose = unused.into_iter().map(|(scope, n)| choose_parked(keyed, tr, scope, n, rng.split()));
        Ok(try_join_all(choose).await?.into_iter().flatten().collect())
    }
}
