//! Tests of the calendar as its users see it.

#![expect(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod descriptions;
mod errors;
mod expressions;
mod model;
mod periods;
mod support;
mod vectors;
mod zones;
