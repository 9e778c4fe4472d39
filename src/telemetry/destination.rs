//! Where the log's messages go: straight to their destination, or to the thread that writes them.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    stdio::stderr,
};
use tracing_subscriber::fmt::MakeWriter;

use super::writer::{Batch, Sink, Writer};

/// The longest that the end of the process waits for the log to be written.
const LAST_MESSAGES: Duration = Duration::from_secs(1);

/// The most bytes that a pipe takes in one piece, so that lines of several processes do not mix.
const ONE_PIECE: usize = 4_096;

/// The process's log, if a thread writes it.
static LOG: OnceLock<Writer> = OnceLock::new();

/// Messages on stderr that are not part of the log, if a thread writes the log.
static NOTES: OnceLock<Writer> = OnceLock::new();

/// Where messages go. Clones go to the same place.
#[derive(Clone)]
pub(super) enum Out {
    /// To their destination: a thread that logs waits until the message is written, as in a command that ends soon.
    Direct(Arc<Mutex<Sink>>),
    /// To the thread that writes them.
    Queued(Writer),
}

impl Out {
    /// To this destination; through a thread if `queued`, and if the system has one.
    pub(super) fn to(sink: impl Fn() -> Sink, queued: bool) -> Self {
        let writer = if queued { Writer::start(sink()).ok() } else { None };
        writer.map_or_else(|| Self::Direct(Arc::new(Mutex::new(sink()))), Self::Queued)
    }

    pub(super) fn write(&self, message: &[u8]) {
        match self {
            Self::Queued(writer) => writer.push(message),
            Self::Direct(sink) => {
                let mut batch = Batch::default();
                batch.add(message);
                // A line that cannot be written is lost.
                sink.lock().expect("a sink does not panic")(&batch);
            }
        }
    }

    /// This is the process's log from now on. `is_stderr` if it goes there.
    pub(super) fn keep(&self, is_stderr: bool) {
        let Self::Queued(writer) = self else { return };
        let _ = LOG.set(writer.clone());
        if is_stderr {
            let _ = NOTES.set(writer.clone());
        } else if let Ok(notes) = Writer::start(to_stderr()) {
            let _ = NOTES.set(notes);
        }
    }
}

/// Writes a line on stderr. Behind a log that a thread writes it waits for its turn, and blocks nobody either.
pub(crate) fn note(line: &str) {
    let line = format!("{line}\n");
    match NOTES.get() {
        Some(writer) => writer.push(line.as_bytes()),
        None => {
            // Without a stderr the line is lost.
            let _ = io::Write::write_all(&mut io::stderr(), line.as_bytes());
        }
    }
}

/// Waits until the log is written, up to a second.
pub(crate) fn flush() {
    [&LOG, &NOTES].into_iter().filter_map(OnceLock::get).for_each(|writer| writer.flush(LAST_MESSAGES));
}

/// How many messages of the log were dropped, or could not be written, since the start.
pub(crate) fn dropped() -> u64 {
    LOG.get().map_or(0, Writer::dropped)
}

impl<'a> MakeWriter<'a> for Out {
    type Writer = Lines<'a>;

    fn make_writer(&'a self) -> Lines<'a> {
        Lines(self)
    }
}

/// Takes one message with each write.
pub(super) struct Lines<'a>(&'a Out);

impl io::Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// stderr, without the standard library's lock: a thread that blocks here must not block others that want to write there.
pub(super) fn to_stderr() -> Sink {
    Box::new(|batch| {
        let mut lost = 0;
        let (mut piece, mut messages) = (Vec::new(), 0);
        for message in batch.messages() {
            if messages > 0 && piece.len() + message.len() > ONE_PIECE {
                lost += if write_all(&piece).is_ok() { 0 } else { messages };
                piece.clear();
                messages = 0;
            }
            piece.extend_from_slice(message);
            messages += 1;
        }
        lost + if write_all(&piece).is_ok() { 0 } else { messages }
    })
}

fn write_all(mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(stderr(), bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => bytes = &bytes[written..],
            // Somebody who has the same pipe made it so that writes do not wait.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&stderr(), PollFlags::OUT)], None)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
