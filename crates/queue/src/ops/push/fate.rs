//! What becomes of each item of a push, by the unique keys.

use std::collections::{HashMap, HashSet};

use super::entry::Entry;

/// What becomes of an item that is to be pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is added.
    Added,
    /// Nothing: its key is taken.
    Skipped,
    /// The item that has its key gets what it brings.
    Replacing,
    /// A later item of the push replaces it.
    Superseded,
}

/// What becomes of each item of a push.
#[derive(Debug)]
pub(super) enum Fates {
    /// None has a unique key: all are added.
    AllAdded,
    Each(Vec<Fate>),
}

impl Fates {
    /// `is_taken` says whether an item has a key, before the push, and keeps it or is to be replaced.
    pub(super) fn of(entries: &[Entry<'_>], is_taken: impl Fn(&[u8]) -> bool) -> Fates {
        if entries.iter().all(|entry| entry.unique().is_none()) {
            return Fates::AllAdded;
        }
        let replacing = entries.iter().enumerate().filter(|(_, entry)| entry.replaces());
        // Where each key's newest payload is.
        let newest: HashMap<&[u8], usize> =
            replacing.filter_map(|(at, entry)| Some((entry.unique()?, at))).collect();
        let mut added: HashSet<&[u8]> = HashSet::new();
        let fates = entries.iter().enumerate().map(|(at, entry)| {
            let Some(key) = entry.unique() else { return Fate::Added };
            match newest.get(key) {
                Some(newest) if at < *newest && entry.replaces() => Fate::Superseded,
                Some(newest) if at < *newest => Fate::Skipped,
                Some(newest) if at == *newest && is_taken(key) => Fate::Replacing,
                Some(newest) if at > *newest => Fate::Skipped,
                None if is_taken(key) || !added.insert(key) => Fate::Skipped,
                _ => Fate::Added,
            }
        });
        Fates::Each(fates.collect())
    }

    /// Those of the items, in their order; more than there are items.
    pub(super) fn iter(&self) -> impl Iterator<Item = Fate> {
        let each = match self {
            Fates::AllAdded => &[][..],
            Fates::Each(fates) => fates,
        };
        each.iter().copied().chain(std::iter::repeat(Fate::Added))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::new_item::NewItem;

    #[test]
    fn the_newest_of_each_key_is_added_or_replaces() {
        let plain = || NewItem::new("").with_unique("k");
        let items = [plain(), plain().replacing(), NewItem::new(""), plain().replacing(), plain()];
        let of = |items: &[NewItem], taken| {
            let fates = Fates::of(&items.iter().map(Entry::from).collect::<Vec<_>>(), |_| taken);
            fates.iter().take(items.len()).collect::<Vec<_>>()
        };
        use Fate::{Added, Replacing, Skipped, Superseded};
        assert_eq!(of(&items, false), [Skipped, Superseded, Added, Added, Skipped]);
        assert_eq!(of(&items, true), [Skipped, Superseded, Added, Replacing, Skipped]);
        assert_eq!(of(&[NewItem::new(""), NewItem::new("")], false), [Added, Added]);
        assert_eq!(of(&[plain(), plain()], false), [Added, Skipped]);
        assert_eq!(of(&[plain(), plain()], true), [Skipped, Skipped]);
    }
}
