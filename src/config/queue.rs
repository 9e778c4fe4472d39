//! One queue's keys and their defaults.

use std::{fmt, time::Duration};

use kvqueue_queue::MAX_PAYLOAD;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, SeqAccess, Unexpected, Visitor},
};

use super::{Delivery, FetchStrategy, KindName, Retry, TakeEnd, Values, duration, number, size};

/// One queue and how it is processed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
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
    #[serde(default = "ConsumerGroup::defaults", deserialize_with = "groups")]
    pub consumers: Vec<ConsumerGroup>,
    /// How often an item may be handled.
    #[serde(default)]
    pub delivery: Delivery,
    /// How long items stay with a daemon that does not say that it lives.
    #[serde(default = "QueueConfig::default_lease", with = "duration")]
    pub lease: Duration,
    /// Where a take looks for items.
    #[serde(default)]
    pub fetch_strategy: FetchStrategy,
    /// How long a call of the handler may take; none: as long as it likes.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    pub handler_timeout: Option<Duration>,
    /// How often an idle consumer looks although no push woke it.
    #[serde(default = "QueueConfig::default_poll_interval", with = "duration")]
    pub poll_interval: Duration,
    /// The longest payload that may be pushed, in bytes.
    #[serde(default = "QueueConfig::default_max_payload", with = "size")]
    pub max_payload: u64,
    /// How long a push's idempotency key is remembered.
    #[serde(default = "QueueConfig::default_idempotency_window", with = "duration")]
    pub idempotency_window: Duration,
    /// When a failed item is tried again, and how often.
    #[serde(default)]
    pub retry: Retry,
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
            handler_timeout: None,
            poll_interval: Self::default_poll_interval(),
            max_payload: Self::default_max_payload(),
            idempotency_window: Self::default_idempotency_window(),
            retry: Retry::default(),
            handler_config: toml::Table::new(),
        }
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
}

/// Consumers that take the same number of items at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ConsumerGroup {
    /// Items taken in one transaction.
    #[serde(deserialize_with = "number::deserialize")]
    pub k: usize,
    /// Consumers of this kind.
    #[serde(deserialize_with = "number::deserialize")]
    pub count: usize,
}

impl ConsumerGroup {
    pub(super) fn defaults() -> Vec<Self> {
        vec![Self::default()]
    }
}

impl Default for ConsumerGroup {
    fn default() -> Self {
        Self { k: 10, count: 1 }
    }
}

/// Reads groups of consumers. A number stands for one group with that number of consumers.
fn groups<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<ConsumerGroup>, D::Error> {
    input.deserialize_any(Groups)
}

struct Groups;

impl<'de> Visitor<'de> for Groups {
    type Value = Vec<ConsumerGroup>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of consumers such as 4, or groups such as [ { k = 10, count = 4 } ]")
    }

    fn visit_i64<E: Error>(self, count: i64) -> Result<Self::Value, E> {
        match usize::try_from(count) {
            Ok(count) => Ok(vec![ConsumerGroup { count, ..ConsumerGroup::default() }]),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(count), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Self::Value, A::Error> {
        let mut groups = Vec::new();
        while let Some(group) = input.next_element()? {
            groups.push(group);
        }
        Ok(groups)
    }
}
