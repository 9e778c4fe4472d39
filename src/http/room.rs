//! What all clients share, such as the memory for bodies: how much there is of it, and a share for each access token.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mutant::mutant;

use super::guard::Caller;
use crate::access::AccessToken;

/// Up to this many bytes a body or an answer is short.
pub(super) const SHORT: usize = 64 << 10;

/// How much there is of something, and who may have how much of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    pub(super) all: usize,
    /// The most that requests with one access token have. Of requests without one it is not known who sends them.
    pub(super) of_a_token: usize,
    /// What only short requests get, so that acknowledgements go on while long pushes fill the rest.
    pub(super) for_short: usize,
}

/// Bytes of bodies.
pub(super) const BODIES: Shares = Shares { all: 64 << 20, of_a_token: 32 << 20, for_short: 8 << 20 };

/// Bytes of answers that are not short, until their clients have read them.
pub(super) const ANSWERS: Shares = Shares { all: 64 << 20, of_a_token: 32 << 20, for_short: 0 };

/// Requests that use the database.
pub(super) const AT_THE_DATABASE: Shares = Shares { all: 16, of_a_token: 12, for_short: 0 };

impl Shares {
    /// The most that requests with one access token have, but for short ones.
    pub(super) const fn of_long_ones_of_a_token(self) -> usize {
        self.of_a_token - self.for_short * self.of_a_token / self.all
    }

    const fn of_long_ones(self) -> usize {
        self.all - self.for_short
    }
}

/// What clients share, and how much of it they have.
#[derive(Debug)]
pub(super) struct Room {
    shares: Shares,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    /// By the ids of access tokens. A token that holds nothing is not in it.
    of_tokens: HashMap<String, usize>,
}

/// A part of a [`Room`] that a request has until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    room: Arc<Room>,
    token: Option<Arc<AccessToken>>,
    is_short: bool,
    held: usize,
}

impl Held {
    fn of(&self, token: &AccessToken) -> usize {
        self.of_tokens.get(&token.id).copied().unwrap_or_default()
    }

    /// Counts that a place of the token has another size.
    fn resize(&mut self, token: Option<&AccessToken>, before: usize, after: usize) {
        self.all = self.all - before + after;
        let Some(token) = token else { return };
        match self.of(token) - before + after {
            0 => _ = self.of_tokens.remove(&token.id),
            held => match self.of_tokens.get_mut(&token.id) {
                Some(entry) => *entry = held,
                None => _ = self.of_tokens.insert(token.id.clone(), held),
            },
        }
    }
}

impl Room {
    pub(super) fn new(shares: Shares) -> Arc<Self> {
        Arc::new(Self { shares, held: Mutex::default() })
    }

    /// A place of nothing, for a request that may be long.
    pub(super) fn place(self: &Arc<Self>, caller: &Caller) -> Place {
        let token = match caller {
            Caller::Token(token) => Some(token.clone()),
            Caller::Anyone | Caller::Operator => None,
        };
        Place { room: self.clone(), token, is_short: false, held: 0 }
    }

    /// How much of it all requests have together.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Lets it use what is kept for short requests, too.
    pub(super) fn set_short(&mut self) {
        self.is_short = true;
    }

    /// Makes it as large as this, unless it is larger. Returns whether there was room.
    pub(super) fn grow_to(&mut self, amount: usize) -> bool {
        let mut held = self.room.lock();
        let fits = self.fits(&held, amount);
        if fits && amount > self.held {
            held.resize(self.token.as_deref(), self.held, amount);
            self.held = amount;
        }
        fits
    }

    /// Whether it could be as large as this now.
    pub(super) fn has_room_for(&self, amount: usize) -> bool {
        self.fits(&self.room.lock(), amount)
    }

    /// What alone exceeds the bounds fits while nobody else has any, so that it is not refused for ever.
    fn fits(&self, held: &Held, amount: usize) -> bool {
        let shares = self.room.shares;
        let (most, most_of_token) = match self.is_short {
            true => (shares.all, shares.of_a_token),
            false => (shares.of_long_ones(), shares.of_long_ones_of_a_token()),
        };
        let more = amount.saturating_sub(self.held);
        let is_within = held.all + more <= most
            && self.token.as_ref().is_none_or(|token| held.of(token) + more <= most_of_token);
        is_within || held.all == self.held || mutant("room-is-unbounded")
    }

    /// Makes it as large as this, whether or not there is room.
    pub(super) fn set(&mut self, amount: usize) {
        if amount != self.held {
            self.room.lock().resize(self.token.as_deref(), self.held, amount);
            self.held = amount;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::access::{NewToken, Scope};

    const MIB: usize = 1 << 20;

    /// A client with an access token.
    fn client(name: &str) -> Caller {
        let (scopes, queues) = (BTreeSet::from([Scope::Push]), vec!["*".parse().unwrap()]);
        let token = NewToken { name: name.to_owned(), scopes, queues, expires_at: None };
        Caller::Token(Arc::new(token.issue(std::time::UNIX_EPOCH).unwrap().1))
    }

    /// Places of this size for a client, as many as there is room for.
    fn fill(room: &Arc<Room>, caller: &Caller, size: usize) -> Vec<Place> {
        let mut places: Vec<_> = (0..100).map(|_| room.place(caller)).collect();
        places.retain_mut(|place| place.grow_to(size));
        places
    }

    #[test]
    fn a_token_cannot_take_the_room_of_others() {
        for (shares, unit) in [(ANSWERS, MIB), (AT_THE_DATABASE, 1)] {
            let (room, a) = (Room::new(shares), client("a"));
            let held = fill(&room, &a, unit);
            assert_eq!(held.len(), shares.of_a_token / unit);
            let left = (shares.all - shares.of_a_token) / unit;
            for other in [client("b"), Caller::Operator] {
                assert_eq!(fill(&room, &other, unit).len(), left, "{other:?}");
            }
            drop(held);
            assert_eq!(fill(&room, &a, unit).len(), shares.of_a_token / unit);
            let left = room.lock();
            assert!(left.all == 0 && left.of_tokens.is_empty(), "{left:?}");
        }
    }

    #[test]
    fn short_requests_have_room_when_long_ones_have_taken_theirs() {
        let room = Room::new(BODIES);
        let short = |caller| {
            let mut place = room.place(caller);
            place.set_short();
            place.grow_to(SHORT)
        };
        let (a, b) = (client("a"), client("b"));
        let of_a = fill(&room, &a, MIB);
        assert_eq!(of_a.len(), BODIES.of_long_ones_of_a_token() / MIB);
        assert!(short(&a) && short(&b));
        let others = fill(&room, &Caller::Anyone, MIB);
        assert_eq!(of_a.len() + others.len(), (BODIES.all - BODIES.for_short) / MIB);
        assert!(short(&a) && short(&b) && short(&Caller::Operator));
        assert!(!room.place(&b).grow_to(1), "of a long one");
    }

    #[test]
    fn a_place_that_exceeds_a_share_has_room_alone() {
        let (room, a) = (Room::new(ANSWERS), client("a"));
        let mut long = room.place(&a);
        assert!(long.grow_to(2 * ANSWERS.all));
        let mut short = room.place(&Caller::Anyone);
        assert!(!short.grow_to(1));
        drop(long);
        assert!(short.grow_to(1));
        assert!(!room.place(&a).grow_to(ANSWERS.of_a_token + 1));
    }
}
