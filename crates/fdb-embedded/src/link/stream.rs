//! Frames over a Unix socket, and the check of who is at the other end.
//!
//! A frame is a length in four bytes, little-endian, and a message of that length. Sending never
//! blocks the calling thread: bytes that the socket does not accept at once are left to the
//! connection's writer thread.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use baton::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::wire::{MAX_FRAME, Malformed};
use crate::fork::CloseOnFork;

/// Bytes read at a time.
const READ_CHUNK: usize = 64 << 10;
const LENGTH_BYTES: usize = 4;

/// Reads frames from a socket.
pub struct Frames<'s> {
    socket: &'s UnixStream,
    buffer: Vec<u8>,
    /// The offset of the next frame in the buffer.
    start: usize,
    /// The number of filled bytes in the buffer.
    end: usize,
    /// Reading does not wait longer than this.
    deadline: Option<Instant>,
}

impl<'s> Frames<'s> {
    /// Frames from the start of a connection.
    pub fn new(socket: &'s UnixStream) -> Frames<'s> {
        Frames { socket, buffer: vec![0; READ_CHUNK], start: 0, end: 0, deadline: None }
    }

    /// True if the next frame is complete in the buffer, so that [`Frames::next`] will not wait.
    pub fn is_next_here(&self) -> bool {
        let here = &self.buffer[self.start..self.end];
        let length = here.first_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length) as usize);
        length.is_some_and(|length| here.len() - LENGTH_BYTES >= length)
    }

    /// The next frame, or `WouldBlock` if it is not complete before the deadline.
    pub fn next_by(&mut self, deadline: Instant) -> io::Result<Option<&[u8]>> {
        self.deadline = Some(deadline);
        let is_whole = self.fill_frame();
        self.deadline = None;
        self.socket.set_read_timeout(None)?;
        Ok(is_whole?.map(|length| self.take(length)))
    }

    /// The next frame; `None` if the other end has closed.
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let is_whole = self.fill_frame()?;
        Ok(is_whole.map(|length| self.take(length)))
    }

    /// Reads until the buffer has a complete frame, and returns its length.
    fn fill_frame(&mut self) -> io::Result<Option<usize>> {
        if !self.fill(LENGTH_BYTES)? {
            return Ok(None);
        }
        let length = self.buffer[self.start..].first_chunk::<LENGTH_BYTES>().expect("they were just read");
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(io::Error::new(ErrorKind::InvalidData, Malformed("a frame is too long")));
        }
        if !self.fill(LENGTH_BYTES + length)? {
            return Ok(None);
        }
        Ok(Some(length))
    }

    fn take(&mut self, length: usize) -> &[u8] {
        let begin = self.start + LENGTH_BYTES;
        self.start = begin + length;
        &self.buffer[begin..self.start]
    }

    /// Reads until the buffer has `wanted` bytes; false if the connection ends before.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        if self.end - self.start >= wanted {
            return Ok(true);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        // The buffer of a large frame is not kept, and grows only as the frame arrives.
        let room = wanted.max(READ_CHUNK);
        if self.buffer.len() > room && self.end <= room {
            self.buffer.truncate(room);
            self.buffer.shrink_to_fit();
        }
        while self.end < wanted {
            if self.end == self.buffer.len() {
                self.buffer.resize(room.min(2 * self.end), 0);
            }
            if let Some(deadline) = self.deadline {
                let left = deadline.saturating_duration_since(baton::now());
                if left.is_zero() {
                    return Err(ErrorKind::WouldBlock.into());
                }
                self.socket.set_read_timeout(Some(left))?;
            }
            match rustix::net::recv(self.socket, &mut self.buffer[self.end..], RecvFlags::empty()) {
                Ok((_, 0)) => return Ok(false),
                Ok((_, read)) => self.end += read,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

#[derive(Default)]
struct OutgoingBuffer {
    bytes: Vec<u8>,
    /// A thread is writing bytes that it took out of `bytes`.
    is_writing: bool,
    /// The writer thread has to write the rest.
    is_handed_to_writer: bool,
    /// Bytes of requests that were accepted and are not answered yet.
    in_flight: usize,
    /// The connection is closing: nothing waits for the other end to read.
    is_closing: bool,
    closed: bool,
}

/// Why a frame cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError {
    /// It is longer than [`MAX_FRAME`].
    TooLong,
    /// The connection is closed.
    Closed,
}

/// The sending side of a connection.
pub struct Outbox {
    socket: CloseOnFork<UnixStream>,
    /// The direction to shut down when sending fails. It makes the other end or our own reader find
    /// the end, but leaves the direction open from which data may still arrive.
    broken: Shutdown,
    outgoing: Mutex<OutgoingBuffer>,
    /// The writer thread has work.
    work: Condvar,
    /// Bytes were sent or requests answered.
    drained: Condvar,
}

impl Outbox {
    /// For a guest. When sending fails, the host finds the end of the requests, and its responses
    /// can still be read.
    pub fn of_guest(socket: impl Into<CloseOnFork<UnixStream>>) -> Outbox {
        Outbox::new(socket.into(), Shutdown::Write)
    }

    /// For a host. When sending fails, the session finds the end of the requests. The guest finds
    /// the end only after its commits are answered.
    pub fn of_host(socket: impl Into<CloseOnFork<UnixStream>>) -> Outbox {
        Outbox::new(socket.into(), Shutdown::Read)
    }

    fn new(socket: CloseOnFork<UnixStream>, broken: Shutdown) -> Outbox {
        Outbox { socket, broken, outgoing: Mutex::default(), work: Condvar::new(), drained: Condvar::new() }
    }

    /// The connection.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Appends a frame. `flush` sends it, or the writer thread after `hand_to_writer`. A refused
    /// frame is not appended.
    pub fn push(&self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), PushError> {
        let mut outgoing = self.outgoing.lock();
        if outgoing.closed {
            return Err(PushError::Closed);
        }
        let bytes = &mut outgoing.bytes;
        let start = bytes.len();
        bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        encode(bytes);
        let length = bytes.len() - start - LENGTH_BYTES;
        if length > MAX_FRAME {
            bytes.truncate(start);
            bytes.shrink_to(READ_CHUNK);
            return Err(PushError::TooLong);
        }
        let length = u32::try_from(length).expect("MAX_FRAME is far below 4 GiB");
        bytes[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Sends as much as the socket accepts without blocking, and hands the rest to the writer
    /// thread.
    pub fn flush(&self) {
        let mut outgoing = self.outgoing.lock();
        while !outgoing.is_writing && !outgoing.is_handed_to_writer && !outgoing.bytes.is_empty() {
            let rest = self.write(&mut outgoing, SendFlags::DONTWAIT);
            if !rest.is_empty() {
                let newer = std::mem::replace(&mut outgoing.bytes, rest);
                outgoing.bytes.extend_from_slice(&newer);
                self.wake_writer(&mut outgoing);
            }
        }
    }

    /// Hands everything to the writer thread, so that the caller spends no time on sending.
    pub fn hand_to_writer(&self) {
        let mut outgoing = self.outgoing.lock();
        if !outgoing.bytes.is_empty() && !outgoing.is_handed_to_writer {
            self.wake_writer(&mut outgoing);
        }
    }

    fn wake_writer(&self, outgoing: &mut OutgoingBuffer) {
        outgoing.is_handed_to_writer = true;
        self.work.notify_one();
    }

    /// Counts the bytes of a request that is answered later.
    pub fn add_in_flight(&self, bytes: usize) {
        self.outgoing.lock().in_flight += bytes;
    }

    /// Counts a request as answered, after its response was pushed.
    pub fn remove_in_flight(&self, bytes: usize) {
        self.outgoing.lock().in_flight -= bytes;
        self.drained.notify_all();
    }

    /// Waits until fewer than `unsent` bytes wait to be sent and fewer than `in_flight` bytes of
    /// requests to be answered.
    pub fn wait_below(&self, unsent: usize, in_flight: usize) {
        let mut outgoing = self.outgoing.lock();
        while (outgoing.bytes.len() >= unsent || outgoing.in_flight >= in_flight)
            && !outgoing.closed
            && !outgoing.is_closing
        {
            // This thread would otherwise have flushed them.
            if !outgoing.bytes.is_empty() && !outgoing.is_handed_to_writer {
                self.wake_writer(&mut outgoing);
            }
            self.drained.wait(&mut outgoing);
        }
    }

    /// Waits until all accepted requests are answered, or the connection is closing.
    pub fn await_none_in_flight(&self) {
        let mut outgoing = self.outgoing.lock();
        while outgoing.in_flight > 0 && !outgoing.is_closing {
            self.drained.wait(&mut outgoing);
        }
    }

    /// Waits until everything is sent, but not longer than the deadline.
    pub fn drain(&self, deadline: Instant) {
        let mut outgoing = self.outgoing.lock();
        if !outgoing.bytes.is_empty() {
            self.wake_writer(&mut outgoing);
        }
        while (outgoing.is_writing || !outgoing.bytes.is_empty()) && !outgoing.closed {
            if self.drained.wait_until(&mut outgoing, deadline).timed_out() {
                return;
            }
        }
    }

    /// Bytes that wait to be sent.
    pub fn len(&self) -> usize {
        self.outgoing.lock().bytes.len()
    }

    /// The writer thread: runs until the connection is closed.
    pub fn run_writer(&self) {
        let mut outgoing = self.outgoing.lock();
        while !outgoing.closed {
            if outgoing.is_writing || outgoing.bytes.is_empty() {
                self.work.wait(&mut outgoing);
            } else {
                outgoing.is_handed_to_writer = false;
                self.write(&mut outgoing, SendFlags::empty());
            }
        }
    }

    /// Writes the waiting bytes without holding the lock, and returns the bytes that were not written.
    fn write(&self, outgoing: &mut MutexGuard<'_, OutgoingBuffer>, flags: SendFlags) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut outgoing.bytes);
        outgoing.is_writing = true;
        let written = MutexGuard::unlocked(outgoing, || send(&self.socket, &bytes, flags));
        outgoing.is_writing = false;
        if outgoing.is_handed_to_writer {
            self.work.notify_one();
        }
        self.drained.notify_all();
        match written {
            Ok(written) if written == bytes.len() => {
                bytes.clear();
                if outgoing.bytes.is_empty() && bytes.capacity() <= READ_CHUNK {
                    outgoing.bytes = std::mem::take(&mut bytes);
                }
            }
            Ok(written) => drop(bytes.drain(..written)),
            Err(_) => {
                // The connection's reader will find the end, and clean up.
                bytes.clear();
                self.end(outgoing, self.broken);
            }
        }
        bytes
    }

    /// Makes the connection's reader find the end. Sending still works.
    pub fn stop_reading(&self) {
        self.outgoing.lock().is_closing = true;
        self.drained.notify_all();
        // It fails only if the connection has ended already.
        let _ = self.socket.shutdown(Shutdown::Read);
    }

    /// Stops sending: the writer thread returns, and the other end finds the end. Reading still
    /// works.
    pub fn stop_sending(&self) {
        self.end(&mut self.outgoing.lock(), Shutdown::Write);
    }

    /// Closes the connection in both directions.
    pub fn close(&self) {
        self.end(&mut self.outgoing.lock(), Shutdown::Both);
    }

    fn end(&self, outgoing: &mut OutgoingBuffer, what: Shutdown) {
        outgoing.closed = true;
        outgoing.bytes = Vec::new();
        // It fails only if the connection has ended already.
        let _ = self.socket.shutdown(what);
        self.work.notify_all();
        self.drained.notify_all();
    }
}

/// Sends `bytes`, or as many as possible without blocking if `flags` say so. A closed peer is an
/// error, not a SIGPIPE, which the program around this library may not ignore.
fn send(socket: &UnixStream, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(socket, &bytes[sent..], flags | SendFlags::NOSIGNAL) {
            Ok(more) => sent += more,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}

/// Reads and ignores everything until the other end closes.
pub fn await_end(socket: &UnixStream) {
    let mut unread = vec![0; READ_CHUNK];
    // An error ends the connection too.
    while matches!(
        rustix::net::recv(socket, &mut unread[..], RecvFlags::empty()),
        Ok((_, 1..)) | Err(Errno::INTR)
    ) {}
}

/// The id of the user root.
const ROOT: u32 = 0;

/// True if the process at the other end belongs to this user or root.
pub fn is_trusted(socket: &UnixStream) -> io::Result<bool> {
    let peer = crate::capi::process::peer::uid(socket.as_fd())?;
    Ok(peer == ROOT || peer == rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests;
