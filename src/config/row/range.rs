//! The values that a setting may have.

use std::{fmt, time::Duration};

use crate::config::{duration, size};

/// The longest durations but for retentions.
pub(in crate::config) const YEAR: Duration = Duration::from_hours(365 * 24);

/// Why no duration is longer.
pub(in crate::config) const LONGER_THAN_A_YEAR: &str = "that is longer than a year";

/// The longest retentions.
pub(in crate::config) const TEN_YEARS: Duration = Duration::from_hours(3_650 * 24);

/// Why no retention is longer.
pub(in crate::config) const LONGER_THAN_TEN_YEARS: &str = "that is longer than ten years";

/// The shortest time that is not none.
pub(in crate::config) const SHORTEST: Duration = Duration::from_millis(1);

/// A value at the end of a range.
#[derive(Clone, Copy)]
pub(in crate::config) enum Bound {
    Time(Duration),
    /// In bytes.
    Size(u64),
    Count(u64),
}

/// From the least to the largest value, each with the reason why others are refused.
#[derive(Clone, Copy)]
pub(in crate::config) struct Range {
    pub(super) least: Option<(Bound, &'static str)>,
    pub(super) most: Option<(Bound, &'static str)>,
    /// What zero means, where it is a value of its own.
    pub(super) zero: Option<&'static str>,
}

/// Why a value is refused, and what to do.
pub(in crate::config) struct OutOfRange {
    pub(super) problem: &'static str,
    pub(super) fix: String,
}

impl Range {
    pub(super) const ALL: Self = Self { least: None, most: None, zero: None };

    /// Refuses a value, as the configuration is written.
    pub(super) fn check(&self, value: &toml::Value) -> Result<(), OutOfRange> {
        let is_below = |least: &Bound| least.read(value) < least.amount();
        let is_above = |most: &Bound| most.read(value) > most.amount();
        let end = self.least.or(self.most);
        let has_meaning = self.zero.is_some() && end.is_some_and(|(end, _)| end.read(value) == 0);
        let zero =
            self.zero.zip(end).map(|(meaning, (end, _))| format!(", or to {}, which {meaning}", end.zero()));
        let wrong = |problem, bound, word| {
            let zero = zero.unwrap_or_default();
            Err(OutOfRange { problem, fix: format!("set it to {bound} or {word}{zero}") })
        };
        match (self.least, self.most) {
            (Some((least, problem)), _) if !has_meaning && is_below(&least) => wrong(problem, least, "more"),
            (_, Some((most, problem))) if is_above(&most) => wrong(problem, most, "less"),
            _ => Ok(()),
        }
    }
}

impl Bound {
    /// In nanoseconds, bytes or ones.
    const fn amount(self) -> u128 {
        match self {
            Self::Time(time) => time.as_nanos(),
            Self::Size(number) | Self::Count(number) => number as u128,
        }
    }

    /// The amount of a value of the same kind. What is too large to be read is larger than any bound.
    fn read(self, value: &toml::Value) -> u128 {
        let text = value.as_str().unwrap_or_default();
        let amount = match self {
            Self::Time(_) => duration::parse(text).ok().map(|time| time.as_nanos()),
            Self::Size(_) => size::parse(text).ok().map(u128::from),
            Self::Count(_) => value.as_integer().and_then(|number| number.try_into().ok()),
        };
        amount.unwrap_or(u128::MAX)
    }

    fn zero(self) -> Self {
        match self {
            Self::Time(_) => Self::Time(Duration::ZERO),
            Self::Size(_) => Self::Size(0),
            Self::Count(_) => Self::Count(0),
        }
    }
}

/// As the configuration is written.
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // 24 hours are a length, and more are a number of days.
            Self::Time(time) if *time > Duration::from_hours(24) => {
                write!(f, "{:?}", duration::days::format(*time))
            }
            Self::Time(time) => write!(f, "{:?}", duration::format(*time)),
            Self::Size(bytes) => write!(f, "{:?}", size::format(*bytes)),
            Self::Count(number) => number.fmt(f),
        }
    }
}

/// As the documents name it, after the meaning of the setting; nothing for a range without ends.
#[cfg(test)]
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (Some((least, _)), Some((most, _))) => write!(f, "From `{least}` to `{most}`")?,
            (Some((least, _)), None) => write!(f, "At least `{least}`")?,
            (None, Some((most, _))) => write!(f, "At most `{most}`")?,
            (None, None) => return Ok(()),
        }
        let end = self.least.or(self.most);
        self.zero.zip(end).map_or(Ok(()), |(meaning, (end, _))| write!(f, "; `{}` {meaning}", end.zero()))
    }
}
