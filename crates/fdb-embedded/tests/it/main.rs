//! The embedded engine through the unmodified `foundationdb` crate.
//!
//! | file | what |
//! |---|---|
//! | `transactions` | each promise by name |
//! | `versions` | read versions that a client chooses |
//! | `mapped` | mapped range reads |
//! | `options` | values of options, and what they do |
//! | `sizes` | sizes of ranges and where to split them |
//! | `special` | special keys |
//! | `system` | system keys that clients read |
//! | `crash` | kill -9 while clients commit |
//! | `processes` | several processes on one directory |
//! | `takeover` | who hosts a directory next |
//! | `stepdown` | a host that gives up its role |
//! | `backup` | copies of a database that is used |
//! | `gate` | commits that wait for a test's word |
//! | `hostile` | what a host's socket may be sent, and what a guest may ask for |
//! | `storage` | damaged files, old versions, faults of reads |
//! | `helper` | another process that a test starts |
//! | `common` | a database per test, embedded or, with `KVQUEUE_TEST_CLUSTER_FILE`, on a cluster |

#![expect(clippy::unwrap_used, reason = "tests")]

mod backup;
mod common;
mod crash;
mod gate;
mod helper;
mod hostile;
mod mapped;
mod options;
mod processes;
mod sizes;
mod special;
mod stepdown;
mod storage;
mod system;
mod takeover;
mod transactions;
mod versions;
