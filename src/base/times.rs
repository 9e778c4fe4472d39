//! Points in time: sums, and how texts and JSON have them.
//!
//! All of them are whole milliseconds, as the records of queues have them. A sum beyond the times that a record can have is the nearest of these.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use kvqueue_queue::{from_millis, millis};

/// A span in milliseconds, rounded down; the most that 64 bits can have, if it is longer.
pub(crate) fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The time that is so much later than another one.
pub(crate) fn after(time: SystemTime, span: Duration) -> SystemTime {
    from_millis(millis(time).saturating_add(whole_millis(span)))
}

/// The time that is so much earlier than another one; the start of 1970, if that is later.
pub(crate) fn before(time: SystemTime, span: Duration) -> SystemTime {
    from_millis(millis(time).saturating_sub(whole_millis(span)))
}

/// The last time before another one.
pub(crate) fn just_before(time: SystemTime) -> SystemTime {
    before(time, Duration::from_millis(1))
}

/// How much later than `from` a time is; nothing, if it is not.
pub(crate) fn between(from: SystemTime, to: SystemTime) -> Duration {
    Duration::from_millis(millis(to).saturating_sub(millis(from)))
}

/// A time without its fraction of a second.
pub(crate) fn whole_seconds(time: SystemTime) -> SystemTime {
    from_millis(millis(time) / 1_000 * 1_000)
}

/// A time of the calendar; `None` if it is beyond the year 9999.
pub(crate) fn timestamp(time: SystemTime) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(millis(time)).ok()?).ok()
}

/// The time that a calendar has; `None` if that is before 1970.
pub(crate) fn of_timestamp(time: Timestamp) -> Option<SystemTime> {
    u64::try_from(time.as_millisecond()).ok().map(from_millis)
}

/// Reads a time in RFC 3339; `None` if it is none, or before 1970.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    of_timestamp(text.parse().ok()?)
}

/// Reads a time as [`json::time`](super::json::time) writes it; `None` if it is none.
pub(crate) fn parse_written(text: &str) -> Option<SystemTime> {
    text.parse().ok().map(from_millis).or_else(|| parse(text))
}

/// Times in JSON that are numbers: milliseconds since 1970. For `#[serde(with = ...)]`.
pub(crate) mod unix_millis {
    use std::time::SystemTime;

    use kvqueue_queue::{from_millis, millis};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        millis(*time).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        u64::deserialize(from).map(from_millis)
    }

    /// The same for a time that may be absent.
    pub(crate) mod optional {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(time: &Option<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
            time.map(millis).serialize(to)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<SystemTime>, D::Error> {
            Ok(Option::<u64>::deserialize(from)?.map(from_millis))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn sums_end_at_the_times_that_a_record_can_have() {
        let at = from_millis(7);
        assert_eq!(after(at, Duration::from_micros(1_999)), from_millis(8));
        assert_eq!(after(at, Duration::MAX), from_millis(u64::MAX));
        assert_eq!(before(at, Duration::from_micros(1_999)), from_millis(6));
        assert_eq!(before(at, Duration::MAX), UNIX_EPOCH);
        assert_eq!((just_before(at), just_before(UNIX_EPOCH)), (from_millis(6), UNIX_EPOCH));
        assert_eq!(between(at, from_millis(9)), Duration::from_millis(2));
        assert_eq!(between(from_millis(9), at), Duration::ZERO);
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for at in [0, 1_700_000_000_500, u64::MAX].map(from_millis) {
            assert_eq!(parse_written(&crate::base::json::time(at)), Some(at));
        }
        assert_eq!(parse("2023-11-14T22:13:20.5Z"), Some(from_millis(1_700_000_000_500)));
        for wrong in ["", "7", "tomorrow", "1969-12-31T23:59:59Z"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_in_json_are_numbers_of_milliseconds() {
        #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        struct Times {
            #[serde(with = "unix_millis")]
            at: SystemTime,
            #[serde(default, skip_serializing_if = "Option::is_none", with = "unix_millis::optional")]
            until: Option<SystemTime>,
        }
        for (times, text) in [
            (Times { at: from_millis(7), until: None }, r#"{"at":7}"#),
            (Times { at: from_millis(7), until: Some(from_millis(8)) }, r#"{"at":7,"until":8}"#),
        ] {
            assert_eq!(serde_json::to_string(&times).unwrap(), text);
            assert_eq!(serde_json::from_str::<Times>(text).unwrap(), times);
        }
    }
}
