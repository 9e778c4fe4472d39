//! Whether a client still waits for its answer.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt::socket_peercred,
};

/// A connection of a client.
#[derive(Debug)]
pub(in crate::http) struct Client(OwnedFd);

impl Client {
    /// The client at the other end of a connection.
    pub(in crate::http) fn of(connection: impl std::os::fd::AsFd) -> io::Result<Self> {
        Ok(Self(connection.as_fd().try_clone_to_owned()?))
    }

    /// The user's number of the process that has connected to a Unix socket.
    pub(in crate::http) fn user(&self) -> Option<u32> {
        socket_peercred(&self.0).ok().map(|process| process.uid.as_raw())
    }

    /// Whether it has closed its end, or the connection is broken.
    pub(in crate::http) fn is_gone(&self) -> bool {
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut polled = [PollFd::new(&self.0, gone)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}
