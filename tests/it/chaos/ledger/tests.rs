//! Books that do not add up are found out.

use kvqueue::config::Delivery;

use super::*;
use crate::{
    chaos::{
        errand::{Errand, Way},
        plan::DELIVERIES,
    },
    support::Random,
};

/// A queue of this delivery to which three items of four were pushed that are acknowledged, handled and done.
fn books(delivery: Delivery) -> Books {
    let mut random = Random::seeded(3);
    let queues = Queue::draw(&mut random);
    let place = queues.iter().position(|queue| queue.delivery == delivery).unwrap();
    let errand = std::iter::from_fn(|| Some(Errand::draw(&mut random, &queues, 1)))
        .find(|errand| {
            errand.way == Way::Stream && errand.queue == place && errand.lines >= 4 && !errand.expires
        })
        .unwrap();
    let name = |at| name(place, at);
    let records = (0..3).map(|at| handled(name(at), 1, Act::Done)).collect();
    let effects = (0..3).map(|at| (name(at), 1)).collect();
    Books {
        queue: queues[place].clone(),
        pushed: vec![pushed(errand, 4, 3)],
        fired: BTreeSet::new(),
        perhaps: BTreeSet::new(),
        retried: false,
        records,
        printed: Vec::new(),
        cancellations: Vec::new(),
        history: None,
        rest: Rest { done: 3, effects, ..Rest::default() },
        killed: 0,
    }
}

fn pushed(errand: Errand, attempted: u64, acknowledged: u64) -> Pushed {
    Pushed { errand, attempted, acknowledged, refused: false, replaced: false, began: 100, ended: 200 }
}

fn name(queue: usize, place: u64) -> Name {
    Name { queue, producer: 1, place }
}

fn handled(name: Name, attempt: u32, act: Act) -> Record {
    let id = name.to_string();
    Record::Handled { name, attempt, failures: attempt as usize - 1, act, at: 1_000, id }
}

/// The errors that a change causes.
fn wrong(delivery: Delivery, change: impl FnOnce(&mut Books, usize)) -> String {
    let mut books = books(delivery);
    let place = books.pushed[0].errand.queue;
    change(&mut books, place);
    books.close().wrong.join("; ")
}

#[test]
fn correct_books_have_no_errors() {
    for delivery in DELIVERIES {
        assert_eq!(wrong(delivery, |_, _| {}), "");
    }
    // The fourth came out although its producer never heard so.
    let recovered = |books: &mut Books, queue| {
        books.records.push(handled(name(queue, 3), 1, Act::Done));
        books.rest.effects.insert(name(queue, 3), 1);
        books.rest.done += 1;
    };
    assert_eq!(wrong(Delivery::ExactlyOnce, recovered), "");
}

#[test]
fn lost_and_invented_items_are_found() {
    for delivery in DELIVERIES {
        let lost = wrong(delivery, |books, _| drop(books.records.remove(2)));
        assert!(lost.contains("lost"), "{delivery:?}: {lost}");
        let invented =
            wrong(delivery, |books, queue| books.records.push(handled(name(queue, 4), 1, Act::Done)));
        assert!(invented.contains("never pushed"), "{delivery:?}: {invented}");
        let left = wrong(delivery, |books, _| books.rest.running = 1);
        assert!(left.contains("1 running"), "{delivery:?}: {left}");
    }
}

#[test]
fn at_most_once_allows_loss_of_a_killed_daemons_items() {
    let lose = |books: &mut Books, _| {
        books.records.pop();
        books.killed = 1;
    };
    assert_eq!(wrong(Delivery::AtMostOnce, lose), "");
    assert!(wrong(Delivery::AtLeastOnce, lose).contains("lost"));
}

#[test]
fn a_repeated_attempt_is_an_error_where_delivery_forbids_it() {
    let again = |attempt| {
        move |books: &mut Books, queue| books.records.push(handled(name(queue, 0), attempt, Act::Done))
    };
    assert_eq!(wrong(Delivery::AtLeastOnce, again(2)), "");
    assert!(wrong(Delivery::AtLeastOnce, again(1)).contains("same attempt"));
    assert!(wrong(Delivery::AtMostOnce, again(2)).contains("more than once"));
    assert_eq!(wrong(Delivery::ExactlyOnce, again(1)), "");
}

#[test]
fn double_finishes_and_double_effects_are_found() {
    let finished = |books: &mut Books, _| books.rest.done += 1;
    assert!(
        wrong(Delivery::AtLeastOnce, finished).contains("4 finished and 0 dead are not the 3 to 3 items")
    );
    let effect = |books: &mut Books, queue| {
        books.rest.effects.insert(name(queue, 0), 2);
    };
    assert!(wrong(Delivery::ExactlyOnce, effect).contains("took effect more than once"));
    let none = |books: &mut Books, queue| {
        books.rest.effects.remove(&name(queue, 0));
    };
    assert!(wrong(Delivery::ExactlyOnce, none).contains("2 took effect and 3 are finished"));
}

#[test]
fn a_cancelled_item_that_goes_on_is_found() {
    let cancel = |at, acknowledged| {
        move |books: &mut Books, queue| {
            let name = name(queue, at);
            books.cancellations.push(Cancellation { id: name.to_string(), name, acknowledged });
        }
    };
    // The fourth is cancelled; nobody knows whether the third is.
    for delivery in DELIVERIES {
        assert_eq!(wrong(delivery, cancel(3, Some(900))), "");
        assert_eq!(wrong(delivery, cancel(2, None)), "");
    }
    assert!(
        wrong(Delivery::AtLeastOnce, cancel(2, Some(900))).contains("3 finished and 0 dead are not the 2")
    );
    assert!(wrong(Delivery::ExactlyOnce, cancel(2, Some(900))).contains("cancelled and took effect"));
    assert!(wrong(Delivery::AtMostOnce, cancel(2, Some(900))).contains("handled after"));
    let late = |books: &mut Books, queue| {
        cancel(2, Some(900))(books, queue);
        books.rest.done = 2;
        if let Record::Handled { at, .. } = &mut books.records[2] {
            *at = 60_000;
        }
    };
    assert!(wrong(Delivery::AtLeastOnce, late).contains("handled after"));
}

#[test]
fn a_history_that_is_wrong_is_found() {
    let with = |change: fn(&mut Vec<Ended>)| {
        move |books: &mut Books, queue| {
            let ended = |at| {
                let id = name(queue, at).to_string();
                Ended { id, outcome: "done".to_owned(), errand: Some(1) }
            };
            let mut history = (0..3).map(ended).collect();
            change(&mut history);
            books.history = Some(history);
        }
    };
    let found = |change| wrong(Delivery::ExactlyOnce, with(change));
    assert_eq!(found(|_| {}), "");
    assert!(found(|history| drop(history.pop())).contains("ended otherwise"));
    assert!(found(|history| history[1].outcome = "dead".to_owned()).contains("ended otherwise"));
    assert!(found(|history| history.push(history[0].clone())).contains("ended again"));
    assert!(found(|history| history[1].id = "x".to_owned()).contains("never came out"));
    let dead = |history: &mut Vec<Ended>| {
        let before = Ended { outcome: "dead".to_owned(), ..history[0].clone() };
        history.insert(0, before);
    };
    assert!(found(dead).contains("ended again"));
    let right = with(|_| {});
    let dead_and_retried = |books: &mut Books, queue| {
        right(books, queue);
        books.retried = true;
        books.history.as_mut().map(dead);
    };
    assert_eq!(wrong(Delivery::ExactlyOnce, dead_and_retried), "");
}

#[test]
fn an_item_that_expired_and_was_handled_or_neither_is_found() {
    let ended = |at, queue, outcome: &str| Ended {
        id: name(queue, at).to_string(),
        outcome: outcome.to_owned(),
        errand: Some(1),
    };
    let with = |outcomes: [&'static str; 4], change: fn(&mut Books)| {
        move |books: &mut Books, queue| {
            books.pushed[0].errand.expires = true;
            books.pushed[0].acknowledged = 4;
            let all = outcomes.iter().zip(0..).filter(|(outcome, _)| !outcome.is_empty());
            let ended = all.map(|(outcome, at)| ended(at, queue, outcome)).collect();
            books.history = Some(ended);
            change(books);
        }
    };
    let found = |outcomes, change| wrong(Delivery::ExactlyOnce, with(outcomes, change));
    assert_eq!(found(["done", "done", "done", "expired"], |_| {}), "");
    assert!(found(["done", "done", "done", ""], |_| {}).contains("3 expired or came out, 0 of them"));
    assert!(found(["done", "done", "expired", "expired"], |_| {}).contains("ended otherwise"));
    assert!(found(["done", "done", "done", "done"], |_| {}).contains("never came out"));
    // The third was given back before it expired, or it had begun.
    fn release(books: &mut Books, act: Act) {
        let Some(Record::Handled { name, .. }) = books.records.pop() else { panic!("it has records") };
        books.records.push(handled(name, 1, act));
        books.rest.effects.remove(&name);
        books.rest.done = 2;
    }
    let outcomes = ["done", "done", "expired", "expired"];
    assert_eq!(found(outcomes, |books| release(books, Act::Release)), "");
    assert!(found(outcomes, |books| release(books, Act::Fail)).contains("ended otherwise"));
}

/// Adds a push of one item of a key, between two times; `is_done`: it took effect.
fn push_one(books: &mut Books, number: u64, way: Way, (began, ended): (u64, u64), is_done: bool) {
    let mut errand = books.pushed[0].errand.clone();
    (errand.number, errand.way, errand.lines) = (number, way, 1);
    (errand.key, errand.taken_ms) = ("k".to_owned(), 1_000);
    let name = Name { queue: errand.queue, producer: number, place: 0 };
    books.pushed.push(Pushed { began, ended, ..pushed(errand, 1, 1) });
    if is_done {
        books.records.push(handled(name, 1, Act::Done));
        books.rest.effects.insert(name, 1);
        books.rest.done += 1;
    }
}

#[test]
fn a_replaced_item_that_comes_out_is_found() {
    let found = |done: [bool; 3]| {
        let change = |books: &mut Books, _: usize| {
            push_one(books, 11, Way::Replace, (100, 200), done[0]);
            push_one(books, 12, Way::Replace, (300, 400), done[1]);
            books.pushed[2].replaced = true;
            // Nobody knows whether this one happened before the second.
            push_one(books, 13, Way::Replace, (350, 360), done[2]);
            books.pushed[3].acknowledged = 0;
        };
        wrong(Delivery::ExactlyOnce, change)
    };
    assert_eq!(found([false, true, false]), "");
    assert_eq!(found([false, false, true]), "");
    assert_eq!(found([true, true, false]), "");
    assert!(found([true, true, true]).contains("3 came out, where 1 to 2"));
    assert!(found([false, false, false]).contains("0 came out, where 1 to 2"));
    let found = |done: [bool; 2]| {
        let change = |books: &mut Books, _: usize| {
            push_one(books, 11, Way::Replace, (100, 200), done[0]);
            push_one(books, 12, Way::Replace, (300, 400), done[1]);
            books.pushed[2].replaced = true;
        };
        wrong(Delivery::ExactlyOnce, change)
    };
    assert_eq!(found([false, true]), "");
    assert!(found([true, false]).contains("the newest of its key"));
    assert!(found([true, false]).contains("was replaced, and came out"));
}

#[test]
fn a_push_under_a_key_that_is_taken_is_found() {
    let found = |(began, ended), is_refused: bool| {
        let change = |books: &mut Books, _: usize| {
            push_one(books, 11, Way::UniqueFor, (100, 200), true);
            push_one(books, 12, Way::UniqueFor, (began, ended), !is_refused);
            let second = &mut books.pushed[2];
            second.errand.taken_ms = 5_000;
            (second.refused, second.acknowledged) = (is_refused, u64::from(!is_refused));
        };
        wrong(Delivery::ExactlyOnce, change)
    };
    assert_eq!(found((300, 400), true), "");
    assert_eq!(found((1_300, 1_400), false), "");
    assert!(found((300, 400), false).contains("had the key"));
    let alone = |books: &mut Books, _: usize| {
        push_one(books, 11, Way::UniqueFor, (100, 200), false);
        (books.pushed[1].refused, books.pushed[1].acknowledged) = (true, 0);
    };
    assert!(wrong(Delivery::ExactlyOnce, alone).contains("though no other was pushed"));
}

#[test]
fn a_partial_push_is_found() {
    let gap = |books: &mut Books, _| {
        books.records.remove(1);
        books.pushed[0].acknowledged = 1;
        books.rest.done = 2;
    };
    assert!(wrong(Delivery::AtLeastOnce, gap).contains("came out in part"));
    let refused = |books: &mut Books, _| books.pushed[0].refused = true;
    assert!(wrong(Delivery::AtLeastOnce, refused).contains("refused, and came out"));
}
