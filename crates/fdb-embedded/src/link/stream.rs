//! A framed connection over a Unix socket: frames in, frames out, and whose process is at the other end.
//!
//! A frame is its length in four bytes, little-endian, and that many bytes of message. Sending never blocks the
//! thread that does it: what the socket does not take at once is left to the connection's writer thread.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::wire::Malformed;
use crate::fork::Own;

/// Longest frame that is sent or read, bytes: a transaction of FoundationDB's limit fits, with what surrounds it.
pub const MAX_FRAME: usize = 16 << 20;
/// Bytes that are read at once.
const READ_CHUNK: usize = 64 << 10;
const LENGTH_BYTES: usize = 4;

/// Takes frames off a socket.
pub struct Frames<'s> {
    socket: &'s UnixStream,
    buffer: Vec<u8>,
    /// Where the next frame begins in the buffer.
    start: usize,
    /// How much of the buffer is filled.
    end: usize,
    /// Nothing is waited for after this moment.
    deadline: Option<Instant>,
}

impl<'s> Frames<'s> {
    /// Frames from the start of a connection.
    pub fn new(socket: &'s UnixStream) -> Frames<'s> {
        Frames { socket, buffer: vec![0; READ_CHUNK], start: 0, end: 0, deadline: None }
    }

    /// Is the next frame here already, so that [`Frames::next`] will not wait?
    pub fn is_next_here(&self) -> bool {
        let here = &self.buffer[self.start..self.end];
        let length = here.first_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length) as usize);
        length.is_some_and(|length| here.len() - LENGTH_BYTES >= length)
    }

    /// The next frame, if all of it is here before the deadline; `WouldBlock` otherwise, however much of it has come.
    pub fn next_by(&mut self, deadline: Instant) -> io::Result<Option<&[u8]>> {
        self.deadline = Some(deadline);
        let is_whole = self.fill_frame();
        self.deadline = None;
        self.socket.set_read_timeout(None)?;
        Ok(is_whole?.map(|length| self.take(length)))
    }

    /// The next frame; `None` when the other end has closed.
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let is_whole = self.fill_frame()?;
        Ok(is_whole.map(|length| self.take(length)))
    }

    /// Reads until a whole frame lies in the buffer; its length.
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

    /// Reads until `wanted` bytes lie in the buffer; false when the connection ends before.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        if self.end - self.start >= wanted {
            return Ok(true);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        // A large frame's buffer is not kept for the small ones that follow, and grows as the frame arrives.
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
                let left = deadline.saturating_duration_since(Instant::now());
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
struct Outgoing {
    bytes: Vec<u8>,
    /// Some thread is writing what it took out of `bytes`.
    is_writing: bool,
    /// The writer thread is to write the rest.
    is_left_over: bool,
    /// Bytes of requests that were taken and are not answered yet.
    owed: usize,
    /// Nobody waits any more for the other end to read.
    hurries: bool,
    closed: bool,
}

/// Why a frame will not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is longer than the other end would read.
    TooLong,
    /// Nothing is sent any more.
    Closed,
}

/// Frames on their way out.
pub struct Outbox {
    socket: Own<UnixStream>,
    /// What is shut down when nothing can be sent any more: enough for the other end, or our own reader, to notice,
    /// and no more than that, for what is still to arrive counts.
    broken: Shutdown,
    outgoing: Mutex<Outgoing>,
    /// The writer thread has something to do.
    work: Condvar,
    /// Some bytes are gone.
    drained: Condvar,
}

impl Outbox {
    /// An empty outbox of a guest's connection. When it fails, the host finds the end of the requests; what the host has
    /// answered by then can still be read.
    pub fn of_guest(socket: impl Into<Own<UnixStream>>) -> Outbox {
        Outbox::new(socket.into(), Shutdown::Write)
    }

    /// An empty outbox of a host's connection. When it fails, the session finds the end of the requests; the guest finds
    /// none before its commits are settled.
    pub fn of_host(socket: impl Into<Own<UnixStream>>) -> Outbox {
        Outbox::new(socket.into(), Shutdown::Read)
    }

    fn new(socket: Own<UnixStream>, broken: Shutdown) -> Outbox {
        Outbox { socket, broken, outgoing: Mutex::default(), work: Condvar::new(), drained: Condvar::new() }
    }

    /// The connection.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Appends a frame. It is sent by a `flush` after it, or by the writer thread if `leave` follows. A frame that is
    /// refused is not appended.
    pub fn push(&self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), Refused> {
        let mut outgoing = self.outgoing.lock();
        if outgoing.closed {
            return Err(Refused::Closed);
        }
        let bytes = &mut outgoing.bytes;
        let start = bytes.len();
        bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        encode(bytes);
        let length = bytes.len() - start - LENGTH_BYTES;
        if length > MAX_FRAME {
            bytes.truncate(start);
            bytes.shrink_to(READ_CHUNK);
            return Err(Refused::TooLong);
        }
        let length = u32::try_from(length).expect("MAX_FRAME is far below 4 GiB");
        bytes[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Sends what the socket takes without blocking, and leaves the rest to the writer thread.
    pub fn flush(&self) {
        let mut outgoing = self.outgoing.lock();
        while !outgoing.is_writing && !outgoing.is_left_over && !outgoing.bytes.is_empty() {
            let rest = self.write(&mut outgoing, SendFlags::DONTWAIT);
            if !rest.is_empty() {
                let newer = std::mem::replace(&mut outgoing.bytes, rest);
                outgoing.bytes.extend_from_slice(&newer);
                self.leave_to_writer(&mut outgoing);
            }
        }
    }

    /// Has the writer thread send what is there, for a caller that has no time for it.
    pub fn leave(&self) {
        let mut outgoing = self.outgoing.lock();
        if !outgoing.bytes.is_empty() && !outgoing.is_left_over {
            self.leave_to_writer(&mut outgoing);
        }
    }

    fn leave_to_writer(&self, outgoing: &mut Outgoing) {
        outgoing.is_left_over = true;
        self.work.notify_one();
    }

    /// A request of so many bytes has been taken, to be answered later.
    pub fn owe(&self, bytes: usize) {
        self.outgoing.lock().owed += bytes;
    }

    /// It has been answered, and the answer is pushed.
    pub fn settle(&self, bytes: usize) {
        self.outgoing.lock().owed -= bytes;
        self.drained.notify_all();
    }

    /// Waits until fewer than `unsent` bytes are on their way and fewer than `owed` have still to be answered.
    pub fn wait_below(&self, unsent: usize, owed: usize) {
        let mut outgoing = self.outgoing.lock();
        while (outgoing.bytes.len() >= unsent || outgoing.owed >= owed)
            && !outgoing.closed
            && !outgoing.hurries
        {
            // The thread that would have flushed them is this one.
            if !outgoing.bytes.is_empty() && !outgoing.is_left_over {
                self.leave_to_writer(&mut outgoing);
            }
            self.drained.wait(&mut outgoing);
        }
    }

    /// Waits until all that was taken is answered, unless the end hurries.
    pub fn await_settled(&self) {
        let mut outgoing = self.outgoing.lock();
        while outgoing.owed > 0 && !outgoing.hurries {
            self.drained.wait(&mut outgoing);
        }
    }

    /// Waits until everything is sent, for as long as the other end may take to read it.
    pub fn finish(&self, deadline: Instant) {
        let mut outgoing = self.outgoing.lock();
        if !outgoing.bytes.is_empty() {
            self.leave_to_writer(&mut outgoing);
        }
        while (outgoing.is_writing || !outgoing.bytes.is_empty()) && !outgoing.closed {
            if self.drained.wait_until(&mut outgoing, deadline).timed_out() {
                return;
            }
        }
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.outgoing.lock().bytes.len()
    }

    /// The writer thread's work, until the connection is closed.
    pub fn run_writer(&self) {
        let mut outgoing = self.outgoing.lock();
        while !outgoing.closed {
            if outgoing.is_writing || outgoing.bytes.is_empty() {
                self.work.wait(&mut outgoing);
            } else {
                outgoing.is_left_over = false;
                self.write(&mut outgoing, SendFlags::empty());
            }
        }
    }

    /// Takes what waits and writes it with the lock released. Returns what was not written.
    fn write(&self, outgoing: &mut MutexGuard<'_, Outgoing>, flags: SendFlags) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut outgoing.bytes);
        outgoing.is_writing = true;
        let written = MutexGuard::unlocked(outgoing, || send(&self.socket, &bytes, flags));
        outgoing.is_writing = false;
        if outgoing.is_left_over {
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
                // The reader of this connection comes to its end and cleans up.
                bytes.clear();
                self.end(outgoing, self.broken);
            }
        }
        bytes
    }

    /// Makes the connection's reader find its end; what is to be sent still can be.
    pub fn stop_reading(&self) {
        self.outgoing.lock().hurries = true;
        self.drained.notify_all();
        // It fails only when the connection has ended already.
        let _ = self.socket.shutdown(Shutdown::Read);
    }

    /// Sends nothing more: its writer returns, later frames are refused, the other end finds the end. What that one
    /// sends still arrives.
    pub fn stop_sending(&self) {
        self.end(&mut self.outgoing.lock(), Shutdown::Write);
    }

    /// Ends the connection: its reader finds the end, its writer returns, later frames are refused.
    pub fn close(&self) {
        self.end(&mut self.outgoing.lock(), Shutdown::Both);
    }

    fn end(&self, outgoing: &mut Outgoing, what: Shutdown) {
        outgoing.closed = true;
        outgoing.bytes = Vec::new();
        // It fails only when the connection has ended already.
        let _ = self.socket.shutdown(what);
        self.work.notify_all();
        self.drained.notify_all();
    }
}

/// Sends all of `bytes`, or as much as goes without blocking if the flags say so. A closed peer is an error here and
/// never a signal: the program around this library may not ignore SIGPIPE.
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

/// Waits until the other end closes, whatever it still sends.
pub fn await_end(socket: &UnixStream) {
    let mut unread = vec![0; READ_CHUNK];
    // An error is an end too: the other has closed with something unread, or the system keeps the rest from us.
    while matches!(
        rustix::net::recv(socket, &mut unread[..], RecvFlags::empty()),
        Ok((_, 1..)) | Err(Errno::INTR)
    ) {}
}

/// May the process at the other end share this directory: is it of this user, or root's?
pub fn is_trusted(socket: &UnixStream) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?.uid;
    Ok(peer.is_root() || peer == rustix::process::geteuid())
}

#[cfg(test)]
mod tests;
