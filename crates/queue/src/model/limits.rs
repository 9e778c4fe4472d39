//! The limits of a keyed queue: rules that give scopes a limit, a weight, an order.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mutant::bound;

use crate::model::error::QueueError;
use crate::model::holds::HoldCause;
use crate::model::kind::Kind;
use crate::model::rate::Rate;
use crate::model::sizes::MAX_ITEM_KEY;

/// The most rules of a queue.
pub(crate) const MAX_RULES: usize = 1_000;

/// The most scopes whose limits a rule book remembers.
fn max_known() -> usize {
    bound("known-limits", 10_000)
}

/// What a rule sets for the scopes that match its pattern. What it leaves out, a less specific rule sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The most items of a scope that run at the same time, over all processes. `None`: any number.
    pub running: Option<u32>,
    /// The share of a key next to other keys: a key of weight 3 is served three items while one of weight 1 is
    /// served one. `None`: 1.
    pub weight: Option<NonZeroU32>,
    /// Whether the items of a key run one at a time, in the order of their pushes. An item that is scheduled again holds its key: the items
    /// behind it wait until it has run. `None`: no.
    pub ordered: Option<bool>,
    /// Whether an item of an ordered key that becomes a dead letter holds its key, until an operator retries or purges the dead letter or
    /// unblocks the key ([`Queue::unblock`](crate::Queue::unblock)). `None`: no.
    pub blocks_on_dead: Option<bool>,
    /// How many items of a scope start in a time. `None`: any number.
    pub rate: Option<Rate>,
}

impl Limits {
    /// The same with a limit of [running](Limits::running) items.
    #[must_use]
    pub fn with_running(self, running: u32) -> Limits {
        Limits { running: Some(running), ..self }
    }

    /// The same with a [weight](Limits::weight).
    #[must_use]
    pub fn with_weight(self, weight: NonZeroU32) -> Limits {
        Limits { weight: Some(weight), ..self }
    }

    /// The same, with the items of a key in [order](Limits::ordered) or not.
    #[must_use]
    pub fn with_ordered(self, ordered: bool) -> Limits {
        Limits { ordered: Some(ordered), ..self }
    }

    /// The same, with dead letters that [block](Limits::blocks_on_dead) their keys or not.
    #[must_use]
    pub fn with_blocks_on_dead(self, blocks: bool) -> Limits {
        Limits { blocks_on_dead: Some(blocks), ..self }
    }

    /// The same with a [rate](Limits::rate).
    #[must_use]
    pub fn with_rate(self, rate: Rate) -> Limits {
        Limits { rate: Some(rate), ..self }
    }

    /// Whether the rule sets nothing.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }

    /// Whether it sets something that only keys have: a weight, an order, or what a dead letter does.
    pub fn is_for_keys(&self) -> bool {
        self.weight.is_some() || self.ordered.is_some() || self.blocks_on_dead.is_some()
    }

    /// The most items that run at the same time.
    pub fn most_running(&self) -> Option<u32> {
        if self.is_ordered() { Some(self.running.map_or(1, |running| running.min(1))) } else { self.running }
    }

    /// Whether the items of a key run one at a time and in order.
    pub fn is_ordered(&self) -> bool {
        self.ordered == Some(true)
    }

    /// Whether an item that is scheduled again, or dead, holds its key.
    pub(crate) fn holds_for(&self, cause: HoldCause) -> bool {
        self.is_ordered()
            && match cause {
                HoldCause::Scheduled => true,
                HoldCause::Dead => self.blocks_on_dead == Some(true),
            }
    }

    /// The share of a key.
    pub fn share(&self) -> u32 {
        self.weight.map_or(1, NonZeroU32::get)
    }

    /// What is not set here is set by the other.
    fn or(self, other: Limits) -> Limits {
        Limits {
            running: self.running.or(other.running),
            weight: self.weight.or(other.weight),
            ordered: self.ordered.or(other.ordered),
            blocks_on_dead: self.blocks_on_dead.or(other.blocks_on_dead),
            rate: self.rate.or(other.rate),
        }
    }
}

/// What a throttle is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The whole queue.
    Queue,
    /// All keys with the text before the first slash of the item's key; if it has no slash, the key.
    Tenant,
    /// The item's key. Keys that have it before their first slash belong to it.
    Key,
}

/// A rule of a keyed queue cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A pattern is empty, or longer than a key.
    #[error(
        "pattern has {len} bytes, 1 to {MAX_ITEM_KEY} are possible; {}",
        if *len == 0 { "name keys, as in tenant-*, or * for all of them" } else { "shorten it" }
    )]
    PatternLength {
        /// Its length in bytes.
        len: usize,
    },
    /// The time of a rate is too short or too long.
    #[error("a rate is for a time from 1 ms to 365 days; choose one within that")]
    RateTime,
    /// The queue has no keys.
    #[error("a queue of kind {kind} has no keys, limits and holds; set kind = \"keyed\" for it")]
    NoKeys {
        /// The kind that the queue was opened with.
        kind: Kind,
    },
    /// The rule of the whole queue would set what only keys have.
    #[error(
        "weight, order and blocking dead letters are for keys; the rule of the whole queue has a limit of running items and a rate only"
    )]
    ForKeys,
    /// The queue has as many rules as possible.
    #[error(
        "cannot add a rule: the queue has {MAX_RULES}, which is as many as possible; remove one, or use a pattern with `*`"
    )]
    TooManyRules,
    /// The database refused, or a record cannot be read.
    #[error("cannot read or change the limits of a queue")]
    Queue(#[from] QueueError),
}

/// Which scopes a rule is for: the whole queue, or all keys that match a text in which `*` stands for any number of bytes.
///
/// A pattern without a slash matches keys without one, and what stands before the slash of the others. A pattern with a slash matches
/// keys with one, part by part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Vec<u8>);

impl Pattern {
    /// The whole queue.
    pub const QUEUE: Pattern = Pattern(Vec::new());

    /// The keys that match `pattern`.
    ///
    /// # Errors
    /// [`LimitError::PatternLength`] if it is empty or longer than a key.
    pub fn keys(pattern: impl Into<Vec<u8>>) -> Result<Pattern, LimitError> {
        let pattern = pattern.into();
        match pattern.len() {
            1..=MAX_ITEM_KEY => Ok(Pattern(pattern)),
            len => Err(LimitError::PatternLength { len }),
        }
    }

    pub(crate) fn stored(bytes: Vec<u8>) -> Pattern {
        Pattern(bytes)
    }

    /// The text; empty for the whole queue.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the whole queue.
    pub fn is_queue(&self) -> bool {
        self.0.is_empty()
    }

    fn matches(&self, scope: &[u8]) -> bool {
        if self.is_queue() || scope.is_empty() {
            return self.0 == scope;
        }
        match (split(&self.0), split(scope)) {
            ((pattern, None), (scope, None)) => glob(pattern, scope),
            ((pattern, Some(more)), (scope, Some(rest))) => glob(pattern, scope) && glob(more, rest),
            _ => false,
        }
    }

    /// How much of it is not a wildcard.
    fn precision(&self) -> usize {
        self.0.iter().filter(|byte| **byte != b'*').count()
    }
}

fn split(key: &[u8]) -> (&[u8], Option<&[u8]>) {
    match key.iter().position(|byte| *byte == b'/') {
        Some(slash) => (&key[..slash], Some(&key[slash + 1..])),
        None => (key, None),
    }
}

/// Whether a text matches a pattern in which `*` stands for any number of bytes. Linear in the product of both at most.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where the last `*` stands, and the end of what it stands for.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == text[from] => (at, from) = (at + 1, from + 1),
            _ => {
                let Some((wildcard, end)) = star else { return false };
                star = Some((wildcard, end + 1));
                (at, from) = (wildcard + 1, end + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The rules of a queue at one time.
#[derive(Debug, Default)]
pub(crate) struct RuleBook {
    /// The stamp of the last change. Empty if there was none.
    pub(crate) version: Vec<u8>,
    /// The most specific rules first.
    rules: Vec<(Pattern, Limits)>,
    /// The highest limit of running items.
    most_running: Option<u32>,
    /// Those of scopes that were asked for.
    known: Mutex<HashMap<Vec<u8>, Limits>>,
    /// Whether holds and parked keys have been looked at since the last change.
    is_settled: AtomicBool,
}

impl RuleBook {
    pub(crate) fn new(version: Vec<u8>, mut rules: Vec<(Pattern, Limits)>) -> RuleBook {
        rules.sort_by(|(a, _), (b, _)| b.precision().cmp(&a.precision()).then_with(|| a.cmp(b)));
        let most_running = rules.iter().filter_map(|(_, limits)| limits.most_running()).max();
        RuleBook { version, rules, most_running, ..RuleBook::default() }
    }

    /// Whether it is known that holds and parked keys have been looked at since the last change of the rules.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    /// Notes that.
    pub(crate) fn settle(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    /// The highest limit of running items that a rule sets.
    pub(crate) fn most_running(&self) -> Option<u32> {
        self.most_running
    }

    /// The limits of a scope.
    pub(crate) fn limits(&self, scope: &[u8]) -> Limits {
        if self.rules.is_empty() {
            return Limits::default();
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limits) = known.get(scope) {
            return *limits;
        }
        let matching = self.rules.iter().filter(|(pattern, _)| pattern.matches(scope));
        let limits = matching.fold(Limits::default(), |limits, (_, rule)| limits.or(*rule));
        if known.len() >= max_known() {
            known.clear();
        }
        known.insert(scope.to_vec(), limits);
        limits
    }
}

/// The rule book that a process has read last, shared by all handles on a queue.
#[derive(Debug, Default, Clone)]
pub(crate) struct KnownRules(Arc<Mutex<Arc<RuleBook>>>);

impl KnownRules {
    pub(crate) fn get(&self) -> Arc<RuleBook> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, book: Arc<RuleBook>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = book;
    }
}

/// What a process has read does not make two queues different.
impl PartialEq for KnownRules {
    fn eq(&self, _: &KnownRules) -> bool {
        true
    }
}

impl Eq for KnownRules {}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(pattern: &str) -> Pattern {
        Pattern::keys(pattern).unwrap()
    }

    #[test]
    fn a_pattern_matches_level_by_level() {
        let matches = |pattern: &str, scope: &str| keys(pattern).matches(scope.as_bytes());
        assert!(matches("tenant-7", "tenant-7") && matches("tenant-*", "tenant-7") && matches("*", "x"));
        assert!(matches("*a*b", "xaybb") && !matches("*a*b", "xayc"));
        assert!(!matches("*", "tenant/host") && !matches("*", ""));
        assert!(matches("*/example.org", "tenant/example.org") && !matches("*/example.org", "tenant"));
        assert!(matches("*/*", "a/b/c") && !matches("a*", "a/b"));
        assert!(Pattern::QUEUE.matches(b"") && !Pattern::QUEUE.matches(b"x"));
    }

    #[test]
    fn the_most_specific_rule_sets_each_limit() {
        let weight = NonZeroU32::new(3).unwrap();
        let book = RuleBook::new(
            Vec::new(),
            vec![
                (keys("*"), Limits::default().with_running(1).with_weight(weight)),
                (keys("tenant-*"), Limits::default().with_running(4)),
                (keys("tenant-vip"), Limits::default().with_running(50)),
                (Pattern::QUEUE, Limits::default().with_running(100)),
            ],
        );
        let of = |scope: &str| (book.limits(scope.as_bytes()).running, book.limits(scope.as_bytes()).share());
        assert_eq!(of("tenant-vip"), (Some(50), 3));
        assert_eq!(of("tenant-7"), (Some(4), 3));
        assert_eq!(of("other"), (Some(1), 3));
        assert_eq!(of("tenant-7/host"), (None, 1));
        assert_eq!(of(""), (Some(100), 1));
    }

    #[test]
    fn items_of_an_ordered_key_run_one_at_a_time() {
        let ordered = Limits::default().with_ordered(true);
        assert_eq!(ordered.most_running(), Some(1));
        assert_eq!(ordered.with_running(9).most_running(), Some(1));
        assert_eq!(ordered.with_running(0).most_running(), Some(0));
    }
}
