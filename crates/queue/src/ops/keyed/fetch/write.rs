//! Writing what a fetch has chosen: the items leave the queue, and their keys move in the index.

use std::collections::BTreeMap;

use foundationdb::Transaction;
use foundationdb::options::{ConflictRangeType, MutationType};
use futures::future::try_join_all;
use mutant::mutant;

use super::{Candidate, Choice};
use crate::error::QueueError;
use crate::keys::keyed::{KeyedSpace, key_element, scopes};
use crate::keys::{Space, range};
use crate::ops::keyed::changes::{Parked, first_parked};
use crate::ops::keyed::{activate, count_active, count_running, holds, rules, step};
use crate::ops::{claim, conflict};

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
        for candidate in &moving {
            self.add_conflicts(space, keyed, tr, candidate)?;
        }
        let mut running: BTreeMap<&[u8], i64> = BTreeMap::new();
        let mut vtime = self.vtime;
        for candidate in &moving {
            tr.clear(&candidate.row);
            claim::take(space, tr, &candidate.rows)?;
            let n = candidate.rows.len();
            if n > 0 {
                let last = candidate.position.saturating_sub(step(self.book.limits(&candidate.key)));
                vtime = vtime.max(last);
                for scope in scopes(&candidate.key).filter(|_| self.wanted.on_lease) {
                    *running.entry(scope).or_default() += i64::try_from(n).unwrap_or(i64::MAX);
                }
            }
            match &candidate.blocked {
                _ if candidate.hold.is_some() => {
                    holds::put_key(keyed, tr, candidate.position, &candidate.key);
                }
                _ if candidate.is_over => tr.clear(&keyed.listed_key(&candidate.key)),
                Some(scope) => {
                    tr.set(&keyed.parked_key(scope, candidate.position, &candidate.key), &[]);
                }
                None => activate(keyed, tr, candidate.position, &candidate.key),
            }
        }
        running.iter().for_each(|(scope, n)| count_running(keyed, tr, scope, *n));
        if vtime > self.vtime {
            tr.atomic_op(&keyed.vtime, &vtime.to_le_bytes(), MutationType::Max);
        }
        for parked in &passed_on {
            conflict::as_reader(tr, &parked.row)?;
            parked.unpark(keyed, tr);
        }
        count_active(keyed, tr, passed_on.len());
        rules::look_again(keyed, tr, &self.book).await
    }

    fn add_conflicts(
        &self,
        space: &Space,
        keyed: &KeyedSpace,
        tr: &Transaction,
        candidate: &Candidate,
    ) -> Result<(), QueueError> {
        conflict::as_reader(tr, &candidate.row)?;
        if self.wanted.on_lease && !candidate.rows.is_empty() {
            for scope in scopes(&candidate.key).filter(|scope| self.free.contains_key(*scope)) {
                let gate = keyed.gate_key(scope);
                if !mutant("no-gate") {
                    conflict::as_reader(tr, &gate)?;
                    conflict::as_writer(tr, &gate)?;
                }
            }
        }
        if self.is_ordered(candidate) {
            holds::conflict(keyed, tr, &candidate.key, candidate.hold.as_deref())?;
        }
        match &candidate.blocked {
            _ if candidate.hold.is_some() => {}
            _ if candidate.is_over && !mutant("over-without-conflict") => {
                // All items of the key: a returned item may come before the items that are taken.
                let (begin, end) = range(&[space.ready.as_slice(), &key_element(&candidate.key)].concat());
                tr.add_conflict_range(&begin, &end, ConflictRangeType::Read)?;
            }
            Some(scope) if !candidate.is_over && !mutant("parks-without-conflict") => {
                conflict::as_reader(tr, &keyed.running_key(scope))?;
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
            let others = scopes(&candidate.key).filter(|scope| candidate.blocked.as_deref() != Some(*scope));
            for scope in others.filter(|scope| self.free.get(*scope).is_some_and(|free| *free > 0)) {
                *unused.entry(scope).or_default() += 1;
            }
        }
        let first = unused.into_iter().map(|(scope, n)| first_parked(keyed, tr, scope, n, true));
        Ok(try_join_all(first).await?.into_iter().flatten().collect())
    }
}
