//! The settings of one queue: keys, defaults and checks.

use std::{collections::BTreeMap, time::Duration};

use kvqueue_queue::{
    End, HistoryIndex, HistoryIndexError, Kind, MAX_HISTORY, MAX_PARTITIONS, MAX_PAYLOAD, OnExpiry,
    PAYLOAD_CEILING, Packing,
};
use serde::{Deserialize, Serialize};

use super::row::{
    NeededBy, Reload, Setting,
    range::{
        Bound::{Count, Size, Time},
        LONGER_THAN_A_YEAR, LONGER_THAN_TEN_YEARS, SHORTEST, TEN_YEARS, YEAR,
    },
};
use super::{
    ConfigError, ConsumerGroup, Delivery, FetchStrategy, KindName, PULL, Retry, ScheduleDefinition, TakeEnd,
    Values, consumers, duration, number, schedule::in_toml, size,
};

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
    #[serde(default, deserialize_with = "number::optional", skip_serializing_if = "Option::is_none")]
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

/// What is kept of the ended items of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptHistory {
    /// How long.
    pub(crate) time: Duration,
    pub(crate) index: HistoryIndex,
}

impl QueueConfig {
    /// Sets `kind`, `values` and `end` so that they describe this layout.
    #[must_use]
    pub fn with_layout(mut self, layout: Kind) -> Self {
        let (kind, packing, end) = match layout {
            Kind::Fifo => (KindName::Fifo, Packing::default(), End::default()),
            Kind::Recipe(packing) => (KindName::Recipe, packing, End::default()),
            Kind::Priority(end, packing) => (KindName::Priority, packing, end),
            Kind::Keyed => (KindName::Keyed, Packing::default(), End::default()),
        };
        self.kind = kind;
        self.values = match packing {
            Packing::Raw => Values::Raw,
            Packing::Tuple => Values::Tuple,
        };
        self.end = match end {
            End::Min => TakeEnd::Min,
            End::Max => TakeEnd::Max,
        };
        self
    }

    /// The layout that `kind`, `values` and `end` describe.
    pub fn layout(&self) -> Kind {
        let packing = match self.values {
            Values::Raw => Packing::Raw,
            Values::Tuple => Packing::Tuple,
        };
        let end = match self.end {
            TakeEnd::Min => End::Min,
            TakeEnd::Max => End::Max,
        };
        match self.kind {
            KindName::Fifo => Kind::Fifo,
            KindName::Recipe => Kind::Recipe(packing),
            KindName::Priority => Kind::Priority(end, packing),
            KindName::Keyed => Kind::Keyed,
        }
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
    /// The K of a group of consumers.
    ///
    /// A command or a request takes longer than a fetch. Where each gets one item, items that a consumer has fetched ahead
    /// would only wait.
    pub(crate) fn k_of(&self, group: &ConsumerGroup) -> usize {
        let posts_batches = self.handler_config.get("batch").and_then(toml::Value::as_bool) == Some(true);
        let default = match &*self.handler {
            "exec" => 1,
            "http" if !posts_batches => 1,
            _ => consumers::DEFAULT_K,
        };
        group.k.unwrap_or(default)
    }

    /// Writes out what follows from other settings.
    pub(super) fn spell_out(&mut self) {
        let ks: Vec<_> = self.consumers.iter().map(|group| self.k_of(group)).collect();
        for (group, k) in self.consumers.iter_mut().zip(ks) {
            group.k = Some(k);
        }
    }

    /// Refuses a key that has no effect on a queue of this kind.
    pub(super) fn validate_layout(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
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
    pub(super) fn validate_pull(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
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

    pub(super) fn validate_history_index(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
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
    pub(super) fn validate_result(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
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

    pub(super) fn validate_timeout(
        &self,
        key: String,
        shutdown_timeout: Duration,
    ) -> Result<(), ConfigError> {
        let Some(timeout) = self.handler_timeout else { return Ok(()) };
        // A stop that cannot wait for a leased item releases it.
        if self.delivery == Delivery::AtMostOnce && timeout > shutdown_timeout {
            let problem = format!(
                "an item may take longer than a stop waits (shutdown-timeout = {}), so with at-most-once delivery a stop would lose it",
                quoted(shutdown_timeout)
            );
            let fix = "raise shutdown-timeout or lower the timeout";
            return Err(ConfigError::value(key, quoted(timeout), problem, fix));
        }
        Ok(())
    }

    pub(super) fn validate_expiry(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
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
    pub(super) fn validate(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
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

/// A duration as the configuration has it, in quotation marks.
pub(crate) fn quoted(value: Duration) -> String {
    format!("{:?}", duration::format(value))
}

/// The shortest lease. A lease is extended after a third of its length, so a shorter one could expire during a slow commit.
pub(crate) const MIN_LEASE: Duration = Duration::from_secs(1);

/// The longest lease: other daemons wait as long for a dead daemon's items. A handler may take longer, since its lease is
/// extended.
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(24);

/// What there is to know about the settings of a queue.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::new(
        "queues.*.handler",
        "the name of a handler: `log` writes an item to the log, `stdout` prints it, `exec` runs a command with it, `http` posts it to a URL, `pull` \
         leaves it to workers that lease items over HTTP; or one of your own",
    )
    .without_default("must be given", "\"exec\"")
    .reload(Reload::NewHandler),
    Setting::new(
        "queues.*.consumers",
        "groups of consumers; each fetches up to `k` items in one transaction (1 to 10000), and `count` of them \
         work side by side (1000 in all). A number stands for one group: `consumers = 4` is `[{ count = 4 }]`. `k` is 10 by default; with the handlers `exec` and `http` it is 1, because each call gets one item ([why](config/handlers.md#how-many-items-at-a-time)); with `batch = true` it is 10. \
         Where a call of another handler takes longer than about 10 ms, write `k = 1`",
    )
    .without_default("`[{ count = 1 }]`", "[{ k = 1, count = 1 }]")
    .reload(Reload::AtOnce),
    Setting::new(
        "queues.*.delivery",
        "how often an item is handled. `at-least-once`: until it is finished, again after a failure or a crash; `at-most-once`: once, and it is gone if that fails; `exactly-once`: as at-least-once, and what the handler writes to the database commits \
         together with the item's end ([Delivery](config/queues.md#delivery))",
    )
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.lease",
        "how long the items of a daemon that died stay away from others; with `pull`, those of a worker that died. A daemon that lives extends it for \
         as long as the handler takes",
    )
    .at_least(Time(MIN_LEASE), "it could expire while a commit is slow")
    .at_most(Time(MAX_LEASE), "the items of a daemon that died would wait as long; a lease is extended for as long as a handler takes")
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.handler-timeout",
        "how long a call of the handler may take; with at-most-once delivery not longer than `shutdown-timeout`, or a stop would lose items \
         (with `mode = \"worker\"`, `start-timeout` counts too); for the handler `http` longer than its `connect-timeout`. A handler that blocks its \
         thread cannot be stopped: the lease of its item is extended until it returns",
    )
    .without_default("none", "\"10s\"")
    .at_least(Time(SHORTEST), "no item could be handled in no time")
    .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.fetch-strategy",
        "where a fetch looks while others fetch too: `front`, always the first items; `spread`, the first items, and further behind the more often fetches \
         conflict; `staged`, strict order, slower ([Delivery](config/queues.md#delivery)). Without effect in a keyed or divided queue",
    )
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.partitions",
        "divides a `fifo` queue into so many partitions, so that several daemons fetch side by side; at least as many as daemons \
         ([Partitions](config/queues.md#partitions)). Without the key the queue stays as it is",
    )
    .without_default("as it is", "8")
    .at_least(Count(1), "items have to be somewhere; as many as there are daemons is a good number")
    .at_most(Count(MAX_PARTITIONS as u64), "a queue has no more partitions")
    .reload(Reload::AtOnce),
    Setting::new(
        "queues.*.max-disorder",
        "with `partitions`: how much younger than the oldest ready item a fetched item may be. With `\"0s\"` items are fetched in the order of their \
         pushes, and daemons conflict",
    )
    .without_default("`\"1s\"`", "\"1s\"")
    .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
    .reload(Reload::AtOnce),
    Setting::new("queues.*.poll-interval", "how often an idle consumer looks although no push woke it")
        .at_least(Time(SHORTEST), "an idle consumer would never rest; pushes wake consumers at once in any case")
        .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
        .reload(Reload::NewConsumers),
    // Consumers before and after a change of these two would look in different places, so a change needs a new start.
    Setting::new(
        "queues.*.kind",
        "`fifo`, items in the order of their commits; `keyed`, a small queue for each key, with turns and limits ([KEYS.md](KEYS.md)); or a layout of \
         the sample data structures that FoundationDB's documentation calls recipes: `recipe` (queue) or `priority` (priority queue). Leave `fifo` \
         unless you want keys or priorities, or other programs use the queue. A queue with items of another kind is refused; \
         `kvqueue move Q OTHER --all --kind OLD --to-kind NEW` moves them",
    )
    .needed_by(NeededBy::Queue),
    Setting::new(
        "queues.*.values",
        "of a recipe: `raw`, the payload itself, as in Python; `tuple`, the payload packed as a tuple, as in Java",
    )
    .needed_by(NeededBy::Queue),
    Setting::new(
        "queues.*.end",
        "of a priority queue: fetch the lowest priority first, or (`max`) the highest",
    )
    .needed_by(NeededBy::Queue)
    .reload(Reload::NewConsumers),
    Setting::new("queues.*.max-payload", "the longest payload that kvqueue pushes")
        .at_least(Size(1), "nothing could be pushed")
        .at_most(Size(PAYLOAD_CEILING as u64), "an item has to fit into one transaction of FoundationDB")
        .needed_by(NeededBy::Queue)
    .reload(Reload::AtOnce),
    Setting::new(
        "queues.*.idempotency-window",
        "how long the idempotency key of a push is remembered, so that the same push again adds nothing",
    )
    .at_least(
        Time(SHORTEST),
        "no repeated push would be recognised; pushes without an idempotency key leave nothing behind in any case",
    )
    .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
    .reload(Reload::AtOnce),
    Setting::new(
        "queues.*.ttl",
        "an item without an expiry of its own expires so long after its push, unless an attempt has begun ([Expiry](config/queues.md#expiry))",
    )
    .without_default("none", "\"1h\"")
    .at_least(Time(SHORTEST), "every item would expire at once")
    .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
    .needed_by(NeededBy::Queue)
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.on-expiry",
        "what becomes of an item that expires: it leaves the queue (`drop`), or becomes a dead letter (`dead`; not with `at-most-once`)",
    )
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.dead-retention",
        "how long a dead letter is kept; then it is removed for good ([Dead letters](config/queues.md#dead-letters))",
    )
    .at_most(Time(TEN_YEARS), LONGER_THAN_TEN_YEARS)
    .zero_is("keeps dead letters for ever")
    .reload(Reload::AtOnce),
    Setting::new(
        "queues.*.history",
        "how long items are kept after their end, without their payloads, so that [`kvqueue history`](HISTORY.md) and `kvqueue item show` find them. \
         Without the key this daemon records no ends, and what is kept already is removed when it is old",
    )
    .without_default("none", "\"24h\"")
    .at_least(Time(Duration::from_mins(1)), "old items are removed once a minute")
    .at_most(Time(MAX_HISTORY), "ended items cannot be kept that long")
    .zero_is("records none, and removes within ten minutes what was kept")
    .reload(Reload::AtOnce),
    Setting::new(
        "queues.*.history-index",
        "the names of up to 8 attributes [by which the history is indexed](HISTORY.md#an-index-by-attributes), so that \
         `kvqueue history Q --attribute customer=ann` does not read all of it. The queue has to keep a `history`",
    )
    .without_default("none", "[\"customer\"]")
    .reload(Reload::AtOnce),
    Setting::new(
        "queues.*.retry.max-attempts",
        "attempts, the first one included, before an item is a dead letter ([Retries](config/queues.md#retries))",
    )
    .at_least(Count(1), "an item has to be tried at least once")
    .reload(Reload::NewConsumers),
    Setting::new("queues.*.retry.base", "the pause after the first failure, not longer than `retry.max`; each further failure doubles it")
        .reload(Reload::NewConsumers),
    Setting::new("queues.*.retry.max", "the longest pause")
        .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
        .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.retry.jitter",
        "shorten each pause at random, to 50 to 100 % of its length, so that items that failed together do not come back together",
    )
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.schedules",
        "schedules by name, each of which pushes items by itself ([Schedules](config/queues.md#schedules))",
    )
    .without_default("none", "")
    .reload(Reload::AtOnce),
    Setting::new("queues.*.handler-config", "the handler's own table ([Settings of handlers](config/handlers.md))")
        .without_default("none", "")
        .reload(Reload::NewHandler),
];
