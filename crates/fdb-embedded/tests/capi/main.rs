//! The C ABI, called as C programs call it: through pointers, without a binding in between.
//!
//! With `KVQUEUE_TEST_CLUSTER_FILE` and `FDB_CLIENT_LIB` the same calls go through this library to a real cluster,
//! where they have to come out the same.

#![expect(unsafe_code, reason = "the functions under test are those of a C library")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod callbacks;
mod common;
mod engines;
mod futures;
mod memory;
mod unsupported;
