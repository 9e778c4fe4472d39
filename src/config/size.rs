//! Sizes in bytes as people write them: `"8MiB"`, `"64kB"`, `"100 B"`.
//!
//! For settings of handlers, too: `#[serde(with = "kvqueue::config::size")]`.

use std::fmt;

use bytesize::ByteSize;
use serde::{
    Deserializer, Serializer,
    de::{Error, Visitor},
};

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
    // Without a unit it would be anybody's guess, as it would be of a duration.
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
    input.deserialize_str(Text)
}

/// Says what is wanted when something else than a text is found.
struct Text;

impl Visitor<'_> for Text {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"8MiB\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        parse(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip() {
        for bytes in [0, 1, 1000, 1024, 1536, 100_000, 9_000_000, 8 << 20, 3 << 30] {
            assert_eq!(parse(&format(bytes)), Ok(bytes), "{bytes} bytes");
        }
        assert_eq!(format(8 << 20), "8MiB");
        assert_eq!(format(100_000), "100kB");
        assert_eq!(format(100_001), "100001B");
    }

    #[test]
    fn decimal_and_binary_units_differ() {
        assert_eq!(parse("64kB"), Ok(64_000));
        assert_eq!(parse("64 KiB"), Ok(65_536));
        assert_eq!(parse("1.5MiB"), Ok(3 << 19));
    }

    #[test]
    fn a_bare_or_negative_number_is_refused_with_the_form_to_use() {
        for text in ["100", "", "-1B", "8 miles"] {
            assert_eq!(
                parse(text).unwrap_err(),
                format!("{text:?} is not a size; write it as in \"8MiB\" or \"64kB\"")
            );
        }
    }
}
