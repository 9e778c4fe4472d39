//! What a rule of a keyed queue sets for dead letters of ordered keys, as people name it.

use kvqueue_queue::Limits;
use serde::Deserialize;

/// What becomes of an ordered key when one of its items becomes a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnDead {
    /// The items behind the dead letter run
    Continue,
    /// The key is blocked until the dead letter is retried or purged, or the key unblocked
    Block,
}

impl OnDead {
    /// What a rule sets.
    pub(crate) fn of(limits: &Limits) -> Option<Self> {
        limits.blocks_on_dead.map(|blocks| if blocks { Self::Block } else { Self::Continue })
    }

    /// Whether the key is blocked.
    pub(crate) fn blocks(self) -> bool {
        self == Self::Block
    }

    /// The name in commands, in JSON and in the audit trail.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Block => "block",
        }
    }
}
