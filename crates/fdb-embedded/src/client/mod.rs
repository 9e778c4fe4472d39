//! FoundationDB's client: transactions on an [`crate::engine::Engine`].

mod address;
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
