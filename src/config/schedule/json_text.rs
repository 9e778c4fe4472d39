//! JSON as a text, so that numbers, the order of keys and blanks stay what they are.

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};
use serde_json::{Value, value::RawValue};

/// The text of a JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonText(String);

impl JsonText {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of the text. An error if it has a number that a [`Value`] cannot have.
    pub(in crate::config) fn value(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_str(&self.0)
    }
}

/// Compact JSON.
impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self(value.to_string())
    }
}

/// From JSON only: other formats have no text of a value.
impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(input)?;
        Ok(Self(String::from(Box::<str>::from(raw))))
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(self.0.clone()).map_err(S::Error::custom)?;
        raw.serialize(out)
    }
}

/// As a value, in formats such as TOML.
pub(in crate::config) mod as_value {
    use super::{Deserialize, Deserializer, JsonText, Serialize, Serializer, Value};

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<JsonText>, D::Error> {
        Value::deserialize(input).map(|value| Some(value.into()))
    }

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(in crate::config) fn serialize<S: Serializer>(
        text: &Option<JsonText>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        let value = text.as_ref().map(JsonText::value).transpose();
        value.map_err(serde::ser::Error::custom)?.serialize(out)
    }
}
