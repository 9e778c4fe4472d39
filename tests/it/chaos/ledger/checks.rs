//! The checks at the end of a run, which hold for all faults.

use std::collections::BTreeSet;

use kvqueue::config::Delivery;
use kvqueue_queue::{MAX_FAILURES, MAX_VALUE};

use super::{Account, Books, Rest, Run, Sorted};
use crate::chaos::{
    errand::Way,
    payload::Name,
    plan::IN_HAND,
    records::{Act, Record},
};

/// A handler has stopped this long after the cancellation of its item, in ms: a second while the database answers, longer if its host
/// is killed or stopped at that time, or the handler's process is.
const STOPPED: u64 = 6_000;

impl Books {
    pub(super) fn check(&self, sorted: &Sorted, account: &mut Account) {
        let unexpected: Vec<_> = sorted.out.difference(&sorted.attempted).collect();
        account.complain("came out and were never pushed", &unexpected);
        self.check_texts(account);
        self.check_pushes(sorted, account);
        self.check_rest(account);
        self.check_cancelled(sorted, account);
        self.check_history(sorted, account);
        self.check_unique(sorted, account);
        match self.queue.delivery {
            Delivery::AtMostOnce => self.check_at_most_once(sorted, account),
            Delivery::AtLeastOnce => {
                self.check_leased(sorted, account);
                let again: Vec<_> = sorted.runs.iter().filter(|(_, runs)| is_repeated(runs)).collect();
                account.complain("were handled twice in the same attempt", &again);
            }
            Delivery::ExactlyOnce => {
                self.check_leased(sorted, account);
                self.check_effects(sorted, account);
            }
        }
    }

    /// Payloads are whole.
    fn check_texts(&self, account: &mut Account) {
        let recorded = self.records.iter().filter_map(|record| match record {
            Record::Nonsense(text) => Some(text),
            Record::Called { .. } | Record::Handled { .. } => None,
        });
        let told = self.printed.iter().chain(&self.rest.letters).filter_map(|text| text.as_ref().err());
        account.complain("texts are nobody's", &recorded.chain(told).collect::<Vec<_>>());
    }

    /// Of each push a beginning came out, of an operation all or nothing, of one that was refused nothing.
    fn check_pushes(&self, Sorted { out, .. }: &Sorted, account: &mut Account) {
        for pushed in &self.pushed {
            let errand = &pushed.errand;
            let came: Vec<_> = errand.names().filter(|name| out.contains(name)).collect();
            let refused = pushed.refused && !came.is_empty();
            account.check(!refused, || format!("refused, and came out: {errand:?}"));
            // Where items can be lost or expire, nothing is known of the others.
            if self.queue.is_leased() && !errand.expires {
                let some = came.len() as u64;
                let is_whole = errand.way != Way::Operation || [0, errand.lines].contains(&some);
                let is_beginning = came.iter().map(|name| name.place).eq(0..some);
                account
                    .check(is_whole && is_beginning, || format!("came out in part: {came:?} of {errand:?}"));
            }
        }
    }

    /// Nothing is left, and no record of what is gone.
    fn check_rest(&self, account: &mut Account) {
        let Rest { ready, running, waiting, dead, keys, letters, .. } = &self.rest;
        account.check((*ready, *running, *waiting) == (0, 0, 0), || {
            format!("left: {ready} ready, {running} running, {waiting} waiting")
        });
        account.check(*dead == letters.len() as u64, || {
            format!("{dead} dead letters are counted, and {} are there", letters.len())
        });
        // In a queue with keys every slot is free, and no key has a place.
        let of_keys = ["kval", "listed", "active", "parked", "running", "hold", "onhold"];
        for kind in ["val", "meta", "lease", "held", "later", "unique", "unknown"].into_iter().chain(of_keys)
        {
            let left = keys.get(kind).copied().unwrap_or(0);
            account.check(left == 0, || format!("{left} keys of kind {kind:?} are left"));
        }
        let parts = letters
            .iter()
            .flatten()
            .map(|name| name.payload().len().div_ceil(MAX_VALUE) as u64 - 1)
            .sum::<u64>();
        let chunks = keys.get("chunk").copied().unwrap_or(0);
        account.check(chunks == parts, || format!("{chunks} chunks, where dead letters have {parts}"));
        let bodies = keys.get("body").copied().unwrap_or(0);
        account.check(bodies == *dead, || format!("{bodies} bodies of {dead} dead letters"));
    }

    /// Handled once at most, and lost only by daemons that were killed.
    fn check_at_most_once(&self, Sorted { acknowledged, runs, out, .. }: &Sorted, account: &mut Account) {
        let twice: Vec<_> = runs.iter().filter(|(_, runs)| runs.len() > 1).collect();
        account.complain("were handled more than once", &twice);
        let lost: Vec<_> = acknowledged.difference(out).collect();
        let most = self.killed * IN_HAND;
        if lost.len() as u64 > most {
            let what = format!("are lost, where {} killed daemons had at most {most}", self.killed);
            account.complain(&what, &lost);
        }
    }

    /// Nothing is lost, and each item was finished once or is dead.
    fn check_leased(&self, sorted: &Sorted, account: &mut Account) {
        let Sorted { runs, letters, cancelled, unclear, expired, replaced, out, .. } = sorted;
        account.complain("were acknowledged and are lost", &sorted.lost().collect::<Vec<_>>());
        let Rest { done, dead, .. } = self.rest;
        let most = (out.len() - cancelled.len() - expired.len() - replaced.len()) as u64;
        let least = most - unclear.difference(expired).count() as u64;
        account.check((least..=most).contains(&(done + dead)), || {
            format!("{done} finished and {dead} dead are not the {least} to {most} items that came out")
        });
        let is_ended = |name| {
            letters.contains(name)
                || cancelled.contains_key(name)
                || unclear.contains(name)
                || expired.contains(name)
                || replaced.contains(name)
        };
        let open = runs.iter().filter(|(name, _)| !is_ended(name) && !sorted.is_done(name));
        account.complain("are finished though no handler was done with them", &open.collect::<Vec<_>>());
    }

    /// What is cancelled is not a dead letter, took no effect, and was not handled any more once its handler had time to find that out.
    fn check_cancelled(&self, Sorted { runs, letters, cancelled, .. }: &Sorted, account: &mut Account) {
        let dead: Vec<_> = cancelled.keys().filter(|name| letters.contains(name)).collect();
        account.complain("are cancelled and dead", &dead);
        let effects = &self.rest.effects;
        let took: Vec<_> = cancelled.keys().filter(|name| effects.contains_key(name)).collect();
        account.complain("are cancelled and took effect", &took);
        let late = |(name, at): &(&Name, &u64)| {
            let mut runs = runs.get(name).into_iter().flatten();
            runs.any(|run| match run {
                // An item that is handled at most once is not there any more, and cannot be cancelled.
                _ if !self.queue.is_leased() => true,
                Run::Known { at: run, .. } => {
                    account.late = account.late.max(run.saturating_sub(**at));
                    *run > **at + STOPPED
                }
                Run::Printed => false,
            })
        };
        let late: Vec<_> = cancelled.iter().filter(late).collect();
        account.complain("were handled after their cancellation", &late);
    }

    /// The effect of an item happened once if the item was finished, and never otherwise.
    fn check_effects(&self, Sorted { letters, .. }: &Sorted, account: &mut Account) {
        let effects = &self.rest.effects;
        let more: Vec<_> = effects.iter().filter(|(_, times)| **times != 1).collect();
        account.complain("took effect more than once", &more);
        let dead: Vec<_> = letters.iter().filter(|name| effects.contains_key(name)).collect();
        account.complain("took effect and are dead", &dead);
        let (happened, done) = (effects.len() as u64, self.rest.done);
        account.check(happened == done, || format!("{happened} took effect and {done} are finished"));
    }
}

impl Run {
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Printed | Self::Known { act: Act::Done, .. })
    }
}

/// Whether two runs were the same attempt. One that ended with giving the item back does not count. Once a dead letter is retried only
/// its failures tell attempts apart, up to as many as an item knows.
fn is_repeated(runs: &[Run]) -> bool {
    let mut seen = BTreeSet::new();
    runs.iter().any(|run| match *run {
        Run::Known { attempt, failures, act, .. } => {
            act != Act::Release && failures < MAX_FAILURES && !seen.insert((attempt, failures))
        }
        Run::Printed => false,
    })
}
