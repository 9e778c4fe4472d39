//! Names and keys: bytes, which are texts as a rule. JSON has each as `queue`, or as `queue_base64` if it is not UTF-8.

use std::{borrow::Cow, ffi::OsString, fmt, os::unix::ffi::OsStringExt};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::builder::{MapValueParser, OsStringValueParser, TypedValueParser};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::base::text::visible;

/// A name that is a field, or two, of JSON.
pub(super) trait Named: Sized {
    /// Its fields, of which one is given.
    type Fields: for<'de> Deserialize<'de>;

    /// `None` if neither is given.
    fn read(fields: Self::Fields) -> Result<Option<Self>, String>;
}

/// Reads a name that may be left out.
pub(super) fn optional<'de, D: Deserializer<'de>, N: Named>(input: D) -> Result<Option<N>, D::Error> {
    N::read(N::Fields::deserialize(input)?).map_err(D::Error::custom)
}

/// Defines a name by its two fields.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $text:literal, $base64:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) Vec<u8>);

        const _: () = {
            #[derive(Serialize, Deserialize, JsonSchema)]
            pub struct Fields {
                $(#[$doc])*
                #[serde(rename = $text, default, skip_serializing_if = "Option::is_none")]
                text: Option<String>,
                /// The same in base 64, if it is not UTF-8.
                #[serde(rename = $base64, default, skip_serializing_if = "Option::is_none")]
                base64: Option<String>,
            }

            impl Named for $name {
                type Fields = Fields;

                fn read(Fields { text, base64 }: Fields) -> Result<Option<Self>, String> {
                    Ok(one_of([$text, $base64], (text, base64))?.map(Self))
                }
            }

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                    optional(input)?.ok_or_else(|| D::Error::custom(concat!("give one of ", $text, " and ", $base64)))
                }
            }

            impl Serialize for $name {
                fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
                    let (text, base64) = fields(&self.0);
                    Fields { text, base64 }.serialize(output)
                }
            }

            impl JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }

                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                    Fields::json_schema(generator)
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(&visible(&String::from_utf8_lossy(&self.0)))
                }
            }

            impl clap::builder::ValueParserFactory for $name {
                type Parser = MapValueParser<OsStringValueParser, fn(OsString) -> Self>;

                fn value_parser() -> Self::Parser {
                    OsStringValueParser::new().map(|name| Self(name.into_vec()))
                }
            }
        };
    };
}

name! {
    /// The name of a queue.
    QueueName, "queue", "queue_base64"
}

name! {
    /// The key of items.
    KeyName, "key", "key_base64"
}

name! {
    /// A pattern of keys.
    PatternName, "pattern", "pattern_base64"
}

name! {
    /// The unique key of an item.
    UniqueName, "unique", "unique_base64"
}

name! {
    /// The name of the queue that items go to.
    DestinationName, "to", "to_base64"
}

name! {
    /// The payload of an item.
    Payload, "payload", "payload_base64"
}

/// The bytes that one of two fields has.
pub(super) fn one_of(
    [text, base64]: [&str; 2],
    given: (Option<String>, Option<String>),
) -> Result<Option<Vec<u8>>, String> {
    match given {
        (None, None) => Ok(None),
        (Some(given), None) => Ok(Some(given.into_bytes())),
        (None, Some(given)) => match BASE64_STANDARD.decode(given) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => Err(format!("{base64} is not base 64: {error}")),
        },
        (Some(_), Some(_)) => Err(format!("it has both {text} and {base64}; leave one out")),
    }
}

/// The two fields of bytes.
pub(crate) fn fields(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}
