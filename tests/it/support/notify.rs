//! A service manager's end of the notify protocol.

use std::{
    io::ErrorKind,
    os::unix::net::UnixDatagram,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use super::{Database, PATIENCE};

/// The socket of a fake systemd.
pub(crate) struct NotifySocket {
    socket: UnixDatagram,
    path: PathBuf,
}

impl NotifySocket {
    /// Next to the database.
    pub(crate) fn new(db: &Database) -> Self {
        let path = db.file(&format!("notify-{}", uuid::Uuid::now_v7()));
        Self { socket: UnixDatagram::bind(&path).unwrap(), path }
    }

    /// Has a command tell this how it is, as systemd would, and that it is alive so often.
    pub(crate) fn watch(&self, command: &mut Command, watchdog: Option<Duration>) {
        command.env("NOTIFY_SOCKET", &self.path).env_remove("WATCHDOG_PID");
        match watchdog {
            Some(watchdog) => command.env("WATCHDOG_USEC", watchdog.as_micros().to_string()),
            None => command.env_remove("WATCHDOG_USEC"),
        };
    }

    /// The next message within this time: its lines, joined by blanks.
    pub(crate) fn within(&self, time: Duration) -> Option<String> {
        let (mut text, end) = ([0; 8_192], Instant::now() + time);
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(left)).unwrap();
            match self.socket.recv(&mut text) {
                Ok(length) => {
                    let lines: Vec<_> = std::str::from_utf8(&text[..length]).unwrap().lines().collect();
                    return Some(lines.join(" "));
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return None;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}"),
            }
        }
    }

    /// Waits for a message with `text` in it. Returns it, and those before it.
    #[track_caller]
    pub(crate) fn until(&self, text: &str) -> (String, Vec<String>) {
        let (mut before, begun) = (Vec::new(), Instant::now());
        loop {
            match self.within(PATIENCE.saturating_sub(begun.elapsed())) {
                Some(message) if message.contains(text) => return (message, before),
                Some(message) => before.push(message),
                None => panic!("never said {text:?}, but: {before:?}"),
            }
        }
    }

    /// All that comes within this time.
    pub(crate) fn all_within(&self, time: Duration) -> Vec<String> {
        let end = Instant::now() + time;
        std::iter::from_fn(|| self.within(end.saturating_duration_since(Instant::now()))).collect()
    }

    /// Throws away what has come so far.
    pub(crate) fn forget(&self) {
        while self.within(Duration::ZERO).is_some() {}
    }
}

/// How many of these messages feed the watchdog.
pub(crate) fn pings(messages: &[String]) -> usize {
    messages.iter().filter(|message| message.contains("WATCHDOG=1")).count()
}
