//! What systemd is told. Without systemd (no `NOTIFY_SOCKET`) nothing happens.

use sd_notify::NotifyState;

/// The consumers have started.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// A drain has begun.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd not told");
    }
}
