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
//! | `kvqueue reload` and the like | the HTTP request | [`COMMAND`] |

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

/// How long `kvqueue` waits for the daemon's answer to a command.
pub(crate) const COMMAND: Duration = Duration::from_secs(41);

const _: () = {
    let reload =
        TURN.as_secs() + PREPARED.as_secs() + FIRST_LOOK.as_secs() + FINISHED.as_secs() + LEFT.as_secs();
    assert!(RECORDED.as_secs() + reload < REQUEST.as_secs() && REQUEST.as_secs() < COMMAND.as_secs());
};
