//! A guest against a host that the test plays.

use super::*;
use std::sync::mpsc;

struct Silent;

impl Events for Silent {
    fn fired(&self, _: u64, _: Option<Code>) {}
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
    let guest = Guest::connect(dir.path()).unwrap();
    guest.start(Silent).unwrap();
    (guest, hosting.join().unwrap())
}

fn receive(host: &UnixStream) -> Option<Request> {
    Frames::new(host).next().unwrap().map(|frame| Request::decode(frame).unwrap())
}

fn send(host: &UnixStream, response: &Response) {
    let outbox = Outbox::of_host(host.try_clone().unwrap());
    outbox.push(|frame| response.encode(frame)).unwrap();
    outbox.flush();
}

fn blind() -> Commit<u64> {
    let (reads, writes, mutations) = Default::default();
    Commit { base: Base::Now, reads, report_conflicts: false, writes, mutations }
}

fn commit(guest: &Guest) -> mpsc::Receiver<Option<Code>> {
    let (sender, receiver) = mpsc::channel();
    let answer = Answer::new(move |result| sender.send(result.err().map(|error| error.code)).unwrap());
    guest.commit(blind(), answer);
    receiver
}

const SOON: Duration = Duration::from_secs(20);

#[test]
fn no_outcome_is_unknown_before_a_host_that_lives_has_ended_the_connection() {
    let (guest, host) = connected();
    let outcome = commit(&guest);
    assert!(matches!(receive(&host), Some(Request::Commit { .. })));
    // The guest cannot make out the answer, and gives the connection up.
    io::Write::write_all(&mut &host, &[1, 0, 0, 0, 99]).unwrap();
    assert_eq!(receive(&host), None);
    assert!(outcome.recv_timeout(Duration::from_millis(200)).is_err(), "the commit may still be in flight");
    // What would be sent now is not, which is certain.
    assert_eq!(commit(&guest).recv_timeout(SOON), Ok(Some(Code::TRANSACTION_TOO_OLD)));
    drop(host);
    assert_eq!(outcome.recv_timeout(SOON), Ok(Some(Code::COMMIT_UNKNOWN_RESULT)));
}

#[test]
fn what_a_guest_has_sent_before_it_ends_is_answered() {
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
