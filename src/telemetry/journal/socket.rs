//! Datagrams to the journal.

use std::{
    fs::File,
    io::{self, IoSlice, Write},
    mem::MaybeUninit,
    os::{fd::AsFd, unix::net::UnixDatagram},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr},
};

/// A socket that is not connected: a journal that is started again listens at the same path.
#[derive(Debug)]
pub(super) struct Socket {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Socket {
    /// To the journal that listens at this path.
    ///
    /// # Errors
    /// None does, or it may not be written to.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        UnixDatagram::unbound()?.connect(path)?;
        Ok(Self { socket: UnixDatagram::unbound()?, path: path.to_owned() })
    }

    /// Sends a message, in a file if it is too long for a datagram. Waits while the journal has no room.
    pub(super) fn send(&self, message: &[u8]) -> io::Result<()> {
        loop {
            let sent = self.socket.send_to(message, &self.path).map(drop);
            return match sent.as_ref().err().and_then(Errno::from_io_error) {
                Some(Errno::INTR) => continue,
                Some(Errno::MSGSIZE | Errno::NOBUFS) => self.send_in_a_file(message),
                _ => sent,
            };
        }
    }

    /// As the journal's protocol has it: the datagram is empty and has a sealed file in memory.
    fn send_in_a_file(&self, message: &[u8]) -> io::Result<()> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("kvqueue-log", flags)?);
        file.write_all(message)?;
        let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&file, all)?;
        let files = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let to = SocketAddrUnix::new(&self.path)?;
        sendmsg_addr(&self.socket, &to, &[IoSlice::new(&[])], &mut control, SendFlags::empty())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{IoSliceMut, Read, Seek},
        os::fd::OwnedFd,
    };

    use rustix::net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt::set_socket_send_buffer_size,
    };

    use super::*;

    fn received(journal: &UnixDatagram) -> (usize, Option<OwnedFd>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 16];
        let got = recvmsg(journal, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty());
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        (got.unwrap().bytes, file)
    }

    #[test]
    fn a_message_that_is_too_long_for_a_datagram_is_sent_in_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        let socket = Socket::open(&path).unwrap();
        set_socket_send_buffer_size(&socket.socket, 8_192).unwrap();
        let message = "long".repeat(100_000);
        socket.send(message.as_bytes()).unwrap();
        socket.send(b"short").unwrap();
        let (bytes, file) = received(&journal);
        assert_eq!(bytes, 0);
        let (mut file, mut text) = (File::from(file.unwrap()), String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert!(text == message, "{} bytes", text.len());
        assert!(file.set_len(1).is_err(), "it is sealed");
        assert!(matches!(received(&journal), (5, None)));
    }

    #[test]
    fn a_journal_that_is_replaced_gets_the_next_message() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert!(Socket::open(&path).is_err());
        let journal = UnixDatagram::bind(&path).unwrap();
        let socket = Socket::open(&path).unwrap();
        drop(journal);
        assert!(socket.send(b"lost").is_err());
        std::fs::remove_file(&path).unwrap();
        let journal = UnixDatagram::bind(&path).unwrap();
        socket.send(b"here").unwrap();
        assert_eq!(received(&journal).0, 4);
    }
}
