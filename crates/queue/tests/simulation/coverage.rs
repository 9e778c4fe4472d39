//! How often each kind of thing happened, so that the simulation cannot become an empty one.

use std::collections::BTreeMap;

/// How often each kind of thing happened.
#[derive(Debug, Default, Clone)]
pub(crate) struct Coverage(BTreeMap<String, u64>);

/// What has to happen in every thousand seeds, at least so often. Each happens two or three times as often, or more.
pub(crate) const WANTED: &[(&str, u64)] = &[
    // What is done.
    ("an item is added", 8_000),
    ("an item is not added, because its operation is known", 500),
    ("a push is refused, because its name is another's", 80),
    ("an item is not added, because of its unique key", 700),
    ("items are leased", 6_000),
    ("items are taken for good", 900),
    ("items are passed over", 150),
    ("a process that has suspects takes other items", 12),
    ("an item is finished", 4_000),
    ("an item is released", 150),
    ("an item is retried at once", 200),
    ("an item is retried later", 250),
    ("an item is declared dead", 80),
    ("a lease is extended", 1_200),
    ("items become due", 800),
    ("operations are forgotten", 300),
    ("dead letters are revived", 60),
    ("dead letters are purged", 20),
    ("an item is deleted", 120),
    ("the queue is frozen", 200),
    ("a push is refused by a frozen queue", 1_000),
    ("a second pusher is refused", 100),
    ("a request is made", 1_000),
    ("a request is served with a lease", 600),
    ("a request leaves the line", 250),
    ("a session serves its own request for good", 80),
    ("a session picks up what it was served with for good", 2),
    ("a session takes up the lease that it was served with", 30),
    ("close", 1_200),
    // What goes wrong.
    ("a lease runs out", 1_800),
    ("a holder finds its lease lost", 250),
    ("a lease is forgotten", 150),
    ("a worker dies of an item", 800),
    ("a crash", 2_500),
    ("a crash within a commit", 250),
    ("a worker is suspended", 2_000),
    ("an operation is given up", 1_500),
    ("a commit is lost on its way", 1_000),
    ("a commit is not waited for any longer", 800),
    ("a commit is too old", 2_000),
    ("conflict: push", 80),
    ("conflict: lease", 1_200),
    ("conflict: take", 250),
    ("conflict: settle", 40),
    ("conflict: settle with effects", 30),
    ("conflict: extend", 15),
    ("conflict: sweep", 120),
    ("outcome unknown, and it happened: push", 120),
    ("outcome unknown, and it happened: push under a name", 20),
    ("outcome unknown, and it happened: lease", 90),
    ("outcome unknown, and it happened: take", 40),
    ("outcome unknown, and it happened: settle", 30),
    ("outcome unknown, and it happened: settle with effects", 15),
    ("outcome unknown, and it happened: extend", 8),
    ("outcome unknown, and it happened: close", 25),
    ("outcome unknown, and it happened: sweep", 20),
    ("outcome unknown, and it did not: push", 120),
    ("outcome unknown, and it did not: lease", 110),
    ("outcome unknown, and it did not: take", 50),
    ("outcome unknown, and it did not: settle", 30),
    ("outcome unknown, and it did not: settle with effects", 15),
    ("outcome unknown, and it did not: sweep", 20),
    // What becomes of time.
    ("versions jump", 1_000),
    ("versions jump within a sweep", 300),
    ("versions stand still", 300),
    ("versions run fast", 1_000),
    ("a sweeper leaves a lease alone that is past its deadline", 300),
    ("a sweeper stands by", 1_000),
    ("a sweeper takes over", 120),
    ("a holder keeps a lease that is past its deadline", 150),
    // What is waited for.
    ("a worker goes idle", 2_500),
];

/// The same of keyed queues.
pub(crate) const WANTED_OF_KEYS: &[(&str, u64)] = &[
    ("an item is added", 8_000),
    ("items are leased", 6_000),
    ("items are taken for good", 900),
    ("an item is finished", 4_000),
    ("a lease runs out", 1_000),
    ("items become due", 500),
    ("limit", 400),
    ("unblock", 150),
    ("a key waits for its scope", 5_000),
    ("a key is on hold", 800),
    ("a key waits for a dead letter", 130),
    ("holds are to be looked at again", 70),
    ("a key waits for a timer", 1_500),
    ("a scope is throttled", 800),
    ("a worker waits for a timer", 900),
    ("a handler throttles", 80),
];

/// The same of queues with partitions.
pub(crate) const WANTED_OF_PARTITIONS: &[(&str, u64)] = &[
    ("an item is added", 8_000),
    ("items are leased", 5_000),
    ("items are taken for good", 800),
    ("items are fetched from a partition", 2_000),
    ("an item is finished", 4_000),
    ("a lease runs out", 1_000),
    ("items become due", 500),
    ("the queue is divided", 400),
];

/// The same of queues with schedules.
pub(crate) const WANTED_OF_SCHEDULES: &[(&str, u64)] = &[
    // What operators do.
    ("a schedule is made", 1_200),
    ("a schedule is replaced", 180),
    ("a schedule gets another calendar", 170),
    ("a schedule is removed", 1_200),
    ("a schedule is removed while its item is on a lease", 350),
    ("a schedule is paused", 220),
    ("a schedule is resumed", 100),
    ("a schedule is restarted", 100),
    ("a schedule is fired by hand", 250),
    ("the mark of a schedule is taken back", 8),
    ("a schedule and its history are read", 3_000),
    // What becomes of occurrences.
    ("a sweep fires schedules", 1_400),
    ("an occurrence fires", 2_000),
    ("an occurrence is missed: policy", 2_000),
    ("an occurrence is missed: window", 220),
    ("an occurrence is missed: maximum", 200),
    ("an occurrence is skipped: the last item has not ended", 240),
    ("an occurrence is skipped: paused", 150),
    ("an occurrence is skipped: another calendar", 50),
    ("an occurrence is skipped: restarted", 20),
    ("an occurrence waits", 180),
    ("an occurrence that waited fires", 23),
    // What goes wrong.
    ("outcome unknown, and it happened: schedules fire", 30),
    ("a sweep finds out that schedules have fired", 2),
    ("conflict: put a schedule", 80),
    ("conflict: remove a schedule", 39),
    ("conflict: pause a schedule", 12),
    ("conflict: fire a schedule", 20),
    ("outcome unknown, and it happened: put a schedule", 60),
    ("outcome unknown, and it happened: remove a schedule", 4),
    ("outcome unknown, and it happened: pause a schedule", 6),
    ("outcome unknown, and it happened: fire a schedule", 12),
    ("outcome unknown, and it did not: fire a schedule", 15),
    // Around them.
    ("an item is added", 6_000),
    ("items are leased", 7_000),
    ("an item is finished", 5_000),
    ("items become due", 1_500),
    ("the queue is frozen", 150),
    ("the queue is divided", 70),
];

/// The same of queues whose items are changed.
pub(crate) const WANTED_OF_CHANGES: &[(&str, u64)] = &[
    ("a ready item is cancelled", 150),
    ("a waiting item is cancelled", 120),
    ("a running item is cancelled", 200),
    ("items are cancelled together", 60),
    ("a waiting item is made ready", 60),
    ("a ready item is put off", 80),
    ("a waiting item gets another time", 50),
    ("a dead letter is retried by its id", 8),
    ("a ready item gets another payload", 80),
    ("a waiting item gets another payload", 60),
    ("a dead letter gets another payload", 15),
    ("a holder clears what was cancelled on its lease", 60),
    ("an old record of cancelled items is cleared", 120),
    ("an end is recorded: Done", 3_000),
    ("an end is recorded: Dead", 400),
    ("an end is recorded: Cancelled", 300),
    ("an end is recorded: Expired", 250),
    ("an end is recorded: Taken", 600),
    ("an end is not recorded, since no history is kept", 3_500),
    ("a history is turned on, or gets another time", 400),
    ("a history is turned off", 150),
    ("old ended items are cleared", 1_500),
    ("a history is cleared", 120),
    ("a history is read", 600),
    ("an end is found by an attribute", 1_000),
    ("ended items are read by an attribute", 35),
    ("a result is read", 50),
    ("conflict: keep a history", 8),
    ("outcome unknown, and it happened: keep a history", 12),
    ("a holder says how far items are", 300),
    ("the progress of an item is read", 5),
    ("an item is looked at", 350),
    ("old dead letters are removed", 240),
    ("an item is replaced", 90),
    ("a unique key is free, since its time is over", 400),
    ("a push takes over the unique key of an item that does not wait", 65),
    ("a batch is made", 700),
    ("a batch is committed", 500),
    ("a batch is cancelled", 40),
    ("a batch with members calls back: complete", 120),
    ("a batch with members calls back: deadline", 200),
    ("a batch without members calls back: complete", 150),
    ("a member is done", 300),
    ("a member dies", 60),
    ("a member is cancelled", 45),
    ("a member expires", 55),
    ("a member is taken for good", 110),
    ("a member ends in another queue than its batch is in", 170),
    ("a member does not end, since the home of its batch is frozen", 6),
    ("a mark is cleared of a batch that goes on", 80),
    ("a push is refused, because its batch gets no more members", 80),
    ("batches are read", 900),
    ("conflict: commit a batch", 12),
    ("outcome unknown, and it happened: commit a batch", 7),
    ("an item joins a batch: Ready", 150),
    ("an item joins a batch: Scheduled", 75),
    ("an item joins a batch: Retrying", 8),
    ("an item joins a batch: Running", 300),
    ("an item that has ended joins a batch: Done", 20),
    ("an item that has ended joins a batch: Dead", 12),
    ("an item that has ended joins a batch: Cancelled", 20),
    ("an item that has ended joins a batch: Expired", 4),
    ("an item that has ended joins a batch: Taken", 20),
    ("an item joins that was a member before", 110),
    ("an item is to join that is gone", 55),
    ("an item ends on the lease on which it has joined a batch", 65),
    ("an item comes back from the lease on which it has joined a batch", 220),
    ("an item is pushed after others", 30),
    ("a join is refused, because its batch gets no more members", 22),
    ("a join is refused by a frozen queue", 110),
    ("conflict: join a batch", 75),
    ("conflict: push after others", 9),
    ("outcome unknown, and it happened: join a batch", 11),
    ("outcome unknown, and it happened: push after others", 1),
    ("outcome unknown, and it did not: join a batch", 14),
    ("outcome unknown, and it did not: push after others", 2),
    ("items expire", 150),
    ("expired items become dead letters", 150),
    ("a holder finds an item expired", 200),
    ("rows of expiries are cleared whose items do not expire", 250),
    ("an item is added", 5_000),
    ("an item is finished", 2_500),
    ("a lease runs out", 1_000),
    ("conflict: cancel an item", 60),
    ("outcome unknown, and it happened: cancel an item", 25),
    ("outcome unknown, and it happened: cancel all items", 3),
    ("a transaction is given up, because its item was cancelled", 10),
];

impl Coverage {
    pub(crate) fn count(&mut self, what: impl Into<String>) {
        self.count_many(what, 1);
    }

    pub(crate) fn count_many(&mut self, what: impl Into<String>, n: u64) {
        *self.0.entry(what.into()).or_default() += n;
    }

    pub(crate) fn add(&mut self, other: &Coverage) {
        for (what, n) in &other.0 {
            *self.0.entry(what.clone()).or_default() += n;
        }
    }

    /// Panics if something hardly happened in this many seeds. Numbers of few seeds scatter more: below a thousand half of what is wanted is enough.
    pub(crate) fn check(&self, seeds: u64, wanted: &[(&str, u64)]) {
        for (what, n) in &self.0 {
            println!("{n:>9} {what}");
        }
        let divisor = if seeds < 1_000 { 2_000 } else { 1_000 };
        for (what, per_thousand) in wanted {
            let (n, least) = (self.0.get(*what).copied().unwrap_or(0), per_thousand * seeds / divisor);
            assert!(
                n >= least,
                "{what:?} happened {n} times in {seeds} seeds, and should at least {least} times"
            );
        }
    }
}
