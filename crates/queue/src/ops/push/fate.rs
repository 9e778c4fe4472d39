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

/// `is_taken` says whether an item has a key, before the push, and keeps it or is to be replaced.
pub(super) fn of_all(entries: &[Entry<'_>], is_taken: impl Fn(&[u8]) -> bool) -> Vec<Fate> {
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
    fates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::new_item::NewItem;

    #[test]
    fn the_newest_of_each_key_is_added_or_replaces() {
        let plain = || NewItem::new("").with_unique("k");
        let items = [plain(), plain().replacing(), NewItem::new(""), plain().replacing(), plain()];
        let of =
            |items: &[NewItem], taken| of_all(&items.iter().map(Entry::from).collect::<Vec<_>>(), |_| taken);
        use Fate::{Added, Replacing, Skipped, Superseded};
        assert_eq!(of(&items, false), [Skipped, Superseded, Added, Added, Skipped]);
        assert_eq!(of(&items, true), [Skipped, Superseded, Added, Replacing, Skipped]);
        assert_eq!(of(&[plain(), plain()], false), [Added, Skipped]);
        assert_eq!(of(&[plain(), plain()], true), [Skipped, Skipped]);
    }
}
