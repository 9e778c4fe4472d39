//! The callbacks of batches: each batch calls back once, with counts that agree with the books of its members' queues.

use std::collections::BTreeSet;

use kvqueue::config::Delivery;

use super::{Books, Sorted};
use crate::chaos::{
    payload::Name,
    records::{Counts, Record},
    storm::Batch,
};

/// What is wrong with the callbacks. That each comes once, the books of its queue tell.
pub(in crate::chaos) fn check_batches(batches: &[Batch], books: &[Books]) -> Vec<String> {
    let sorted: Vec<Sorted> = books.iter().map(Books::sort).collect();
    let of = |batch: &Batch| {
        let counts = called(&books[batch.callback.queue], batch.callback);
        let wrong = counts.iter().filter_map(|counts| {
            let wrong = Members::of(batch, books, &sorted).wrong(batch, counts);
            wrong.map(|wrong| format!("{wrong}: {counts:?} of {batch:?}"))
        });
        wrong.collect::<Vec<_>>()
    };
    batches.iter().flat_map(of).collect()
}

/// What the handlers of a callback have seen.
fn called(books: &Books, callback: Name) -> Vec<Counts> {
    let called = books.records.iter().filter_map(|record| match record {
        Record::Called { name, counts } if *name == callback => Some(counts.clone()),
        _ => None,
    });
    called.collect()
}

/// The members of a batch, as the books have them.
#[derive(Debug, Default)]
struct Members {
    acknowledged: u64,
    attempted: u64,
    /// All that came out, of queues whose items are leased.
    leased: u64,
    /// Members that are dead letters; and of these queues, whether dead letters were retried.
    dead: u64,
    retried: bool,
    done: u64,
    /// Of the other queues: all members, and the members that came out.
    taken: (u64, u64),
    /// Members that are cancelled, and others that may be.
    cancelled: (u64, u64),
}

impl Members {
    fn of(batch: &Batch, books: &[Books], sorted: &[Sorted]) -> Self {
        let mut members = Self::default();
        let number =
            |names: &[Name], of: &dyn Fn(&Name) -> bool| names.iter().filter(|name| of(name)).count() as u64;
        for (books, sorted) in books.iter().zip(sorted) {
            for pushed in books.pushed.iter().filter(|it| batch.producers.contains(&it.errand.number)) {
                let names: Vec<Name> = pushed.errand.names().collect();
                let out = number(&names, &|name| sorted.out.contains(name));
                members.acknowledged += pushed.acknowledged;
                members.attempted += pushed.attempted;
                members.cancelled.0 += number(&names, &|name| sorted.cancelled.contains_key(name));
                members.cancelled.1 += number(&names, &|name| sorted.unclear.contains(name));
                if books.queue.delivery == Delivery::AtMostOnce {
                    members.taken.0 += pushed.attempted;
                    members.taken.1 += number(&names, &|name| sorted.runs.contains_key(name));
                } else {
                    members.leased += out;
                    members.dead += number(&names, &|name| sorted.letters.contains(name));
                    members.retried |= books.retried;
                    members.done += number(&names, &|name| sorted.is_done(name));
                }
            }
        }
        members
    }

    /// What is wrong with the counts of the callback.
    fn wrong(&self, batch: &Batch, counts: &Counts) -> Option<String> {
        let Counts { outcome, members, done, dead, cancelled, expired, taken } = counts;
        let ended = done + dead + cancelled + expired + taken;
        let is_complete = match outcome.as_str() {
            "complete" => true,
            "deadline" if batch.deadline.is_some() => false,
            _ => return Some("it has no such outcome".to_owned()),
        };
        let least = if is_complete { self.acknowledged } else { 0 };
        let checks = [
            ("members", (least..=self.attempted).contains(members)),
            ("members that ended", if is_complete { ended == *members } else { ended <= *members }),
            ("expired", *expired == 0),
            ("done", *done <= self.done),
            ("taken", *taken <= self.taken.0 && (!is_complete || *taken >= self.taken.1)),
            ("dead", (self.retried || *dead <= self.dead) && (!is_complete || *dead >= self.dead)),
            ("cancelled", {
                let (certain, unclear) = self.cancelled;
                *cancelled <= certain + unclear && (!is_complete || *cancelled >= certain)
            }),
            ("leased", !is_complete || self.taken.0 > 0 || *members == self.leased),
        ];
        let wrong: BTreeSet<&str> =
            checks.iter().filter(|(_, right)| !right).map(|(what, _)| *what).collect();
        (!wrong.is_empty())
            .then(|| format!("a callback is wrong about {wrong:?}, where the books have {self:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(members: &Members, counts: &Counts, deadline: Option<&'static str>) -> String {
        let callback = Name { queue: 0, producer: 1, place: 0 };
        let batch = Batch::closed(callback, deadline);
        members.wrong(&batch, counts).unwrap_or_default()
    }

    #[test]
    fn counts_that_do_not_agree_with_the_books_are_found() {
        let members = || Members {
            acknowledged: 5,
            attempted: 5,
            leased: 5,
            done: 3,
            dead: 1,
            cancelled: (1, 0),
            ..Members::default()
        };
        let counts = || Counts {
            outcome: "complete".to_owned(),
            members: 5,
            done: 3,
            dead: 1,
            cancelled: 1,
            expired: 0,
            taken: 0,
        };
        assert_eq!(wrong(&members(), &counts(), None), "");
        assert!(wrong(&members(), &Counts { members: 4, ..counts() }, None).contains("members that ended"));
        assert!(
            wrong(&members(), &Counts { done: 4, dead: 0, ..counts() }, None).contains(r#"{"dead", "done"}"#)
        );
        assert!(wrong(&members(), &Counts { done: 2, taken: 1, ..counts() }, None).contains("taken"));
        assert!(wrong(&members(), &Counts { done: 4, cancelled: 0, ..counts() }, None).contains("cancelled"));
        assert!(wrong(&Members { leased: 4, ..members() }, &counts(), None).contains("leased"));
        assert!(
            wrong(&Members { acknowledged: 6, attempted: 6, ..members() }, &counts(), None)
                .contains("members")
        );
        let early =
            Counts { outcome: "deadline".to_owned(), members: 4, done: 1, dead: 0, cancelled: 0, ..counts() };
        assert_eq!(wrong(&members(), &early, Some("1s")), "");
        assert!(wrong(&members(), &early, None).contains("no such outcome"));
    }
}
