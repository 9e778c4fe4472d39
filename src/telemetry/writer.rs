//! The thread that writes the log, and the bounded queue before it.
//!
//! A thread that logs only adds to the queue, so a reader of the log that stalls holds up nothing else: not the actors' thread, not a
//! handler, not the end of the process. When the queue is full, messages are dropped and counted.

use std::{
    cell::Cell,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// The most bytes that wait to be written. A single message that is longer still finds room in an empty queue.
const LIMIT: usize = 4 << 20;

/// A buffer that has grown beyond this is given back when it is empty.
const KEPT: usize = 64 << 10;

/// Where messages end up: it writes them and returns how many of them it could not write. It may block.
pub(super) type Sink = Box<dyn FnMut(&Batch) -> usize + Send>;

/// Messages in the order in which they were logged.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Where each message ends in `bytes`.
    ends: Vec<usize>,
}

/// The queue's front end. Clones share it.
#[derive(Clone)]
pub(super) struct Writer(Arc<Inner>);

struct Inner {
    limit: usize,
    queue: Mutex<Queue>,
    /// Wakes the thread.
    pushed: Condvar,
    /// Wakes [`Writer::flush`].
    written: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Queue {
    waiting: Batch,
    /// The thread has taken messages that it has not written yet.
    is_writing: bool,
    /// The thread waits for `pushed`.
    is_asleep: bool,
    /// A flush ran out of time: the next ones do not wait.
    has_stalled: bool,
}

thread_local! {
    /// Whether this thread writes a log: what it logs itself finds room in a full queue, once for each batch.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many messages there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The messages.
    pub(super) fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    pub(super) fn add(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.ends.clear();
        self.ends.shrink_to(KEPT);
    }
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives this process no further thread.
    pub(super) fn start(sink: Sink) -> io::Result<Self> {
        Self::with_limit(sink, report, LIMIT)
    }

    fn with_limit(sink: Sink, report: impl Fn(u64) + Send + 'static, limit: usize) -> io::Result<Self> {
        let inner = Arc::new(Inner {
            limit,
            queue: Mutex::default(),
            pushed: Condvar::new(),
            written: Condvar::new(),
            dropped: AtomicU64::new(0),
        });
        let thread = inner.clone();
        thread::Builder::new().name("kvqueue-log".to_owned()).spawn(move || thread.run(sink, report))?;
        Ok(Self(inner))
    }

    /// Has a message written soon; drops it if the queue is full. Never blocks for longer than it takes to copy a message.
    pub(super) fn push(&self, message: &[u8]) {
        let mut queue = self.0.lock();
        let is_full = !queue.waiting.is_empty() && queue.waiting.bytes.len() + message.len() > self.0.limit;
        if is_full && !WRITES.get() {
            self.0.dropped.fetch_add(1, Relaxed);
            return;
        }
        queue.waiting.add(message);
        if queue.is_asleep {
            self.0.pushed.notify_one();
        }
    }

    /// Waits until all messages are written, but not longer than this. After a flush that ran out of time, the next ones return at once.
    pub(super) fn flush(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let mut queue = self.0.lock();
        while queue.is_writing || !queue.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || queue.has_stalled {
                queue.has_stalled = true;
                return;
            }
            queue = self.0.written.wait_timeout(queue, left).expect(NO_PANIC).0;
        }
    }

    /// How many messages were dropped, or could not be written, since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.0.dropped.load(Relaxed)
    }
}

const NO_PANIC: &str = "nothing panics while it holds the lock";

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect(NO_PANIC)
    }

    fn run(&self, mut sink: Sink, report: impl Fn(u64)) {
        WRITES.set(true);
        let (mut batch, mut reported) = (Batch::default(), 0);
        loop {
            self.next(&mut batch);
            let lost = sink(&batch);
            let dropped = self.dropped.fetch_add(lost as u64, Relaxed) + lost as u64;
            // If not even this batch could be written, a report could not be written either.
            if dropped > reported && lost < batch.len() {
                report(dropped - reported);
                reported = dropped;
            }
            batch.clear();
        }
    }

    /// Waits for messages, and takes all of them.
    fn next(&self, batch: &mut Batch) {
        let mut queue = self.lock();
        queue.is_writing = false;
        while queue.waiting.is_empty() {
            self.written.notify_all();
            queue.is_asleep = true;
            queue = self.pushed.wait(queue).expect(NO_PANIC);
            queue.is_asleep = false;
        }
        queue.is_writing = true;
        std::mem::swap(&mut queue.waiting, batch);
    }
}

fn report(messages: u64) {
    tracing::error!(
        event = "log_dropped",
        messages,
        "log messages were dropped, because the log's reader was too slow or writing failed"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A writer whose reader takes a batch when the test says how many of its messages are lost.
    fn held(
        limit: usize,
        report: impl Fn(u64) + Send + 'static,
    ) -> (Writer, mpsc::Sender<usize>, mpsc::Receiver<Vec<String>>) {
        let (release, released) = mpsc::channel();
        let (sender, written) = mpsc::channel();
        let sink = move |batch: &Batch| {
            let messages = batch.messages().map(|it| String::from_utf8(it.to_vec()).unwrap()).collect();
            sender.send(messages).unwrap();
            released.recv().unwrap_or(0)
        };
        (Writer::with_limit(Box::new(sink), report, limit).unwrap(), release, written)
    }

    #[test]
    fn messages_stay_in_order_and_a_full_queue_drops_and_counts() {
        let (writer, release, written) = held(8, drop);
        writer.push(b"first");
        assert_eq!(written.recv().unwrap(), ["first"]);
        // The reader stalls; there is room for eight bytes.
        for message in ["1234", "5678", "9", "much too long"] {
            writer.push(message.as_bytes());
        }
        assert_eq!(writer.dropped(), 2);
        release.send(0).unwrap();
        assert_eq!(written.recv().unwrap(), ["1234", "5678"]);
        // One that is too long for the queue finds room in an empty one.
        writer.push(b"much too long");
        release.send(0).unwrap();
        assert_eq!(written.recv().unwrap(), ["much too long"]);
        assert_eq!(writer.dropped(), 2);
    }

    #[test]
    fn flush_waits_for_all_messages_but_not_for_a_reader_that_stalls() {
        let (writer, release, written) = held(LIMIT, drop);
        writer.push(b"x");
        let began = Instant::now();
        writer.flush(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(50));
        // It is known to have stalled.
        writer.flush(Duration::from_secs(3_600));
        drop(release);

        let (writer, release, rest) = held(LIMIT, drop);
        writer.push(b"y");
        release.send(0).unwrap();
        writer.flush(Duration::from_secs(60));
        assert_eq!(rest.try_recv().unwrap(), ["y"]);
        drop(written);
    }

    #[test]
    fn dropped_messages_are_reported_after_the_next_batch_that_is_written_and_not_before() {
        let (reported, reports) = mpsc::channel();
        let (writer, release, written) = held(8, move |messages| reported.send(messages).unwrap());
        writer.push(b"first");
        written.recv().unwrap();
        ["1234", "5678", "9"].iter().for_each(|message| writer.push(message.as_bytes()));
        // The batch under way fails as a whole: a report would fail as well.
        release.send(1).unwrap();
        assert_eq!(written.recv().unwrap(), ["1234", "5678"]);
        assert_eq!((writer.dropped(), reports.try_recv()), (2, Err(mpsc::TryRecvError::Empty)));
        release.send(1).unwrap();
        assert_eq!(reports.recv().unwrap(), 3);
        writer.push(b"next");
        release.send(0).unwrap();
        writer.flush(Duration::from_secs(60));
        assert_eq!((writer.dropped(), reports.try_recv()), (3, Err(mpsc::TryRecvError::Empty)));
    }
}
