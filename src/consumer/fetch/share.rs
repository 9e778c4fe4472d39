//! Who gets which of the items taken. Pure.

use std::ops::Range;

/// Shares out `items` items in their order: each, in the order of asking, gets as many as it asked for, until there are none. As
/// many shares as get something.
pub(super) fn out(items: usize, asked: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut next = 0_usize;
    let mut share = |k: usize| {
        let share = next..items.min(next.saturating_add(k));
        next = share.end;
        (!share.is_empty()).then_some(share)
    };
    asked.into_iter().map_while(&mut share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_get_theirs_and_the_last_what_is_left() {
        assert_eq!(out(6, [2, 3, 4, 1]), [0..2, 2..5, 5..6]);
        assert_eq!(out(5, [2, 3, 4]), [0..2, 2..5]);
        assert!(out(0, [2]).is_empty());
    }

    #[test]
    fn nobody_gets_more_than_it_asked_for() {
        assert_eq!(out(9, [2, 3]), [0..2, 2..5]);
    }
}
