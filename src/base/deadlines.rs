//! Deadlines that nest: what waits for something waits longer than that may take, so that no caller gets an error for a failure that has not
//! happened.
//!
//! | who | waits for | at most |
//! |---|---|---|
//! | a command to the daemon | its turn, behind other commands | [`TURN`] |
//! | a reload | reading the configuration, making its handlers | [`PREPARED`] |
//! | a reload | the database, which says whether new queues are paused | [`FIRST_LOOK`] |
//! | a reload | consumers that finish under earlier settings | [`FINISHED`] |
//! | a reload | the database, which says what is left in removed queues | [`LEFT`] |
//! | a command over HTTP | the database, which stores the record of it | [`RECORDED`] |
//! | an HTTP request | all of these | [`REQUEST`] |
//! | `kvqueue reload` and the like, and the page | the HTTP request | [`COMMAND`] |
//! | a request | its body | [`BODY`] |
//! | an HTTP request | one operation at the database | [`OPERATION`], and [`LAST_MOMENT`] until it is given up |
//! | a push | the push before it, and its own | [`PUSH`] |
//! | `kvqueue` and `kvqueue work` | the answer to a question, or to a change of a lease | [`ANSWER`] |
//! | the clients for other languages | the answer to a push, or to a change of a lease | [`CLIENT`] |

use std::time::Duration;

/// A command that has waited so long for its turn is refused, and changes nothing.
pub(crate) const TURN: Duration = Duration::from_secs(3);

/// A configuration that cannot be read, and its handlers made, within this is refused.
pub(crate) const PREPARED: Duration = Duration::from_secs(10);

/// How long a queue's first consumers, and a reload, wait for the database to say whether the queue is paused.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(5);

/// After this a reload is answered though consumers still finish under earlier settings.
pub(crate) const FINISHED: Duration = Duration::from_secs(10);

/// How long a reload waits for the database to say what is left in the queues that it removed.
pub(crate) const LEFT: Duration = Duration::from_secs(1);

/// How long a request waits for the database to store its record in the audit trail.
pub(crate) const RECORDED: Duration = Duration::from_secs(6);

/// How long the handler of an HTTP request may take.
pub(crate) const REQUEST: Duration = Duration::from_secs(36);

/// The longest that a request waits for items, or for the end of one, if it asks for that.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How long `kvqueue` waits for the daemon's answer to a command, and the page for any answer.
pub(crate) const COMMAND: Duration = Duration::from_secs(41);

/// How long a request waits for its body.
pub(crate) const BODY: Duration = Duration::from_secs(10);

/// How long one operation at the database of an HTTP request may take, retries and all.
pub(crate) const OPERATION: Duration = Duration::from_secs(5);

/// The client library ends what takes too long; this is for when it does not answer at all.
pub(crate) const LAST_MOMENT: Duration = Duration::from_secs(1);

/// How long a push over HTTP waits: for the transaction before it, and for its own.
pub(crate) const PUSH: Duration = Duration::from_secs(10);

/// How long `kvqueue` waits for the answer to a question, and a worker of it for one about its lease.
pub(crate) const ANSWER: Duration = Duration::from_secs(15);

/// How long the clients for other languages wait for an answer.
const CLIENT: Duration = Duration::from_secs(30);

const _: () = {
    let reload =
        TURN.as_secs() + PREPARED.as_secs() + FIRST_LOOK.as_secs() + FINISHED.as_secs() + LEFT.as_secs();
    assert!(RECORDED.as_secs() + reload < REQUEST.as_secs() && REQUEST.as_secs() < COMMAND.as_secs());

    let operation = OPERATION.as_secs() + LAST_MOMENT.as_secs();
    // Some questions need two operations.
    assert!(operation <= RECORDED.as_secs() && 2 * operation < ANSWER.as_secs());
    assert!(2 * OPERATION.as_secs() <= PUSH.as_secs() && BODY.as_secs() + PUSH.as_secs() < CLIENT.as_secs());
};

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_page_and_the_clients_wait_as_long_as_the_deadlines_say() {
        let client = CLIENT.as_secs();
        for (file, line) in [
            ("assets/api.js", format!("const PATIENCE = {};", COMMAND.as_millis())),
            ("clients/python/kvqueue_worker.py", format!("CONNECT, TIMEOUT = 5.0, {client}.0")),
            ("clients/node/kvqueue-worker.js", format!("const [CONNECT, TIMEOUT] = [5_000, {client}_000];")),
            (
                "clients/go/kvqueue.go",
                format!("connectTimeout, requestTimeout = 5 * time.Second, {client} * time.Second"),
            ),
        ] {
            let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
            assert!(text.lines().any(|it| it.trim() == line), "{file} has no line {line:?}");
        }
    }
}
