//! The books: what was pushed, handled and left, and whether that adds up. Pure.
//!
//! As Jepsen's total-queue has it: *attempted* are all pushes that were begun, *acknowledged* those of which it is known that they
//! happened. *Lost* is what was acknowledged and never came out; *unexpected*, what came out and was never attempted; *recovered*, what came
//! out though its push was not acknowledged; *duplicate*, what came out again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    payload::Name,
    plan::{IN_HAND, Mode, Queue},
    producers::{Pushed, Way},
    records::{Act, Record},
};

/// What is left of a queue at the end, as the database has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// `kvqueue len`.
    pub(super) ready: u64,
    pub(super) leased: u64,
    pub(super) later: u64,
    pub(super) dead: u64,
    pub(super) done: u64,
    /// The dead letters' payloads.
    pub(super) letters: Vec<Result<Name, String>>,
    /// What handlers did in their items' transactions.
    pub(super) effects: BTreeMap<Name, u64>,
    /// Keys, by their kind.
    pub(super) keys: BTreeMap<String, u64>,
}

/// One queue's books.
pub(super) struct Books {
    pub(super) queue: Queue,
    pub(super) pushed: Vec<Pushed>,
    /// By helpers.
    pub(super) records: Vec<Record>,
    /// By the program.
    pub(super) printed: Vec<Result<Name, String>>,
    pub(super) rest: Rest,
    /// Daemons that were killed, or killed themselves.
    pub(super) killed: u64,
}

/// One queue's account, and what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) attempted: usize,
    pub(super) acknowledged: usize,
    /// Times that an item was handed to a handler.
    handled: usize,
    pub(super) lost: usize,
    unexpected: usize,
    pub(super) duplicates: usize,
    recovered: usize,
    done: u64,
    dead: u64,
    pub(super) wrong: Vec<String>,
}

/// Each kind of trouble names so many items.
const NAMED: usize = 5;

impl Account {
    fn complain(&mut self, what: &str, of: &[impl fmt::Debug]) {
        if !of.is_empty() {
            self.wrong.push(format!("{}, {what}: {:?}", of.len(), &of[..of.len().min(NAMED)]));
        }
    }

    fn check(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.wrong.push(what());
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            attempted,
            acknowledged,
            handled,
            lost,
            unexpected,
            duplicates,
            recovered,
            done,
            dead,
            wrong: _,
        } = self;
        write!(
            f,
            "{attempted} attempted, {acknowledged} acknowledged, {handled} handled, {done} done, {dead} dead, \
             {lost} lost, {unexpected} unexpected, {duplicates} duplicates, {recovered} recovered"
        )
    }
}

impl Books {
    /// Adds everything up.
    pub(super) fn close(&self) -> Account {
        let mut account = Account { done: self.rest.done, dead: self.rest.dead, ..Account::default() };
        let attempted: BTreeSet<Name> = self.names(|pushed| pushed.attempted).collect();
        let acknowledged: BTreeSet<Name> = self.names(|pushed| pushed.acknowledged).collect();
        let runs = self.runs();
        let letters: BTreeSet<Name> = self.rest.letters.iter().flatten().copied().collect();
        let out: BTreeSet<Name> = runs.keys().chain(&letters).copied().collect();

        account.attempted = attempted.len();
        account.acknowledged = acknowledged.len();
        account.handled = runs.values().map(Vec::len).sum();
        account.duplicates = account.handled - runs.len();
        account.recovered = out.iter().filter(|name| attempted.contains(name)).count()
            - out.intersection(&acknowledged).count();
        let unexpected: Vec<&Name> = out.difference(&attempted).collect();
        account.unexpected = unexpected.len();
        account.complain("came out and were never pushed", &unexpected);
        let lost: Vec<&Name> = acknowledged.difference(&out).collect();
        account.lost = lost.len();

        self.check_texts(&mut account);
        self.check_pushes(&out, &mut account);
        self.check_rest(&mut account);
        match self.queue.mode {
            Mode::AtMostOnce => self.check_at_most_once(&runs, &lost, &mut account),
            Mode::AtLeastOnce | Mode::ExactlyOnce => {
                account.complain("were acknowledged and are lost", &lost);
                self.check_leased(&runs, &letters, &out, &mut account);
            }
        }
        if self.queue.mode == Mode::ExactlyOnce {
            self.check_effects(&letters, &mut account);
        }
        account
    }

    fn names(&self, first: impl Fn(&Pushed) -> u64) -> impl Iterator<Item = Name> {
        self.pushed.iter().flat_map(move |pushed| pushed.errand.names().take(first(pushed) as usize))
    }

    /// What was done about each item, time by time; `None` where that is not known, but that it was handled.
    fn runs(&self) -> BTreeMap<Name, Vec<Option<(u32, usize, Act)>>> {
        let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for record in &self.records {
            if let Record::Handled { name, attempt, failures, act } = record {
                runs.entry(*name).or_default().push(Some((*attempt, *failures, *act)));
            }
        }
        for name in self.printed.iter().flatten() {
            runs.entry(*name).or_default().push(None);
        }
        runs
    }

    /// Payloads are whole.
    fn check_texts(&self, account: &mut Account) {
        let recorded = self.records.iter().filter_map(|record| match record {
            Record::Nonsense(text) => Some(text),
            Record::Handled { .. } => None,
        });
        let told = self.printed.iter().chain(&self.rest.letters).filter_map(|text| text.as_ref().err());
        account.complain("texts are nobody's", &recorded.chain(told).collect::<Vec<_>>());
    }

    /// Of each push a beginning came out, of an operation all or nothing, of one that was refused nothing.
    fn check_pushes(&self, out: &BTreeSet<Name>, account: &mut Account) {
        for pushed in &self.pushed {
            let came: Vec<u64> =
                pushed.errand.names().filter(|name| out.contains(name)).map(|name| name.place).collect();
            account.check(!pushed.refused || came.is_empty(), || {
                format!("refused, and came out: {:?}", pushed.errand)
            });
            // Where items can be lost, nothing is known of their order.
            if self.queue.is_leased() {
                let whole = pushed.errand.way != Way::Operation
                    || [0, pushed.errand.lines].contains(&(came.len() as u64));
                let is_beginning = came.iter().copied().eq(0..came.len() as u64);
                account.check(whole && is_beginning, || {
                    format!("came out in part: {came:?} of {:?}", pushed.errand)
                });
            }
        }
    }

    /// Nothing is left, and no record of what is gone.
    fn check_rest(&self, account: &mut Account) {
        let Rest { ready, leased, later, dead, keys, letters, .. } = &self.rest;
        account.check((*ready, *leased, *later) == (0, 0, 0), || {
            format!("left: {ready} ready, {leased} leased, {later} later")
        });
        account.check(*dead == letters.len() as u64, || {
            format!("{dead} dead letters are counted, and {} are there", letters.len())
        });
        for kind in ["val", "meta", "lease", "held", "later", "unique", "unknown"] {
            let left = keys.get(kind).copied().unwrap_or(0);
            account.check(left == 0, || format!("{left} keys of kind {kind:?} are left"));
        }
        let bodies = keys.get("body").copied().unwrap_or(0);
        account.check(bodies == *dead, || format!("{bodies} bodies of {dead} dead letters"));
    }

    /// Handled once at most, and lost only by daemons that were killed.
    fn check_at_most_once(
        &self,
        runs: &BTreeMap<Name, Vec<Option<(u32, usize, Act)>>>,
        lost: &[&Name],
        account: &mut Account,
    ) {
        let twice: Vec<_> = runs.iter().filter(|(_, runs)| runs.len() > 1).collect();
        account.complain("were handled more than once", &twice);
        let most = self.killed * IN_HAND;
        if lost.len() as u64 > most {
            account.complain(
                &format!("are lost, where {} killed daemons had at most {most}", self.killed),
                lost,
            );
        }
    }

    /// Each item was finished once, or is dead; and handled again only in another attempt, unless it was given back.
    fn check_leased(
        &self,
        runs: &BTreeMap<Name, Vec<Option<(u32, usize, Act)>>>,
        letters: &BTreeSet<Name>,
        out: &BTreeSet<Name>,
        account: &mut Account,
    ) {
        let Rest { done, dead, .. } = self.rest;
        account.check(done + dead == out.len() as u64, || {
            format!("{done} finished and {dead} dead are not the {} items that came out", out.len())
        });
        let finished = |run: &Option<(u32, usize, Act)>| run.is_none_or(|(_, _, act)| act == Act::Done);
        let open: Vec<_> = runs
            .iter()
            .filter(|(name, runs)| !letters.contains(name) && !runs.iter().any(finished))
            .collect();
        account.complain("are finished though no handler was done with them", &open);
        if self.queue.mode == Mode::AtLeastOnce {
            let again: Vec<_> = runs.iter().filter(|(_, runs)| is_repeated(runs)).collect();
            account.complain("were handled twice in the same attempt", &again);
        }
    }

    /// What was done for an item happened once if it was finished, and else never.
    fn check_effects(&self, letters: &BTreeSet<Name>, account: &mut Account) {
        let effects = &self.rest.effects;
        let more: Vec<_> = effects.iter().filter(|(_, times)| **times != 1).collect();
        account.complain("took effect more than once", &more);
        let dead: Vec<_> = letters.iter().filter(|name| effects.contains_key(name)).collect();
        account.complain("took effect and are dead", &dead);
        let (happened, done) = (effects.len() as u64, self.rest.done);
        account.check(happened == done, || format!("{happened} took effect and {done} are finished"));
    }
}

/// Failures are kept up to this number, so beyond it they do not tell attempts apart once dead letters are retried.
const FAILURES: usize = kvqueue_queue::MAX_FAILURES;

/// Whether two runs were the same attempt. An item that was given back has not spent its own.
fn is_repeated(runs: &[Option<(u32, usize, Act)>]) -> bool {
    let spent =
        runs.iter().flatten().filter(|(_, failures, act)| *act != Act::Release && *failures < FAILURES);
    let mut seen = BTreeSet::new();
    spent.into_iter().any(|(attempt, failures, _)| !seen.insert((*attempt, *failures)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{chaos::producers::Errand, support::Random};

    /// A queue of this mode to which three items of four were pushed that are acknowledged, handled and done.
    fn books(mode: Mode) -> Books {
        let mut random = Random::seeded(3);
        let queues = Queue::draw(&mut random);
        let place = queues.iter().position(|queue| queue.mode == mode).unwrap();
        let errand = std::iter::from_fn(|| Some(Errand::draw(&mut random, &queues, 1)))
            .find(|errand| errand.way == Way::Stream && errand.queue == place && errand.lines >= 4)
            .unwrap();
        let name = |at| name(place, at);
        let records = (0..3).map(|at| handled(name(at), 1, Act::Done)).collect();
        let effects = (0..3).map(|at| (name(at), 1)).collect();
        Books {
            queue: queues[place].clone(),
            pushed: vec![Pushed { errand, attempted: 4, acknowledged: 3, refused: false }],
            records,
            printed: Vec::new(),
            rest: Rest { done: 3, effects, ..Rest::default() },
            killed: 0,
        }
    }

    fn name(queue: usize, place: u64) -> Name {
        Name { queue, producer: 1, place }
    }

    fn handled(name: Name, attempt: u32, act: Act) -> Record {
        Record::Handled { name, attempt, failures: attempt as usize - 1, act }
    }

    /// What is wrong after a change.
    fn wrong(mode: Mode, change: impl FnOnce(&mut Books, usize)) -> String {
        let mut books = books(mode);
        let place = books.pushed[0].errand.queue;
        change(&mut books, place);
        books.close().wrong.join("; ")
    }

    const MODES: [Mode; 3] = [Mode::AtLeastOnce, Mode::AtMostOnce, Mode::ExactlyOnce];

    #[test]
    fn right_books_are_right() {
        for mode in MODES {
            assert_eq!(wrong(mode, |_, _| {}), "");
        }
        // The fourth came out although its producer never heard so.
        let recovered = |books: &mut Books, queue| {
            books.records.push(handled(name(queue, 3), 1, Act::Done));
            books.rest.effects.insert(name(queue, 3), 1);
            books.rest.done += 1;
        };
        assert_eq!(wrong(Mode::ExactlyOnce, recovered), "");
    }

    #[test]
    fn what_is_lost_or_invented_is_found() {
        for mode in MODES {
            let lost = wrong(mode, |books, _| drop(books.records.remove(2)));
            assert!(lost.contains("lost"), "{mode:?}: {lost}");
            let invented =
                wrong(mode, |books, queue| books.records.push(handled(name(queue, 4), 1, Act::Done)));
            assert!(invented.contains("never pushed"), "{mode:?}: {invented}");
            let left = wrong(mode, |books, _| books.rest.leased = 1);
            assert!(left.contains("1 leased"), "{mode:?}: {left}");
        }
    }

    #[test]
    fn what_a_killed_daemon_had_in_hand_may_be_lost_at_most_once() {
        let lose = |books: &mut Books, _| {
            books.records.pop();
            books.killed = 1;
        };
        assert_eq!(wrong(Mode::AtMostOnce, lose), "");
        assert!(wrong(Mode::AtLeastOnce, lose).contains("lost"));
    }

    #[test]
    fn a_second_run_is_found_where_it_may_not_be() {
        let again = |attempt| {
            move |books: &mut Books, queue| books.records.push(handled(name(queue, 0), attempt, Act::Done))
        };
        assert_eq!(wrong(Mode::AtLeastOnce, again(2)), "");
        assert!(wrong(Mode::AtLeastOnce, again(1)).contains("same attempt"));
        assert!(wrong(Mode::AtMostOnce, again(2)).contains("more than once"));
        assert_eq!(wrong(Mode::ExactlyOnce, again(1)), "");
    }

    #[test]
    fn what_is_finished_twice_or_took_effect_twice_is_found() {
        let finished = |books: &mut Books, _| books.rest.done += 1;
        assert!(wrong(Mode::AtLeastOnce, finished).contains("4 finished and 0 dead are not the 3 items"));
        let effect = |books: &mut Books, queue| {
            books.rest.effects.insert(name(queue, 0), 2);
        };
        assert!(wrong(Mode::ExactlyOnce, effect).contains("took effect more than once"));
        let none = |books: &mut Books, queue| {
            books.rest.effects.remove(&name(queue, 0));
        };
        assert!(wrong(Mode::ExactlyOnce, none).contains("2 took effect and 3 are finished"));
    }

    #[test]
    fn a_push_that_came_out_in_part_is_found() {
        let gap = |books: &mut Books, _| {
            books.records.remove(1);
            books.pushed[0].acknowledged = 1;
            books.rest.done = 2;
        };
        assert!(wrong(Mode::AtLeastOnce, gap).contains("came out in part"));
        let refused = |books: &mut Books, _| books.pushed[0].refused = true;
        assert!(wrong(Mode::AtLeastOnce, refused).contains("refused, and came out"));
    }
}
