//! The daemon as systemd sees it: the real program, with a socket in systemd's place.

mod life;
mod reload;
mod stuck;
mod well;

use std::time::Duration;

/// The watchdog's interval; the daemon sends three pings in it.
const WATCHDOG: Duration = Duration::from_secs(1);
