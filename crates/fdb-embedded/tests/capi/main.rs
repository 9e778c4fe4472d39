//! The C ABI, called as C programs call it: through pointers, without a binding in between.
//!
//! With `KVQUEUE_TEST_CLUSTER_FILE` and `FDB_CLIENT_LIB` the same calls go through this library to a real cluster,
//! where they have to come out the same.

#![expect(unsafe_code, reason = "the functions under test are those of a C library")]

mod callbacks;
mod common;
mod engines;
mod futures;
mod memory;
mod unsupported;
