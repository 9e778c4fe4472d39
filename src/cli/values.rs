//! How the values of options are read: numbers of items, and times.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    num::NonZeroUsize,
    os::unix::ffi::OsStringExt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::{Timestamp, civil::Date, fmt::temporal::Pieces, tz::TimeZone};
use kvqueue_queue::from_millis;

use super::UsageError;
use crate::{
    base::times::{after, of_timestamp},
    config::duration,
    operations::{names::fields, times::LONGEST},
};

/// Reads a number of items, 1 or more.
pub(super) fn items(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "write a whole number of 1 or more".to_owned())
}

/// The last time that can be written as a text. Behind it are the times that some time zone has in the year 10000.
const LAST_STAMP: &str = "9999-12-30T22:00:00Z";

/// The end of the year 9999, in milliseconds since 1970. A later time is probably one in milliseconds.
const LAST: u64 = 253_402_300_799_999;

/// When an item is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    After(Duration),
    At(SystemTime),
}

impl When {
    /// The time; `None` if it has come.
    pub(super) fn due(self, now: SystemTime) -> Option<SystemTime> {
        let due = self.time(now);
        (due > now).then_some(due)
    }

    /// The time, also if it has come.
    pub(super) fn time(self, now: SystemTime) -> SystemTime {
        match self {
            Self::After(delay) => after(now, delay),
            Self::At(due) => due,
        }
    }
}

/// Reads a delay, as in `5s`.
pub(super) fn delay(text: &str) -> Result<When, String> {
    of_ten_years(text).map(When::After)
}

/// Reads a time that is not longer than an item may wait.
fn of_ten_years(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    match time > Duration::from_millis(LONGEST) {
        true => Err("that is more than ten years; write a shorter time".to_owned()),
        false => Ok(time),
    }
}

/// Reads how long a unique key is taken.
pub(super) fn unique_for(text: &str) -> Result<Duration, String> {
    match of_ten_years(text)? {
        Duration::ZERO => Err("the key would be free at once; write a time such as 30s".to_owned()),
        time => Ok(time),
    }
}

/// Reads how long an item may wait for its first attempt.
pub(super) fn ttl(text: &str) -> Result<Duration, String> {
    match of_ten_years(text)? {
        Duration::ZERO => Err("every item would expire at once; write a time such as 30s".to_owned()),
        ttl => Ok(ttl),
    }
}

/// Reads a time: RFC 3339, a date, which begins in UTC, or seconds since 1970.
pub(super) fn at(text: &str) -> Result<When, String> {
    let seconds = text.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1_000));
    if seconds.is_some_and(|millis| millis > LAST) {
        return Err(format!("{text:?} is after the year 9999; write seconds since 1970, not milliseconds"));
    }
    let day = || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok().map(|day| day.timestamp());
    let is_day = text.len() == "2030-01-31".len();
    let stamp = || text.parse::<Timestamp>().ok().or_else(|| day().filter(|_| is_day));
    let is_last_year =
        |pieces: Pieces<'_>| pieces.date().year() == 9999 && pieces.to_numeric_offset().is_some();
    if stamp().is_none() && Pieces::parse(text).is_ok_and(is_last_year) {
        return Err(format!(
            "{text:?} is after the last possible time, {}; write an earlier one",
            LAST_STAMP
        ));
    }
    let wrong = "write it as in \"2030-01-31T08:00:00Z\", or in seconds since 1970";
    let time = || stamp().map(|time| of_timestamp(time).unwrap_or(UNIX_EPOCH));
    seconds
        .map(from_millis)
        .or_else(time)
        .map(When::At)
        .ok_or_else(|| format!("{text:?} is not a time; {wrong}"))
}

/// Reads an attribute: its name and value.
pub(super) fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not an attribute; write it as in \"customer=ann\"")),
    }
}

/// The attributes of an item.
///
/// # Errors
/// Two have the same name.
pub(super) fn attributes(given: Vec<(String, String)>) -> Result<BTreeMap<String, String>, UsageError> {
    let mut attributes = BTreeMap::new();
    for (name, value) in given {
        if attributes.insert(name.clone(), value).is_some() {
            let problem = "is given twice; an item has one value of each attribute";
            return Err(UsageError(format!("--attr {name}=... {problem}")));
        }
    }
    Ok(attributes)
}

/// The two fields of bytes: a text, or base 64.
pub(super) fn texts(bytes: Option<OsString>) -> (Option<String>, Option<String>) {
    bytes.map(|bytes| fields(&bytes.into_vec())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_items_below_one_is_refused() {
        assert_eq!(items("7").map(usize::from), Ok(7));
        for wrong in ["0", "-1", "", "many", "1.5", "99999999999999999999999"] {
            assert_eq!(items(wrong).unwrap_err(), "write a whole number of 1 or more", "{wrong}");
        }
    }

    #[test]
    fn times_are_read_in_both_forms() {
        assert_eq!(at("1700000000"), Ok(When::At(from_millis(1_700_000_000_000))));
        assert_eq!(at("2023-11-14T22:13:20Z"), Ok(When::At(from_millis(1_700_000_000_000))));
        assert_eq!(at("2023-11-14T23:13:20.5+01:00"), Ok(When::At(from_millis(1_700_000_000_500))));
        assert_eq!(at("1969-01-01T00:00:00Z"), Ok(When::At(from_millis(0))));
        assert_eq!(at("2023-11-14"), Ok(When::At(from_millis(1_699_920_000_000))));
        assert_eq!(at(LAST_STAMP), Ok(When::At(from_millis(253_402_207_200_000))));
        for late in ["9999-12-31T23:59:59Z", "9999-12-30T22:00:01Z", "9999-12-31T00:00:00-05:00"] {
            assert!(at(late).unwrap_err().contains("is after the last possible time"), "{late}");
        }
        for wrong in [
            "9999-12-31T23:59:59",
            "9999-12-32T00:00:00Z",
            "",
            "tomorrow",
            "-5",
            "2023-11-32",
            "20231114T",
            "2023-11-14T22:13:20",
            "99999999999999999999",
        ] {
            assert!(at(wrong).unwrap_err().ends_with("in seconds since 1970"), "{wrong}");
        }
    }

    #[test]
    fn milliseconds_are_not_taken_for_seconds() {
        assert_eq!(at("253402300799"), Ok(When::At(from_millis(LAST - 999))));
        assert!(at("1700000000000").unwrap_err().ends_with("write seconds since 1970, not milliseconds"));
    }

    #[test]
    fn an_item_due_in_the_past_is_ready_at_once() {
        assert_eq!(When::At(from_millis(7)).due(from_millis(7)), None);
        assert_eq!(When::At(from_millis(8)).due(from_millis(7)), Some(from_millis(8)));
        assert_eq!(delay("0s").unwrap().due(from_millis(7)), None);
        assert_eq!(delay("1m 5s").unwrap().due(from_millis(7)), Some(from_millis(65_007)));
        assert_eq!(When::After(Duration::MAX).due(from_millis(7)), Some(from_millis(u64::MAX)));
    }
}
