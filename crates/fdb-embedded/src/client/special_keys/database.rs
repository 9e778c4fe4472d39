//! Special keys about the database.

use super::Rows;
use crate::client::address::{ADDRESS_TEXT, DESCRIPTION};
use crate::client::{Database, status};

/// The status document.
pub fn status(database: &Database) -> Vec<u8> {
    status::cluster(database).into_bytes()
}

/// The rows under `configuration/coordinators/`.
pub fn coordinators(prefix: &[u8]) -> Rows {
    let row = |name: &str, value: &str| ([prefix, name.as_bytes()].concat(), value.as_bytes().to_vec());
    Rows::from([row("cluster_description", DESCRIPTION), row("processes", ADDRESS_TEXT)])
}
