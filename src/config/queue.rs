//! The settings of one queue: keys, defaults and checks.

use std::{collections::BTreeMap, time::Duration};

use kvqueue_queue::{HistoryIndex, HistoryIndexError, MAX_PAYLOAD, OnExpiry};
use serde::{Deserialize, Serialize};

use super::{
    ConfigError, ConsumerGroup, Delivery, FetchStrategy, KindName, Retry, TakeEnd, Values, consumers,
    duration, partitions, settings, size,
};
use crate::{
    handlers::{PULL, Settings, exec},
    schedules::{ScheduleDefinition, in_toml},
    sweep::KeptHistory,
};

/// The shortest lease. A lease is extended after a third of its length, so a shorter one could expire during a slow commit.
pub(crate) const MIN_LEASE: Duration = Duration::from_secs(1);

/// The longest lease: other daemons wait as long for a dead daemon's items. A handler may take longer, since its lease is
/// extended.
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(24);

/// One queue and how it is processed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table such as { handler = \"log\" }")]
#[non_exhaustive]
pub struct QueueConfig {
    /// The name of a registered handler.
    pub handler: String,
    /// How the items are laid out.
    #[serde(default)]
    pub kind: KindName,
    /// The packing of a recipe's values.
    #[serde(default)]
    pub values: Values,
    /// The end of a priority queue that items are taken from.
    #[serde(default)]
    pub end: TakeEnd,
    /// Consumers, in groups with the same K.
    #[serde(default = "ConsumerGroup::defaults", deserialize_with = "consumers::deserialize")]
    pub consumers: Vec<ConsumerGroup>,
    /// How often an item may be handled.
    #[serde(default)]
    pub delivery: Delivery,
    /// How long items stay leased to a daemon that does not extend their lease.
    #[serde(default = "QueueConfig::default_lease", with = "duration")]
    pub lease: Duration,
    /// Where a fetch looks for items.
    #[serde(default)]
    pub fetch_strategy: FetchStrategy,
    /// How many partitions the queue has; `None`: it is left as it is.
    #[serde(
        default,
        deserialize_with = "partitions::count::deserialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub partitions: Option<usize>,
    /// How much younger than the oldest ready item a fetched item may be.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    pub max_disorder: Option<Duration>,
    /// How long a call of the handler may take; `None` is no limit.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    pub handler_timeout: Option<Duration>,
    /// How often an idle fetcher looks without a wake-up.
    #[serde(default = "QueueConfig::default_poll_interval", with = "duration")]
    pub poll_interval: Duration,
    /// The longest payload that may be pushed, in bytes.
    #[serde(default = "QueueConfig::default_max_payload", with = "size")]
    pub max_payload: u64,
    /// How long a push's idempotency key is remembered.
    #[serde(default = "QueueConfig::default_idempotency_window", with = "duration")]
    pub idempotency_window: Duration,
    /// How long items are kept after their end; `None`: they are not, and what is kept already is left as it is.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    pub history: Option<Duration>,
    /// The names of the attributes by which ended items are indexed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history_index: Vec<String>,
    /// How long after its push an item without an expiry of its own expires; `None`: never.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// What becomes of an item that expires.
    #[serde(default)]
    pub on_expiry: OnExpiryName,
    /// How long dead letters are kept; zero: for ever.
    #[serde(default = "QueueConfig::default_dead_retention", with = "duration::days")]
    pub dead_retention: Duration,
    /// When a failed item is tried again, and how often.
    #[serde(default)]
    pub retry: Retry,
    /// Schedules of the queue, by name.
    #[serde(default, with = "in_toml", skip_serializing_if = "BTreeMap::is_empty")]
    pub schedules: BTreeMap<String, ScheduleDefinition>,
    /// Settings of the handler, in the handler's own form.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub handler_config: toml::Table,
}

impl QueueConfig {
    /// A queue processed by one consumer, everything else by default.
    pub fn new(handler: impl Into<String>) -> Self {
        Self {
            handler: handler.into(),
            kind: KindName::default(),
            values: Values::default(),
            end: TakeEnd::default(),
            consumers: ConsumerGroup::defaults(),
            delivery: Delivery::default(),
            lease: Self::default_lease(),
            fetch_strategy: FetchStrategy::default(),
            partitions: None,
            max_disorder: None,
            handler_timeout: None,
            poll_interval: Self::default_poll_interval(),
            max_payload: Self::default_max_payload(),
            idempotency_window: Self::default_idempotency_window(),
            history: None,
            history_index: Vec::new(),
            ttl: None,
            on_expiry: OnExpiryName::default(),
            dead_retention: Self::default_dead_retention(),
            retry: Retry::default(),
            schedules: BTreeMap::new(),
            handler_config: toml::Table::new(),
        }
    }

    /// Sets the number of consumers, and how many items each takes at most at a time.
    #[must_use]
    pub fn with_consumers(mut self, k: usize, count: usize) -> Self {
        self.consumers = vec![ConsumerGroup { k: Some(k), count }];
        self
    }

    /// Sets how often an item may be handled.
    #[must_use]
    pub fn with_delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    fn default_lease() -> Duration {
        Duration::from_secs(30)
    }

    fn default_poll_interval() -> Duration {
        Duration::from_secs(30)
    }

    fn default_max_payload() -> u64 {
        MAX_PAYLOAD as u64
    }

    fn default_idempotency_window() -> Duration {
        Duration::from_hours(24)
    }

    fn default_dead_retention() -> Duration {
        Duration::from_hours(30 * 24)
    }

    /// How long dead letters are kept; `None`: for ever.
    pub(crate) fn dead_retention(&self) -> Option<Duration> {
        Some(self.dead_retention).filter(|time| !time.is_zero())
    }
}

/// What becomes of an item that expires before its first attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExpiryName {
    /// It leaves the queue.
    #[default]
    Drop,
    /// It becomes a dead letter.
    Dead,
}

impl From<OnExpiryName> for OnExpiry {
    fn from(name: OnExpiryName) -> Self {
        match name {
            OnExpiryName::Drop => Self::Drop,
            OnExpiryName::Dead => Self::Dead,
        }
    }
}

impl QueueConfig {
    pub(super) fn validate(&self, name: &str, shutdown_timeout: Duration) -> Result<(), ConfigError> {
        if name.is_empty() {
            return Err(ConfigError::value("queues", "\"\"", "a queue has no name", "name it"));
        }
        let key = |key: &str| format!("queues.{name}.{key}");
        // A schedule may have a value of JSON that TOML does not have. It has checks of its own.
        let own = Self { schedules: BTreeMap::new(), ..self.clone() };
        let table = toml::Table::try_from(own).expect("a queue's settings serialise");
        if let Some(first) = settings::out_of_range_in_queue(name, &table).next() {
            return Err(first);
        }
        self.validate_layout(key)?;
        self.validate_partitions(key)?;
        consumers::validate(&self.consumers, &key("consumers"))?;
        self.validate_pull(key)?;
        self.validate_timeout(key("handler-timeout"), shutdown_timeout)?;
        self.validate_schedules(key)?;
        self.validate_history_index(key)?;
        self.validate_expiry(key)?;
        self.validate_result(key)?;
        self.retry.validate(key)
    }

    /// Refuses a key that has no effect on a queue of this kind.
    fn validate_layout(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        if self.values == Values::Tuple && matches!(self.kind, KindName::Fifo | KindName::Keyed) {
            let problem = "the values of such a queue are raw";
            let fix = "leave the key out, or set kind to \"recipe\" or \"priority\"";
            return Err(ConfigError::value(key("values"), "\"tuple\"", problem, fix));
        }
        if self.end == TakeEnd::Max && self.kind != KindName::Priority {
            let problem = "only a priority queue can be processed from either end";
            let fix = "leave the key out, or set kind to \"priority\"";
            return Err(ConfigError::value(key("end"), "\"max\"", problem, fix));
        }
        self.validate_keyed(key)
    }

    /// Refuses settings that have no effect on a keyed queue, or would leave its limits without effect.
    fn validate_keyed(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        if self.kind != KindName::Keyed {
            return Ok(());
        }
        if self.fetch_strategy != FetchStrategy::default() {
            let problem = "fetches from a keyed queue follow the turns of its keys";
            return Err(ConfigError::value(key("fetch-strategy"), "...", problem, "leave the key out"));
        }
        if self.delivery == Delivery::AtMostOnce {
            let problem = "limits of a keyed queue count items on leases, and such items have none";
            let fix = "set it to \"at-least-once\", or set kind to \"fifo\"";
            return Err(ConfigError::value(key("delivery"), "\"at-most-once\"", problem, fix));
        }
        Ok(())
    }

    /// Refuses keys that have no effect with the handler `pull`, whose items other programs handle.
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
        if let Some(timeout) = self.handler_timeout {
            let fix = "remove it: an item's time ends with its lease, which its worker extends";
            return Err(ConfigError::value(key("handler-timeout"), quoted(timeout), problem, fix));
        }
        Ok(())
    }

    fn validate_history_index(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let names = &self.history_index;
        if names.is_empty() {
            return Ok(());
        }
        if self.history.is_none_or(|kept| kept.is_zero()) {
            let history = key("history");
            let problem = format!("an index is one of ended items, and {history} keeps none");
            let fix = format!("set {history}, as in \"24h\", or remove this key");
            return Err(ConfigError::value(key("history-index"), format!("{names:?}"), problem, fix));
        }
        let refused = |error: HistoryIndexError| {
            let fix = match error {
                HistoryIndexError::TooMany { .. } => "name only attributes whose values are looked for often",
                _ => "write the name of an attribute, or remove it",
            };
            ConfigError::value(key("history-index"), format!("{names:?}"), error.to_string(), fix)
        };
        HistoryIndex::new(names).map(drop).map_err(refused)
    }

    /// What is kept of ended items; `None`: that is left as it is.
    pub(crate) fn kept_history(&self) -> Option<KeptHistory> {
        // The names were checked when the configuration was read.
        let index = HistoryIndex::new(&self.history_index).unwrap_or_default();
        Some(KeptHistory { time: self.history?, index })
    }

    /// Refuses a setting that asks for results in a queue that would drop them.
    fn validate_result(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let has_handler = matches!(&*self.handler, "exec" | "http");
        let wanted = self.handler_config.get("result").filter(|_| has_handler);
        let Some(wanted) = wanted.and_then(toml::Value::as_str).filter(|wanted| *wanted != "none") else {
            return Ok(());
        };
        let value = format!("{wanted:?}");
        if self.history.is_none_or(|kept| kept.is_zero()) {
            let history = key("history");
            let fix = format!("set {history}, as in \"24h\", or remove this key");
            let problem = format!("results are kept with the ended items, and {history} keeps none");
            return Err(ConfigError::value(key("handler-config.result"), value, problem, fix));
        }
        if self.delivery == Delivery::AtMostOnce {
            let problem = "with at-most-once delivery an item has left the queue before it is handled, and its result with it";
            let fix = format!("set {} to \"at-least-once\", or remove this key", key("delivery"));
            return Err(ConfigError::value(key("handler-config.result"), value, problem, fix));
        }
        Ok(())
    }

    fn validate_timeout(&self, key: String, shutdown_timeout: Duration) -> Result<(), ConfigError> {
        let Some(timeout) = self.handler_timeout else { return Ok(()) };
        self.validate_connect_timeout(&key, timeout)?;
        // A stop that cannot wait for a leased item releases it.
        let start = self.start_timeout();
        if self.delivery == Delivery::AtMostOnce && timeout.saturating_add(start) > shutdown_timeout {
            let (with, fix) = match start {
                Duration::ZERO => (String::new(), "raise shutdown-timeout or lower the timeout"),
                _ => (
                    format!(" with the start of a process (start-timeout = {})", quoted(start)),
                    "raise shutdown-timeout, or lower the timeout or start-timeout",
                ),
            };
            let problem = format!(
                "an item may take longer{with} than a stop waits (shutdown-timeout = {}), so with at-most-once delivery a stop would lose it",
                quoted(shutdown_timeout)
            );
            return Err(ConfigError::value(key, quoted(timeout), problem, fix));
        }
        Ok(())
    }

    /// How long an item may wait for a process of the handler `exec`, before its time limit begins.
    fn start_timeout(&self) -> Duration {
        match &*self.handler {
            "exec" => exec::start_timeout(&Settings::new(self.handler_config.clone())),
            _ => Duration::ZERO,
        }
    }

    /// Refuses a time limit of the handler `http` that ends before its `connect-timeout`. A target
    /// without an answer to connections would then look like one that got the item.
    #[cfg(feature = "webhook")]
    fn validate_connect_timeout(&self, key: &str, timeout: Duration) -> Result<(), ConfigError> {
        let settings = Settings::new(self.handler_config.clone()).with_handler_timeout(self.handler_timeout);
        let connect = (self.handler == "http").then(|| crate::handlers::http::connect_timeout(&settings));
        match connect.flatten() {
            Some(connect) if timeout <= connect => {
                let problem = format!(
                    "it is not longer than connect-timeout of the handler ({}), so an unreachable target would cost attempts",
                    quoted(connect)
                );
                Err(ConfigError::value(key, quoted(timeout), problem, "raise it, or lower connect-timeout"))
            }
            _ => Ok(()),
        }
    }

    #[cfg(not(feature = "webhook"))]
    fn validate_connect_timeout(&self, _: &str, _: Duration) -> Result<(), ConfigError> {
        Ok(())
    }

    fn validate_expiry(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        if self.on_expiry == OnExpiryName::Dead && self.delivery == Delivery::AtMostOnce {
            let problem =
                "with at-most-once delivery an item has left the queue before its handler is called";
            let fix = "leave the key out, or set delivery to \"at-least-once\"";
            return Err(ConfigError::value(key("on-expiry"), "\"dead\"", problem, fix));
        }
        Ok(())
    }
}

impl Retry {
    fn validate(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
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
        Ok(())
    }
}

pub(super) fn quoted(value: Duration) -> String {
    format!("{:?}", duration::format(value))
}
