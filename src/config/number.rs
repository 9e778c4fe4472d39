//! Whole numbers, with a message for people when it is something else.

use std::fmt;

use serde::{
    Deserializer,
    de::{Error, Unexpected, Visitor},
};

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<usize, D::Error> {
    input.deserialize_i64(Whole)
}

struct Whole;

impl Visitor<'_> for Whole {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of 1 or more")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<usize, E> {
        usize::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }
}
