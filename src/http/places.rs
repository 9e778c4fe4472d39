//! Places for connections, so that clients without a valid token cannot keep the others out.
//!
//! A connection is a stranger's until a request on it is permitted. `http.max-connections` is for known clients. Strangers
//! have what is left of that, and a few places more. A connection that finds no place takes that of the stranger who has
//! been there longest: a client that means to ask something does so at once.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use mutant::mutant;
use prometheus_client::metrics::counter::Counter;

use super::peer::Peer;

/// The places that known clients do not get.
const RESERVE: usize = 64;

/// Connections that may be open for a moment although there is no place: until a displaced one has ended.
const ENDING: usize = 64;

/// TLS connections whose handshake is not over. They have no place yet; each ends after 3 s at the latest.
pub(super) const HANDSHAKES: usize = 512;

/// The most connections that the system may have opened for this server.
pub(super) fn most_open(max_connections: usize, is_tls: bool) -> usize {
    max_connections + RESERVE + ENDING + if is_tls { HANDSHAKES } else { 0 }
}

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    /// The most known clients.
    most: usize,
    taken: Mutex<Taken>,
    /// Counts strangers that were displaced.
    displaced: Counter,
}

#[derive(Debug, Default)]
struct Taken {
    /// The number of the next connection.
    next: u64,
    known: usize,
    /// By their numbers, so the one that has been there longest is the first.
    strangers: BTreeMap<u64, Stranger>,
}

#[derive(Debug)]
struct Stranger {
    peer: Arc<Peer>,
    /// Whether a request of it is being answered.
    is_served: bool,
}

/// The place of a connection. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    is_known: AtomicBool,
}

/// While a request is being answered, its connection is displaced only if every stranger's is.
#[derive(Debug)]
pub(super) struct Served<'p>(&'p Place);

impl Places {
    pub(super) fn new(most: usize, displaced: Counter) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default(), displaced })
    }

    /// The place of a new connection.
    pub(super) fn enter(self: &Arc<Self>, peer: Arc<Peer>) -> Place {
        let mut taken = self.lock();
        let is_full = taken.known + taken.strangers.len() >= self.most + RESERVE;
        let displaced = if is_full && !mutant("strangers-stay") { taken.displace() } else { None };
        let number = taken.next;
        taken.next += 1;
        taken.strangers.insert(number, Stranger { peer, is_served: false });
        drop(taken);
        if let Some(stranger) = displaced {
            stranger.peer.cut_off();
            self.displaced.inc();
        }
        Place { places: self.clone(), number, is_known: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Removes the stranger that has been there longest, if possible one that is not being answered.
    fn displace(&mut self) -> Option<Stranger> {
        let silent = self.strangers.iter().find(|(_, stranger)| !stranger.is_served);
        let number = *silent.or_else(|| self.strangers.iter().next())?.0;
        self.strangers.remove(&number)
    }
}

impl Place {
    /// Notes that a request is being answered, until the result is dropped.
    pub(super) fn serve(&self) -> Served<'_> {
        self.note_served(true);
        Served(self)
    }

    fn note_served(&self, is_served: bool) {
        if let Some(stranger) = self.places.lock().strangers.get_mut(&self.number) {
            stranger.is_served = is_served;
        }
    }

    /// Notes that its client is known. Returns whether the connection may stay open after the answer: false if
    /// `http.max-connections` known clients are connected already.
    pub(super) fn admit(&self) -> bool {
        if self.is_known.load(Ordering::Relaxed) {
            return true;
        }
        let mut taken = self.places.lock();
        // A displaced connection ends after this answer at the latest.
        if taken.known >= self.places.most || taken.strangers.remove(&self.number).is_none() {
            return false;
        }
        taken.known += 1;
        self.is_known.store(true, Ordering::Relaxed);
        true
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.note_served(false);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if self.is_known.load(Ordering::Relaxed) {
            taken.known -= 1;
        } else {
            taken.strangers.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream};

    use super::*;

    const MOST: usize = 2;

    /// A connection, with both of its ends.
    struct Connection {
        place: Place,
        client: UnixStream,
        _own: UnixStream,
    }

    impl Connection {
        fn is_cut_off(&self) -> bool {
            (&self.client).read(&mut [0]).is_ok()
        }
    }

    /// Places, and a way to fill them.
    struct Siege {
        places: Arc<Places>,
        open: Vec<Connection>,
    }

    impl Siege {
        fn new() -> Self {
            Self { places: Places::new(MOST, Counter::default()), open: Vec::new() }
        }

        fn enter(&self) -> Connection {
            let (own, client) = UnixStream::pair().unwrap();
            client.set_nonblocking(true).unwrap();
            let place = self.places.enter(Arc::new(Peer::of(&own).unwrap()));
            Connection { place, client, _own: own }
        }

        /// Takes this number of places more.
        fn fill(&mut self, count: usize) {
            for _ in 0..count {
                self.open.push(self.enter());
            }
        }

        /// The numbers of the connections that were cut off.
        fn cut_off(&self) -> Vec<usize> {
            (0..self.open.len()).filter(|at| self.open[*at].is_cut_off()).collect()
        }
    }

    #[test]
    fn a_new_connection_displaces_the_stranger_that_has_been_there_longest() {
        let mut siege = Siege::new();
        let known = siege.enter();
        assert!(known.place.admit() && known.place.admit());
        siege.fill(MOST + RESERVE - 1);
        assert_eq!(siege.cut_off(), [0; 0]);
        let served = siege.open[0].place.serve();
        let new = siege.enter();
        assert_eq!(siege.cut_off(), [1]);
        assert!(!known.is_cut_off() && !new.is_cut_off());
        assert_eq!(siege.places.displaced.get(), 1);
        // One that was displaced stays unknown, and its end frees no place twice.
        assert!(!siege.open[1].place.admit());
        drop(served);
        drop(siege.open.remove(1));
        let another = siege.enter();
        assert_eq!(siege.cut_off(), [0]);
        assert!(!another.is_cut_off());
    }

    #[test]
    fn a_connection_that_is_answered_is_displaced_only_if_all_are() {
        let mut siege = Siege::new();
        siege.fill(MOST + RESERVE);
        let served: Vec<_> = siege.open.iter().map(|connection| connection.place.serve()).collect();
        let new = siege.enter();
        assert_eq!(siege.cut_off(), [0]);
        assert!(!new.is_cut_off());
        drop(served);
    }

    #[test]
    fn known_clients_leave_the_reserve_to_strangers() {
        let mut siege = Siege::new();
        siege.fill(MOST + 1);
        let admitted: Vec<_> = siege.open.iter().map(|connection| connection.place.admit()).collect();
        assert_eq!(admitted, [true, true, false]);
        siege.open.remove(0);
        assert!(siege.open[1].place.admit(), "a place is free again");
        siege.fill(RESERVE);
        assert_eq!(siege.cut_off(), [0; 0]);
        drop(siege.enter());
        assert_eq!(siege.cut_off(), [2]);
    }
}
