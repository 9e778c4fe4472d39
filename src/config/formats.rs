//! How values are written: durations such as `"30s"`, rates such as `"100/1m"`, sizes such as `"8MiB"`, whole numbers, and
//! `min-free-space`.
//!
//! For settings of handlers, too: `#[serde(with = "kvqueue::config::duration")]`, and the same with `size`.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Unexpected, Visitor},
};

/// Reads a value from a text. The error is a fragment that shows the accepted form.
type ReadText<T> = fn(&str) -> Result<T, String>;

/// Reads a value from a text, a whole number or either. The error about any other value says what is expected.
struct ScalarVisitor<T> {
    expected: &'static str,
    text: Option<ReadText<T>>,
    number: Option<fn(i64) -> Option<T>>,
}

impl<T> Visitor<'_> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        match self.text {
            Some(read) => read(text).map_err(E::custom),
            None => Err(E::invalid_type(Unexpected::Str(text), &self)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        match self.number {
            Some(read) => read(number).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self)),
            None => Err(E::invalid_type(Unexpected::Signed(number), &self)),
        }
    }

    /// JSON has its positive numbers so.
    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }
}

/// Whole numbers, also negative ones.
pub(crate) mod whole {
    use super::{Deserializer, ScalarVisitor};

    /// Reads a number.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<i64, D::Error> {
        input.deserialize_i64(ScalarVisitor { expected: "a whole number", text: None, number: Some(Some) })
    }
}

/// Whole numbers of 1 or more. Validation refuses 0, with the reason.
pub(crate) mod number {
    use super::{Deserializer, Error, ScalarVisitor};

    /// Reads a number.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>, N: TryFrom<i64>>(input: D) -> Result<N, D::Error> {
        let number = input.deserialize_i64(ScalarVisitor {
            expected: "a whole number of 1 or more",
            text: None,
            number: Some(|number| (number >= 0).then_some(number)),
        })?;
        N::try_from(number).map_err(|_| D::Error::custom(format_args!("{number} is too large")))
    }

    /// A key that is absent takes its default, so a value that is there is a number.
    pub(crate) fn optional<'de, D: Deserializer<'de>, N: TryFrom<i64>>(
        input: D,
    ) -> Result<Option<N>, D::Error> {
        deserialize(input).map(Some)
    }
}

/// Durations as people write them: `"30s"`, `"500ms"`, `"1h 30m"`, `"90d"`. A day has 24 hours.
pub mod duration {
    use std::time::Duration;

    use jiff::{SignedDuration, Span, SpanRelativeTo};

    use super::{Deserializer, ScalarVisitor, Serializer};

    /// Renders `value` the way the configuration reads it back, as in `1m 30s`.
    pub(crate) fn format(value: Duration) -> String {
        let signed = SignedDuration::try_from(value).unwrap_or(SignedDuration::MAX);
        format!("{signed:#}")
    }

    /// Reads a duration; the error is a fragment that shows the accepted form.
    pub(crate) fn parse(text: &str) -> Result<Duration, String> {
        let wrong = || format!("{text:?} is not a duration; write it as in \"30s\" or \"500ms\"");
        let span: Span = text.parse().map_err(|_| wrong())?;
        let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
        Duration::try_from(signed).map_err(|_| format!("{text:?} is negative; a duration starts at \"0s\""))
    }

    /// Writes it as [`deserialize`] reads it.
    pub fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&format(*value))
    }

    /// Reads a duration; the error shows the accepted form.
    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        input.deserialize_str(ScalarVisitor {
            expected: "a duration such as \"30s\"",
            text: Some(parse),
            number: None,
        })
    }

    /// The same for a duration that is written in whole days if it has only such.
    pub(crate) mod days {
        pub(crate) use super::deserialize;
        use super::{Duration, Serializer};

        /// The seconds of a day.
        const DAY: u64 = 24 * 3_600;

        /// Renders `value` in days if it is a whole number of days.
        pub(crate) fn format(value: Duration) -> String {
            let days = value.as_secs() / DAY;
            if days == 0 || value != Duration::from_secs(days * DAY) {
                return super::format(value);
            }
            format!("{days}d")
        }

        /// Writes it as [`deserialize`] reads it.
        pub(crate) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
            out.serialize_str(&format(*value))
        }
    }

    /// The same for a duration that may be absent; the field needs `#[serde(default)]`, too.
    pub mod optional {
        use super::{Deserializer, Duration, Serializer};

        /// Writes the duration, if there is one.
        pub fn serialize<S: Serializer>(value: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
            match value {
                Some(value) => super::serialize(value, out),
                None => out.serialize_none(),
            }
        }

        /// A key that is absent takes its default, so a value that is there is a duration.
        pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
            super::deserialize(input).map(Some)
        }
    }
}

/// How many items start in a time, as people write it: `"100/1m"`. The burst is a number of its own.
pub(crate) mod rate {
    use std::num::NonZeroU32;

    use kvqueue_queue::Rate;

    use super::duration;

    /// Renders `rate` as [`parse`] reads it.
    pub(crate) fn format(rate: &Rate) -> String {
        format!("{}/{}", rate.items(), duration::days::format(rate.per()))
    }

    /// Reads a rate without a burst; the error is a fragment that shows the accepted form.
    pub(crate) fn parse(text: &str) -> Result<Rate, String> {
        let wrong = || format!("{text:?} is not a rate; write items and a time, as in \"100/1m\" or \"5/s\"");
        let (items, per) = text.split_once('/').ok_or_else(wrong)?;
        let items: u32 = items.trim().parse().map_err(|_| wrong())?;
        let items = NonZeroU32::new(items);
        let items = items.ok_or_else(|| format!("{text:?} is a rate of 0 items; it has to be 1 or more"))?;
        // A unit alone is one of it, as in 10/s.
        let per = per.trim();
        let is_unit = per.starts_with(|first: char| first.is_ascii_alphabetic());
        let time = if is_unit { format!("1{per}") } else { per.to_owned() };
        let per = duration::parse(&time).map_err(|_| wrong())?;
        Rate::new(items, per).map_err(|problem| format!("{text:?} is not possible: {problem}"))
    }

    /// A rate that may be absent, as a text of JSON.
    #[cfg(feature = "http")]
    pub(crate) mod optional {
        use serde::{Deserialize, Deserializer, Serializer, de::Error};

        use super::{Rate, format, parse};

        pub(crate) fn serialize<S: Serializer>(rate: &Option<Rate>, out: S) -> Result<S::Ok, S::Error> {
            match rate {
                Some(rate) => out.serialize_str(&format(rate)),
                None => out.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Rate>, D::Error> {
            let text = Option::<String>::deserialize(input)?;
            text.map(|text| parse(&text))
                .transpose()
                .map_err(|problem| D::Error::custom(format!("rate: {problem}")))
        }
    }

    /// A rate and its burst. A burst belongs to a rate.
    pub(crate) fn with_burst(
        rate: Option<Rate>,
        burst: Option<NonZeroU32>,
    ) -> Result<Option<Rate>, &'static str> {
        match (rate, burst) {
            (Some(rate), Some(burst)) => Ok(Some(rate.with_burst(burst))),
            (None, Some(_)) => Err("burst is a part of a rate, and there is none"),
            (rate, None) => Ok(rate),
        }
    }
}

/// Sizes in bytes as people write them: `"8MiB"`, `"64kB"`, `"100 B"`.
pub mod size {
    use bytesize::ByteSize;

    use super::{Deserializer, ScalarVisitor, Serializer};

    /// The units in which a size is written, largest first.
    const UNITS: [(u64, &str); 6] = [
        (1 << 30, "GiB"),
        (1_000_000_000, "GB"),
        (1 << 20, "MiB"),
        (1_000_000, "MB"),
        (1 << 10, "KiB"),
        (1_000, "kB"),
    ];

    /// Renders `bytes` the way the configuration reads it back, in the largest unit that divides it.
    pub(crate) fn format(bytes: u64) -> String {
        match UNITS.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit)) {
            Some((unit, name)) => format!("{}{name}", bytes / unit),
            None => format!("{bytes}B"),
        }
    }

    /// Reads a size; the error is a fragment that shows the accepted form.
    pub(crate) fn parse(text: &str) -> Result<u64, String> {
        let wrong = || format!("{text:?} is not a size; write it as in \"8MiB\" or \"64kB\"");
        // A number without a unit is ambiguous, as it is for a duration.
        if text.ends_with(|last: char| last.is_ascii_digit()) {
            return Err(wrong());
        }
        text.parse::<ByteSize>().map(|size| size.as_u64()).map_err(|_| wrong())
    }

    /// Writes it as [`deserialize`] reads it.
    pub fn serialize<S: Serializer>(bytes: &u64, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&format(*bytes))
    }

    /// Reads a size; the error shows the accepted form.
    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
        input.deserialize_str(ScalarVisitor {
            expected: "a size such as \"8MiB\"",
            text: Some(parse),
            number: None,
        })
    }

    /// The same for a size that may be absent; the field needs `#[serde(default)]`, too.
    pub mod optional {
        use super::{Deserializer, Serializer};

        /// Writes the size, if there is one.
        pub fn serialize<S: Serializer>(value: &Option<u64>, out: S) -> Result<S::Ok, S::Error> {
            match value {
                Some(value) => super::serialize(value, out),
                None => out.serialize_none(),
            }
        }

        /// A key that is absent takes its default, so a value that is there is a size.
        pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
            super::deserialize(input).map(Some)
        }
    }
}

/// The word for the limit that the directory already has.
const AUTO: &str = "auto";

/// How much of the file system of an embedded database must stay free, so that pushes are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinFreeSpace {
    /// The limit in the directory. Without one: 1 GiB, or 5 % of the file system if that is less.
    #[default]
    Auto,
    /// In bytes, to be written into the directory; 0 switches the limit off.
    Bytes(u64),
}

impl Serialize for MinFreeSpace {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => out.serialize_str(AUTO),
            Self::Bytes(bytes) => size::serialize(bytes, out),
        }
    }
}

impl<'de> Deserialize<'de> for MinFreeSpace {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(ScalarVisitor {
            expected: "a size such as \"1GiB\", 0 for no limit, or \"auto\"",
            text: Some(|text| match text {
                AUTO => Ok(Self::Auto),
                // An environment variable has no numbers.
                "0" => Ok(Self::Bytes(0)),
                size => size::parse(size).map(Self::Bytes),
            }),
            number: Some(|number| (number == 0).then_some(Self::Bytes(0))),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use super::*;
    use crate::config::Config;

    #[test]
    fn durations_round_trip() {
        for millis in [0, 1, 500, 1_000, 30_000, 90_000, 3_600_000, 5_400_500] {
            let value = Duration::from_millis(millis);
            assert_eq!(duration::parse(&duration::format(value)), Ok(value), "{millis} ms");
        }
        assert_eq!(duration::format(Duration::from_secs(30)), "30s");
        for text in ["90d", "1d", "23h", "25h"] {
            let value = duration::parse(text).unwrap();
            assert_eq!(duration::days::serialize(&value, serde_json::value::Serializer).unwrap(), text);
        }
        assert_eq!(duration::parse("2w 1d"), Ok(Duration::from_hours(15 * 24)));
    }

    #[test]
    fn a_bare_number_or_a_negative_duration_is_refused_with_the_form_to_use() {
        let refused = |text| duration::parse(text).unwrap_err();
        assert_eq!(refused("30"), "\"30\" is not a duration; write it as in \"30s\" or \"500ms\"");
        assert_eq!(refused("-1s"), "\"-1s\" is negative; a duration starts at \"0s\"");
    }

    #[test]
    fn rates_round_trip_and_wrong_ones_are_refused_with_the_reason() {
        for text in ["100/1m", "1/1h", "4294967295/1ms", "5/1d", "7/1m 30s", "1/365d"] {
            assert_eq!(rate::format(&rate::parse(text).unwrap()), text);
        }
        for (text, shown) in
            [("5 / 60s", "5/1m"), ("10/s", "10/1s"), ("10/sec", "10/1s"), ("10/m", "10/1m"), ("9/d", "9/1d")]
        {
            assert_eq!(rate::format(&rate::parse(text).unwrap()), shown, "{text}");
        }
        let refused = |text| rate::parse(text).unwrap_err();
        for text in ["100", "", "/1m", "1.5/1m", "-1/1m", "4294967296/1m", "5/x", "5/60", "5/"] {
            let wanted =
                format!("{text:?} is not a rate; write items and a time, as in \"100/1m\" or \"5/s\"");
            assert_eq!(refused(text), wanted);
        }
        insta::assert_snapshot!(refused("0/1m"), @r#""0/1m" is a rate of 0 items; it has to be 1 or more"#);
        insta::assert_snapshot!(refused("5/366d"), @r#""5/366d" is not possible: a rate is for a time from 1 ms to 365 days; choose one within that"#);
        assert!(rate::with_burst(None, NonZeroU32::new(1)).is_err());
    }

    #[test]
    fn sizes_round_trip() {
        for bytes in [0, 1, 1000, 1024, 1536, 100_000, 9_000_000, 8 << 20, 3 << 30] {
            assert_eq!(size::parse(&size::format(bytes)), Ok(bytes), "{bytes} bytes");
        }
        assert_eq!(size::format(8 << 20), "8MiB");
        assert_eq!(size::format(100_000), "100kB");
        assert_eq!(size::format(100_001), "100001B");
    }

    #[test]
    fn decimal_and_binary_units_differ() {
        assert_eq!(size::parse("64kB"), Ok(64_000));
        assert_eq!(size::parse("64 KiB"), Ok(65_536));
        assert_eq!(size::parse("1.5MiB"), Ok(3 << 19));
    }

    #[test]
    fn a_bare_or_negative_size_is_refused_with_the_form_to_use() {
        for text in ["100", "", "-1B", "8 miles"] {
            assert_eq!(
                size::parse(text).unwrap_err(),
                format!("{text:?} is not a size; write it as in \"8MiB\" or \"64kB\"")
            );
        }
    }

    fn problem(setting: &str) -> String {
        toml::from_str::<Config>(setting).unwrap_err().message().to_owned()
    }

    #[test]
    fn a_value_of_another_type_is_refused_with_what_is_expected() {
        insta::assert_snapshot!(problem("shutdown-timeout = 30"), @r#"invalid type: integer `30`, expected a duration such as "30s""#);
        insta::assert_snapshot!(problem("http.max-body = true"), @r#"invalid type: boolean `true`, expected a size such as "8MiB""#);
        insta::assert_snapshot!(problem("http.max-connections = 'many'"), @r#"invalid type: string "many", expected a whole number of 1 or more"#);
        insta::assert_snapshot!(problem("http.max-connections = -1"), @"invalid value: integer `-1`, expected a whole number of 1 or more");
        insta::assert_snapshot!(problem("[queues.q]\nhandler = 'log'\nretry.max-attempts = 5_000_000_000"), @"5000000000 is too large");
    }

    #[test]
    fn min_free_space_is_auto_or_a_size() {
        let read = |value: &str| {
            toml::from_str::<Config>(&format!("min-free-space = {value}")).unwrap().min_free_space
        };
        for (value, limit) in [
            ("'auto'", MinFreeSpace::Auto),
            ("0", MinFreeSpace::Bytes(0)),
            ("'0'", MinFreeSpace::Bytes(0)),
            ("'0B'", MinFreeSpace::Bytes(0)),
            ("'512MiB'", MinFreeSpace::Bytes(512 << 20)),
        ] {
            assert_eq!(read(value), limit, "{value}");
            let written = toml::Value::try_from(limit).unwrap().to_string();
            assert_eq!(read(&written), limit, "{written}");
        }
        insta::assert_snapshot!(problem("min-free-space = 512"), @r#"invalid value: integer `512`, expected a size such as "1GiB", 0 for no limit, or "auto""#);
        insta::assert_snapshot!(problem("min-free-space = '512'"), @r#""512" is not a size; write it as in "8MiB" or "64kB""#);
    }
}
