//! A channel with room for a number of messages.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{RecvError, SendError, TryRecvError};

use crate::locks::{Condvar, Mutex};

struct State<T> {
    messages: VecDeque<T>,
    room: usize,
    senders: usize,
    has_receiver: bool,
}

struct Channel<T> {
    state: Mutex<State<T>>,
    /// Signals a message, room for one, or an end.
    changed: Condvar,
}

/// Sends messages. Clones send to the same receiver.
pub struct SyncSender<T>(Arc<Channel<T>>);

/// Receives the messages.
pub struct Receiver<T>(Arc<Channel<T>>);

/// A channel with room for `room` messages, one at least.
#[must_use]
pub fn sync_channel<T>(room: usize) -> (SyncSender<T>, Receiver<T>) {
    let state = State { messages: VecDeque::new(), room: room.max(1), senders: 1, has_receiver: true };
    let channel = Arc::new(Channel { state: Mutex::new(state), changed: Condvar::new() });
    (SyncSender(Arc::clone(&channel)), Receiver(channel))
}

impl<T> SyncSender<T> {
    /// Waits for room, and sends.
    ///
    /// # Errors
    /// The message, if nobody receives any more.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        while state.has_receiver && state.messages.len() >= state.room {
            self.0.changed.wait(&mut state);
        }
        if !state.has_receiver {
            return Err(SendError(message));
        }
        state.messages.push_back(message);
        drop(state);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Waits for a message.
    ///
    /// # Errors
    /// If nobody sends any more.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(message) = state.messages.pop_front() {
                drop(state);
                self.0.changed.notify_all();
                return Ok(message);
            }
            if state.senders == 0 {
                return Err(RecvError);
            }
            self.0.changed.wait(&mut state);
        }
    }

    /// A message that is there.
    ///
    /// # Errors
    /// If there is none, or nobody sends any more.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state.lock();
        match state.messages.pop_front() {
            Some(message) => {
                drop(state);
                self.0.changed.notify_all();
                Ok(message)
            }
            None if state.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> SyncSender<T> {
        self.0.state.lock().senders += 1;
        SyncSender(Arc::clone(&self.0))
    }
}

impl<T> Drop for SyncSender<T> {
    fn drop(&mut self) {
        self.0.state.lock().senders -= 1;
        self.0.changed.notify_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Messages may own senders of other channels: they are dropped behind the lock.
        let mut state = self.0.state.lock();
        state.has_receiver = false;
        let left = std::mem::take(&mut state.messages);
        drop(state);
        self.0.changed.notify_all();
        drop(left);
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

/// The messages of a receiver, to the end.
#[derive(Debug)]
pub struct IntoIter<T>(Receiver<T>);

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SyncSender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}
