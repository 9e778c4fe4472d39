//! FoundationDB's client: transactions over an [`crate::engine::Engine`].
//!
//! | file | what |
//! |---|---|
//! | `database` | a handle on a directory, its options and limits |
//! | `transaction/` | one transaction: its state, and a file for each group of calls |
//! | `write_map` | what it has written |
//! | `merged` | the database under those writes |
//! | `selector`, `range` | key selectors and range reads over that |
//! | `mapped`, `mapper`, `tuple` | mapped range reads |
//! | `sizes`, `key_scale` | how large a range is, without reading all of it |
//! | `special_keys/` | the keys that start with 0xFF 0xFF |
//! | `system` | the system keys that a cluster would write by itself |
//! | `status`, `facts`, `json` | what database and client say of themselves |

mod database;
mod facts;
mod json;
mod key_scale;
mod mapped;
mod mapper;
mod merged;
mod range;
mod selector;
mod sizes;
mod special_keys;
mod status;
mod system;
mod transaction;
mod tuple;
mod write_map;

pub use database::Database;
pub use facts::{DatabaseFacts, RELEASE};
pub use range::Limits;
pub use selector::Selector;
pub use transaction::{ConflictKind, RangeArguments, Transaction};
