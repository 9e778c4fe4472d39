//! The embedded engine through the unmodified `foundationdb` crate.
//!
//! | file | what |
//! |---|---|
//! | `transactions` | each promise by name |
//! | `model` | random programs against a plain map |
//! | `crash` | kill -9 while clients commit |
//! | `storage` | damaged files, old versions, faults of reads |
//! | `common` | a database per test, embedded or, with `KVQUEUE_TEST_CLUSTER_FILE`, on a cluster |

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;
mod crash;
mod model;
mod storage;
mod transactions;
