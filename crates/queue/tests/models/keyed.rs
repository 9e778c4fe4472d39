//! A model of the index of a keyed queue, checked in every order of transactions.
//!
//! The rules are those of `src/ops/keyed`: which rows a transaction reads with a conflict, and what it writes. A transaction begins, and
//! computes its writes from what it has read; later it commits, unless another one has committed that wrote a row which this one has read with a conflict.
//! The checker goes through all states that two overlapping transactions can lead to, for two keys of one tenant.
//!
//! Each broken twin leaves out one conflict, or one rule. A model that finds nothing in them would prove nothing.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Checker, Model, Property};

use crate::breaks;

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
    /// Parked because its next item is a suspect.
    Suspect,
}

/// A row, or a range of rows, that transactions conflict on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Row {
    Rules,
    /// All items of a key.
    Items(Key),
    /// The items of a key up to a suspect.
    Front(Key),
    Listed(Key),
    Place(Key, Place),
    /// All rows of keys that are parked under a scope.
    ParkedUnder(Scope),
    /// Never written: whatever frees a slot, or passes it on, and finds no parked key, conflicts with a fetch that parks one.
    Free(Scope),
    /// All gates of a scope. `gates.rs` checks when a fetch may take fewer.
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
    Free(Scope),
    /// Whether the next item of a key is a suspect.
    Front(Key, bool),
}

/// What is committed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Database {
    ready: BTreeMap<Key, i8>,
    leased: BTreeMap<Key, i8>,
    running: BTreeMap<Scope, i8>,
    listed: BTreeSet<Key>,
    places: BTreeSet<(Key, Place)>,
    suspects: BTreeSet<Key>,
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

    fn parked(&self, scope: Scope) -> Vec<Key> {
        KEYS.into_iter().filter(|key| self.places.contains(&(*key, Place::Parked(scope)))).collect()
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
            Write::Gates(_) | Write::Free(_) => {}
            Write::Front(key, true) => drop(self.suspects.insert(key)),
            Write::Front(key, false) => drop(self.suspects.remove(&key)),
        }
    }
}

/// The rows that a write changes.
fn rows(write: &Write) -> Vec<Row> {
    match *write {
        Write::Ready(key, n) if n > 0 => vec![Row::Items(key)],
        Write::Ready(..) => vec![],
        Write::Leased(..) => vec![],
        Write::List(key) | Write::Unlist(key) => vec![Row::Listed(key)],
        Write::Put(key, place) | Write::Clear(key, place) => match place {
            Place::Parked(scope) => vec![Row::Place(key, place), Row::ParkedUnder(scope)],
            Place::Active | Place::Suspect => vec![Row::Place(key, place)],
        },
        Write::Limit(..) | Write::Pending(_) => vec![Row::Rules],
        Write::Gates(scope) => vec![Row::Gates(scope)],
        Write::Free(scope) => vec![Row::Free(scope)],
        Write::Front(key, _) => vec![Row::Front(key)],
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
    crashed: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Push(Key),
    /// A fetch of up to so many items. It looks at one active key. `parks`: it parks a key that it serves with the last slot. Otherwise a later fetch does.
    Fetch(Key, i8, bool),
    /// Of several parked keys it makes this one active.
    Finish(Key, usize),
    Release(Key, usize),
    /// The lease of an item expires, which makes it a suspect.
    Crash(Key, usize),
    /// A fetch that may not have suspects comes across one.
    Refuse(Key),
    /// A fetch that may have suspects looks at a key that is parked because of one.
    FetchSuspect(Key),
    /// Removes a suspect.
    Cancel(Key),
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
    /// An acknowledgement does not conflict with another one that makes the same parked key active.
    ChosenWithoutConflict,
    /// A fetch that parks a key does not see an acknowledgement that has found no parked key.
    FreesWithoutConflict,
    /// A fetch that passes on a slot, and finds no parked key, does not conflict with one that parks a key.
    PassesOnWithoutConflict,
    /// Two fetches of a limited scope do not conflict.
    NoGates,
    /// A slot that a key was made active for and does not use is not passed on.
    NotPassedOn,
    /// A change of the rules does not look at parked keys.
    NotPending,
    /// A fetch that parks a key because of a suspect does not conflict with the removal of the suspect.
    SuspectWithoutConflict,
    /// The slot of a key that is parked because of a suspect is not passed on.
    SuspectNotPassedOn,
    /// The removal of a suspect leaves its key parked.
    SuspectStaysParked,
}

struct Index {
    /// How many items are pushed, all in all.
    pushes: u8,
    /// How many leases expire.
    crashes: u8,
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

    /// Makes a key active that is parked because of a suspect, since it has another first item.
    fn reconsider(&self, database: &Database, tx: &mut Open, key: Key) {
        tx.reads.insert(Row::Listed(key));
        tx.writes.push(Write::Front(key, false));
        if database.places.contains(&(key, Place::Suspect)) && !self.is(Fault::SuspectStaysParked) {
            tx.writes.extend([
                Write::Clear(key, Place::Suspect),
                Write::Put(key, Place::Active),
                Write::List(key),
            ]);
        }
    }

    /// Ends one item of a lease.
    fn acknowledge(&self, database: &Database, key: Key, choice: usize, is_back: bool) -> Open {
        let mut tx = Open { reads: [Row::Rules].into(), ..Open::default() };
        tx.writes.push(Write::Leased(key, -1));
        for scope in scopes(key).into_iter().filter(|scope| database.limits.contains_key(scope)) {
            let parked = database.parked(scope);
            match parked.get(choice % parked.len().max(1)) {
                Some(parked) => {
                    self.unpark(&mut tx, *parked, scope);
                    if self.is(Fault::ChosenWithoutConflict) {
                        tx.reads.remove(&Row::Place(*parked, Place::Parked(scope)));
                    }
                }
                None => self.exclude_parking(&mut tx, scope),
            }
        }
        if is_back {
            self.reconsider(database, &mut tx, key);
            self.list(database, &mut tx, key);
        }
        tx
    }

    /// A fetch that may not have the next item of a key parks the key.
    fn refuse(&self, database: &Database, key: Key) -> Open {
        let reads = [Row::Rules, Row::Place(key, Place::Active), Row::Front(key)].into();
        let mut tx = Open { reads, ..Open::default() };
        if self.is(Fault::SuspectWithoutConflict) {
            tx.reads.remove(&Row::Front(key));
        }
        tx.writes.extend([
            Write::Clear(key, Place::Active),
            Write::Put(key, Place::Suspect),
            Write::List(key),
        ]);
        if !self.is(Fault::SuspectNotPassedOn) {
            let limited = scopes(key).into_iter().filter(|scope| database.limits.contains_key(scope));
            self.pass_on(database, &mut tx, limited);
        }
        tx
    }

    /// Makes a parked key active for each of these scopes that has a free slot.
    fn pass_on(&self, database: &Database, tx: &mut Open, scopes: impl Iterator<Item = Scope>) {
        for scope in scopes.filter(|scope| database.free(*scope).is_some_and(|free| free > 0)) {
            match database.parked(scope).first() {
                Some(parked) => self.unpark(tx, *parked, scope),
                None if self.is(Fault::PassesOnWithoutConflict) => {}
                None => self.exclude_parking(tx, scope),
            }
        }
    }

    /// Excludes fetches that park a key.
    fn exclude_parking(&self, tx: &mut Open, scope: Scope) {
        if !self.is(Fault::ParkedWithoutConflict) {
            tx.reads.insert(Row::ParkedUnder(scope));
        }
        if !self.is(Fault::FreesWithoutConflict) {
            tx.writes.push(Write::Free(scope));
        }
    }

    fn fetch(&self, database: &Database, (key, from): (Key, Place), most: i8, parks: bool) -> Open {
        let mut tx = Open { reads: [Row::Rules, Row::Place(key, from)].into(), ..Open::default() };
        let is_suspect = database.suspects.contains(&key);
        let most = if is_suspect { 1 } else { most };
        let free = |scope: Scope| database.free(scope);
        let limited: Vec<_> = scopes(key).into_iter().filter(|scope| free(*scope).is_some()).collect();
        let slots = limited.iter().filter_map(|scope| free(*scope)).min().unwrap_or(most);
        let taken = most.min(slots).min(database.ready(key));
        let full = limited.iter().copied().find(|scope| free(*scope).is_some_and(|free| free <= taken));
        let full = full.filter(|_| parks || taken == 0);
        tx.writes.push(Write::Clear(key, from));
        if from == Place::Suspect {
            tx.writes.push(Write::List(key));
        }
        if taken > 0 {
            tx.writes.extend([Write::Ready(key, -taken), Write::Leased(key, taken)]);
            if is_suspect {
                tx.reads.insert(Row::Front(key));
                tx.writes.push(Write::Front(key, false));
            }
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
                    tx.reads.insert(Row::Free(scope));
                }
                tx.writes.push(Write::Put(key, Place::Parked(scope)));
            }
            None => tx.writes.push(Write::Put(key, Place::Active)),
        }
        if taken == 0 && (is_over || full.is_some()) && !self.is(Fault::NotPassedOn) {
            let unused = limited.iter().copied().filter(|scope| is_over || full != Some(*scope));
            self.pass_on(database, &mut tx, unused);
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
        let database = Database { limits, ..Database::default() };
        vec![State { database, open: Vec::new(), pushed: 0, crashed: 0 }]
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
            let is_suspect = database.suspects.contains(&key);
            if is_suspect {
                actions.push(Action::Cancel(key));
            }
            if is_suspect && database.places.contains(&(key, Place::Active)) {
                actions.push(Action::Refuse(key));
            }
            if database.places.contains(&(key, Place::Suspect)) {
                actions.push(Action::FetchSuspect(key));
            }
            let choices = database.parked(Scope::Tenant).len().max(1);
            if database.leased.get(&key).is_some_and(|n| *n > 0) {
                actions
                    .extend((0..choices).flat_map(|at| [Action::Finish(key, at), Action::Release(key, at)]));
                if state.crashed < self.crashes {
                    actions.extend((0..choices).map(|at| Action::Crash(key, at)));
                }
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
            Action::Fetch(key, most, parks) => self.fetch(database, (key, Place::Active), most, parks),
            Action::FetchSuspect(key) => self.fetch(database, (key, Place::Suspect), 1, true),
            Action::Refuse(key) => self.refuse(database, key),
            Action::Crash(key, choice) => {
                state.crashed += 1;
                let mut tx = self.acknowledge(database, key, choice, true);
                tx.writes.push(Write::Front(key, true));
                tx
            }
            Action::Cancel(key) => {
                let reads = [Row::Front(key)].into();
                let mut tx = Open { reads, writes: vec![Write::Ready(key, -1)], ..Open::default() };
                self.reconsider(database, &mut tx, key);
                tx
            }
            Action::Finish(key, choice) => self.acknowledge(database, key, choice, false),
            Action::Release(key, choice) => self.acknowledge(database, key, choice, true),
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
                            Place::Active | Place::Suspect => true,
                        })
                },
            ),
            Property::always("a key is parked because of a suspect if it has one", |_, state: &State| {
                let parked = state.database.places.iter().filter(|(_, place)| *place == Place::Suspect);
                parked.into_iter().all(|(key, _)| state.database.suspects.contains(key))
            }),
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
    Index { pushes: 4, crashes: 0, limits: vec![(Scope::Tenant, 2), (Scope::Key(0), 1)], fault }
}

/// A limit of the tenant that is raised.
fn raised(fault: Option<Fault>) -> Index {
    Index { pushes: 3, crashes: 0, limits: vec![(Scope::Tenant, 1)], fault }
}

/// A lease of the tenant expires.
fn crashing(fault: Option<Fault>) -> Index {
    Index { pushes: 3, crashes: 1, limits: vec![(Scope::Tenant, 1)], fault }
}

#[test]
fn the_rules_of_the_index_hold_in_every_order() {
    for model in [index(None), raised(None), crashing(None)] {
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
        index(Some(Fault::ChosenWithoutConflict)),
        index(Some(Fault::NotPassedOn)),
        index(Some(Fault::FreesWithoutConflict)),
        index(Some(Fault::PassesOnWithoutConflict)),
        raised(Some(Fault::NoGates)),
        raised(Some(Fault::NotPending)),
        crashing(Some(Fault::SuspectWithoutConflict)),
        crashing(Some(Fault::SuspectNotPassedOn)),
        crashing(Some(Fault::SuspectStaysParked)),
    ];
    for model in twins {
        let fault = model.fault.unwrap();
        assert!(
            breaks(model),
            "{fault:?} breaks nothing, so the model does not show that the rule is needed"
        );
    }
}
