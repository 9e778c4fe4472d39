//! Scopes: the kinds of requests that a token allows.

use std::{collections::BTreeSet, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// Adding items.
    Push,
    /// Handling items: leasing, extending and acknowledging them.
    Work,
    /// Looking at queues, items and payloads.
    Read,
    /// Everything, such as deleting, pausing, retrying, and the tokens themselves.
    Admin,
}

impl Scope {
    /// Every scope.
    pub(crate) const ALL: [Self; 4] = [Self::Push, Self::Work, Self::Read, Self::Admin];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Work => "work",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| format!("unknown scope {text:?}; use push, work, read or admin"))
    }
}

/// Scopes as a list for people: `push, read`.
pub(crate) fn listed(scopes: &BTreeSet<Scope>) -> String {
    scopes.iter().map(Scope::to_string).collect::<Vec<_>>().join(", ")
}
