//! Datagrams to systemd, as sd_notify(3) has them. They are sent here rather than by a library's one call because that call may block, and
//! this is on the actors' thread: what systemd has no room for now is kept, if it matters, and sent before the next.

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

/// So many messages are kept for systemd; of more, the oldest go.
const MOST_OWED: usize = 8;

/// Where systemd listens, if it does.
#[derive(Debug)]
pub(super) struct Notifier(Option<Line>);

#[derive(Debug)]
struct Line {
    socket: UnixDatagram,
    /// Not connected to: systemd may listen anew at the same address, after it was itself replaced.
    address: SocketAddr,
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    messages: VecDeque<Message>,
    /// The last one did not go through, which has been logged.
    failing: bool,
}

#[derive(Debug)]
struct Message {
    text: String,
    keep: bool,
}

/// What becomes of a message that systemd has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Otherwise {
    /// It is kept, and sent before the next.
    Keep,
    /// Another like it will follow.
    Drop,
}

impl Notifier {
    /// Where the environment says.
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

    /// At a path, or, behind an `@`, at an abstract name.
    pub(super) fn to(address: &OsStr) -> io::Result<Self> {
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self(Some(Line { socket, address, pending: Mutex::default() })))
    }

    /// Sends all of this in one message. Returns whether that went through, or will.
    pub(super) fn tell(&self, states: &[NotifyState<'_>], otherwise: Otherwise) -> bool {
        let Some(line) = &self.0 else { return true };
        let text = states.iter().map(|state| format!("{state}\n")).collect();
        let keep = otherwise == Otherwise::Keep;
        line.send(Message { text, keep }) || keep
    }
}

impl Line {
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
        while self.messages.len() > MOST_OWED {
            self.messages.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut text = [0; 4096];
        let length = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    #[test]
    fn what_belongs_together_is_one_message() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::to(path.as_os_str()).unwrap();
        let message = [NotifyState::Reloading, NotifyState::MonotonicUsec(7), NotifyState::Status("so")];
        notifier.tell(&message, Otherwise::Keep);
        assert_eq!(heard(&systemd), "RELOADING=1\nMONOTONIC_USEC=7\nSTATUS=so\n");
    }

    #[test]
    fn an_abstract_name_is_an_address_too() {
        let name = format!("kvqueue-test-{}", uuid::Uuid::now_v7());
        let systemd = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::to(OsStr::new(&format!("@{name}"))).unwrap().tell(&[NotifyState::Ready], Otherwise::Keep);
        assert_eq!(heard(&systemd), "READY=1\n");
    }

    #[test]
    fn what_matters_waits_for_room_and_what_does_not_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let notifier = Notifier::to(path.as_os_str()).unwrap();
        notifier.tell(&[NotifyState::Ready], Otherwise::Keep);
        notifier.tell(&[NotifyState::Watchdog], Otherwise::Drop);
        let systemd = UnixDatagram::bind(&path).unwrap();
        notifier.tell(&[NotifyState::Status("here")], Otherwise::Drop);
        assert_eq!([heard(&systemd), heard(&systemd)], ["READY=1\n", "STATUS=here\n"]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let notifier = Notifier::to(path.as_os_str()).unwrap();
        for number in 0..100 {
            notifier.tell(&[NotifyState::Errno(number)], Otherwise::Keep);
        }
        let systemd = UnixDatagram::bind(&path).unwrap();
        notifier.tell(&[NotifyState::Ready], Otherwise::Keep);
        assert_eq!(heard(&systemd), "ERRNO=92\n");
        let rest: Vec<_> = (0..8).map(|_| heard(&systemd)).collect();
        assert_eq!(rest[7], "READY=1\n");
    }
}
