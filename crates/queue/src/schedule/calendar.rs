//! The times of a schedule's expression. The caller reads expressions; the layer only asks for times.

use std::sync::Arc;

use super::Expression;
use crate::meta::Millis;

/// How many times [`Calendar::count`] walks over at most.
const COUNTED: u64 = 10_000;

/// The nominal times of a schedule: those at which its expression says that it is to fire.
///
/// The times of an expression never change: all calls, of all processes, have to agree. So an expression "every ten minutes" counts from
/// a fixed moment, and not from the start of a process.
pub trait Calendar: Send + Sync {
    /// The first time later than `time`, in milliseconds since 1970; `None` if there is none.
    fn next_after(&self, time: Millis) -> Option<Millis>;

    /// The last time that is not later than `time`, in milliseconds since 1970; `None` if there is none.
    fn last_at_or_before(&self, time: Millis) -> Option<Millis>;

    /// How many times there are from `from` to `to`, both included. It is only recorded.
    ///
    /// This walks over the first 10,000 of them, and then says that there are more. A calendar that can count better may do so.
    fn count(&self, from: Millis, to: Millis) -> TimeCount {
        let mut next = from.checked_sub(1).map_or_else(
            || self.last_at_or_before(0).or_else(|| self.next_after(0)),
            |before| self.next_after(before),
        );
        next = next.filter(|first| *first >= from);
        let mut times = 0;
        while let Some(time) = next.filter(|time| *time <= to) {
            if times == COUNTED {
                return TimeCount { times, is_exact: false };
            }
            times += 1;
            next = self.next_after(time).filter(|later| *later > time);
        }
        TimeCount { times, is_exact: true }
    }
}

/// A number of nominal times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeCount {
    /// How many there are.
    pub times: u64,
    /// `false`: there may be more.
    pub is_exact: bool,
}

/// Reads expressions; `None` for one that it cannot read, such as one of a later version. The schedule of such an expression stays as it
/// is, and does not fire.
pub trait Calendars: Send + Sync {
    /// The calendar of an expression.
    fn calendar(&self, expression: &Expression) -> Option<Arc<dyn Calendar>>;
}

impl<F> Calendars for F
where
    F: Fn(&Expression) -> Option<Arc<dyn Calendar>> + Send + Sync,
{
    fn calendar(&self, expression: &Expression) -> Option<Arc<dyn Calendar>> {
        self(expression)
    }
}

/// The next time, from a calendar that is not trusted to move on.
pub(crate) fn next_after(calendar: &dyn Calendar, time: Millis) -> Option<Millis> {
    calendar.next_after(time).filter(|next| *next > time)
}

/// The last time, from a calendar that is not trusted either.
pub(crate) fn last_at_or_before(calendar: &dyn Calendar, time: Millis) -> Option<Millis> {
    calendar.last_at_or_before(time).filter(|last| *last <= time)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Every so many milliseconds, from 0 on.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Every(pub(crate) Millis);

    impl Calendar for Every {
        fn next_after(&self, time: Millis) -> Option<Millis> {
            (time / self.0).checked_add(1)?.checked_mul(self.0)
        }

        fn last_at_or_before(&self, time: Millis) -> Option<Millis> {
            Some(time / self.0 * self.0)
        }
    }

    #[test]
    fn times_are_counted_with_both_ends_and_up_to_a_bound() {
        let exact = |times| TimeCount { times, is_exact: true };
        assert_eq!(Every(10).count(0, 0), exact(1));
        assert_eq!(Every(10).count(10, 30), exact(3));
        assert_eq!(Every(10).count(11, 19), exact(0));
        assert_eq!(Every(1).count(1, 10_000), exact(10_000));
        assert_eq!(Every(1).count(1, u64::MAX), TimeCount { times: 10_000, is_exact: false });
    }

    #[test]
    fn a_calendar_that_stands_still_has_no_next_time() {
        struct Still;
        impl Calendar for Still {
            fn next_after(&self, time: Millis) -> Option<Millis> {
                Some(time)
            }

            fn last_at_or_before(&self, time: Millis) -> Option<Millis> {
                Some(time + 1)
            }
        }
        assert_eq!((next_after(&Still, 5), last_at_or_before(&Still, 5)), (None, None));
        assert_eq!(Still.count(5, 9), TimeCount { times: 0, is_exact: true });
    }
}
