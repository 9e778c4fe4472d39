//! A model of the index of a keyed queue, checked in every order of transactions.
//!
//! The rules are those of `src/ops/keyed`: which rows a transaction reads with a conflict, and what it writes. A transaction begins, and
//! computes its writes from what it has read; later it commits, unless another one has committed that wrote a row which this one has read with a conflict.
//! The checker goes through all states that two overlapping transactions can lead to, for two keys of one tenant.
//!
//! Each broken twin leaves out one conflict, or one rule. A model that finds nothing in them would prove nothing.

// The client library's symbols, for the linker.
use fdb_embedded as _;

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Checker, Model, Property};

/// `Tenant` is the scope of both keys. The scope of a key is that key's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Scope {
    Tenant,
    Key(Key),
}

type Key = u8;
const KEYS: [Key; 2] = [0, 1];
/// How many transactions overlap.
const MAX_OPEN: usize = 2;

fn scopes(key: Key) -> [Scope; 2] {
    [Scope::Tenant, Scope::Key(key)]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    Active,
    Parked(Scope),
}

/// A row, or a range of rows, that transactions conflict on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Row {
    Rules,
    /// All items of a key.
    Items(Key),
    Listed(Key),
    Place(Key, Place),
    /// All rows of keys that are parked under a scope.
    ParkedUnder(Scope),
    Running(Scope),
    /// All gates of a scope. `gates_model.rs` checks when a fetch may take fewer.
    Gates(Scope),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Write {
    /// Ready items of a key: more or fewer.
    Ready(Key, i8),
    /// Items of a key on leases: more or fewer. The scopes count them.
    Leased(Key, i8),
    List(Key),
    Unlist(Key),
    Put(Key, Place),
    Clear(Key, Place),
    Limit(Scope, u8),
    /// Whether parked keys are to be looked at again.
    Pending(bool),
    /// A fetch of a limited scope.
    Gates(Scope),
}

/// What is committed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Database {
    ready: BTreeMap<Key, i8>,
    leased: BTreeMap<Key, i8>,
    running: BTreeMap<Scope, i8>,
    listed: BTreeSet<Key>,
    places: BTreeSet<(Key, Place)>,
    limits: BTreeMap<Scope, u8>,
    pending: bool,
}

impl Database {
    fn ready(&self, key: Key) -> i8 {
        self.ready.get(&key).copied().unwrap_or(0)
    }

    fn running(&self, scope: Scope) -> i8 {
        self.running.get(&scope).copied().unwrap_or(0)
    }

    /// The free slots of a scope; `None` if it has no limit.
    fn free(&self, scope: Scope) -> Option<i8> {
        let limit = self.limits.get(&scope)?.cast_signed();
        Some((limit - self.running(scope)).max(0))
    }

    fn first_parked(&self, scope: Scope) -> Option<Key> {
        KEYS.into_iter().find(|key| self.places.contains(&(*key, Place::Parked(scope))))
    }

    fn apply(&mut self, write: &Write) {
        match *write {
            Write::Ready(key, n) => *self.ready.entry(key).or_default() += n,
            Write::Leased(key, n) => {
                *self.leased.entry(key).or_default() += n;
                scopes(key).into_iter().for_each(|scope| *self.running.entry(scope).or_default() += n);
            }
            Write::List(key) => drop(self.listed.insert(key)),
            Write::Unlist(key) => drop(self.listed.remove(&key)),
            Write::Put(key, place) => drop(self.places.insert((key, place))),
            Write::Clear(key, place) => drop(self.places.remove(&(key, place))),
            Write::Limit(scope, limit) => drop(self.limits.insert(scope, limit)),
            Write::Pending(pending) => self.pending = pending,
            Write::Gates(_) => {}
        }
    }
}

/// The rows that a write changes.
fn rows(write: &Write) -> Vec<Row> {
    match *write {
        Write::Ready(key, n) if n > 0 => vec![Row::Items(key)],
        Write::Ready(..) => vec![],
        Write::Leased(key, _) => scopes(key).map(Row::Running).to_vec(),
        Write::List(key) | Write::Unlist(key) => vec![Row::Listed(key)],
        Write::Put(key, place) | Write::Clear(key, place) => match place {
            Place::Parked(scope) => vec![Row::Place(key, place), Row::ParkedUnder(scope)],
            Place::Active => vec![Row::Place(key, place)],
        },
        Write::Limit(..) | Write::Pending(_) => vec![Row::Rules],
        Write::Gates(scope) => vec![Row::Gates(scope)],
    }
}

/// A transaction that has read and not yet committed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Open {
    reads: BTreeSet<Row>,
    writes: Vec<Write>,
    conflicted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    database: Database,
    open: Vec<Open>,
    pushed: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Push(Key),
    /// A fetch of up to so many items. It looks at one active key. `parks`: it parks a key that it serves with the last slot. Otherwise a later fetch does.
    Fetch(Key, i8, bool),
    Finish(Key),
    Release(Key),
    /// Raises the limit of a scope to 2.
    Raise(Scope),
    Commit(usize),
}

/// What a twin does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A push does not conflict with a fetch that takes the key out of the index.
    ListedWithoutConflict,
    /// A fetch that takes a key out of the index does not conflict with a push.
    OverWithoutConflict,
    /// A fetch that parks a key does not conflict with an acknowledgement.
    ParksWithoutConflict,
    /// An acknowledgement does not conflict with a fetch that parks a key.
    ParkedWithoutConflict,
    /// Two fetches of a limited scope do not conflict.
    NoGates,
    /// A slot that a key was made active for and does not use is not passed on.
    NotPassedOn,
    /// A change of the rules does not look at parked keys.
    NotPending,
}

struct Index {
    /// How many items are pushed, all in all.
    pushes: u8,
    limits: Vec<(Scope, u8)>,
    fault: Option<Fault>,
}

impl Index {
    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Gives a key that gets a ready item a place, if it has none.
    fn list(&self, database: &Database, tx: &mut Open, key: Key) {
        if !self.is(Fault::ListedWithoutConflict) {
            tx.reads.insert(Row::Listed(key));
        }
        if !database.listed.contains(&key) {
            tx.writes.extend([Write::List(key), Write::Put(key, Place::Active)]);
        }
        tx.writes.push(Write::Ready(key, 1));
    }

    /// Ends one item of a lease.
    fn acknowledge(&self, database: &Database, key: Key, is_back: bool) -> Open {
        let mut tx = Open { reads: [Row::Rules].into(), ..Open::default() };
        tx.writes.push(Write::Leased(key, -1));
        for scope in scopes(key).into_iter().filter(|scope| database.limits.contains_key(scope)) {
            if !self.is(Fault::ParkedWithoutConflict) {
                tx.reads.insert(Row::ParkedUnder(scope));
            }
            if let Some(parked) = database.first_parked(scope) {
                tx.writes.push(Write::Clear(parked, Place::Parked(scope)));
                tx.writes.push(Write::Put(parked, Place::Active));
            }
        }
        if is_back {
            self.list(database, &mut tx, key);
        }
        tx
    }

    fn fetch(&self, database: &Database, key: Key, most: i8, parks: bool) -> Open {
        let mut tx = Open { reads: [Row::Rules, Row::Place(key, Place::Active)].into(), ..Open::default() };
        let free = |scope: Scope| database.free(scope);
        let limited: Vec<_> = scopes(key).into_iter().filter(|scope| free(*scope).is_some()).collect();
        let slots = limited.iter().filter_map(|scope| free(*scope)).min().unwrap_or(most);
        let taken = most.min(slots).min(database.ready(key));
        let full = limited.iter().copied().find(|scope| free(*scope).is_some_and(|free| free <= taken));
        let full = full.filter(|_| parks || taken == 0);
        tx.writes.push(Write::Clear(key, Place::Active));
        if taken > 0 {
            tx.writes.extend([Write::Ready(key, -taken), Write::Leased(key, taken)]);
            if !self.is(Fault::NoGates) {
                tx.reads.extend(limited.iter().map(|scope| Row::Gates(*scope)));
                tx.writes.extend(limited.iter().map(|scope| Write::Gates(*scope)));
            }
        }
        let is_over = database.ready(key) <= taken;
        match full {
            _ if is_over => {
                if !self.is(Fault::OverWithoutConflict) {
                    tx.reads.insert(Row::Items(key));
                }
                tx.writes.push(Write::Unlist(key));
            }
            Some(scope) => {
                if !self.is(Fault::ParksWithoutConflict) {
                    tx.reads.insert(Row::Running(scope));
                }
                tx.writes.push(Write::Put(key, Place::Parked(scope)));
            }
            None => tx.writes.push(Write::Put(key, Place::Active)),
        }
        if taken == 0 && (is_over || full.is_some()) && !self.is(Fault::NotPassedOn) {
            let unused = limited.iter().copied().filter(|scope| is_over || full != Some(*scope));
            for scope in unused.filter(|scope| free(*scope).is_some_and(|free| free > 0)) {
                if let Some(parked) = database.first_parked(scope) {
                    self.unpark(&mut tx, parked, scope);
                }
            }
        }
        if database.pending {
            for (parked, place) in &database.places {
                if let Place::Parked(scope) = *place
                    && free(scope).is_none_or(|free| free > 0)
                {
                    self.unpark(&mut tx, *parked, scope);
                }
            }
            tx.writes.push(Write::Pending(false));
        }
        tx
    }

    fn unpark(&self, tx: &mut Open, key: Key, scope: Scope) {
        tx.reads.insert(Row::Place(key, Place::Parked(scope)));
        tx.writes.extend([Write::Clear(key, Place::Parked(scope)), Write::Put(key, Place::Active)]);
    }
}

impl Model for Index {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let limits = self.limits.iter().copied().collect();
        vec![State { database: Database { limits, ..Database::default() }, open: Vec::new(), pushed: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..state.open.len()).map(Action::Commit));
        if state.open.len() == MAX_OPEN {
            return;
        }
        let database = &state.database;
        for key in KEYS {
            if state.pushed < self.pushes {
                actions.push(Action::Push(key));
            }
            if database.places.contains(&(key, Place::Active)) {
                actions.extend([Action::Fetch(key, 1, true), Action::Fetch(key, 2, true)]);
                actions.push(Action::Fetch(key, 1, false));
            }
            if database.leased.get(&key).is_some_and(|n| *n > 0) {
                actions.extend([Action::Finish(key), Action::Release(key)]);
            }
        }
        let low = database.limits.iter().filter(|(_, limit)| **limit < 2);
        actions.extend(low.map(|(scope, _)| Action::Raise(*scope)));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let database = &last.database;
        let tx = match action {
            Action::Commit(at) => {
                let tx = state.open.remove(at);
                if !tx.conflicted {
                    tx.writes.iter().for_each(|write| state.database.apply(write));
                    let written: BTreeSet<Row> = tx.writes.iter().flat_map(rows).collect();
                    for other in &mut state.open {
                        other.conflicted |= !other.reads.is_disjoint(&written);
                    }
                }
                return Some(state);
            }
            Action::Push(key) => {
                state.pushed += 1;
                let mut tx = Open::default();
                self.list(database, &mut tx, key);
                tx
            }
            Action::Fetch(key, most, parks) => self.fetch(database, key, most, parks),
            Action::Finish(key) => self.acknowledge(database, key, false),
            Action::Release(key) => self.acknowledge(database, key, true),
            Action::Raise(scope) => {
                let pending = Write::Pending(!self.is(Fault::NotPending));
                let writes = vec![Write::Limit(scope, 2), pending];
                Open { reads: [Row::Rules].into(), writes, conflicted: false }
            }
        };
        // A lease conflicts on itself: two transactions never end the same item.
        let ends = |tx: &Open, key: Key| tx.writes.contains(&Write::Leased(key, -1));
        for key in KEYS.into_iter().filter(|key| ends(&tx, *key)) {
            let ending = state.open.iter().filter(|open| ends(open, key)).count();
            let leased = database.leased.get(&key).copied().unwrap_or(0);
            if ending >= usize::from(leased.unsigned_abs()) {
                return None;
            }
        }
        state.open.push(tx);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no more items of a scope run than its limit", |_, state: &State| {
                let database = &state.database;
                database.limits.iter().all(|(scope, limit)| database.running(*scope) <= limit.cast_signed())
            }),
            Property::always("a key with ready items has one place", |_, state: &State| {
                KEYS.into_iter().all(|key| {
                    let places = state.database.places.iter().filter(|(of, _)| *of == key).count();
                    let listed = state.database.listed.contains(&key);
                    places == usize::from(listed) && (listed || state.database.ready(key) == 0)
                })
            }),
            Property::always(
                "a parked key has no free slot, or another key is looked at",
                |_, state: &State| {
                    let database = &state.database;
                    let is_active = |scope: Scope| {
                        let mut active = database.places.iter().filter(|(_, place)| *place == Place::Active);
                        active.any(|(key, _)| scopes(*key).contains(&scope))
                    };
                    database.pending
                        || database.places.iter().all(|(_, place)| match *place {
                            Place::Parked(scope) => database.free(scope) == Some(0) || is_active(scope),
                            Place::Active => true,
                        })
                },
            ),
            Property::sometimes("a key is parked under its tenant", |_, state: &State| {
                state.database.places.iter().any(|(_, place)| *place == Place::Parked(Scope::Tenant))
            }),
            Property::sometimes("all items are finished", |model: &Index, state: &State| {
                let database = &state.database;
                state.pushed == model.pushes
                    && state.open.is_empty()
                    && KEYS.into_iter().all(|key| database.ready(key) == 0)
                    && database.running(Scope::Tenant) == 0
            }),
        ]
    }
}

/// Limits of the tenant and of one key, so that a key can be parked under either.
fn index(fault: Option<Fault>) -> Index {
    Index { pushes: 4, limits: vec![(Scope::Tenant, 2), (Scope::Key(0), 1)], fault }
}

/// A limit of the tenant that is raised.
fn raised(fault: Option<Fault>) -> Index {
    Index { pushes: 3, limits: vec![(Scope::Tenant, 1)], fault }
}

#[test]
fn the_rules_of_the_index_hold_in_every_order() {
    for model in [index(None), raised(None)] {
        let checker = model.checker().spawn_bfs().join();
        checker.assert_properties();
        assert!(checker.unique_state_count() > 1_000, "{} states", checker.unique_state_count());
    }
}

#[test]
fn a_model_that_leaves_out_a_rule_fails() {
    let twins = [
        index(Some(Fault::ListedWithoutConflict)),
        index(Some(Fault::OverWithoutConflict)),
        index(Some(Fault::ParksWithoutConflict)),
        index(Some(Fault::ParkedWithoutConflict)),
        index(Some(Fault::NotPassedOn)),
        raised(Some(Fault::NoGates)),
        raised(Some(Fault::NotPending)),
    ];
    for model in twins {
        let fault = model.fault.unwrap();
        let checker = model.checker().spawn_bfs().join();
        let found = checker
            .discoveries()
            .keys()
            .any(|name| !name.starts_with("all") && !name.starts_with("a key is parked under"));
        assert!(found, "{fault:?} breaks nothing, so the model does not show that the rule is needed");
    }
}
