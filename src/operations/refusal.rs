//! Why an operation is not done.

use std::borrow::Cow;

use kvqueue_queue::{Pause, QueueError, RetryError};

use crate::base::json::time;

/// An operation is not done, for a reason that another request or another command can mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}{}", if fix.is_empty() { "" } else { "; " }, fix)]
pub(crate) struct Refusal {
    pub(crate) class: Class,
    /// A stable code for programs.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// What to do about it. It may be empty.
    pub(crate) fix: Cow<'static, str>,
}

/// The kind of a refusal, which determines the status of an answer over HTTP and the exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The arguments are wrong.
    Bad,
    /// What is named does not exist.
    NotFound,
    /// The state of the queue does not allow it.
    Conflict,
    /// An argument is too long.
    TooLarge,
}

impl Refusal {
    /// The arguments are wrong.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self { class: Class::Bad, code: "bad_request", message: message.into(), fix: Cow::Borrowed("") }
    }

    /// An argument is too long.
    pub(super) fn too_large(message: impl Into<String>, fix: &'static str) -> Self {
        Self { class: Class::TooLarge, code: "too_large", message: message.into(), fix: fix.into() }
    }

    /// Something in a queue that is named does not exist.
    pub(super) fn not_found(message: impl Into<String>, fix: impl Into<Cow<'static, str>>) -> Self {
        Self { class: Class::NotFound, code: "not_found", message: message.into(), fix: fix.into() }
    }

    /// The queue is in neither the database nor the configuration, as a text says. `or` is another way to mend it.
    pub(super) fn no_queue(text: &str, or: &str) -> Self {
        let (message, fix) = parts(text);
        let fix = [fix, or].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        Self { class: Class::NotFound, code: "no_queue", message: message.to_owned(), fix: fix.into() }
    }

    /// The state of the queue does not allow it.
    pub(super) fn conflict(
        code: &'static str,
        message: impl Into<String>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { class: Class::Conflict, code, message: message.into(), fix: fix.into() }
    }

    /// The state of the queue does not allow it, as a text says: what, and after a semicolon what to do.
    pub(crate) fn of_text(code: &'static str, text: &str) -> Self {
        let (message, fix) = parts(text);
        Self { class: Class::Conflict, code, message: message.to_owned(), fix: fix.to_owned().into() }
    }

    /// The queue is frozen: a migration moves it, or has moved it. `queue` is printable.
    pub(crate) fn frozen(queue: &str, pause: &Pause) -> Self {
        let message = format!("queue \"{queue}\" is frozen since {}: {}", time(pause.at), pause.why());
        let fix = format!(
            "use it where it is moved to; or if you know that nobody moves it: kvqueue resume {queue} --frozen"
        );
        Self::conflict("frozen", message, fix)
    }

    /// The refusal that an error of the layer is, if nothing was done. Any other error is a failure.
    pub(crate) fn of(error: &RetryError) -> Option<Self> {
        if error.is_maybe_committed() {
            return None;
        }
        Self::of_cause(&error.error)
    }

    /// The same of an error of which nothing was done.
    pub(crate) fn of_cause(error: &QueueError) -> Option<Self> {
        match error {
            QueueError::OtherKind { .. } => Some(Self::of_text("other_kind", &error.to_string())),
            QueueError::TooManyBatches { .. } => Some(Self::of_text("batch", &error.to_string())),
            QueueError::Frozen { queue, pause } => Some(Self::frozen(queue, pause)),
            _ => None,
        }
    }
}

/// What is wrong, and what to do about it, of a text that has a semicolon between them.
fn parts(text: &str) -> (&str, &str) {
    text.split_once("; ").unwrap_or((text, ""))
}
