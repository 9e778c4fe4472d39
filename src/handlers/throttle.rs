//! Throttles: what they are for, by name, and how long they last.

use std::time::Duration;

use kvqueue_queue::{Item, Scope};
use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::telemetry::span;

/// The longest time of a throttle. The queue shortens a longer one.
pub(crate) const LONGEST_THROTTLE: Duration = Duration::from_hours(24);

/// The scopes of throttles by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ScopeName {
    /// The item's key
    #[default]
    Key,
    /// What stands before the first slash of the item's key
    Tenant,
    /// The whole queue
    Queue,
}

impl ScopeName {
    /// As it is written.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Tenant => "tenant",
            Self::Queue => "queue",
        }
    }
}

impl From<ScopeName> for Scope {
    fn from(name: ScopeName) -> Self {
        match name {
            ScopeName::Key => Scope::Key,
            ScopeName::Tenant => Scope::Tenant,
            ScopeName::Queue => Scope::Queue,
        }
    }
}

impl From<Scope> for ScopeName {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Key => ScopeName::Key,
            Scope::Tenant => ScopeName::Tenant,
            Scope::Queue => ScopeName::Queue,
        }
    }
}

/// Logs, in the item's span, that its handler asks for a pause.
pub(crate) fn log_throttle(item: &Item, outcome: &Outcome) {
    let Outcome::Throttle { scope, wait, reason } = outcome else { return };
    let item = (!span::names_item()).then_some(tracing::field::display(&item.id));
    tracing::info!(
        event = "item_throttled",
        item,
        scope = ScopeName::from(*scope).as_str(),
        wait_ms = wait.as_millis(),
        reason,
        "the handler asks for a pause; the item will be tried again, and no attempt is spent"
    );
}
