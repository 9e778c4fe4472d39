//! A model of the holds of an ordered key, checked in every order of transactions.
//!
//! The rules are those of `src/ops/keyed/holds.rs`: which rows a transaction reads with a conflict, and what it writes. As in
//! `keyed.rs` a transaction computes its writes from what it has read, and commits later, unless another one has committed that wrote a row which this one has
//! read with a conflict. The checker goes through all states that two overlapping transactions can lead to, for the items of one key.
//!
//! Each broken twin leaves out one conflict, or one rule. A model that finds nothing in them would prove nothing.

mod database;

use std::collections::BTreeSet;

use stateright::{Checker, Model, Property};

use crate::breaks;
use database::{At, Database, Item, MAX_ITEMS, Open, Place, Row, Rule, Write, rows};

/// How many transactions overlap.
const MAX_OPEN: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    database: Database,
    open: Vec<Open>,
    changes: usize,
    /// Whether an item was fetched while the key was ordered and held.
    fetched_held: bool,
    /// Whether an item was fetched before its turn.
    overtook: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Push,
    /// A fetch of up to so many items.
    Fetch(usize),
    /// An acknowledgement, or the expiry of the lease.
    End(Item, At),
    /// A scheduled item is due, or a dead letter is retried.
    Return(Item),
    /// A scheduled item is deleted, or a dead letter is purged.
    Remove(Item),
    Unblock,
    Change(Rule),
    Commit(usize),
}

/// What a twin does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A retry begins no hold.
    NoHold,
    /// A fetch serves a held key.
    ServesHeld,
    /// A fetch that puts a key on hold does not conflict with the end of the hold.
    HoldWithoutConflict,
    /// The end of a hold does not conflict with a fetch that puts the key on hold.
    OnHoldWithoutConflict,
    /// A key that is put on hold is not listed any more.
    UnlistsOnHold,
    /// A change of the rules does not look at holds.
    NotLookedAtAgain,
    /// A hold does not conflict with a change of the rules.
    RulesWithoutConflict,
    /// A change of the rules does not conflict with a hold.
    ChangeWithoutConflict,
}

struct Holds {
    items: usize,
    /// How many of them there are from the beginning.
    pushed: usize,
    rule: Rule,
    /// What becomes of items on leases.
    ends: &'static [At],
    /// How many changes of the rules and unblocks there are.
    changes: usize,
    fault: Option<Fault>,
}

const ENDS: [At; 4] = [At::Ready, At::Scheduled, At::Dead, At::Gone];
const ORDERED: Rule = Rule { ordered: true, blocks: false };
const BLOCKING: Rule = Rule { ordered: true, blocks: true };
const ANY_ORDER: Rule = Rule { ordered: false, blocks: false };

impl Holds {
    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn list(database: &Database, tx: &mut Open, item: Item) {
        tx.reads.insert(Row::Listed);
        if !database.listed {
            tx.writes.extend([Write::List(true), Write::Put(Place::Active)]);
        }
        tx.writes.push(Write::Move(item, At::Ready));
    }

    /// Ends an item of a lease.
    fn end(&self, database: &Database, item: Item, at: At) -> Open {
        let mut tx = Open { reads: [Row::Rules, Row::Item(item)].into(), ..Open::default() };
        if self.is(Fault::RulesWithoutConflict) {
            tx.reads.remove(&Row::Rules);
        }
        if database.rule.ordered {
            tx.reads.insert(Row::Place(Place::Parked));
            if database.places.contains(&Place::Parked) {
                tx.writes.extend([Write::Clear(Place::Parked), Write::Put(Place::Active)]);
            } else {
                tx.writes.push(Write::Free);
            }
        }
        if at == At::Ready {
            Holds::list(database, &mut tx, item);
        } else {
            tx.writes.push(Write::Move(item, at));
        }
        if database.rule.holds_for(at) && !self.is(Fault::NoHold) {
            tx.writes.push(Write::Hold(item));
        }
        tx
    }

    fn fetch(&self, database: &Database, most: usize) -> Open {
        let mut tx = Open { reads: [Row::Rules, Row::Place(Place::Active)].into(), ..Open::default() };
        tx.writes.push(Write::Clear(Place::Active));
        let first_hold =
            database.holds.first().filter(|_| database.rule.ordered && !self.is(Fault::ServesHeld));
        if let Some(hold) = first_hold {
            if !self.is(Fault::HoldWithoutConflict) {
                tx.reads.insert(Row::Hold(*hold));
            }
            tx.writes.push(Write::Put(Place::OnHold));
            if self.is(Fault::UnlistsOnHold) {
                tx.writes.push(Write::List(false));
            }
        } else {
            self.serve(database, most, &mut tx);
        }
        if database.pending {
            self.look_again(database, &mut tx);
        }
        tx
    }

    /// Takes the key's first items.
    fn serve(&self, database: &Database, most: usize, tx: &mut Open) {
        let free = database.free();
        let taken: Vec<Item> = database.those(At::Ready).take(most.min(free)).collect();
        if !database.rule.blocks {
            tx.passed.extend(database.those(At::Dead));
        }
        for item in &taken {
            tx.reads.insert(Row::Item(*item));
            tx.writes.push(Write::Move(*item, At::Running));
        }
        if database.rule.ordered {
            if !self.is(Fault::ServesHeld) {
                tx.reads.extend((0..MAX_ITEMS).map(Row::Hold));
            }
            if !taken.is_empty() {
                tx.reads.insert(Row::Gate);
                tx.writes.push(Write::Gate);
            }
        }
        if database.those(At::Ready).count() == taken.len() {
            tx.reads.insert(Row::Ready);
            tx.writes.push(Write::List(false));
        } else if free == taken.len() {
            tx.reads.insert(Row::Free);
            tx.writes.push(Write::Put(Place::Parked));
        } else {
            tx.writes.push(Write::Put(Place::Active));
        }
    }

    /// Goes by the rules of now.
    fn look_again(&self, database: &Database, tx: &mut Open) {
        let mut so_far = database.clone();
        tx.writes.iter().for_each(|write| so_far.apply(write));
        let is_over = |item: &Item| !database.rule.holds_for(database.items[*item]);
        let over: Vec<Item> = database.holds.iter().copied().filter(is_over).collect();
        if !self.is(Fault::NotLookedAtAgain) {
            self.end_holds(&so_far, tx, &over);
        }
        if database.places.contains(&Place::Parked) && so_far.free() > 0 {
            tx.reads.insert(Row::Place(Place::Parked));
            tx.writes.extend([Write::Clear(Place::Parked), Write::Put(Place::Active)]);
        }
        tx.writes.push(Write::Pending(false));
    }

    /// Ends the holds for these items, and gives the key its place back.
    fn end_holds(&self, database: &Database, tx: &mut Open, items: &[Item]) {
        let ended: Vec<Item> = items.iter().copied().filter(|item| database.holds.contains(item)).collect();
        tx.reads.extend(items.iter().map(|item| Row::Hold(*item)));
        tx.writes.extend(ended.iter().map(|item| Write::EndHold(*item)));
        if ended.is_empty() {
            return;
        }
        if !self.is(Fault::OnHoldWithoutConflict) {
            tx.reads.insert(Row::Place(Place::OnHold));
        }
        if database.places.contains(&Place::OnHold) {
            tx.writes.extend([Write::Clear(Place::OnHold), Write::Put(Place::Active)]);
        }
    }

    fn change(&self, database: &Database, rule: Rule) -> Open {
        let mut tx = Open { reads: [Row::Rules, Row::Place(Place::Parked)].into(), ..Open::default() };
        if !self.is(Fault::ChangeWithoutConflict) {
            tx.reads.extend((0..MAX_ITEMS).map(Row::Hold));
        }
        let is_pending = !database.holds.is_empty() || database.places.contains(&Place::Parked);
        tx.writes.extend([Write::Rule(rule), Write::Pending(is_pending)]);
        tx
    }

    /// What a transaction reads and writes.
    fn begin(&self, database: &Database, action: Action) -> Open {
        let mut tx = Open::default();
        match action {
            Action::Push => Holds::list(database, &mut tx, database.items.len()),
            Action::Fetch(most) => return self.fetch(database, most),
            Action::End(item, at) => return self.end(database, item, at),
            Action::Return(item) => {
                tx.reads.insert(Row::Item(item));
                Holds::list(database, &mut tx, item);
                self.end_holds(database, &mut tx, &[item]);
            }
            Action::Remove(item) => {
                tx.reads.insert(Row::Item(item));
                tx.writes.push(Write::Move(item, At::Gone));
                self.end_holds(database, &mut tx, &[item]);
            }
            Action::Unblock => {
                let all: Vec<Item> = database.holds.iter().copied().collect();
                self.end_holds(database, &mut tx, &all);
            }
            Action::Change(rule) => return self.change(database, rule),
            Action::Commit(_) => {}
        }
        tx
    }

    /// Commits a transaction, unless it has conflicted.
    fn commit(state: &mut State, at: usize) {
        let tx = state.open.remove(at);
        if tx.conflicted {
            return;
        }
        let before = &state.database;
        let fetched = tx.writes.iter().filter_map(|write| match write {
            Write::Move(item, At::Running) => Some(*item),
            _ => None,
        });
        for item in fetched {
            state.fetched_held |= before.rule.ordered && !before.holds.is_empty();
            state.overtook |= !before.is_next(item, &tx.passed);
        }
        tx.writes.iter().for_each(|write| state.database.apply(write));
        let written: BTreeSet<Row> = tx.writes.iter().flat_map(rows).collect();
        for other in &mut state.open {
            other.conflicted |= !other.reads.is_disjoint(&written);
        }
    }
}

impl Model for Holds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut database =
            Database { rule: self.rule, items: vec![At::Ready; self.pushed], ..Database::default() };
        if self.pushed > 0 {
            (database.listed, database.places) = (true, [Place::Active].into());
        }
        vec![State { database, open: Vec::new(), changes: 0, fetched_held: false, overtook: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..state.open.len()).map(Action::Commit));
        if state.open.len() == MAX_OPEN {
            return;
        }
        let database = &state.database;
        // Items that are pushed at the same time would have the same number.
        let pushes = |open: &Open| open.writes.contains(&Write::Move(database.items.len(), At::Ready));
        if database.items.len() < self.items && !state.open.iter().any(pushes) {
            actions.push(Action::Push);
        }
        if database.places.contains(&Place::Active) {
            actions.extend([Action::Fetch(1), Action::Fetch(2)]);
        }
        for item in database.those(At::Running) {
            actions.extend(self.ends.iter().map(|at| Action::End(item, *at)));
        }
        for item in database.those(At::Scheduled).chain(database.those(At::Dead)) {
            actions.extend([Action::Return(item), Action::Remove(item)]);
        }
        if state.changes < self.changes {
            actions.push(Action::Unblock);
            let rules = [ORDERED, BLOCKING, ANY_ORDER].into_iter().filter(|rule| *rule != database.rule);
            actions.extend(rules.map(Action::Change));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Commit(at) => Holds::commit(&mut state, at),
            _ => {
                state.changes += usize::from(matches!(action, Action::Unblock | Action::Change(_)));
                state.open.push(self.begin(&last.database, action));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a key with ready items has one place", |_, state: &State| {
                let database = &state.database;
                database.places.len() == usize::from(database.listed)
                    && (database.listed || database.those(At::Ready).next().is_none())
            }),
            Property::always("a key on hold has a hold", |_, state: &State| {
                !state.database.places.contains(&Place::OnHold) || !state.database.holds.is_empty()
            }),
            Property::always("an item that holds its key is scheduled or dead", |_, state: &State| {
                let database = &state.database;
                let mut held = database.holds.iter().map(|item| database.items[*item]);
                held.all(|at| matches!(at, At::Scheduled | At::Dead))
            }),
            Property::always("the rules ask for every hold", |_, state: &State| {
                let database = &state.database;
                let holds_for = |item: &Item| database.rule.holds_for(database.items[*item]);
                database.pending || database.holds.iter().all(holds_for)
            }),
            Property::always("no item of a held key is fetched", |_, state: &State| !state.fetched_held),
            Property::always("no item is fetched before its turn", |model: &Holds, state: &State| {
                // An operator may let a key go on.
                !state.overtook || model.changes > 0 || !model.rule.ordered
            }),
            Property::always("a parked key has no free slot", |_, state: &State| {
                let database = &state.database;
                !database.places.contains(&Place::Parked) || database.free() == 0 || database.pending
            }),
            Property::sometimes("some key is on hold", |_, state: &State| {
                state.database.places.contains(&Place::OnHold)
            }),
            Property::sometimes("some key ends", |model: &Holds, state: &State| {
                let database = &state.database;
                database.those(At::Gone).count() == model.items && !database.listed
            }),
        ]
    }
}

/// A key that is ordered from the beginning.
fn ordered(fault: Option<Fault>) -> Holds {
    Holds { items: MAX_ITEMS, pushed: 0, rule: BLOCKING, ends: &ENDS, changes: 0, fault }
}

/// A key whose rule changes: two items may run when it becomes ordered.
fn changed(fault: Option<Fault>) -> Holds {
    Holds { items: 2, pushed: 1, rule: ANY_ORDER, ends: &ENDS, changes: 2, fault }
}

/// The same with an item behind these two, which are both scheduled again.
fn changed_once() -> Holds {
    let (items, ends) = (MAX_ITEMS, &[At::Scheduled]);
    Holds { items, pushed: items, rule: ANY_ORDER, ends, changes: 1, fault: None }
}

#[test]
fn the_rules_of_holds_keep_the_order_whichever_transaction_commits_first() {
    let continuing = Holds { rule: ORDERED, ..ordered(None) };
    for model in [ordered(None), continuing, changed(None), changed_once()] {
        let checker = model.checker().spawn_bfs().join();
        checker.assert_properties();
        println!("{} states", checker.unique_state_count());
        assert!(checker.unique_state_count() > 1_000, "{} states", checker.unique_state_count());
    }
}

#[test]
fn a_model_of_holds_that_leaves_out_a_rule_fails() {
    let twins = [
        ordered(Some(Fault::NoHold)),
        ordered(Some(Fault::ServesHeld)),
        ordered(Some(Fault::HoldWithoutConflict)),
        ordered(Some(Fault::OnHoldWithoutConflict)),
        ordered(Some(Fault::UnlistsOnHold)),
        changed(Some(Fault::NotLookedAtAgain)),
        changed(Some(Fault::RulesWithoutConflict)),
        changed(Some(Fault::ChangeWithoutConflict)),
    ];
    for model in twins {
        let fault = model.fault.unwrap();
        assert!(
            breaks(model),
            "{fault:?} breaks nothing, so the model does not show that the rule is needed"
        );
    }
}
