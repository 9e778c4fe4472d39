//! Reading what is to be pushed, on a thread of its own.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::cli::line_reader::{Line, STDIN, next_line};

/// Chunks read ahead.
const AHEAD: usize = 4;

/// A chunk is handed on when it holds this many items or bytes, or when the input pauses.
const CHUNK_ITEMS: usize = 1_000;
const CHUNK_BYTES: usize = 1_000_000;

/// Bytes asked for at a time.
const BUFFER: usize = 64 * 1024;

/// A part of the input.
pub(super) enum Found {
    Item(Bytes),
    /// An item over the limit; `what` says where it is.
    TooLong {
        what: String,
        bytes: u64,
    },
}

/// Some of the input, in order.
pub(super) type Chunk = Vec<Found>;

/// Where items come from, in this order.
pub(super) struct Input {
    pub(super) payloads: Vec<Bytes>,
    pub(super) lines: Option<PathBuf>,
    pub(super) file: Option<PathBuf>,
    /// The longest item in bytes.
    pub(super) limit: usize,
}

impl Input {
    /// Starts reading. Ends with the input or with an error; dropping the receiver stops it at the next chunk.
    pub(super) fn start(self) -> mpsc::Receiver<io::Result<Chunk>> {
        let (sender, receiver) = mpsc::channel(AHEAD);
        // Not joined: a read of stdin cannot be interrupted, and nothing depends on its end.
        std::thread::spawn(move || {
            let mut sink = Sink { sender, chunk: Vec::new(), bytes: 0, limit: self.limit };
            let read = self.read(&mut sink);
            // A receiver that is gone wants no more.
            let _ = sink.flush();
            if let Err(error) = read {
                let _ = sink.sender.blocking_send(Err(error));
            }
        });
        receiver
    }

    fn read(self, sink: &mut Sink) -> io::Result<()> {
        for (index, payload) in self.payloads.into_iter().enumerate() {
            sink.add(payload, || format!("argument {}", index + 1))?;
        }
        match &self.lines {
            None => {}
            Some(path) if path == Path::new(STDIN) => read_lines(io::stdin(), "stdin", sink)?,
            Some(path) => read_lines(open(path)?, &path.display().to_string(), sink)?,
        }
        match &self.file {
            None => Ok(()),
            Some(path) if path == Path::new(STDIN) => read_whole(io::stdin(), "stdin", sink),
            Some(path) => read_whole(open(path)?, &path.display().to_string(), sink),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::open(path).map_err(|error| about(path.display(), &error))
}

fn about(name: impl std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot read {name}: {error}"))
}

fn read_lines(from: impl Read, name: &str, sink: &mut Sink) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(BUFFER, from);
    for number in 1_u64.. {
        let place = || format!("line {number} of {name}");
        match next_line(&mut reader, sink.limit).map_err(|error| about(place(), &error))? {
            None => break,
            Some(Line::Whole(payload)) => sink.add(payload.into(), place)?,
            Some(Line::TooLong(bytes)) => sink.push(Found::TooLong { what: place(), bytes }, 0)?,
        }
        // The next line may be a long time coming.
        if reader.buffer().is_empty() {
            sink.flush()?;
        }
    }
    Ok(())
}

fn read_whole(mut from: impl Read, name: &str, sink: &mut Sink) -> io::Result<()> {
    let error = |error| about(name, &error);
    let mut payload = Vec::new();
    (&mut from).take(sink.limit as u64).read_to_end(&mut payload).map_err(error)?;
    // One over the limit is not kept, and its length is reported.
    let more = io::copy(&mut from, &mut io::sink()).map_err(error)?;
    if more > 0 {
        let bytes = payload.len() as u64 + more;
        return sink.push(Found::TooLong { what: name.to_owned(), bytes }, 0);
    }
    sink.add(payload.into(), || name.to_owned())
}

/// Gathers chunks and hands them on.
struct Sink {
    sender: mpsc::Sender<io::Result<Chunk>>,
    chunk: Chunk,
    bytes: usize,
    /// The longest item in bytes.
    limit: usize,
}

impl Sink {
    fn add(&mut self, payload: Bytes, what: impl FnOnce() -> String) -> io::Result<()> {
        let bytes = payload.len();
        if bytes > self.limit {
            return self.push(Found::TooLong { what: what(), bytes: bytes as u64 }, 0);
        }
        self.push(Found::Item(payload), bytes)
    }

    fn push(&mut self, found: Found, bytes: usize) -> io::Result<()> {
        self.chunk.push(found);
        self.bytes += bytes;
        if self.chunk.len() >= CHUNK_ITEMS || self.bytes >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.bytes = 0;
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.is_empty() {
            return Ok(());
        }
        // Only when the push has failed, which is reported there.
        self.sender.blocking_send(Ok(chunk)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
