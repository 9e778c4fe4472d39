//! The address and the connection string that an embedded database shows to programs that ask a cluster for them.

use std::ffi::CStr;

/// The address of the one "server" of an embedded database. No process listens there.
pub const ADDRESS: &CStr = c"127.0.0.1:4500";

/// The address as text.
pub const ADDRESS_TEXT: &str = "127.0.0.1:4500";

/// The connection string, of the form `description:id@address`.
pub const CONNECTION_STRING: &str = "embedded:embedded@127.0.0.1:4500";

/// The first part of the connection string.
pub const DESCRIPTION: &str = "embedded";
