//! Changing a rule of a keyed queue: the change in the database, and its record in the audit trail.

use foundationdb::Transaction;
use kvqueue_queue::{LimitError, Limits, Pattern, Queue, QueueError};

use crate::{
    audit::{AuditStore, Record},
    config::rate,
    on_dead::OnDead,
};

/// A change of one rule.
pub(crate) struct LimitChange {
    pattern: Pattern,
    /// `None` removes the rule.
    limits: Option<Limits>,
}

/// The effect of a change.
pub(crate) enum LimitEffect {
    /// The rule is as the change says.
    Done,
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
        Ok(Self { pattern, limits: Some(limits) })
    }

    /// Removes the rule of a pattern.
    pub(crate) fn remove(pattern: Pattern) -> Self {
        Self { pattern, limits: None }
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
        if self.limits.is_none() && !queue.rules(tr).await?.iter().any(|(known, _)| *known == self.pattern) {
            return Ok(LimitEffect::NoRule);
        }
        match queue.set_rule(tr, &self.pattern, &self.limits.unwrap_or_default()).await {
            Ok(()) => {
                audit.write(tr, record);
                Ok(LimitEffect::Done)
            }
            Err(LimitError::Queue(error)) => Err(error),
            Err(refused) => Ok(LimitEffect::Full(refused)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
