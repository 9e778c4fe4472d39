//! One queue.

use std::time::Duration;

use kvqueue_queue::PAYLOAD_CEILING;

use super::consumers;
use crate::config::{
    ConfigError, ConsumerGroup, Delivery, KindName, QueueConfig, Retry, TakeEnd, Values, duration, size,
};
use crate::handlers::PULL;

/// A shorter lease would run out while a commit is slow: it is extended at a third of it.
const MIN_LEASE: Duration = Duration::from_secs(1);

/// A longer one only keeps a dead daemon's items from the others. A handler may take longer: its lease is extended.
const MAX_LEASE: Duration = Duration::from_hours(24);

/// The longest duration: a year.
const YEAR: Duration = Duration::from_hours(365 * 24);

impl QueueConfig {
    /// Workers of other programs take the items, so what is said about consumers has no effect.
    fn validate_pull(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        if self.handler != PULL {
            return Ok(());
        }
        let problem = "handler \"pull\" leaves the items to workers of other programs";
        if self.consumers != ConsumerGroup::defaults() {
            return Err(ConfigError::value(key("consumers"), "[..]", problem, "remove it"));
        }
        if self.delivery != Delivery::AtLeastOnce {
            let fix = "remove it: workers acknowledge what they have handled";
            return Err(ConfigError::value(key("delivery"), "...", problem, fix));
        }
        Ok(())
    }

    pub(in crate::config) fn validate(
        &self,
        name: &str,
        shutdown_timeout: Duration,
    ) -> Result<(), ConfigError> {
        if name.is_empty() {
            return Err(ConfigError::value("queues", "\"\"", "a queue has no name", "name it"));
        }
        let key = |key: &str| format!("queues.{name}.{key}");
        self.validate_layout(key)?;
        consumers::validate(&self.consumers, &key("consumers"))?;
        self.validate_pull(key)?;
        if self.poll_interval.is_zero() {
            let fix = "write a time such as \"30s\"; pushes wake consumers at once in any case";
            let problem = "an idle consumer would never rest";
            return Err(ConfigError::value(key("poll-interval"), "\"0s\"", problem, fix));
        }
        at_most_a_year(key("poll-interval"), self.poll_interval)?;
        self.validate_lease(key("lease"))?;
        self.validate_timeout(key("handler-timeout"), shutdown_timeout)?;
        self.validate_push(key)?;
        self.retry.validate(key)
    }

    /// A key that says something about another kind of queue is a misunderstanding.
    fn validate_layout(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        if self.values == Values::Tuple && self.kind == KindName::Fifo {
            let problem = "the values of a fifo are raw";
            let fix = "leave the key out, or set kind to \"recipe\" or \"priority\"";
            return Err(ConfigError::value(key("values"), "\"tuple\"", problem, fix));
        }
        if self.end == TakeEnd::Max && self.kind != KindName::Priority {
            let problem = "only a priority queue can be processed from either end";
            let fix = "leave the key out, or set kind to \"priority\"";
            return Err(ConfigError::value(key("end"), "\"max\"", problem, fix));
        }
        Ok(())
    }

    fn validate_lease(&self, key: String) -> Result<(), ConfigError> {
        if self.lease < MIN_LEASE {
            let problem = "it could run out while a commit is slow";
            let fix = format!("set it to {:?} or more", duration::format(MIN_LEASE));
            return Err(ConfigError::value(key, quoted(self.lease), problem, fix));
        }
        if self.lease > MAX_LEASE {
            let problem = "the items of a daemon that died would wait as long";
            let fix = format!(
                "set it to {:?} or less; it is extended for as long as a handler takes",
                duration::format(MAX_LEASE)
            );
            return Err(ConfigError::value(key, quoted(self.lease), problem, fix));
        }
        Ok(())
    }

    fn validate_timeout(&self, key: String, shutdown_timeout: Duration) -> Result<(), ConfigError> {
        let Some(timeout) = self.handler_timeout else { return Ok(()) };
        if timeout.is_zero() {
            let fix = "write a time such as \"10s\", or leave the key out for no limit";
            let problem = "no item could be handled in no time";
            return Err(ConfigError::value(key, quoted(timeout), problem, fix));
        }
        at_most_a_year(key.clone(), timeout)?;
        // A stop that cannot wait for a leased item releases it.
        if self.delivery == Delivery::AtMostOnce && timeout > shutdown_timeout {
            let problem = format!(
                "an item may take longer than a stop waits (shutdown-timeout = {}), so with at-most-once delivery a stop would lose it",
                quoted(shutdown_timeout)
            );
            return Err(ConfigError::value(
                key,
                quoted(timeout),
                problem,
                "raise shutdown-timeout or lower the timeout",
            ));
        }
        Ok(())
    }

    fn validate_push(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let value = format!("{:?}", size::format(self.max_payload));
        if self.max_payload == 0 {
            let fix = "write a size such as \"8MiB\", or leave the key out";
            return Err(ConfigError::value(key("max-payload"), value, "nothing could be pushed", fix));
        }
        if self.max_payload > PAYLOAD_CEILING as u64 {
            let problem = "an item has to fit into one transaction of FoundationDB";
            let fix = format!("set it to {:?} or less", size::format(PAYLOAD_CEILING as u64));
            return Err(ConfigError::value(key("max-payload"), value, problem, fix));
        }
        if self.idempotency_window.is_zero() {
            let problem = "no repeated push would be recognised";
            let fix = "write a time such as \"24h\"; pushes without an idempotency key leave nothing behind in any case";
            return Err(ConfigError::value(key("idempotency-window"), "\"0s\"", problem, fix));
        }
        at_most_a_year(key("idempotency-window"), self.idempotency_window)
    }
}

impl Retry {
    fn validate(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        if self.max_attempts == 0 {
            let problem = "an item has to be tried at least once";
            return Err(ConfigError::value(key("retry.max-attempts"), 0, problem, "set it to 1 or more"));
        }
        if self.base > self.max {
            let problem =
                format!("the first pause is longer than the longest (retry.max = {})", quoted(self.max));
            return Err(ConfigError::value(
                key("retry.base"),
                quoted(self.base),
                problem,
                "lower it or raise retry.max",
            ));
        }
        at_most_a_year(key("retry.max"), self.max)
    }
}

fn at_most_a_year(key: String, value: Duration) -> Result<(), ConfigError> {
    if value <= YEAR {
        return Ok(());
    }
    let fix = format!("set it to {} or less", quoted(YEAR));
    Err(ConfigError::value(key, quoted(value), "that is longer than a year", fix))
}

fn quoted(value: Duration) -> String {
    format!("{:?}", duration::format(value))
}
