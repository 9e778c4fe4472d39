//! The journal, in its native protocol: each field of an event and of its spans is a field there, as in
//! `journalctl QUEUE=emails ITEM=...`. They also stand after the text, since plain `journalctl` shows nothing
//! else. Why no library does this is in docs/decisions/0026.

mod message;
mod socket;

use std::{io, path::Path};

use tracing::Event;

use self::{message::Message, socket::Socket};
use super::{
    destination::Out,
    structured::{Fields, Format},
    writer::{Batch, Sink},
};

/// Where systemd-journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// The form of the log that the journal of this machine gets.
pub(super) struct Journal {
    out: Out,
}

/// Checks that there is a journal.
///
/// # Errors
/// There is no journal, or this process may not write to it.
pub(super) fn probe() -> io::Result<()> {
    Socket::open(Path::new(SOCKET)).map(drop)
}

/// The journal that [`probe`] found; its messages go through a thread if `queued`.
pub(super) fn open(queued: bool) -> Journal {
    Journal { out: Out::to(|| to_journal(Path::new(SOCKET)), queued) }
}

/// Looks again for a journal that is gone, with each batch.
fn to_journal(path: &'static Path) -> Sink {
    let mut socket = None;
    Box::new(move |batch: &Batch| {
        if socket.is_none() {
            socket = Socket::open(path).ok();
        }
        let Some(socket) = &socket else { return batch.len() };
        batch.messages().filter(|message| socket.send(message).is_err()).count()
    })
}

impl Journal {
    /// Where its messages go.
    pub(super) fn out(&self) -> &Out {
        &self.out
    }
}

impl Format for Journal {
    fn write(&self, event: &Event<'_>, fields: Fields) {
        self.out.write(&Message::of(event.metadata(), fields).encode());
    }
}
