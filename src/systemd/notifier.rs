//! Sends datagrams to systemd, as sd_notify(3) describes them. The crate `sd-notify` formats them, and does
//! not send them: its call blocks while systemd has no room, and this runs on the actors' thread
//! (docs/decisions/0026). A message that matters is kept until there is room.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::Mutex,
};

use sd_notify::NotifyState;

/// How many messages are kept for systemd. Of more, the oldest are dropped.
const MOST_PENDING: usize = 8;

/// The socket to systemd; none if the daemon does not run under systemd.
#[derive(Debug)]
pub(super) struct Notifier(Option<Connection>);

#[derive(Debug)]
struct Connection {
    socket: UnixDatagram,
    /// The socket is not connected to it: a systemd that was itself replaced listens at the same address.
    address: SocketAddr,
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    messages: VecDeque<Message>,
    /// The last message could not be sent, and that has been logged.
    failing: bool,
}

#[derive(Debug)]
struct Message {
    text: String,
    keep: bool,
}

/// How to handle a message that systemd has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnFull {
    /// Keep it, and send it before the next one.
    Keep,
    /// Drop it: another like it will follow.
    Drop,
}

impl Notifier {
    /// To nobody.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// To the socket that the environment names.
    pub(super) fn from_environment() -> Self {
        let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
            return Self(None);
        };
        Self::to(&address).unwrap_or_else(|error| {
            tracing::warn!(
                event = "notify_socket_invalid",
                ?address,
                %error,
                "cannot use NOTIFY_SOCKET; systemd gets no notifications"
            );
            Self(None)
        })
    }

    /// To the socket at a path, or, after an `@`, at an abstract name.
    pub(super) fn to(address: &OsStr) -> io::Result<Self> {
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self(Some(Connection { socket, address, pending: Mutex::default() })))
    }

    /// Sends these states in one message. Returns whether it was sent, or will be.
    pub(super) fn send(&self, states: &[NotifyState<'_>], on_full: OnFull) -> bool {
        let Some(connection) = &self.0 else { return true };
        let text = states.iter().map(|state| format!("{state}\n")).collect();
        let keep = on_full == OnFull::Keep;
        connection.send(Message { text, keep }) || keep
    }
}

impl Connection {
    fn send(&self, message: Message) -> bool {
        let mut pending = self.pending.lock().expect("nothing panics while it holds the lock");
        pending.messages.push_back(message);
        while let Some(Message { text, .. }) = pending.messages.front() {
            if let Err(error) = self.socket.send_to_addr(text.as_bytes(), &self.address) {
                pending.failed(&error);
                return false;
            }
            pending.messages.pop_front();
            pending.failing = false;
        }
        true
    }
}

impl Pending {
    fn failed(&mut self, error: &io::Error) {
        if !self.failing {
            tracing::warn!(event = "notify_failed", %error, "cannot notify systemd; retrying");
        }
        self.failing = true;
        self.messages.retain(|message| message.keep);
        while self.messages.len() > MOST_PENDING {
            self.messages.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut text = [0; 4096];
        let length = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    #[test]
    fn states_are_sent_in_one_message() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::to(path.as_os_str()).unwrap();
        let message = [NotifyState::Reloading, NotifyState::MonotonicUsec(7), NotifyState::Status("so")];
        notifier.send(&message, OnFull::Keep);
        assert_eq!(received(&systemd), "RELOADING=1\nMONOTONIC_USEC=7\nSTATUS=so\n");
    }

    #[test]
    fn an_abstract_name_is_an_address() {
        let name = format!("kvqueue-test-{}", uuid::Uuid::now_v7());
        let systemd = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::to(OsStr::new(&format!("@{name}"))).unwrap().send(&[NotifyState::Ready], OnFull::Keep);
        assert_eq!(received(&systemd), "READY=1\n");
    }

    #[test]
    fn undelivered_state_changes_are_kept_and_other_messages_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let notifier = Notifier::to(path.as_os_str()).unwrap();
        notifier.send(&[NotifyState::Ready], OnFull::Keep);
        notifier.send(&[NotifyState::Watchdog], OnFull::Drop);
        let systemd = UnixDatagram::bind(&path).unwrap();
        notifier.send(&[NotifyState::Status("here")], OnFull::Drop);
        assert_eq!([received(&systemd), received(&systemd)], ["READY=1\n", "STATUS=here\n"]);
    }

    #[test]
    fn a_bounded_number_of_messages_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let notifier = Notifier::to(path.as_os_str()).unwrap();
        for number in 0..100 {
            notifier.send(&[NotifyState::Errno(number)], OnFull::Keep);
        }
        let systemd = UnixDatagram::bind(&path).unwrap();
        notifier.send(&[NotifyState::Ready], OnFull::Keep);
        assert_eq!(received(&systemd), "ERRNO=92\n");
        let rest: Vec<_> = (0..8).map(|_| received(&systemd)).collect();
        assert_eq!(rest[7], "READY=1\n");
    }
}
