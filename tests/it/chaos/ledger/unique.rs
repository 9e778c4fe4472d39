//! Unique keys that are taken for a time, and pushes that replace. Their queues have effects, so the books know how each item ended.

use std::collections::{BTreeMap, BTreeSet};

use super::{Account, Books, Run, Sorted};
use crate::chaos::{errand::Way, payload::Name, producers::Pushed, records::Act};

impl Pushed {
    /// The only item.
    fn name(&self) -> Name {
        self.errand.names().next().unwrap()
    }

    /// Whether it was over before another one began.
    fn is_before(&self, other: &Self) -> bool {
        self.ended < other.began
    }
}

impl Books {
    /// Items that came out, but had not ended when they were replaced.
    pub(super) fn replaced(&self, sorted: &Sorted) -> BTreeSet<Name> {
        let pushed = self.pushed.iter().filter(|pushed| pushed.errand.way == Way::Replace).map(Pushed::name);
        pushed.filter(|name| sorted.out.contains(name) && !sorted.has_ended(self, name)).collect()
    }

    pub(super) fn check_unique(&self, sorted: &Sorted, account: &mut Account) {
        for pushed in self.of_each_key(Way::Replace).values() {
            self.check_replaced(pushed, sorted, account);
        }
        for pushed in self.of_each_key(Way::UniqueFor).values() {
            self.check_taken(pushed, sorted, account);
        }
    }

    fn of_each_key(&self, way: Way) -> BTreeMap<&str, Vec<&Pushed>> {
        let mut keys: BTreeMap<&str, Vec<&Pushed>> = BTreeMap::new();
        for pushed in self.pushed.iter().filter(|pushed| pushed.errand.way == way && pushed.attempted > 0) {
            keys.entry(&pushed.errand.key).or_default().push(pushed);
        }
        keys
    }

    /// Each push adds a payload, and one that replaces takes another one away, which does not come out; the newest does.
    fn check_replaced(&self, pushed: &[&Pushed], sorted: &Sorted, account: &mut Account) {
        let has_ended = |pushed: &&&Pushed| sorted.has_ended(self, &pushed.name());
        let ended = pushed.iter().filter(has_ended).count();
        let added = pushed.iter().filter(|it| it.acknowledged > 0 && !it.replaced).count();
        let unknown = pushed.iter().filter(|it| it.acknowledged == 0).count();
        account.check((added..=added + unknown).contains(&ended), || {
            format!(
                "{ended} came out, where {added} to {} were pushed that replaced none: {pushed:?}",
                added + unknown
            )
        });
        for it in pushed.iter().filter(|it| it.acknowledged > 0) {
            let others = || pushed.iter().filter(|other| other.name() != it.name());
            if others().all(|other| other.is_before(it)) {
                account.check(has_ended(&it), || {
                    format!("is the newest of its key, and did not come out: {it:?}")
                });
            }
            // If it came next after another, it has replaced that one's payload.
            let before = others().filter(|other| other.is_before(it)).max_by_key(|other| other.ended);
            if let Some(before) = before.filter(|before| it.replaced && before.acknowledged > 0)
                && others().all(|other| {
                    other.name() == before.name() || other.is_before(before) || it.is_before(other)
                })
            {
                let is_gone = !has_ended(&before);
                account.check(is_gone, || format!("was replaced, and came out: {before:?}, by {it:?}"));
            }
        }
        account.replaced += pushed.iter().filter(|it| it.replaced).count();
    }

    /// While the key is taken, another push is refused. A dead letter frees its key, and a cancelled item may.
    fn check_taken(&self, pushed: &[&Pushed], sorted: &Sorted, account: &mut Account) {
        for holder in
            pushed.iter().filter(|it| it.acknowledged > 0 && sorted.is_simply_done(self, &it.name()))
        {
            let within =
                |it: &&&Pushed| holder.is_before(it) && it.ended < holder.began + holder.errand.taken_ms;
            let more: Vec<_> = pushed.iter().filter(within).filter(|it| it.acknowledged > 0).collect();
            account.check(more.is_empty(), || format!("were pushed while {holder:?} had the key: {more:?}"));
        }
        for it in pushed.iter().filter(|it| it.refused) {
            let has_cause = pushed.iter().any(|other| other.name() != it.name() && other.began <= it.ended);
            account.check(has_cause, || format!("was refused though no other was pushed: {it:?}"));
        }
    }
}

impl Sorted {
    /// Whether an item of a queue with effects has ended as itself: it was not replaced.
    pub(super) fn has_ended(&self, books: &Books, name: &Name) -> bool {
        books.rest.effects.contains_key(name)
            || self.letters.contains(name)
            || self.cancelled.contains_key(name)
            || self.unclear.contains(name)
    }

    /// Whether an item took effect and was never a dead letter.
    fn is_simply_done(&self, books: &Books, name: &Name) -> bool {
        let mut runs = self.runs.get(name).into_iter().flatten();
        let was_done = runs.all(|run| matches!(run, Run::Known { act: Act::Done | Act::Release, .. }));
        was_done && books.rest.effects.contains_key(name)
    }
}
