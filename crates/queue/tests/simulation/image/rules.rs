//! The rules of a keyed queue, read by hand.

use std::collections::BTreeMap;

use super::rates::Rate;

type Key = Vec<u8>;

/// What a rule sets, as far as the simulation does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Rule {
    running: Option<u64>,
    is_ordered: Option<bool>,
    blocks: Option<bool>,
    rate: Option<Rate>,
}

/// The rules, by pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rules(BTreeMap<Key, Rule>);

impl Rules {
    /// Adds a rule: fields of tag, length and content.
    pub(super) fn read(&mut self, pattern: Key, mut value: &[u8]) -> Option<()> {
        let mut rule = Rule::default();
        while let Some((tag, rest)) = value.split_first() {
            let (len, rest) = rest.split_first_chunk()?;
            let (content, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            match tag {
                1 => rule.running = Some(u32::from_le_bytes(content.try_into().ok()?).into()),
                3 => rule.is_ordered = Some(content == [1]),
                4 => rule.blocks = Some(content == [1]),
                5 => rule.rate = Some(Rate::read(content)?),
                _ => return None,
            }
            value = rest;
        }
        self.0.insert(pattern, rule);
        Some(())
    }

    /// What the best pattern for a scope sets. The simulation's patterns are whole levels, or `*` for a level.
    fn best<T>(&self, scope: &[u8], field: impl Fn(&Rule) -> Option<T>) -> Option<T> {
        let matches = |pattern: &[u8]| {
            let mut levels = pattern.split(|byte| *byte == b'/').zip(scope.split(|byte| *byte == b'/'));
            let count = |key: &[u8]| key.split(|byte| *byte == b'/').count();
            pattern.is_empty() == scope.is_empty()
                && count(pattern) == count(scope)
                && levels.all(|(pattern, level)| pattern == b"*" || pattern == level)
        };
        let precision = |(pattern, _): &(&Key, &Rule)| pattern.iter().filter(|byte| **byte != b'*').count();
        let set = self.0.iter().filter(|(pattern, rule)| field(rule).is_some() && matches(pattern));
        // Of equals the one that sorts first.
        set.rev().max_by_key(precision).and_then(|(_, rule)| field(rule))
    }

    /// The most running items of a scope.
    pub(super) fn limit(&self, scope: &[u8]) -> Option<u64> {
        let running = self.best(scope, |rule| rule.running);
        if self.is_ordered(scope) { Some(running.unwrap_or(1).min(1)) } else { running }
    }

    /// Whether the items of a key run in order.
    pub(super) fn is_ordered(&self, key: &[u8]) -> bool {
        self.best(key, |rule| rule.is_ordered) == Some(true)
    }

    /// Whether a dead letter of an ordered key holds it.
    pub(super) fn blocks(&self, key: &[u8]) -> bool {
        self.best(key, |rule| rule.blocks) == Some(true)
    }

    /// How many items of a scope start in a time.
    pub(super) fn rate(&self, scope: &[u8]) -> Option<Rate> {
        self.best(scope, |rule| rule.rate)
    }
}
