//! Which daemon: several may use one database.

use rustix::system::uname;

/// This process, for records of changes to one daemon: `host, process 17`.
pub(crate) fn this_daemon() -> String {
    format!("{}, process {}", uname().nodename().to_string_lossy(), std::process::id())
}
