//! The daemon as systemd sees it: the real program, with a socket in systemd's place.

mod life;
mod reload;
mod stuck;
mod well;

use std::time::Duration;

/// What systemd allows between two words of the watchdog; the daemon speaks three times in it.
const WATCHDOG: Duration = Duration::from_secs(1);
