//! Whole numbers, with a message for people when it is something else.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{Error, Unexpected, Visitor},
};

pub(crate) fn deserialize<'de, D: Deserializer<'de>, N: TryFrom<i64>>(input: D) -> Result<N, D::Error> {
    input.deserialize_i64(Whole(PhantomData))
}

struct Whole<N>(PhantomData<N>);

impl<N: TryFrom<i64>> Visitor<'_> for Whole<N> {
    type Value = N;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of 1 or more")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<N, E> {
        N::try_from(number).map_err(|_| match number {
            ..0 => E::invalid_value(Unexpected::Signed(number), &self),
            _ => E::custom(format_args!("{number} is too large")),
        })
    }
}
