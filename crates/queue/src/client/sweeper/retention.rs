//! When a sweeper goes through the dead letters of its queue, and how far it is. Pure.

use std::ops::Range;
use std::time::Duration;

use crate::model::time::{Millis, span_millis};
use crate::ops::retention::RetentionPage;

/// The longest time between two passes over the letters of a queue that has some, in milliseconds: an hour. So it is known about when
/// the oldest is removed, also after people have retried or purged some.
const WITH_LETTERS: Millis = 3_600_000;
/// The same for a queue without letters, in milliseconds: a day. One that dies meanwhile is not old by then; one that is imported may be.
const WITHOUT: Millis = 24 * 3_600_000;
/// The shortest time between two passes, in milliseconds.
const SHORTEST: Millis = 1_000;

/// How far a sweeper is with the dead letters of its queue.
#[derive(Debug, Default)]
pub(super) struct DeadLetterPass {
    /// How long letters are kept, by the rules of the pass.
    retention: Duration,
    /// The key at which the pass goes on; `None`: at the first letter.
    next: Option<Vec<u8>>,
    is_under_way: bool,
    /// When the oldest of the letters died that the pass has left.
    oldest: Option<Millis>,
    /// From the end of the last pass until the next one begins. Times before that are of a clock that went back.
    rest: Range<Millis>,
    /// When the oldest letter died, by the last complete pass.
    known: Option<Millis>,
}

impl DeadLetterPass {
    /// Whether there is something to do at `now`; begins a pass if one is due.
    pub(super) fn is_due(&mut self, now: Millis, retention: Duration) -> bool {
        if self.retention != retention {
            *self = DeadLetterPass { retention, ..DeadLetterPass::default() };
        }
        self.is_under_way |= !self.rest.contains(&now);
        self.is_under_way
    }

    /// Where the next page begins, and by when its letters have died that are to be removed.
    pub(super) fn page(&self, now: Millis) -> (Option<&[u8]>, Millis) {
        (self.next.as_deref(), now.saturating_sub(self.millis()))
    }

    /// A page is done at `now`.
    pub(super) fn done(&mut self, page: &RetentionPage, now: Millis) {
        self.oldest = self.oldest.into_iter().chain(page.oldest).min();
        self.next.clone_from(&page.next);
        self.is_under_way = self.next.is_some();
        if !self.is_under_way {
            self.known = self.oldest.take();
            let next = match self.known {
                Some(oldest) => oldest.saturating_add(self.millis()).saturating_sub(now).min(WITH_LETTERS),
                None => self.millis().min(WITHOUT),
            };
            self.rest = now..now.saturating_add(next.max(SHORTEST));
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// When the oldest letter died, by the last complete pass; `None` if there is none, or before the first pass.
    pub(super) fn oldest_known(&self) -> Option<Millis> {
        self.known
    }

    fn millis(&self) -> Millis {
        span_millis(self.retention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Millis = 24 * 3_600_000;
    const KEPT: Duration = Duration::from_hours(30 * 24);
    const NOW: Millis = 100 * DAY;

    fn page(oldest: Option<Millis>, next: Option<&[u8]>) -> RetentionPage {
        RetentionPage { removed: 0, oldest, next: next.map(<[u8]>::to_vec) }
    }

    #[test]
    fn a_pass_goes_from_page_to_page_and_then_rests() {
        let mut pass = DeadLetterPass::default();
        assert!(pass.is_due(NOW, KEPT));
        assert_eq!(pass.page(NOW), (None, 70 * DAY));
        pass.done(&page(Some(90 * DAY), Some(b"b")), NOW);
        assert!(pass.is_under_way());
        assert_eq!((pass.page(NOW + 5), pass.oldest_known()), ((Some(&b"b"[..]), 70 * DAY + 5), None));
        assert!(pass.is_due(NOW + 5, KEPT));
        pass.done(&page(Some(80 * DAY), None), NOW + 5);
        assert_eq!((pass.is_under_way(), pass.oldest_known()), (false, Some(80 * DAY)));
        assert!(!pass.is_due(NOW + 5, KEPT) && !pass.is_due(NOW + WITH_LETTERS, KEPT));
        assert!(pass.is_due(NOW + 5 + WITH_LETTERS, KEPT));
        assert_eq!(pass.page(NOW).0, None);
    }

    #[test]
    fn a_pass_begins_when_the_oldest_letter_is_old() {
        let mut pass = DeadLetterPass::default();
        pass.is_due(NOW, KEPT);
        pass.done(&page(Some(70 * DAY + 60_000), None), NOW);
        assert!(!pass.is_due(NOW + 59_999, KEPT) && pass.is_due(NOW + 60_000, KEPT));
    }

    #[test]
    fn a_queue_without_letters_is_looked_at_once_a_day() {
        let mut pass = DeadLetterPass::default();
        pass.is_due(NOW, KEPT);
        pass.done(&page(None, None), NOW);
        assert!(!pass.is_due(NOW + DAY - 1, KEPT) && pass.is_due(NOW + DAY, KEPT));
        // A shorter retention holds at once, and so does a clock that went back.
        let minute = Duration::from_secs(60);
        assert!(pass.is_due(NOW + 1, minute));
        pass.done(&page(None, None), NOW + 1);
        assert!(!pass.is_due(NOW + 60_000, minute) && pass.is_due(NOW + 60_001, minute));
        pass.done(&page(None, None), NOW + 60_001);
        assert!(pass.is_due(NOW, minute));
    }
}
