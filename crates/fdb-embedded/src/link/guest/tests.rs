//! A guest against a host that the test plays.

use super::*;
use crate::engine::Durability;
use crate::rows::{FetchHint, RowSet};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::sync::mpsc;

struct Silent;

impl ConnectionEvents for Silent {
    fn fired(&self, _: u64, _: Option<Code>) {}
    fn ending(&self) {}
    fn lost(&self) {}
}

/// A guest and its host, which is played by the test: both have greeted.
fn connected() -> (Arc<Guest>, UnixStream) {
    let dir = tempfile::tempdir().unwrap();
    let (listener, _) = address::listen(dir.path()).unwrap();
    let hosting = thread::spawn(move || {
        let host = listener.accept().unwrap().0;
        assert!(matches!(receive(&host), Some(Request::Hello { .. })));
        send(&host, &Response::Welcome { protocol: PROTOCOL, pid: 1 });
        host
    });
    let guest = Guest::connect(dir.path(), SOON).unwrap();
    guest.start(Silent).unwrap();
    (guest, hosting.join().unwrap())
}

fn receive(mut host: &UnixStream) -> Option<Request> {
    let mut length = [0; 4];
    host.read_exact(&mut length).ok()?;
    let mut message = vec![0; u32::from_le_bytes(length) as usize];
    host.read_exact(&mut message).unwrap();
    Some(Request::decode(&message).unwrap())
}

fn send(host: &UnixStream, response: &Response) {
    let outbox = Outbox::of_host(host.try_clone().unwrap());
    outbox.push(|frame| response.encode(frame)).unwrap();
    outbox.flush();
}

fn blind() -> CommitMessage<u64> {
    let (reads, writes, mutations) = Default::default();
    CommitMessage {
        base: CommitBase::Newest,
        reads,
        report_conflicts: false,
        writes,
        mutations,
        durability: Durability::Flushed,
    }
}

fn commit(guest: &Guest) -> mpsc::Receiver<Option<Code>> {
    let (sender, receiver) = mpsc::channel();
    let answer = CommitPromise::new(move |result| sender.send(result.err().map(|error| error.code)).unwrap());
    // A commit that is not sent ends like this in these tests.
    guest.commit(blind(), answer, |_, answer| answer.complete(Err(NOT_SENT.into())));
    receiver
}

/// Stands for the next host, which gets commits that are not sent.
const NOT_SENT: Code = Code::OPERATION_CANCELLED;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_commit_stays_pending_until_a_live_host_ends_the_connection() {
    let (guest, host) = connected();
    let outcome = commit(&guest);
    assert!(matches!(receive(&host), Some(Request::Commit { .. })));
    // The guest cannot make out the answer, and gives the connection up.
    (&host).write_all(&[1, 0, 0, 0, 99]).unwrap();
    assert_eq!(receive(&host), None);
    assert!(outcome.recv_timeout(Duration::from_millis(200)).is_err(), "the commit may still be in flight");
    // A request that would be sent now is not sent, which is certain.
    let unsent = commit(&guest);
    drop(host);
    assert_eq!(unsent.recv_timeout(SOON), Ok(Some(NOT_SENT)));
    assert_eq!(outcome.recv_timeout(SOON), Ok(Some(Code::COMMIT_UNKNOWN_RESULT)));
}

#[test]
fn requests_sent_before_a_guest_closes_are_answered() {
    let (guest, host) = connected();
    let outcome = commit(&guest);
    let Some(Request::Commit { request, .. }) = receive(&host) else { panic!("a commit") };
    guest.close();
    assert_eq!(receive(&host), None);
    let result = Ok(crate::engine::Committed { version: 1, order: 0 });
    send(&host, &Response::Committed { request, result });
    assert_eq!(outcome.recv_timeout(SOON), Ok(None));
}

#[test]
fn the_last_answers_of_a_host_that_takes_no_more_requests_arrive() {
    let (guest, host) = connected();
    let outcome = commit(&guest);
    let Some(Request::Commit { request, .. }) = receive(&host) else { panic!("a commit") };
    host.shutdown(std::net::Shutdown::Read).unwrap();
    // It cannot be sent; whether it was is not known before the connection's end.
    let refused = commit(&guest);
    let result = Ok(crate::engine::Committed { version: 1, order: 0 });
    send(&host, &Response::Committed { request, result });
    assert_eq!(outcome.recv_timeout(SOON), Ok(None));
    drop(host);
    assert_eq!(refused.recv_timeout(SOON), Ok(Some(Code::COMMIT_UNKNOWN_RESULT)));
}

/// Has fetched what the last read of a view has missed; tells when it is there.
fn fetch(guest: &Guest, view: &Arc<RemoteView>) -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    for fetch in view.take_wanted() {
        let sender = sender.clone();
        guest.fetch(view, fetch, Box::new(move || sender.send(()).unwrap()));
    }
    receiver
}

#[test]
fn a_failed_fetch_fails_only_its_own_read() {
    let (guest, host) = connected();
    let view = guest.open_view(ViewVersion::Newest);
    for key in [b"a", b"b"] {
        assert_eq!(view.get(key), Err(Code::MISSING));
    }
    let fetched = fetch(&guest, &view);
    let Some(Request::OpenView { view: id, .. }) = receive(&host) else { panic!("a view") };
    send(&host, &Response::View { view: id, version: Ok(7) });
    for value in [Err(Code::PROCESS_BEHIND), Ok(None)] {
        let Some(Request::Get { request, .. }) = receive(&host) else { panic!("a read") };
        send(&host, &Response::Value { request, value });
        fetched.recv_timeout(SOON).unwrap();
    }
    assert_eq!(view.get(b"a"), Err(Code::PROCESS_BEHIND));
    assert_eq!((view.get(b"b"), view.version()), (Ok(None), Ok(7)));
    // The next one asks again.
    assert_eq!(view.get(b"a"), Err(Code::MISSING));
    let (begin, end, want) = (&b"c"[..], &b"d"[..], FetchHint::default());
    let scan =
        || view.scan(begin, end, Direction::Backward, (want, None), &mut |_, _| panic!("a row")).map(drop);
    assert_eq!(scan(), Err(Code::MISSING));
    let fetched = fetch(&guest, &view);
    for _ in 0..2 {
        match receive(&host) {
            Some(Request::Get { request, .. }) => send(&host, &Response::Value { request, value: Ok(None) }),
            Some(Request::Range { request, .. }) => {
                send(&host, &Response::Rows { request, rows: Err(Code::PROCESS_BEHIND) });
            }
            other => panic!("{other:?}"),
        }
        fetched.recv_timeout(SOON).unwrap();
    }
    assert_eq!((scan(), scan()), (Err(Code::PROCESS_BEHIND), Err(Code::MISSING)));
    assert_eq!(view.get(b"a"), Ok(None));
}

#[test]
fn a_received_read_version_outlives_the_connection() {
    let (guest, host) = connected();
    let [known, unknown] = [guest.open_view(ViewVersion::Newest), guest.open_view(ViewVersion::Newest)];
    assert_eq!([&known, &unknown].map(|view| view.version()), [Err(Code::MISSING); 2]);
    let [of_known, of_unknown] = [&known, &unknown].map(|view| fetch(&guest, view));
    let Some(Request::OpenView { view, .. }) = receive(&host) else { panic!("a view") };
    send(&host, &Response::View { view, version: Ok(7) });
    of_known.recv_timeout(SOON).unwrap();
    assert_eq!(known.version(), Ok(7));
    drop(host);
    of_unknown.recv_timeout(SOON).unwrap();
    assert!(unknown.is_replaceable(), "nothing was read at its version");
    while known.get(b"k") == Err(Code::MISSING) {
        thread::yield_now();
    }
    assert_eq!((known.get(b"k"), known.version()), (Err(Code::TRANSACTION_TOO_OLD), Ok(7)));
}

#[test]
fn requests_to_a_silent_host_are_bounded() {
    let (guest, host) = connected();
    // Given up at once, as by a transaction that times out and is tried again.
    (0..MAX_PENDING).for_each(|_| drop(guest.open_view(ViewVersion::Newest)));
    assert_eq!(guest.open_view(ViewVersion::Newest).version(), Err(Code::TRANSACTION_TOO_OLD));
    assert_eq!(commit(&guest).recv_timeout(SOON), Ok(Some(Code::TRANSACTION_TOO_OLD)));
    // Each answer makes room for one.
    let mut answered = 0;
    while answered < 2 {
        if let Some(Request::OpenView { view, .. }) = receive(&host) {
            send(&host, &Response::View { view, version: Ok(7) });
            answered += 1;
        }
    }
    let is_open = || guest.open_view(ViewVersion::Newest).version() == Err(Code::MISSING);
    while !is_open() {
        thread::yield_now();
    }
}

#[test]
fn a_long_range_is_scanned_few_times_while_it_is_fetched() {
    const ROWS: u32 = 200_000;
    let (guest, _host) = connected();
    for direction in [Direction::Forward, Direction::Backward] {
        let view = guest.open_view(ViewVersion::Newest);
        let (mut visited, mut pieces) = (0, 0);
        let mut visit = |_: &[u8], _: &[u8]| {
            visited += 1;
            ControlFlow::Continue(())
        };
        while view.scan(b"", &[0xff], direction, (FetchHint::default(), None), &mut visit)
            == Err(Code::MISSING)
        {
            pieces += 1;
            for fetch in view.take_wanted() {
                serve(&view, fetch, ROWS);
            }
        }
        assert!(pieces < 10, "{pieces} pieces");
        assert!(visited < 4 * ROWS, "{visited} rows were visited");
    }
}

/// Puts into a view what a host with this many rows would answer.
fn serve(view: &RemoteView, fetch: Fetch, rows: u32) {
    let Fetch::Range { begin, end, direction, want } = fetch else { panic!("a range") };
    let mut all = (0..rows).map(u32::to_be_bytes).filter(|key| begin[..] <= key[..] && key[..] < end[..]);
    let mut found = RowSet::default();
    let mut push = |key: [u8; 4]| {
        found.push(&key, b"value");
        found.more = want.is_met_by(&found);
        !found.more
    };
    match direction {
        Direction::Forward => all.all(&mut push),
        Direction::Backward => all.rev().all(&mut push),
    };
    view.insert_rows(begin, end, direction, &found);
}

#[test]
fn a_scan_prefetches_the_rest_of_its_walk() {
    let (guest, _host) = connected();
    let view = guest.open_view(ViewVersion::Newest);
    for (direction, far, fetched) in [
        (Direction::Forward, &b"x"[..], (&b"e"[..], &b"x"[..])),
        (Direction::Backward, b"b", (b"b", b"g")),
        // It ends before the range does.
        (Direction::Forward, b"f", (b"e", b"g")),
    ] {
        let (want, mut visit) =
            ((FetchHint::default(), Some(far)), |_: &[u8], _: &[u8]| ControlFlow::Continue(()));
        assert_eq!(view.scan(b"e", b"g", direction, want, &mut visit), Err(Code::MISSING));
        let [Fetch::Range { begin, end, .. }] = &view.take_wanted()[..] else { panic!("a range") };
        assert_eq!((&begin[..], &end[..]), fetched);
    }
}
