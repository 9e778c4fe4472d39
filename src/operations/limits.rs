//! The rules of a keyed queue, and its held keys.

use std::{
    cell::Cell,
    num::{NonZeroU32, NonZeroUsize},
};

use clap::{Args, ValueEnum};
use foundationdb::Transaction;
use kvqueue_queue::{HeldBy, HeldKey, ItemId, LimitError, Limits, Pattern, Queue, QueueError, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Answer, Method, Needs, Operation, Page, Refusal, Route, Site, Text, Visit, is_false,
    names::{self, KeyName, PatternName, QueueName},
};
use crate::{audit::Action, base::text::one_line, config::rate};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<ListRules>();
    visit.operation::<SetRule>();
    visit.operation::<RemoveRule>();
    visit.operation::<ListHeld>();
    visit.operation::<Unblock>();
}

const QUEUE_LIMITS: Action = Action::new(
    "queue.limits",
    "set or remove a rule of a keyed queue",
    "`pattern` or `whole_queue`; `running`, `rate`, `burst`, `weight`, `ordered`, `on_dead`; `removed`",
);

/// List the rules of a keyed queue
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Args)]
pub(crate) struct ListRules {
    /// The queue
    #[serde(flatten)]
    queue: QueueName,
}

/// Set the rule of a pattern; it replaces the rule that the pattern has, and the answer says what that has lost
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Args)]
#[command(override_usage = "kvqueue limits set [OPTIONS] <QUEUE> <PATTERN|--queue>")]
pub(crate) struct SetRule {
    /// The queue
    #[serde(flatten)]
    queue: QueueName,
    #[serde(flatten)]
    #[command(flatten)]
    rule: Rule,
    /// Also if neither the database nor the configuration has the queue: before the first push to it
    #[serde(default, skip_serializing_if = "is_false")]
    #[arg(long)]
    create: bool,
}

/// Remove the rule of a pattern
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Args)]
#[command(override_usage = "kvqueue limits remove [OPTIONS] <QUEUE> <PATTERN|--queue>")]
pub(crate) struct RemoveRule {
    /// The queue
    #[serde(flatten)]
    queue: QueueName,
    #[serde(flatten)]
    #[command(flatten)]
    scope: RuleScope,
}

/// List the held keys: ordered keys that wait for an item that is tried again, or for a dead letter
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Args)]
pub(crate) struct ListHeld {
    /// The queue
    #[serde(flatten)]
    queue: QueueName,
    #[serde(flatten)]
    #[command(flatten)]
    page: Page,
}

/// Let a held key go on; the item that it waits for stays what it is
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Args)]
#[command(
    long_about = "Let a held key go on: its next ready item is served. A dead letter that it waited for stays a dead letter; an item that is tried again runs at its time, \
        perhaps after items that were pushed later. To keep the order, use `kvqueue requeue` or `kvqueue dead purge` instead."
)]
pub(crate) struct Unblock {
    /// The queue
    #[serde(flatten)]
    queue: QueueName,
    /// The key
    #[serde(flatten)]
    key: KeyName,
}

/// A rule: the keys that it is for, and what it sets. What it does not set, a less specific rule does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Args)]
struct Rule {
    #[serde(flatten)]
    #[command(flatten)]
    scope: RuleScope,
    #[serde(flatten)]
    #[command(flatten)]
    limits: RuleLimits,
}

/// The keys that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Args)]
#[group(required = true, multiple = false)]
struct RuleScope {
    /// The keys that the rule is for, as in 'tenant-*'; quote it, because a shell replaces *
    #[serde(flatten, deserialize_with = "names::optional", skip_serializing_if = "Option::is_none")]
    #[arg(value_name = "PATTERN")]
    pattern: Option<PatternName>,
    /// The whole queue
    #[serde(default, skip_serializing_if = "is_false")]
    #[arg(long = "queue")]
    whole_queue: bool,
}

/// What a rule sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Args)]
#[serde(default)]
struct RuleLimits {
    /// The most items that run at the same time, in all daemons and workers together; 0 stops them
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "N")]
    running: Option<u32>,
    /// How many items start in a time, in all daemons and workers together, as in 100/1m or 5/s; each attempt at an item counts
    #[serde(with = "rate::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", regex(pattern = "^[0-9]+/.+$"))]
    #[arg(long, value_name = "ITEMS/TIME", value_parser = rate::parse)]
    rate: Option<Rate>,
    /// With --rate: how many items start at once after a time without any [default: those of a tenth of a second, 1 at least]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<NonZeroU32>,
    /// The share of each key next to other keys: one of weight 3 gets three items while one of weight 1 gets one
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "N")]
    weight: Option<NonZeroU32>,
    /// Items of a key run one at a time, in the order of their pushes; one that is retried holds back the next ones
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    ordered: Option<bool>,
    /// For keys that are ordered by this rule or another: what a dead letter does to its key [default: continue]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "WHAT", value_enum)]
    on_dead: Option<OnDead>,
}

/// What becomes of an ordered key when one of its items becomes a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum OnDead {
    /// The items behind the dead letter run
    Continue,
    /// The key is blocked until the dead letter is requeued or purged, or the key unblocked
    Block,
}

impl OnDead {
    fn of(limits: &Limits) -> Option<Self> {
        limits.blocks_on_dead.map(|blocks| if blocks { Self::Block } else { Self::Continue })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Block => "block",
        }
    }
}

impl RuleScope {
    fn pattern(&self) -> Result<Pattern, Refusal> {
        match &self.pattern {
            Some(name) if !self.whole_queue => {
                Pattern::keys(name.0.clone()).map_err(|error| Refusal::bad(error.to_string()))
            }
            None if self.whole_queue => Ok(Pattern::QUEUE),
            _ => Err(Refusal::bad("give one of pattern, pattern_base64 and whole_queue")),
        }
    }
}

/// For people.
impl std::fmt::Display for RuleScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.pattern {
            Some(pattern) => pattern.fmt(f),
            None => f.write_str("the whole queue"),
        }
    }
}

impl RuleLimits {
    fn of(limits: Limits) -> Self {
        let Limits { running, rate, weight, ordered, .. } = limits;
        let burst = rate.and_then(|rate| NonZeroU32::new(rate.burst()?));
        Self { running, rate, burst, weight, ordered, on_dead: OnDead::of(&limits) }
    }

    fn limits(&self) -> Result<Limits, Refusal> {
        let mut limits = Limits::default();
        limits.running = self.running;
        limits.rate = rate::with_burst(self.rate, self.burst).map_err(Refusal::bad)?;
        limits.weight = self.weight;
        limits.ordered = self.ordered;
        limits.blocks_on_dead = self.on_dead.map(|on_dead| on_dead == OnDead::Block);
        Ok(limits)
    }

    /// What these have and `now` does not set.
    fn without(self, now: &Self) -> Self {
        Self {
            running: self.running.filter(|_| now.running.is_none()),
            rate: self.rate.filter(|_| now.rate.is_none()),
            burst: self.burst.filter(|_| now.rate.is_none()),
            weight: self.weight.filter(|_| now.weight.is_none()),
            ordered: self.ordered.filter(|_| now.ordered.is_none()),
            on_dead: self.on_dead.filter(|_| now.on_dead.is_none()),
        }
    }

    /// The rate with its burst, for people.
    fn rate_text(&self) -> Option<String> {
        let burst = self.burst.map(|burst| format!(" (burst {burst})")).unwrap_or_default();
        self.rate.map(|rate| rate::format(&rate) + &burst)
    }

    /// For people.
    fn words(&self) -> String {
        let words = [
            self.running.map(|running| format!("{running} running")),
            self.rate_text().map(|rate| format!("rate {rate}")),
            self.weight.map(|weight| format!("weight {weight}")),
            self.ordered.map(|ordered| if ordered { "ordered" } else { "not ordered" }.to_owned()),
            self.on_dead.map(|on_dead| format!("on dead {}", on_dead.as_str())),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl Rule {
    fn of(pattern: &Pattern, limits: Limits) -> Self {
        let is_queue = pattern.is_queue();
        let name = || PatternName(pattern.as_bytes().to_vec());
        let scope = RuleScope { pattern: (!is_queue).then(name), whole_queue: is_queue };
        Self { scope, limits: RuleLimits::of(limits) }
    }

    /// The pattern and what it sets.
    ///
    /// # Errors
    /// The reason why there can be no such rule.
    fn read(&self) -> Result<(Pattern, Limits), Refusal> {
        const NOTHING: &str = "a rule sets at least one of running, rate, weight, ordered and on-dead";
        const FOR_KEYS: &str =
            "weight, ordered and on-dead are for keys; the rule of the whole queue has running and rate only";
        match (self.scope.pattern()?, self.limits.limits()?) {
            (_, limits) if limits.is_empty() => Err(Refusal::bad(NOTHING)),
            (pattern, limits) if pattern.is_queue() && limits.is_for_keys() => Err(Refusal::bad(FOR_KEYS)),
            rule => Ok(rule),
        }
    }

    /// A row of the table.
    fn cells(&self) -> Vec<String> {
        fn text(number: Option<impl ToString>) -> String {
            number.map(|number| number.to_string()).unwrap_or_default()
        }
        let RuleLimits { running, weight, ordered, on_dead, .. } = self.limits;
        let ordered = ordered.map(|ordered| if ordered { "yes" } else { "no" });
        let rate = text(self.limits.rate_text());
        let on_dead = text(on_dead.map(OnDead::as_str));
        vec![self.scope.to_string(), text(running), rate, text(weight), text(ordered), on_dead]
    }
}

/// The rules of a queue.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
}

impl Answer for Rules {
    const LIST: Option<&'static str> = Some("rules");

    fn text(&self) -> Text {
        let rows = self.rules.iter().map(Rule::cells).collect();
        Text::Table(vec!["keys", "running", "rate", "weight", "ordered", "on dead"], rows)
    }
}

impl Operation for ListRules {
    const ROUTE: Route =
        Route::read("/api/v1/queues/{queue}/limits").with_notes("[KEYS.md](KEYS.md) says what they do");
    type Answer = Rules;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Rules> {
        let queue = &site.keyed_queue(&self.queue)?;
        site.note_if_absent(queue).await?;
        let rules = site.transact(async |tr| rules(queue, tr).await).await?;
        Ok(Rules { rules: rules.iter().map(|(pattern, limits)| Rule::of(pattern, *limits)).collect() })
    }
}

async fn rules(queue: &Queue, tr: &Transaction) -> Result<Vec<(Pattern, Limits)>, QueueError> {
    queue.check_used(tr).await?;
    queue.rules(tr).await
}

/// What the rule of a pattern sets. Nothing, if it has none.
async fn rule_of(queue: &Queue, tr: &Transaction, pattern: &Pattern) -> Result<Option<Limits>, QueueError> {
    queue.check_unfrozen(tr).await?;
    Ok(rules(queue, tr).await?.into_iter().find(|(known, _)| known == pattern).map(|(_, limits)| limits))
}

/// A rule that was set or removed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RuleChange {
    #[serde(flatten)]
    queue: QueueName,
    #[serde(flatten)]
    rule: Rule,
    #[serde(default, skip_serializing_if = "is_false")]
    removed: bool,
    /// What the rule before has set and this one does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropped: Option<RuleLimits>,
}

impl Answer for RuleChange {
    fn text(&self) -> Text {
        let (scope, words) = (&self.rule.scope, self.rule.limits.words());
        let dropped = self.dropped.map(|dropped| format!("; no longer: {}", dropped.words()));
        Text::Line(match self.removed {
            true => format!("removed the rule of {scope}"),
            false => format!("set {scope}: {words}{}", dropped.unwrap_or_default()),
        })
    }
}

impl Operation for SetRule {
    const ROUTE: Route = {
        const NOTES: &str = "One of `pattern` and `\"whole_queue\": true`, and at least one of `running`, `rate` (`\"100/1m\"`, with `burst` if wanted), \
            `weight`, `ordered` and `on_dead`. `dropped` of the answer is what the rule before had";
        Route::change(QUEUE_LIMITS, Method::Put, "/api/v1/queues/{queue}/limits").with_notes(NOTES)
    };
    type Answer = RuleChange;

    fn needs(&self) -> Needs<'_> {
        Needs::Queue { name: &self.queue, create: self.create }
    }

    fn check(&self) -> Result<(), Refusal> {
        self.rule.read().map(drop)
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<RuleChange> {
        let (pattern, limits) = &self.rule.read()?;
        let queue = &site.keyed_queue(&self.queue)?;
        site.expect_queue(queue, Some(self.create)).await?;
        let record = site.record().about(queue.name()).with_all(&self.rule);
        let before = Cell::new(None);
        let set = site.change(record, async |tr, audit| {
            // If the outcome of a commit is unknown, a second run may find this rule itself.
            let found = rule_of(queue, tr, pattern).await?.unwrap_or_default();
            before.set(before.get().or(Some(found)));
            match queue.set_rule(tr, pattern, limits).await {
                Ok(()) => audit.write(tr),
                Err(LimitError::Queue(error)) => return Err(error),
                Err(full) => return Ok(Err(full)),
            }
            Ok(Ok(before.get().unwrap_or_default()))
        });
        let before = set.await?.map_err(|full| {
            Refusal::conflict("too_many_rules", full.to_string(), "remove a rule, or use a pattern with *")
        })?;
        let dropped = RuleLimits::of(before).without(&self.rule.limits);
        // It looks as if it were for all items.
        if pattern.as_bytes() == b"*" {
            site.note(
                "items that are pushed without --key are not limited by this; --queue in place of the pattern limits the whole queue",
            );
        }
        let dropped = Some(dropped).filter(|dropped| *dropped != RuleLimits::default());
        Ok(RuleChange {
            queue: self.queue.clone(),
            rule: Rule::of(pattern, *limits),
            removed: false,
            dropped,
        })
    }
}

impl Operation for RemoveRule {
    const ROUTE: Route = Route::change(QUEUE_LIMITS, Method::Delete, "/api/v1/queues/{queue}/limits");
    type Answer = RuleChange;

    fn check(&self) -> Result<(), Refusal> {
        self.scope.pattern().map(drop)
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<RuleChange> {
        let pattern = &self.scope.pattern()?;
        let queue = &site.keyed_queue(&self.queue)?;
        site.expect_queue(queue, None).await?;
        let has_removed = Cell::new(false);
        let record = site.record().about(queue.name()).with_all(&self.scope).with("removed", true);
        let removed = site.change(record, async |tr, audit| {
            let is_there = rule_of(queue, tr, pattern).await?.is_some();
            if remember(&has_removed, is_there) {
                queue.set_rule(tr, pattern, &Limits::default()).await.map_err(queue_error)?;
                audit.write(tr);
            }
            Ok(has_removed.get())
        });
        if !removed.await? {
            let message = format!("queue \"{}\" has no rule of {}", self.queue, self.scope);
            return Err(Refusal::not_found(
                message,
                format!("`kvqueue limits list {}` shows them", self.queue),
            )
            .into());
        }
        let rule = Rule::of(pattern, Limits::default());
        Ok(RuleChange { queue: self.queue.clone(), rule, removed: true, dropped: None })
    }
}

/// Whether something was there, in this run of a transaction or an earlier one. If the outcome of a commit is unknown, the transaction runs again.
/// It then finds nothing, if that commit has succeeded. So the finding of the earlier run is the answer.
fn remember(was_there: &Cell<bool>, is_there: bool) -> bool {
    was_there.set(was_there.get() || is_there);
    was_there.get()
}

/// The error of a queue that was opened as a keyed one.
fn queue_error(error: LimitError) -> QueueError {
    match error {
        LimitError::Queue(error) => error,
        refused => unreachable!("a keyed queue has rules and holds: {refused}"),
    }
}

/// The most characters of a key in a table.
const SHOWN_OF_KEY: usize = 40;

/// A held key, and the item that it waits for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Held {
    #[serde(flatten)]
    key: KeyName,
    item: String,
    item_state: HeldBecause,
}

/// Why the item of a held key does not run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum HeldBecause {
    Dead,
    Waiting,
}

impl Held {
    fn of(held: &HeldKey) -> Self {
        let item_state = match held.by {
            HeldBy::Dead(_) => HeldBecause::Dead,
            _ => HeldBecause::Waiting,
        };
        Self { key: KeyName(held.key.clone()), item: held.by.item().to_string(), item_state }
    }
}

/// Held keys, in the order of their bytes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HeldKeys {
    keys: Vec<Held>,
    /// The item behind whose key the next page begins.
    next: Option<String>,
}

impl Answer for HeldKeys {
    const LIST: Option<&'static str> = Some("keys");

    fn text(&self) -> Text {
        let cells = |held: &Held| {
            let waits_for = match held.item_state {
                HeldBecause::Dead => "a dead letter",
                HeldBecause::Waiting => "an item that is tried again",
            };
            let key = one_line(&String::from_utf8_lossy(&held.key.0), SHOWN_OF_KEY);
            vec![key, waits_for.to_owned(), held.item.clone()]
        };
        Text::Table(vec!["key", "waits for", "item"], self.keys.iter().map(cells).collect())
    }
}

impl Operation for ListHeld {
    const ROUTE: Route = Route::read("/api/v1/queues/{queue}/held")
        .with_notes("[Blocked keys](keys/order.md#blocked-keys) has more");
    type Answer = HeldKeys;

    fn go_on(&mut self, so_far: &HeldKeys) -> bool {
        self.page.go_on(so_far.keys.len(), so_far.next.as_deref())
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<HeldKeys> {
        let queue = &site.keyed_queue(&self.queue)?;
        let after = self.page.after.as_deref().map(keyed_id).transpose()?;
        site.note_if_absent(queue).await?;
        let (after, limit) = (after.as_ref(), self.page.most());
        let (keys, is_more) = site.transact(async |tr| held_keys(queue, tr, after, limit).await).await?;
        let next = keys.last().filter(|_| is_more).map(|held| held.by.item().to_string());
        Ok(HeldKeys { keys: keys.iter().map(Held::of).collect(), next })
    }
}

/// Reads the id of an item that has a key.
fn keyed_id(text: &str) -> Result<ItemId, Refusal> {
    let id = text.parse().map_err(|error| Refusal::bad(format!("after: {error}")))?;
    let has_key = |id: &ItemId| id.key().is_some();
    Some(id).filter(has_key).ok_or_else(|| Refusal::bad("after: this is not the id of an item with a key"))
}

/// Up to `limit` keys behind the key of the item `after`, or the first ones, and whether there are more behind them. Conflicts with nothing.
async fn held_keys(
    queue: &Queue,
    tr: &Transaction,
    after: Option<&ItemId>,
    limit: NonZeroUsize,
) -> Result<(Vec<HeldKey>, bool), QueueError> {
    queue.check_used(tr).await?;
    let mut after = after.and_then(ItemId::key);
    let mut keys = Vec::new();
    // One more than wanted tells whether there are more. A key with several holds takes the place of others in what is read.
    while let Some(left) = NonZeroUsize::new((limit.get() + 1).saturating_sub(keys.len())) {
        let found = queue.held_keys(tr, after.as_deref(), left).await.map_err(queue_error)?;
        let Some(last) = found.last() else { return Ok((keys, false)) };
        after = Some(last.key.clone());
        keys.extend(found);
    }
    keys.truncate(limit.get());
    Ok((keys, true))
}

/// A key that goes on.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Unblocked {
    #[serde(flatten)]
    queue: QueueName,
    #[serde(flatten)]
    key: KeyName,
    unblocked: bool,
}

impl Answer for Unblocked {
    fn text(&self) -> Text {
        Text::Line(format!("unblocked {}", self.key))
    }
}

impl Operation for Unblock {
    const ROUTE: Route = Route::change(
        Action::new("queue.unblock", "let a held key of a keyed queue go on", "`key`"),
        Method::Post,
        "/api/v1/queues/{queue}/unblock",
    );
    type Answer = Unblocked;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Unblocked> {
        let Self { queue: name, key } = self;
        let queue = &site.keyed_queue(name)?;
        site.expect_queue(queue, None).await?;
        let was_held = Cell::new(false);
        let record = site.record().about(queue.name()).with_all(key);
        let unblocked = site.change(record, async |tr, audit| {
            queue.check_unfrozen(tr).await?;
            queue.check_used(tr).await?;
            if remember(&was_held, queue.unblock(tr, &key.0).await.map_err(queue_error)?) {
                audit.write(tr);
            }
            Ok(was_held.get())
        });
        match unblocked.await? {
            true => Ok(Unblocked { queue: name.clone(), key: key.clone(), unblocked: true }),
            false => {
                let message = format!("key {key} of queue \"{name}\" is not held");
                Err(Refusal::not_found(message, format!("`kvqueue limits held {name}` shows which are"))
                    .into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rule: serde_json::Value) -> Result<(Pattern, Limits), Refusal> {
        serde_json::from_value::<Rule>(rule).unwrap().read()
    }

    #[test]
    fn a_rule_that_sets_nothing_or_what_the_queue_cannot_have_is_refused() {
        use serde_json::json;
        assert!(read(json!({ "pattern": "a" })).is_err());
        assert!(read(json!({ "pattern": "a", "ordered": true })).is_ok());
        // Another rule may make the keys ordered.
        assert!(read(json!({ "pattern": "a", "on_dead": "block" })).is_ok());
        assert!(read(json!({ "whole_queue": true, "running": 0 })).is_ok());
        assert!(read(json!({ "whole_queue": true, "rate": "1/1s" })).is_ok());
        assert!(read(json!({ "whole_queue": true, "running": 1, "ordered": true })).is_err());
        assert!(read(json!({ "whole_queue": true, "on_dead": "continue" })).is_err());
        assert!(read(json!({ "pattern": "a", "whole_queue": true, "running": 1 })).is_err());
        assert!(read(json!({ "running": 1 })).is_err());
    }

    #[test]
    fn a_removal_that_finds_nothing_in_its_second_run_answers_as_in_the_first() {
        let was_there = Cell::new(false);
        assert_eq!([false, true, false].map(|is_there| remember(&was_there, is_there)), [false, true, true]);
    }
}
