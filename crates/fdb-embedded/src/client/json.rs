//! Writing JSON.

use std::fmt::{Display, Formatter, Result, Write};

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number with a fraction. A number that is not finite is written as `null`.
    Float(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// Names and values in the given order. Names must be unique.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// An object.
    pub fn object<'n>(members: impl IntoIterator<Item = (&'n str, Json)>) -> Json {
        Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.to_owned())
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Json {
        Json::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl Display for Json {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Json::Bool(value) => write!(f, "{value}"),
            Json::Int(value) => write!(f, "{value}"),
            Json::Float(value) if value.is_finite() => write!(f, "{value:?}"),
            Json::Float(_) => f.write_str("null"),
            Json::Text(text) => write_text(f, text),
            Json::List(items) => separated(f, ['[', ']'], items, |f, item| write!(f, "{item}")),
            Json::Object(members) => separated(f, ['{', '}'], members, |f, (name, value)| {
                write_text(f, name)?;
                write!(f, ":{value}")
            }),
        }
    }
}

fn separated<T>(
    f: &mut Formatter<'_>,
    [open, close]: [char; 2],
    items: &[T],
    mut write: impl FnMut(&mut Formatter<'_>, &T) -> Result,
) -> Result {
    f.write_char(open)?;
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            f.write_char(',')?;
        }
        write(f, item)?;
    }
    f.write_char(close)
}

fn write_text(f: &mut Formatter<'_>, text: &str) -> Result {
    f.write_char('"')?;
    for char in text.chars() {
        match char {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            control if control < ' ' => write!(f, "\\u{:04x}", u32::from(control))?,
            other => f.write_char(other)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_written_as_json() {
        let value = Json::object([
            ("a", Json::List(vec![Json::Int(-1), Json::Float(0.5), Json::Bool(true)])),
            ("b\"", Json::object([])),
            ("c", Json::Float(f64::NAN)),
        ]);
        assert_eq!(value.to_string(), r#"{"a":[-1,0.5,true],"b\"":{},"c":null}"#);
    }

    proptest! {
        #[test]
        fn every_text_reads_back(text in any::<String>()) {
            let written = Json::Text(text.clone()).to_string();
            prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
        }
    }
}
