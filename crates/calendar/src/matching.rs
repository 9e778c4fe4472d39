//! The nearest local time that an expression matches. No time zone plays a part here.

use jiff::civil::{Date, DateTime, Time};

use crate::expression::{Days, Expression};
use crate::values::Values;

/// How many months are looked at for a day that matches. After 400 years the calendar repeats, with
/// the same weekdays.
const MONTHS_TO_SEARCH: usize = 400 * 12 + 1;

impl Expression {
    /// The first matching time that is `from` or later. None if the calendar of jiff, which ends in
    /// the year 9999, has no such time.
    pub(crate) fn at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let date = self.date_at_or_after(from.date())?;
        if date == from.date() {
            if let Some(time) = self.time_at_or_after(from.time()) {
                return Some(date.to_datetime(time));
            }
            let date = self.date_at_or_after(date.tomorrow().ok()?)?;
            return Some(date.to_datetime(self.time_at_or_after(Time::MIN)?));
        }
        Some(date.to_datetime(self.time_at_or_after(Time::MIN)?))
    }

    /// The last matching time that is `until` or earlier.
    pub(crate) fn at_or_before(&self, until: DateTime) -> Option<DateTime> {
        let date = self.date_at_or_before(until.date())?;
        if date == until.date() {
            if let Some(time) = self.time_at_or_before(until.time()) {
                return Some(date.to_datetime(time));
            }
            let date = self.date_at_or_before(date.yesterday().ok()?)?;
            return Some(date.to_datetime(self.time_at_or_before(Time::MAX)?));
        }
        Some(date.to_datetime(self.time_at_or_before(Time::MAX)?))
    }

    /// Whether there is a day that matches.
    pub(crate) fn matches_a_day(&self) -> bool {
        self.date_at_or_after(Date::constant(1970, 1, 1)).is_some()
    }

    fn time_at_or_after(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) = parts(from);
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.at_or_after(second)
            {
                return time(hour, minute, second);
            }
            if let Some(minute) = self.minutes.at_or_after(minute + 1) {
                return time(hour, minute, self.seconds.at_or_after(0)?);
            }
        }
        time(self.hours.at_or_after(hour + 1)?, self.minutes.at_or_after(0)?, self.seconds.at_or_after(0)?)
    }

    fn time_at_or_before(&self, until: Time) -> Option<Time> {
        let (hour, minute, second) = parts(until);
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.before(second + 1)
            {
                return time(hour, minute, second);
            }
            if let Some(minute) = self.minutes.before(minute) {
                return time(hour, minute, self.seconds.before(60)?);
            }
        }
        time(self.hours.before(hour)?, self.minutes.before(60)?, self.seconds.before(60)?)
    }

    fn date_at_or_after(&self, from: Date) -> Option<Date> {
        let (mut year, mut month, mut day) = (from.year(), from.month(), from.day());
        for _ in 0..MONTHS_TO_SEARCH {
            let days = self.days_of_month(Date::new(year, month, 1).ok()?);
            if let Some(day) = days.at_or_after(day as u8) {
                return Date::new(year, month, day as i8).ok();
            }
            (year, month, day) = if month == 12 { (year + 1, 1, 1) } else { (year, month + 1, 1) };
        }
        None
    }

    fn date_at_or_before(&self, until: Date) -> Option<Date> {
        let (mut year, mut month, mut day) = (until.year(), until.month(), until.day());
        for _ in 0..MONTHS_TO_SEARCH {
            let days = self.days_of_month(Date::new(year, month, 1).ok()?);
            if let Some(day) = days.before(day as u8 + 1) {
                return Date::new(year, month, day as i8).ok();
            }
            (year, month, day) = if month == 1 { (year - 1, 12, 31) } else { (year, month - 1, 31) };
        }
        None
    }

    /// The matching days of the month that begins with `first`.
    fn days_of_month(&self, first: Date) -> Values {
        if self.months.contains(first.month() as u8) { self.days.of_month(first) } else { Values::default() }
    }
}

impl Days {
    fn of_month(&self, first: Date) -> Values {
        let length = first.days_in_month() as u8;
        let all = Values::range(1..=length);
        let mut days = self.days.intersection(all);
        if self.last_day {
            days.insert(length);
        }
        let weekday_of_first = first.weekday().to_sunday_zero_offset() as u8;
        let is_weekday = |day: &u8| self.weekdays.contains((weekday_of_first + day - 1) % 7);
        let weekdays = all.iter().filter(is_weekday).collect();
        if self.both { days.intersection(weekdays) } else { days.union(weekdays) }
    }
}

/// Hour, minute and second.
fn parts(time: Time) -> (u8, u8, u8) {
    (time.hour() as u8, time.minute() as u8, time.second() as u8)
}

fn time(hour: u8, minute: u8, second: u8) -> Option<Time> {
    Time::new(hour as i8, minute as i8, second as i8, 0).ok()
}
