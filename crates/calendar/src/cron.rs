//! A cron expression in a time zone: which instants it means where the zone changes its clocks.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};

use crate::CalendarError;
use crate::expression::Expression;
use crate::zone::{Stretch, Zone};

/// A cron expression in a time zone.
///
/// Each stretch of the zone is searched on its own. An expression that fires in every hour fires at each
/// instant whose local time matches. Any other one fires when the clock on the wall first reaches or
/// passes a matching local time. So it leaves out the local times that the clock has shown before the
/// stretch, and fires at the start of a stretch if the clock has jumped over a matching local time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cron {
    pub(crate) expression: Expression,
    pub(crate) zone: Zone,
}

impl Cron {
    pub(crate) fn parse(expression: &str, zone: &str) -> Result<Cron, CalendarError> {
        Ok(Cron { expression: Expression::parse(expression)?, zone: Zone::get(zone)? })
    }

    /// The first time that is `from` or later. `known` is where the last answer was found; a search that
    /// leaves this stretch puts another one there.
    pub(crate) fn at_or_after(&self, from: Timestamp, known: &mut Option<Stretch>) -> Option<Timestamp> {
        let mut from = from;
        loop {
            let stretch = match *known {
                Some(stretch) if stretch.contains(from) => stretch,
                _ => *known.insert(self.zone.stretch(from)),
            };
            if from == stretch.start && self.has_jumped_over_match(&stretch) {
                return Some(from);
            }
            let local = stretch.local(from).max(self.first_local(&stretch));
            if let Some(instant) = self.expression.at_or_after(local).and_then(|local| stretch.instant(local))
            {
                return Some(instant);
            }
            from = stretch.end?;
        }
    }

    /// The last time that is `until` or earlier. The search ends in 1970; a time shortly before is
    /// possible.
    pub(crate) fn at_or_before(&self, until: Timestamp) -> Option<Timestamp> {
        let mut until = until;
        while until >= Timestamp::UNIX_EPOCH {
            let stretch = self.zone.stretch(until);
            let first = self.first_local(&stretch);
            let local = self.expression.at_or_before(stretch.local(until)).filter(|local| *local >= first);
            if let Some(instant) = local.and_then(|local| stretch.instant(local)) {
                return Some(instant);
            }
            if self.has_jumped_over_match(&stretch) {
                return Some(stretch.start);
            }
            until = stretch.start.checked_sub(SignedDuration::from_secs(1)).ok()?;
        }
        None
    }

    /// The first local time of the stretch that counts.
    fn first_local(&self, stretch: &Stretch) -> DateTime {
        let first = stretch.local(stretch.start);
        if self.expression.is_of_every_hour() { first } else { first.max(stretch.passed) }
    }

    /// Whether the clock jumps over a matching local time at the start of the stretch.
    fn has_jumped_over_match(&self, stretch: &Stretch) -> bool {
        let first = stretch.local(stretch.start);
        !self.expression.is_of_every_hour()
            && self.expression.at_or_after(stretch.passed).is_some_and(|local| local < first)
    }
}
