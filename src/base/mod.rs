//! Values and helpers that every room may use. They use no other room.

pub(crate) mod answer;
pub(crate) mod background;
pub(crate) mod backoff;
pub(crate) mod causes;
pub(crate) mod clock;
pub(crate) mod clock_lag;
pub(crate) mod deadlines;
pub mod exit;
pub(crate) mod identity;
pub(crate) mod json;
pub(crate) mod json_bytes;
#[cfg(feature = "http")]
pub(crate) mod lease_text;
pub(crate) mod text;
pub(crate) mod times;
#[cfg(feature = "webhook")]
pub(crate) mod tls;
pub(crate) mod users;
