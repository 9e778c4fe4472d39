//! Patterns of queue names.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest pattern in bytes: as long as a queue's name may be.
const LONGEST: usize = 255;

/// A queue's name in which each `*` stands for any characters, or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct QueuePattern(String);

impl QueuePattern {
    /// The pattern of all queues.
    pub(crate) fn all() -> Self {
        Self("*".to_owned())
    }

    /// Whether every queue fits, also one that nobody has thought of.
    pub(crate) fn is_all(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }

    /// Whether a queue's name fits.
    pub(crate) fn fits(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == name };
        let Some(mut name) = name.strip_prefix(first) else { return false };
        let mut parts: Vec<&str> = rest.split('*').collect();
        // The part behind the last `*` has to be at the end. Each of the others is best found as early as possible.
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            let Some(at) = name.find(part) else { return false };
            name = &name[at + part.len()..];
        }
        name.ends_with(last)
    }
}

impl FromStr for QueuePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(format!("a pattern of queue names has 1 to {LONGEST} bytes, as in \"orders-*\""));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for QueuePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<QueuePattern> for String {
    fn from(pattern: QueuePattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for QueuePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The plain definition: a star takes nothing, or one character and what a star takes.
    fn fits(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            (['*', rest @ ..], _) if fits(rest, name) => true,
            (['*', ..], [_, name @ ..]) => fits(pattern, name),
            ([a, rest @ ..], [b, name @ ..]) => a == b && fits(rest, name),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn pattern_matching_agrees_with_a_plain_definition(pattern in "[ab*]{1,8}", name in "[ab]{0,10}") {
            let plain = |text: &str| text.chars().collect::<Vec<_>>();
            let found = pattern.parse::<QueuePattern>().unwrap().fits(&name);
            prop_assert_eq!(found, fits(&plain(&pattern), &plain(&name)));
        }
    }

    #[test]
    fn only_stars_match_all_queues() {
        let is_all = |text: &str| text.parse::<QueuePattern>().unwrap().is_all();
        assert!(is_all("*") && is_all("**") && !is_all("a*") && !is_all("all"));
        assert!("".parse::<QueuePattern>().is_err());
    }
}
