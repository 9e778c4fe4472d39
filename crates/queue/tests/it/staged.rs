//! Staged takes, step by step: asking, waiting, serving, giving up.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use fdb_embedded::Fault::{None as Fine, UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::{Fault, Faults};
use foundationdb::options::MutationType;
use kvqueue_queue::{
    Approach, End, FetchError, Fetched, Item, ItemOutcome, Kind, Lease, Packing, Queue, RetryPolicy, Session,
    Staged,
};

use crate::common::{
    TestDb, at_most, fetch_options, k, kinds_of_records, on_database, payloads, record, rules, sweeper,
};

/// Thirty seconds in versions.
const LONG: u64 = 30_000_000;

/// How long what was served waits for whom it was served to.
const PICK_UP: Duration = Duration::from_secs(5);

/// One actor that takes: a session, and the approach of a process of its own.
struct Taker<'t> {
    t: &'t TestDb,
    session: Session,
    approach: Approach,
    length: u64,
}

impl<'t> Taker<'t> {
    fn new(t: &'t TestDb, queue: &Queue) -> Taker<'t> {
        Taker { t, session: t.session(queue), approach: Approach::Staged(Staged::default()), length: LONG }
    }

    async fn lease(&mut self, n: usize) -> Fetched<Option<Lease>> {
        self.try_lease(n).await.unwrap()
    }

    async fn try_lease(&mut self, n: usize) -> Result<Fetched<Option<Lease>>, FetchError> {
        let mut take = fetch_options(n, self.length, &mut self.approach, true);
        self.session.fetch(&self.t.db, &mut take).await
    }

    /// The payloads of items taken on a lease.
    async fn leased(&mut self, n: usize) -> Vec<String> {
        self.lease(n).await.got.map(|lease| payloads(lease.items())).unwrap_or_default()
    }

    /// The payloads of items taken for good.
    async fn take(&mut self, n: usize) -> Vec<String> {
        payloads(&self.try_take(n).await.unwrap().got)
    }

    async fn try_take(&mut self, n: usize) -> Result<Fetched<Vec<Item>>, FetchError> {
        let mut take = fetch_options(n, 0, &mut self.approach, true);
        self.session.take_with(&self.t.db, &mut take).await
    }

    async fn by(&mut self, mode: Mode, n: usize) -> Vec<String> {
        match mode {
            Mode::ForGood => self.take(n).await,
            Mode::OnLease => self.leased(n).await,
        }
    }

    /// Loses against another, asks, and gets no further: it can neither serve itself nor take its request back.
    async fn ask(&mut self, queue: &Queue, mode: Mode, n: usize) {
        let t = self.t;
        t.end_faults();
        assert!(t.install(Faults::script([Fault::Conflict, Fine, Fault::Conflict, Fault::Conflict])));
        self.set_policy(queue, RetryPolicy { max_attempts: Some(2), timeout: None });
        match mode {
            Mode::ForGood => _ = self.try_take(n).await.unwrap_err(),
            Mode::OnLease => _ = self.try_lease(n).await.unwrap_err(),
        }
        self.set_policy(queue, RetryPolicy::default());
        t.end_faults();
        assert_eq!(t.records(queue, "want").await.len(), 1);
    }

    fn set_policy(&mut self, queue: &Queue, policy: RetryPolicy) {
        let session = std::mem::replace(&mut self.session, self.t.session(queue));
        self.session = session.with_policy(policy);
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    ForGood,
    OnLease,
}

const MODES: [Mode; 2] = [Mode::ForGood, Mode::OnLease];

/// A queue of three items.
async fn three(t: &TestDb, name: &str) -> Queue {
    let queue = t.queue(name);
    t.push(&queue, &["a", "b", "c"]).await;
    queue
}

/// Whether faults can be injected here.
fn has_faults(t: &TestDb) -> bool {
    t.install(Faults::script([]))
}

async fn has(t: &TestDb, queue: &Queue, kind: &str) -> bool {
    kinds_of_records(t, queue).await.contains(kind)
}

/// Every order of up to three faults after the one that makes a take ask.
fn scripts() -> Vec<Vec<Fault>> {
    let kinds = [Fine, UnknownCommitted, UnknownNotCommitted, Fault::Conflict, Fault::TooOld];
    let mut scripts = vec![vec![Fault::Conflict]];
    for start in 0..1 + kinds.len() + kinds.len().pow(2) {
        for kind in kinds {
            let longer = [scripts[start].as_slice(), &[kind]].concat();
            scripts.push(longer);
        }
    }
    scripts
}

#[test]
fn a_take_with_a_request_happens_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            for mode in MODES {
                let q = three(t, &format!("q{i}{mode:?}")).await;
                let mut taker = Taker::new(t, &q);
                t.end_faults();
                if !t.install(Faults::script(script.clone())) {
                    return;
                }
                assert_eq!(taker.by(mode, 2).await, ["a", "b"], "{mode:?} {script:?}");
                t.end_faults();
                assert_eq!(t.list(&q).await, ["c"], "{mode:?} {script:?}");
                assert_eq!(t.len(&q).await, 1, "{mode:?} {script:?}");
                assert!(!has(t, &q, "want").await, "{mode:?} {script:?}");
                assert_eq!(t.records(&q, "lease").await.len(), usize::from(mode == Mode::OnLease));
                assert_eq!(taker.by(mode, 2).await, ["c"], "{mode:?} {script:?}");
            }
        }
    });
}

/// Polls a future this many times and drops it, unless it was done before.
async fn poll_and_drop<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

#[test]
fn a_take_dropped_at_any_moment_loses_nothing() {
    on_database(async |t| {
        for mode in MODES {
            let q = t.queue(format!("{mode:?}"));
            let (mut taker, mut dropped) = (Taker::new(t, &q), 0);
            for polls in (0..60).chain((0..3_000).step_by(100)) {
                t.push(&q, &["a", "b"]).await;
                t.end_faults();
                if !t.install(Faults::script([Fault::Conflict])) {
                    return;
                }
                let mut all = poll_and_drop(taker.by(mode, 2), polls).await.unwrap_or_else(|| {
                    dropped += 1;
                    Vec::new()
                });
                loop {
                    let more = taker.by(mode, 2).await;
                    if more.is_empty() {
                        break;
                    }
                    all.extend(more);
                }
                assert_eq!(all, ["a", "b"], "{mode:?} dropped after {polls} polls");
                assert_eq!(t.len(&q).await, 0, "{mode:?} dropped after {polls} polls");
                assert!(!has(t, &q, "want").await, "{mode:?} dropped after {polls} polls");
            }
            assert!(dropped > 0, "no future was dropped before it was done");
        }
    });
}

#[test]
fn a_waiting_session_is_served_by_others_behind_it() {
    on_database(async |t| {
        if !has_faults(t) {
            return;
        }
        for mode in MODES {
            let q = three(t, &format!("{mode:?}")).await;
            let (mut first, mut second) = (Taker::new(t, &q), Taker::new(t, &q));
            first.ask(&q, mode, 2).await;
            // It sees that somebody waits, and asks too.
            assert_eq!(second.by(mode, 2).await, ["c"], "{mode:?}");
            assert_eq!(t.len(&q).await, 0);
            assert!(!has(t, &q, "want").await);
            assert_eq!(first.by(mode, 2).await, ["a", "b"], "{mode:?}");
            assert_eq!(first.by(mode, 2).await, [""; 0], "{mode:?}");
            let leases = if mode == Mode::OnLease { 2 } else { 0 };
            assert_eq!(t.records(&q, "lease").await.len(), leases, "{mode:?}");
        }
    });
}

#[test]
fn items_served_to_a_dead_session_are_returned_when_the_lease_expires() {
    on_database(async |t| {
        if !has_faults(t) {
            return;
        }
        let q = three(t, "q").await;
        let (mut dead, mut living) = (Taker::new(t, &q), Taker::new(t, &q));
        dead.length = 1;
        dead.ask(&q, Mode::OnLease, 2).await;
        drop(dead);
        let mut mine = living.lease(1).await.got.unwrap();
        assert_eq!(payloads(mine.items()), ["c"]);
        t.acknowledge(&mut mine, &ItemOutcome::Done).await;
        // A lease as short as this one runs from when it is taken up, for which there is time.
        assert!(t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.is_nothing());
        tokio::time::sleep(PICK_UP).await;
        // Nobody began with them, so they are as they were, though they have but one attempt.
        let rules = at_most(1);
        assert_eq!(t.sweep_leases(&q, 1, &rules).await.returned, 2);
        let again = living.lease(2).await.got.unwrap();
        assert_eq!(payloads(again.items()), ["a", "b"]);
        assert!(again.items().iter().all(|item| item.attempt == 1 && item.meta.is_none()));
    });
}

#[test]
fn a_crash_of_a_served_session_spends_an_attempt() {
    on_database(async |t| {
        if !has_faults(t) {
            return;
        }
        // What becomes of the commits with which it takes up what it was served with.
        for (i, script) in [vec![], vec![UnknownCommitted], vec![UnknownNotCommitted], vec![Fault::Conflict]]
            .into_iter()
            .enumerate()
        {
            let q = three(t, &format!("{i}")).await;
            let (mut taker, mut other) = (Taker::new(t, &q), Taker::new(t, &q));
            taker.length = 1;
            taker.ask(&q, Mode::OnLease, 2).await;
            assert_eq!(other.leased(1).await, ["c"]);
            t.install(Faults::script(script.clone()));
            let found = taker.lease(2).await;
            t.end_faults();
            assert_eq!(found.recovered, script == [UnknownCommitted]);
            // It dies at once, before it has written anything else.
            assert_eq!(payloads(found.got.unwrap().items()), ["a", "b"]);
            assert_eq!(t.sweep_leases(&q, 1, &rules()).await.returned, 2, "{script:?}");
            assert_eq!(other.lease(1).await.got.unwrap().items()[0].attempt, 2, "{script:?}");
        }
    });
}

#[test]
fn a_take_that_finds_the_queue_empty_withdraws_its_request() {
    on_database(async |t| {
        if !has_faults(t) {
            return;
        }
        for mode in MODES {
            let q = three(t, &format!("{mode:?}")).await;
            let mut taker = Taker::new(t, &q);
            taker.ask(&q, mode, 2).await;
            t.run(async |tr| q.pop_k(tr, k(9)).await).await;
            assert_eq!(taker.by(mode, 2).await, [""; 0]);
            assert!(!has(t, &q, "want").await);
            let watch = taker.lease(1).await.watch.expect("the queue is empty");
            t.push(&q, &["d"]).await;
            watch.await.unwrap();
            assert_eq!(taker.by(mode, 2).await, ["d"]);
        }
    });
}

#[test]
fn a_failed_take_withdraws_its_request_and_keeps_no_items() {
    on_database(async |t| {
        // What becomes of the transaction in which it would have served itself.
        for last in [Fault::Conflict, UnknownCommitted, UnknownNotCommitted] {
            let q = three(t, &format!("{last:?}")).await;
            let mut taker = Taker::new(t, &q);
            let policy = RetryPolicy { max_attempts: Some(2), timeout: None };
            taker.set_policy(&q, policy);
            t.end_faults();
            if !t.install(Faults::script([Fault::Conflict, Fine, last])) {
                return;
            }
            taker.try_lease(2).await.unwrap_err();
            t.end_faults();
            assert_eq!(t.list(&q).await, ["a", "b", "c"], "{last:?}");
            assert_eq!(t.len(&q).await, 3, "{last:?}");
            let left = kinds_of_records(t, &q).await;
            assert!(!left.contains("want") && !left.contains("lease"), "{last:?}: {left:?}");
            let again = taker.lease(9).await.got.unwrap();
            assert!(again.items().iter().all(|item| item.attempt == 1), "{last:?}");
        }
    });
}

#[test]
fn items_of_a_failed_take_are_returned_by_the_next() {
    on_database(async |t| {
        for last in [Fault::Conflict, UnknownCommitted, UnknownNotCommitted] {
            let q = three(t, &format!("{last:?}")).await;
            let mut taker = Taker::new(t, &q);
            taker.set_policy(&q, RetryPolicy { max_attempts: Some(2), timeout: None });
            t.end_faults();
            if !t.install(Faults::script([Fault::Conflict, Fine, last])) {
                return;
            }
            let error = taker.try_take(2).await.unwrap_err();
            t.end_faults();
            assert_eq!(error.is_maybe_committed(), last != Fault::Conflict);
            assert!(!has(t, &q, "want").await, "{last:?}");
            let mut all = Vec::new();
            for _ in 0..3 {
                all.extend(taker.take(1).await);
            }
            assert_eq!((all, t.len(&q).await), (["a", "b", "c"].map(String::from).to_vec(), 0), "{last:?}");
        }
    });
}

#[test]
fn closing_withdraws_the_request_and_releases_served_items() {
    on_database(async |t| {
        if !has_faults(t) {
            return;
        }
        for mode in MODES {
            let q = three(t, &format!("{mode:?}")).await;
            let mut asked = Taker::new(t, &q);
            asked.ask(&q, mode, 2).await;
            assert!(asked.session.close(&t.db).await.unwrap().is_empty());
            assert!(!has(t, &q, "want").await);

            let (mut served, mut other) = (Taker::new(t, &q), Taker::new(t, &q));
            served.ask(&q, mode, 2).await;
            assert_eq!(other.take(1).await, ["c"]);
            assert!(has(t, &q, "lease").await);
            assert!(served.session.close(&t.db).await.unwrap().is_empty());
            assert_eq!((t.list(&q).await, t.len(&q).await), (vec!["a".to_owned(), "b".to_owned()], 2));
            let left = kinds_of_records(t, &q).await;
            let expected = BTreeSet::from(["nback", "npop", "npush", "token", "val"].map(String::from));
            assert!(left.is_subset(&expected), "{left:?}");
        }
    });
}

#[test]
fn a_request_that_differs_from_the_next_take_is_withdrawn() {
    on_database(async |t| {
        if !has_faults(t) {
            return;
        }
        let q = three(t, "q").await;
        let mut taker = Taker::new(t, &q);
        // For fewer items.
        taker.ask(&q, Mode::OnLease, 3).await;
        assert_eq!(taker.leased(1).await, ["a"]);
        // In another mode.
        taker.ask(&q, Mode::OnLease, 1).await;
        assert_eq!(taker.take(1).await, ["b"]);
        // By another approach.
        taker.ask(&q, Mode::OnLease, 1).await;
        taker.approach = Approach::Front;
        assert_eq!(taker.leased(1).await, ["c"]);
        assert!(!has(t, &q, "want").await);
        assert_eq!((t.records(&q, "lease").await.len(), t.len(&q).await), (2, 0));
    });
}

#[test]
fn each_end_of_a_priority_queue_has_its_own_line() {
    on_database(async |t| {
        if !has_faults(t) {
            return;
        }
        let of = |end| t.queue_of("q", Kind::Priority(end, Packing::Raw));
        let (min, max) = (of(End::Min), of(End::Max));
        t.fill(&min, &["a", "b", "c", "d"]).await;
        let (mut low, mut high) = (Taker::new(t, &min), Taker::new(t, &max));
        low.ask(&min, Mode::OnLease, 2).await;
        assert_eq!(high.leased(1).await, ["d"]);
        assert!(has(t, &min, "want").await);
        assert_eq!(low.leased(2).await, ["a", "b"]);
        assert_eq!(t.list(&min).await, ["c"]);
    });
}

/// Puts a request into the line as the key space's page says it is stored.
async fn request(t: &TestDb, queue: &Queue, session: [u8; 16], deadline: u64) {
    let begin = record(queue, "want", b"\x33");
    let position = (begin.len() as u32).to_le_bytes();
    let key = [begin.as_slice(), &[0xff; 10], b"\0\0", &position].concat();
    let value = [
        b"\x01",
        session.as_slice(),
        &7_u64.to_le_bytes(),
        &1_u32.to_le_bytes(),
        &LONG.to_le_bytes(),
        &deadline.to_le_bytes(),
        b"\0",
    ]
    .concat();
    t.run(async |tr| {
        tr.atomic_op(&key, &value, MutationType::SetVersionstampedKey);
        Ok(())
    })
    .await;
}

#[test]
fn expired_and_unreadable_requests_are_dropped() {
    on_database(async |t| {
        let q = three(t, "q").await;
        request(t, &q, [1; 16], 1).await;
        // Of a layout that this version does not know.
        let unknown = record(&q, "want", &[b"\x33".as_slice(), &[0; 12]].concat());
        t.run(async |tr| {
            tr.set(&unknown, b"\x02");
            Ok(())
        })
        .await;
        // One that makes it ask, and the line be served.
        request(t, &q, [2; 16], u64::MAX).await;
        assert_eq!(Taker::new(t, &q).leased(2).await, ["b", "c"]);
        assert_eq!(t.records(&q, "want").await.len(), 1);
        assert_eq!((t.records(&q, "lease").await.len(), t.len(&q).await), (2, 0));
    });
}

#[test]
fn expired_requests_are_swept_and_cause_no_requests() {
    on_database(async |t| {
        let q = three(t, "q").await;
        for session in 1..=3 {
            request(t, &q, [session; 16], 1).await;
        }
        request(t, &q, [4; 16], u64::MAX).await;
        assert_eq!(t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.requests, 3);
        assert_eq!(t.records(&q, "want").await.len(), 1);
        assert_eq!(t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.requests, 0);
        // Some ran out where nobody sweeps: who takes does so at once, without a request of its own.
        let q = three(t, "unswept").await;
        request(t, &q, [1; 16], 1).await;
        let leased = Taker::new(t, &q).lease(1).await;
        assert_eq!((leased.attempts.begun, leased.got.unwrap().items().len()), (1, 1));
        assert_eq!(t.records(&q, "want").await.len(), 1);
    });
}

#[test]
fn waiting_in_line_spends_no_transaction_attempts() {
    on_database(async |t| {
        let q = three(t, "q").await;
        // The first process is dead, which those behind notice after half a second.
        request(t, &q, [1; 16], u64::MAX).await;
        let mut taker = Taker::new(t, &q);
        taker.set_policy(&q, RetryPolicy { max_attempts: Some(3), timeout: None });
        assert_eq!(taker.leased(1).await, ["b"]);
    });
}

#[test]
fn a_long_line_is_served_in_parts_and_in_order() {
    on_database(async |t| {
        const OTHERS: u8 = 150;
        let q = t.queue("q");
        let names: Vec<String> = (0..=OTHERS).map(|n| format!("{n:03}")).collect();
        t.push(&q, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        for n in 0..OTHERS {
            request(t, &q, [n; 16], u64::MAX).await;
        }
        let mut taker = Taker::new(t, &q);
        assert_eq!(taker.leased(1).await, names[usize::from(OTHERS)..]);
        let leases = t.records(&q, "lease").await;
        assert_eq!((leases.len(), t.len(&q).await), (usize::from(OTHERS) + 1, 0));
        for n in 0..OTHERS {
            // (q, "lease", session, 7): its inline body ends with the value.
            let key = [b"\x30".as_slice(), &[n; 16], b"\x15\x07"].concat();
            let (_, value) = leases.iter().find(|(lease, _)| *lease == key).expect("it was served");
            assert!(value.ends_with(names[usize::from(n)].as_bytes()), "{n}");
        }
    });
}

#[test]
fn deleting_a_queue_drops_its_requests() {
    on_database(async |t| {
        if !has_faults(t) {
            return;
        }
        let q = three(t, "q").await;
        let mut taker = Taker::new(t, &q);
        taker.ask(&q, Mode::OnLease, 2).await;
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        assert!(taker.lease(2).await.watch.is_some());
        t.push(&q, &["d"]).await;
        assert_eq!(taker.leased(2).await, ["d"]);
    });
}
