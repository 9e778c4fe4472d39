//! Durations as people write them: `"30s"`, `"500ms"`, `"1h 30m"`.
//!
//! For settings of handlers, too: `#[serde(with = "kvqueue::config::duration")]`.

use std::{fmt, time::Duration};

use jiff::SignedDuration;
use serde::{
    Deserializer, Serializer,
    de::{Error, Visitor},
};

/// Renders `value` the way the configuration reads it back, as in `1m 30s`.
pub(crate) fn format(value: Duration) -> String {
    let signed = SignedDuration::try_from(value).unwrap_or(SignedDuration::MAX);
    format!("{signed:#}")
}

/// Reads a duration; the error is a fragment that shows the accepted form.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration = text
        .parse()
        .map_err(|_| format!("{text:?} is not a duration; write it as in \"30s\" or \"500ms\""))?;
    Duration::try_from(signed).map_err(|_| format!("{text:?} is negative; a duration starts at \"0s\""))
}

/// Writes it as [`deserialize`] reads it.
pub fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&format(*value))
}

/// Reads a duration; the error shows the accepted form.
pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    input.deserialize_str(Text)
}

/// Says what is wanted when something else than a text is found.
struct Text;

impl Visitor<'_> for Text {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"30s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        parse(text).map_err(E::custom)
    }
}

/// The same for a duration that may be absent; the field needs `#[serde(default)]`, too.
pub mod optional {
    use super::{Deserializer, Duration, Serializer};

    /// Writes what is there.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        for millis in [0, 1, 500, 1_000, 30_000, 90_000, 3_600_000, 5_400_500] {
            let value = Duration::from_millis(millis);
            assert_eq!(parse(&format(value)), Ok(value), "{millis} ms");
        }
        assert_eq!(format(Duration::from_secs(30)), "30s");
    }

    #[test]
    fn a_bare_number_or_a_negative_duration_is_refused_with_the_form_to_use() {
        assert_eq!(parse("30").unwrap_err(), "\"30\" is not a duration; write it as in \"30s\" or \"500ms\"");
        assert_eq!(parse("-1s").unwrap_err(), "\"-1s\" is negative; a duration starts at \"0s\"");
    }
}
