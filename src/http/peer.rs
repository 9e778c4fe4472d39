//! The other end of a connection: who it is, and whether it still waits for its answer.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, shutdown, sockopt::socket_peercred},
};

/// The other end of a connection, which lives as long as the connection.
#[derive(Debug)]
pub(super) struct Peer(OwnedFd);

impl Peer {
    pub(super) fn of(connection: impl std::os::fd::AsFd) -> io::Result<Self> {
        Ok(Self(connection.as_fd().try_clone_to_owned()?))
    }

    /// The user's number of the process that has connected to a Unix socket.
    pub(super) fn user(&self) -> Option<u32> {
        socket_peercred(&self.0).ok().map(|process| process.uid.as_raw())
    }

    /// Whether it has closed its end, or the connection is broken.
    pub(super) fn is_gone(&self) -> bool {
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut polled = [PollFd::new(&self.0, gone)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Whether the socket accepts more of an answer.
    pub(super) fn is_writable(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::OUT)];
        // If `poll` fails, the client is not to blame.
        poll(&mut polled, Some(&Timespec::default())).map_or(true, |_| !polled[0].revents().is_empty())
    }

    /// Ends the connection. Its task learns of it as if the client had gone.
    pub(super) fn cut_off(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}
