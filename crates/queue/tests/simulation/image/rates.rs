//! Rates and timers of a keyed queue, read by hand, and what must hold of them after every commit.

use std::collections::{BTreeMap, BTreeSet};

use super::element::{split_bytes, split_number};
use super::index::Index;

type Key = Vec<u8>;

/// The longest that a transaction lives, and a little more.
const LIFE: u64 = 5_100_000;

/// The rate of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    items: u64,
    per: u64,
    burst: u64,
}

impl Rate {
    pub(super) fn read(content: &[u8]) -> Option<Rate> {
        let (items, rest) = content.split_first_chunk::<4>()?;
        let (per, burst) = rest.split_first_chunk::<8>()?;
        Some(Rate {
            items: u32::from_le_bytes(*items).into(),
            per: u64::from_le_bytes(*per),
            burst: u32::from_le_bytes(burst.try_into().ok()?).into(),
        })
    }

    fn time_of(self, n: u64) -> u64 {
        (n * self.per).div_ceil(self.items)
    }

    fn tolerance(self) -> u64 {
        if self.burst == 0 { 100_000 } else { self.time_of(self.burst - 1) }
    }
}

/// The rows of all scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rates {
    /// What a scope has paid, and the version of its timer.
    paid: BTreeMap<Key, (u64, u64)>,
    /// The timers, and whether a throttle has set them.
    timers: BTreeMap<(u64, Key), bool>,
}

impl Rates {
    pub(super) fn read_paid(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        let (scope, []) = split_bytes(rest)? else { return None };
        let (paid, timer) = value.split_first_chunk::<8>()?;
        let row = (u64::from_le_bytes(*paid), u64::from_le_bytes(timer.try_into().ok()?));
        self.paid.insert(scope, row);
        Some(())
    }

    pub(super) fn read_timer(&mut self, rest: &[u8], value: &[u8]) -> Option<()> {
        let (version, rest) = split_number(rest)?;
        let (scope, []) = split_bytes(rest)? else { return None };
        let [.., throttled] = value else { return None };
        self.timers.insert((version, scope), *throttled == 1);
        Some(())
    }

    pub(super) fn has_timer(&self, scope: &[u8]) -> bool {
        self.paid.get(scope).is_some_and(|(_, timer)| *timer != 0)
    }

    pub(super) fn has_throttles(&self) -> bool {
        self.timers.values().any(|throttled| *throttled)
    }

    /// Each timer is the one that its scope's row names.
    pub(super) fn check(&self) -> Result<(), String> {
        let named = self.paid.iter().filter(|(_, (_, timer))| *timer != 0);
        let named: BTreeSet<(u64, Key)> = named.map(|(scope, (_, timer))| (*timer, scope.clone())).collect();
        match named.iter().eq(self.timers.keys()) {
            true => Ok(()),
            false => Err(format!("timers {:?} are there, and {named:?} are named", self.timers)),
        }
    }

    fn throttled_until(&self, scope: &[u8]) -> Option<u64> {
        let (_, timer) = self.paid.get(scope)?;
        let throttled = *self.timers.get(&(*timer, scope.to_vec()))?;
        throttled.then_some(*timer)
    }
}

/// No more items of a scope have started than its rate allows. `started`: how many a commit at this version has started, by scope.
pub(crate) fn check_started(
    before: &Index,
    after: &Index,
    started: &BTreeMap<Key, u64>,
    commit: u64,
) -> Result<(), String> {
    for (scope, n) in started {
        let Some(rate) = before.rules.rate(scope) else { continue };
        let name = scope.escape_ascii();
        if before.rates.throttled_until(scope).is_some_and(|until| until > commit) {
            return Err(format!("{n} items of {name} start, which is throttled"));
        }
        let (paid, _) = before.rates.paid.get(scope).copied().unwrap_or_default();
        let (now_paid, _) = after.rates.paid.get(scope).copied().unwrap_or_default();
        let most = commit + rate.tolerance() + rate.time_of(1);
        if now_paid > most {
            return Err(format!(
                "{n} items of {name} start: it has paid up to {now_paid}, and may to {most}"
            ));
        }
        // What an earlier rule let it pay ahead does not count any more.
        let least = paid.min(commit).max(commit.saturating_sub(LIFE)) + rate.time_of(*n);
        let least = if paid > most { least } else { least.max(paid + rate.time_of(*n)) };
        if now_paid < least {
            return Err(format!("{n} items of {name} start, and it has paid up to {now_paid}, not {least}"));
        }
    }
    Ok(())
}
