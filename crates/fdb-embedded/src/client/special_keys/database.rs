//! Special keys about the database.

use std::ffi::CStr;

use super::Rows;
use crate::client::{Database, status};

/// The address of the one "server" of an embedded database. No process listens there.
pub const ADDRESS: &CStr = c"127.0.0.1:4500";
/// The address as text.
pub const ADDRESS_TEXT: &str = "127.0.0.1:4500";
/// The connection string, of the form `description:id@address`.
pub const CONNECTION_STRING: &str = "embedded:embedded@127.0.0.1:4500";
/// The first part of the connection string.
const DESCRIPTION: &str = "embedded";

/// The status document.
pub fn status(database: &Database) -> Vec<u8> {
    status::cluster(database).into_bytes()
}

/// The rows under `configuration/coordinators/`.
pub fn coordinators(prefix: &[u8]) -> Rows {
    let row = |name: &str, value: &str| ([prefix, name.as_bytes()].concat(), value.as_bytes().to_vec());
    Rows::from([row("cluster_description", DESCRIPTION), row("processes", ADDRESS_TEXT)])
}
