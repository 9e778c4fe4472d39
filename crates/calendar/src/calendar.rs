//! A schedule's times, as its users see them.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::CalendarError;
use crate::cron::Cron;
use crate::describe::describe;
use crate::period::Period;
use crate::zone::Stretch;

/// The nominal times of a schedule.
///
/// All times are milliseconds since 1970 in UTC. Nothing here reads a clock.
///
/// ```
/// use kvqueue_calendar::Calendar;
///
/// let nightly = Calendar::cron("30 2 * * *", "Europe/Berlin")?;
/// let midnight = 1_774_738_800_000; // 2026-03-29 00:00 in Berlin; at 02:00 the clocks go to 03:00.
/// assert_eq!(nightly.next_after(midnight), Some(midnight + 2 * 3_600_000)); // At 03:00.
/// # Ok::<(), kvqueue_calendar::CalendarError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    /// What the user has written.
    text: String,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Cron(Box<Cron>),
    Period(Period),
}

impl Calendar {
    /// The times of a cron expression with five or six fields, or a name such as `@daily`, in a time
    /// zone of the IANA database, such as `Europe/Berlin` or `UTC`.
    ///
    /// # Errors
    /// The error names the field, what is wrong with it, and how to write it. An expression that never
    /// fires is refused, and so is an unknown zone.
    pub fn cron(expression: &str, zone: &str) -> Result<Calendar, CalendarError> {
        let cron = Cron::parse(expression, zone)?;
        Ok(Calendar { text: expression.to_owned(), rule: Rule::Cron(Box::new(cron)) })
    }

    /// The multiples of `period` since 1970-01-01T00:00:00Z.
    ///
    /// # Errors
    /// [`CalendarError::Period`] if the period is less than [`SHORTEST_PERIOD`](crate::SHORTEST_PERIOD),
    /// more than [`LONGEST_PERIOD`](crate::LONGEST_PERIOD), or not in whole milliseconds.
    pub fn every(period: Duration) -> Result<Calendar, CalendarError> {
        Ok(Calendar { text: duration(period), rule: Rule::Period(Period::new(period)?) })
    }

    /// The period, if it is one; none for a cron expression.
    pub fn period(&self) -> Option<Duration> {
        match &self.rule {
            Rule::Cron(_) => None,
            Rule::Period(period) => Some(period.length()),
        }
    }

    /// The name of the time zone as the IANA database writes it. None for a period, which has no zone.
    pub fn zone(&self) -> Option<&str> {
        match &self.rule {
            Rule::Cron(cron) => Some(cron.zone.name()),
            Rule::Period(_) => None,
        }
    }

    /// The first time that is later than `time`. None if there is none before the year 10000.
    pub fn next_after(&self, time: u64) -> Option<u64> {
        self.next(time, &mut None)
    }

    /// The last time that is not later than `time`. None if there is none since 1970.
    ///
    /// A schedule that was not processed for a time finds its newest missed time so, without looking at
    /// those before.
    pub fn last_at_or_before(&self, time: u64) -> Option<u64> {
        match &self.rule {
            Rule::Cron(cron) => {
                let until = timestamp(time / 1_000).unwrap_or(last_second());
                cron.at_or_before(until).and_then(milliseconds)
            }
            Rule::Period(period) => period.last_at_or_before(time),
        }
    }

    /// The times that are later than `after` and not later than `up_to`, in order.
    pub fn times_between(&self, after: u64, up_to: u64) -> Times<'_> {
        Times { calendar: self, after, up_to, stretch: None }
    }

    /// How many times there are from `from` to `to`, both included, and whether that is all. No more than
    /// `most` times of a cron expression are counted, since each is computed; those of a period are not.
    pub fn count(&self, from: u64, to: u64, most: u64) -> TimeCount {
        if let Rule::Period(period) = &self.rule {
            return TimeCount { times: period.count(from, to), is_exact: true };
        }
        let is_time = |time: &u64| self.last_at_or_before(*time) == Some(*time);
        let first = Some(from).filter(|from| from <= &to).filter(is_time);
        let mut times = first.into_iter().chain(self.times_between(from, to)).map(|_| 1);
        let counted = times.by_ref().take(usize::try_from(most).unwrap_or(usize::MAX)).sum();
        TimeCount { times: counted, is_exact: times.next().is_none() }
    }

    /// The schedule in English, such as `at 03:00 every day, Europe/Berlin time`.
    pub fn description(&self) -> String {
        match &self.rule {
            Rule::Cron(cron) if cron.zone.name() == "UTC" => format!("{}, UTC", describe(&cron.expression)),
            Rule::Cron(cron) => format!("{}, {} time", describe(&cron.expression), cron.zone.name()),
            Rule::Period(period) => format!("every {}", duration(period.length())),
        }
    }

    /// As [`next_after`](Calendar::next_after). `stretch` is kept from one call to the next.
    fn next(&self, time: u64, stretch: &mut Option<Stretch>) -> Option<u64> {
        match &self.rule {
            Rule::Cron(cron) => {
                cron.at_or_after(timestamp(time / 1_000 + 1)?, stretch).and_then(milliseconds)
            }
            Rule::Period(period) => period.next_after(time),
        }
    }
}

/// What the user has written: the cron expression, or the period such as `5m`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A number of times ([`Calendar::count`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeCount {
    /// How many were counted.
    pub times: u64,
    /// Whether these are all; otherwise there are more.
    pub is_exact: bool,
}

/// The times of a calendar in a range ([`Calendar::times_between`]).
#[derive(Debug, Clone)]
pub struct Times<'a> {
    calendar: &'a Calendar,
    after: u64,
    up_to: u64,
    /// Where the last time was found. The next one is most often in the same stretch.
    stretch: Option<Stretch>,
}

impl Iterator for Times<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let time = self.calendar.next(self.after, &mut self.stretch).filter(|time| *time <= self.up_to)?;
        self.after = time;
        Some(time)
    }
}

/// The instant of a whole second since 1970, if jiff's calendar has it.
fn timestamp(second: u64) -> Option<Timestamp> {
    Timestamp::from_second(second.try_into().ok()?).ok()
}

/// The last whole second of jiff's calendar.
fn last_second() -> Timestamp {
    Timestamp::from_second(Timestamp::MAX.as_second()).unwrap_or(Timestamp::MAX)
}

/// Milliseconds since 1970. None for an instant before.
fn milliseconds(instant: Timestamp) -> Option<u64> {
    instant.as_millisecond().try_into().ok()
}

/// A duration as the configuration writes it, such as `1h 30m`.
fn duration(duration: Duration) -> String {
    format!("{:#}", SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX))
}
