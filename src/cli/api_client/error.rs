//! Why a daemon has not done what it was asked for.

use std::{io, time::Duration};

use super::rough;
use crate::base::exit::Exit;

/// A request to a daemon failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AskError {
    /// No connection.
    #[error(
        "no daemon answers at {at}; is it running? `kvqueue run` starts one, and {option} ADDRESS names another address"
    )]
    Nobody {
        at: String,
        /// The option that names an address.
        option: &'static str,
        #[source]
        error: io::Error,
    },
    /// The connection cannot be encrypted, most often because the certificate is not trusted.
    #[error(
        "cannot trust what answers at {at}: {error}; name the certificate of its authority in SSL_CERT_FILE, or for your own daemon in http.tls-certificate"
    )]
    Untrusted { at: String, error: io::Error },
    /// Another user listens there, who would get the operator's secret.
    #[error(
        "the user {user} listens at {at}, and may not read the operator's secret, so nothing was sent; if that is your daemon, set KVQUEUE_TOKEN to the secret, which is {owner}'s, or else name another address with {option}"
    )]
    Foreign { at: String, user: String, owner: String, option: &'static str },
    /// Connected, but no answer in time.
    #[error("the daemon at {at} has not answered for {}; its log may show why", rough(*silence))]
    Silent { at: String, silence: Duration },
    /// The connection broke before the answer.
    #[error(
        "the connection to {at} broke before the answer, so it may be done all the same; look before you repeat it"
    )]
    Broken {
        at: String,
        #[source]
        error: io::Error,
    },
    /// The answer is incomplete, or another program sent it.
    #[error("the answer from {at} is incomplete, or from a program other than kvqueue: {problem}")]
    Garbled { at: String, problem: &'static str },
    /// A program between here and the daemon answered in its place.
    #[error(
        "{at} answers with the status {status}, and not as kvqueue does; is it a proxy that does not reach its daemon?"
    )]
    Intermediary { at: String, status: u16 },
    /// The daemon uses another database.
    #[error(
        "the daemon at {at} uses the database {theirs}, not {ours}; give the configuration of the daemon that you mean, or name this one with {option} {at}"
    )]
    Elsewhere { at: String, option: &'static str, theirs: String, ours: String },
    /// The daemon refused the request.
    #[error("the daemon at {at} answers: {message}; {fix}")]
    Refused { at: String, status: u16, code: String, message: String, fix: String },
}

impl AskError {
    /// The command's exit code.
    pub(in crate::cli) fn exit(&self) -> Exit {
        match self {
            Self::Nobody { .. }
            | Self::Broken { .. }
            | Self::Untrusted { .. }
            | Self::Foreign { .. }
            | Self::Silent { .. }
            | Self::Garbled { .. }
            | Self::Intermediary { .. }
            | Self::Elsewhere { .. } => Exit::Unavailable,
            Self::Refused { code, .. } => match code.as_str() {
                "refused" => Exit::Config,
                "bad_request" => Exit::Usage,
                "too_large" | "idempotency_key_reused" => Exit::Data,
                // The daemon refuses every request of this kind, or every request at the moment.
                "unauthorized" | "forbidden" | "host" | "busy" | "unavailable" => Exit::Unavailable,
                _ => Exit::Failed,
            },
        }
    }

    /// Whether the same request may succeed later, or at another daemon.
    pub(in crate::cli) fn is_transient(&self) -> bool {
        match self {
            Self::Nobody { .. } | Self::Broken { .. } | Self::Untrusted { .. } => true,
            Self::Silent { .. } | Self::Garbled { .. } => true,
            // It would refuse the same body again.
            Self::Intermediary { .. } => !self.is_too_long(),
            Self::Foreign { .. } | Self::Elsewhere { .. } => false,
            // A frozen queue is being moved; daemons then use another database. What is read-only may be so for a while.
            Self::Refused { status, code, .. } => {
                *status >= 500 || matches!(status, 408 | 429) || matches!(&**code, "frozen" | "read_only")
            }
        }
    }

    /// Whether it is certain that nothing was done.
    pub(in crate::cli) fn is_certain(&self) -> bool {
        match self {
            Self::Untrusted { .. } | Self::Foreign { .. } | Self::Elsewhere { .. } => true,
            Self::Refused { status, .. } => *status < 500,
            // No connection, or one that broke.
            Self::Nobody { error, .. } => error.kind() == io::ErrorKind::ConnectionRefused,
            Self::Broken { .. } | Self::Silent { .. } | Self::Garbled { .. } | Self::Intermediary { .. } => {
                false
            }
        }
    }

    /// Whether the request's body is longer than is accepted on its way.
    pub(in crate::cli) fn is_too_long(&self) -> bool {
        matches!(self, Self::Refused { status: 413, .. } | Self::Intermediary { status: 413, .. })
    }

    /// Whether the daemon does not let this program do what it asks for, whatever it asks next.
    pub(in crate::cli) fn is_denial(&self) -> bool {
        matches!(self, Self::Refused { status: 401, .. } | Self::Foreign { .. } | Self::Elsewhere { .. })
            || matches!(self, Self::Refused { status: 403, code, .. } if code == "forbidden")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str) -> AskError {
        let text = String::new;
        AskError::Refused { at: text(), status, code: code.to_owned(), message: text(), fix: text() }
    }

    #[test]
    fn a_worker_goes_on_after_errors_that_pass_and_ends_with_others() {
        let nobody = AskError::Nobody {
            at: String::new(),
            option: "--url",
            error: io::ErrorKind::ConnectionRefused.into(),
        };
        assert!(nobody.is_transient());
        for (status, code) in
            [(429, "busy"), (503, "unavailable"), (408, "slow"), (409, "frozen"), (403, "read_only")]
        {
            assert!(refused(status, code).is_transient(), "{code}");
        }
        for (status, code) in [(401, "unauthorized"), (403, "forbidden"), (400, "bad_request")] {
            assert!(!refused(status, code).is_transient(), "{code}");
            assert_eq!(refused(status, code).is_denial(), code != "bad_request", "{code}");
        }
        let lost = refused(409, "lease_lost");
        assert!(!lost.is_transient() && !lost.is_denial());
        let long = AskError::Intermediary { at: String::new(), status: 413 };
        assert!(long.is_too_long() && !long.is_transient() && !long.is_denial());
        assert_eq!(refused(403, "forbidden").exit(), Exit::Unavailable);
    }
}
