//! Ends connections over a Unix socket whose client does not read its answers.
//!
//! For TCP the system does so (`TCP_USER_TIMEOUT`). For a Unix socket it has no such limit, so this looks at each
//! connection now and then: one that has taken nothing for a while is shut down.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use super::peer::Peer;

/// How often the connections are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The Unix connections that are open.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Vec<Connection>>>);

#[derive(Debug)]
struct Connection {
    peer: Weak<Peer>,
    /// Since when its client has left answers unread.
    stuck: Option<Instant>,
}

impl Connections {
    /// Adds a connection. The list drops it after its peer is dropped.
    pub(super) fn add(&self, peer: &Arc<Peer>) {
        self.lock().push(Connection { peer: Arc::downgrade(peer), stuck: None });
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
            let Some(peer) = connection.peer.upgrade() else { return false };
            if peer.is_writable() {
                connection.stuck = None;
                return true;
            }
            let since = *connection.stuck.get_or_insert(now);
            let is_over = now.duration_since(since) >= patience;
            if is_over {
                peer.cut_off();
            }
            !is_over
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let peers = [&slow, &quick, &gone].map(|stream| Arc::new(Peer::of(stream).unwrap()));
        peers.iter().for_each(|peer| connections.add(peer));
        let [slow_peer, quick_peer, gone_peer] = peers;
        drop(gone_peer);
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
        drop((slow_peer, quick_peer));
        connections.look(began, patience);
        assert!(connections.lock().is_empty());
    }
}
