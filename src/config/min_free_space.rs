//! `min-free-space`: how much of the disk must stay free.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Unexpected, Visitor},
};

use super::size;

/// The word for a limit that the directory has already.
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
        input.deserialize_any(Text)
    }
}

/// Says what is wanted when something else is found.
struct Text;

impl Visitor<'_> for Text {
    type Value = MinFreeSpace;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"1GiB\", 0 for no limit, or \"auto\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<MinFreeSpace, E> {
        match text {
            AUTO => Ok(MinFreeSpace::Auto),
            // As a variable has it.
            "0" => Ok(MinFreeSpace::Bytes(0)),
            size => size::parse(size).map(MinFreeSpace::Bytes).map_err(E::custom),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<MinFreeSpace, E> {
        match number {
            0 => Ok(MinFreeSpace::Bytes(0)),
            _ => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(value: &str) -> Result<MinFreeSpace, String> {
        let config = toml::from_str::<Config>(&format!("min-free-space = {value}"));
        config.map(|config| config.min_free_space).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn min_free_space_is_auto_or_a_size() {
        for (value, limit) in [
            ("'auto'", MinFreeSpace::Auto),
            ("0", MinFreeSpace::Bytes(0)),
            ("'0'", MinFreeSpace::Bytes(0)),
            ("'0B'", MinFreeSpace::Bytes(0)),
            ("'512MiB'", MinFreeSpace::Bytes(512 << 20)),
        ] {
            assert_eq!(read(value), Ok(limit), "{value}");
            let written = toml::Value::try_from(limit).unwrap().to_string();
            assert_eq!(read(&written), Ok(limit), "{written}");
        }
        insta::assert_snapshot!(read("512").unwrap_err(), @r#"invalid value: integer `512`, expected a size such as "1GiB", 0 for no limit, or "auto""#);
        insta::assert_snapshot!(read("'512'").unwrap_err(), @r#""512" is not a size; write it as in "8MiB" or "64kB""#);
    }
}
