//! Changing a rule of a keyed queue: the change in the database, and its record in the audit trail.

use std::cell::Cell;

use foundationdb::Transaction;
use kvqueue_queue::{LimitError, Limits, Pattern, Queue, QueueError};

use crate::{
    audit::{AuditStore, Record},
    config::rate,
    on_dead::OnDead,
};

/// A change of one rule, in a transaction that may run more than once.
///
/// If the outcome of a commit is unknown, the transaction runs again. It then finds no rule to remove, if that commit has succeeded. So the removal
/// of the earlier attempt is the answer.
pub(crate) struct LimitChange {
    pattern: Pattern,
    /// `None` removes the rule.
    limits: Option<Limits>,
    has_removed: Cell<bool>,
}

/// The effect of a change.
pub(crate) enum LimitEffect {
    /// The rule is as the change says. Before, it was this.
    Done(Limits),
    /// There is no rule to remove.
    NoRule,
    /// The queue has as many rules as possible.
    Full(LimitError),
}

impl LimitChange {
    /// Sets the whole rule of a pattern.
    ///
    /// # Errors
    /// The reason why there can be no such rule.
    pub(crate) fn set(pattern: Pattern, limits: Limits) -> Result<Self, &'static str> {
        if limits.is_empty() {
            return Err("a rule sets at least one of running, rate, weight, ordered and on-dead");
        }
        if pattern.is_queue() && limits.is_for_keys() {
            return Err(
                "weight, ordered and on-dead are for keys; the rule of the whole queue has running and rate only",
            );
        }
        Ok(Self { pattern, limits: Some(limits), has_removed: Cell::new(false) })
    }

    /// Removes the rule of a pattern.
    pub(crate) fn remove(pattern: Pattern) -> Self {
        Self { pattern, limits: None, has_removed: Cell::new(false) }
    }

    /// What a rule that was this before has lost by this change: it is replaced whole.
    pub(crate) fn dropped(&self, before: Limits) -> Limits {
        let Some(now) = self.limits else { return Limits::default() };
        let mut dropped = Limits::default();
        dropped.running = before.running.filter(|_| now.running.is_none());
        dropped.rate = before.rate.filter(|_| now.rate.is_none());
        dropped.weight = before.weight.filter(|_| now.weight.is_none());
        dropped.ordered = before.ordered.filter(|_| now.ordered.is_none());
        dropped.blocks_on_dead = before.blocks_on_dead.filter(|_| now.blocks_on_dead.is_none());
        dropped
    }

    /// The record with the details of this change.
    pub(crate) fn audited(&self, record: Record) -> Record {
        let record = match self.pattern.is_queue() {
            true => record.with("whole_queue", true),
            false => record.with_name("pattern", self.pattern.as_bytes()),
        };
        let Some(limits) = self.limits else { return record.with("removed", true) };
        let numbers = [
            ("running", limits.running),
            ("burst", limits.rate.and_then(|rate| rate.burst())),
            ("weight", limits.weight.map(Into::into)),
        ];
        let known = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
        let record = known.fold(record, |record, (name, number)| record.with(name, number));
        let record = match &limits.rate {
            Some(rate) => record.with("rate", rate::format(rate)),
            None => record,
        };
        let record = match OnDead::of(&limits) {
            Some(on_dead) => record.with("on_dead", on_dead.as_str()),
            None => record,
        };
        record.with("ordered", limits.is_ordered())
    }

    /// Makes the change with its record. A frozen queue, and one of another kind, is an error.
    pub(crate) async fn write(
        &self,
        tr: &Transaction,
        queue: &Queue,
        audit: &AuditStore,
        record: &Record,
    ) -> Result<LimitEffect, QueueError> {
        queue.check_unfrozen(tr).await?;
        queue.check_used(tr).await?;
        let mut rules = queue.rules(tr).await?.into_iter();
        let before = rules.find(|(known, _)| *known == self.pattern).map(|(_, limits)| limits);
        if self.limits.is_none() {
            if before.is_none() && !self.has_removed.get() {
                return Ok(LimitEffect::NoRule);
            }
            self.has_removed.set(true);
        }
        match queue.set_rule(tr, &self.pattern, &self.limits.unwrap_or_default()).await {
            Ok(()) => {
                audit.write(tr, record);
                Ok(LimitEffect::Done(before.unwrap_or_default()))
            }
            Err(LimitError::Queue(error)) => Err(error),
            Err(refused) => Ok(LimitEffect::Full(refused)),
        }
    }
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{Kind, RetryPolicy, retry};

    use super::*;
    use crate::{
        audit::{Action, Who},
        testing::TestDatabase,
    };

    #[tokio::test]
    async fn a_removal_that_is_repeated_after_an_unknown_outcome_answers_as_before() {
        let (db, audit, policy) =
            (TestDatabase::new().unwrap(), &AuditStore::new(b""), RetryPolicy::default());
        let queue = &Queue::of_kind(b"", b"q", Kind::Keyed).unwrap();
        let record = &Record::new(Action::QueueLimits, Who::Operator);
        let write = async |change: &LimitChange| {
            let written = retry::run(&db, &policy, |tr| async move {
                let effect = change.write(&tr, queue, audit, record).await;
                (tr, effect)
            });
            written.await.unwrap().value
        };
        let pattern = || Pattern::keys("a").unwrap();
        let removal = LimitChange::remove(pattern());
        assert!(matches!(write(&removal).await, LimitEffect::NoRule));
        write(&LimitChange::set(pattern(), Limits::default().with_running(1)).unwrap()).await;
        assert!(matches!(write(&removal).await, LimitEffect::Done(_)));
        assert!(matches!(write(&removal).await, LimitEffect::Done(_)));
        assert!(matches!(write(&LimitChange::remove(pattern())).await, LimitEffect::NoRule));
    }

    #[test]
    fn a_rule_that_sets_nothing_or_what_the_queue_cannot_have_is_refused() {
        let limits = Limits::default();
        let keys = || Pattern::keys("a").unwrap();
        assert!(LimitChange::set(keys(), limits).is_err());
        assert!(LimitChange::set(keys(), limits.with_ordered(true)).is_ok());
        // Another rule may make the keys ordered.
        assert!(LimitChange::set(keys(), limits.with_blocks_on_dead(true)).is_ok());
        assert!(LimitChange::set(Pattern::QUEUE, limits.with_running(0)).is_ok());
        assert!(LimitChange::set(Pattern::QUEUE, limits.with_rate(rate::parse("1/1s").unwrap())).is_ok());
        assert!(LimitChange::set(Pattern::QUEUE, limits.with_running(1).with_ordered(true)).is_err());
        assert!(LimitChange::set(Pattern::QUEUE, limits.with_running(1).with_blocks_on_dead(false)).is_err());
    }
}
