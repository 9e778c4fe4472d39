//! Ends connections over a Unix socket whose client does not read its answers.
//!
//! For TCP the system does so (`TCP_USER_TIMEOUT`). For a Unix socket it has no such limit, so this looks at each
//! connection now and then: one that has taken nothing for a while is shut down.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, shutdown},
};

/// How often the connections are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The Unix connections that are open.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Vec<Connection>>>);

/// Keeps a connection in the list that is checked. It ends with the connection.
#[derive(Debug)]
pub(super) struct Watched {
    _stream: Arc<OwnedFd>,
}

#[derive(Debug)]
struct Connection {
    stream: Weak<OwnedFd>,
    /// Since when its client has left answers unread.
    stuck: Option<Instant>,
}

impl Connections {
    /// Adds a connection. What this returns has to live as long as the connection, and no longer.
    pub(super) fn add(&self, stream: impl AsFd) -> std::io::Result<Watched> {
        let stream = Arc::new(stream.as_fd().try_clone_to_owned()?);
        self.lock().push(Connection { stream: Arc::downgrade(&stream), stuck: None });
        Ok(Watched { _stream: stream })
    }

    /// Ends each connection whose client has left an answer unread for `patience`. Never returns.
    pub(super) async fn end_slow_readers(&self, patience: Duration) -> ! {
        loop {
            tokio::time::sleep(LOOK).await;
            self.look(Instant::now(), patience);
        }
    }

    fn look(&self, now: Instant, patience: Duration) {
        self.lock().retain_mut(|connection| {
            let Some(stream) = connection.stream.upgrade() else { return false };
            if is_writable(&stream) {
                connection.stuck = None;
                return true;
            }
            let since = *connection.stuck.get_or_insert(now);
            let is_over = now.duration_since(since) >= patience;
            if is_over {
                // Its task learns of it as if the client had gone.
                let _ = shutdown(&*stream, Shutdown::Both);
            }
            !is_over
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the client has read so much that there is room for more.
fn is_writable(stream: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::OUT)];
    // An error says nothing about the client.
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).map_or(true, |_| !polled[0].revents().is_empty())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use super::*;

    #[test]
    fn only_a_client_that_reads_nothing_is_cut_off() {
        let connections = Connections::default();
        let pair = || UnixStream::pair().unwrap();
        let ((mut slow, mut client), (mut quick, mut reader), (gone, _other)) = (pair(), pair(), pair());
        let watched = [&slow, &quick].map(|stream| connections.add(stream).unwrap());
        drop(connections.add(&gone).unwrap());
        let fill = |stream: &mut UnixStream| {
            stream.set_nonblocking(true).unwrap();
            while stream.write(&[0; 4096]).is_ok() {}
        };
        fill(&mut slow);
        fill(&mut quick);
        let (began, patience) = (Instant::now(), Duration::from_secs(20));
        connections.look(began, patience);
        assert_eq!(connections.lock().len(), 2, "one has gone");
        reader.set_nonblocking(true).unwrap();
        while reader.read(&mut [0; 4096]).is_ok() {}
        connections.look(began + patience / 2, patience);
        fill(&mut quick);
        connections.look(began + patience, patience);
        assert_eq!(connections.lock().len(), 1, "one was cut off");
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("its end is shut down");
        assert!(quick.write(&[0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
        drop(watched);
        connections.look(began, patience);
        assert!(connections.lock().is_empty());
    }
}
