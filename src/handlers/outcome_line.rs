//! How an attempt ended, as workers in any language write it: over HTTP, and on the standard output
//! of a process.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use kvqueue_queue::MAX_RESULT;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Number;

use super::{LONGEST_THROTTLE, Outcome, ScopeName};

/// The longest pause before a retry, in milliseconds: a year.
const LONGEST_PAUSE: u64 = 365 * 24 * 3_600 * 1_000;

/// The word for an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Done,
    Retry,
    Release,
    Dead,
    Throttle,
}

/// The outcome of one item.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutcomeLine {
    /// The item's id.
    pub(crate) id: String,
    outcome: Word,
    /// With `retry`: when, in milliseconds from now; by the queue's rules if it is absent. With `throttle`: for how long.
    #[serde(default, deserialize_with = "whole")]
    after_ms: Option<u64>,
    /// With `throttle`: what waits.
    #[serde(default)]
    scope: Option<ScopeName>,
    /// With `retry`, `dead` and `throttle`: why.
    #[serde(default)]
    reason: Option<String>,
    /// With `done`: the result of the item, as text.
    #[serde(default)]
    result: Option<String>,
    /// The same in base 64.
    #[serde(default)]
    result_base64: Option<String>,
}

impl OutcomeLine {
    /// The outcome. The error is a lower-case fragment for a log or a reason.
    pub(crate) fn outcome(self) -> Result<Outcome, String> {
        let result = self.result()?;
        let Self { outcome: word, after_ms, scope, reason, .. } = self;
        let longest = match word {
            Word::Throttle => LONGEST_THROTTLE.as_secs() * 1_000,
            _ => LONGEST_PAUSE,
        };
        if after_ms.is_some_and(|millis| millis > longest) {
            return Err(format!("after_ms is at most {longest}"));
        }
        if after_ms.is_some() && !matches!(word, Word::Retry | Word::Throttle) {
            return Err("after_ms is for the outcomes retry and throttle".to_owned());
        }
        if scope.is_some() && word != Word::Throttle {
            return Err("scope is for the outcome throttle".to_owned());
        }
        if result.is_some() && word != Word::Done {
            return Err("a result is for the outcome done".to_owned());
        }
        let reason = reason.unwrap_or_else(|| "the worker gave no reason".to_owned());
        Ok(match (word, after_ms) {
            (Word::Done, _) => result.map_or(Outcome::Done, Outcome::DoneWith),
            (Word::Release, _) => Outcome::Release,
            (Word::Dead, _) => Outcome::Dead(reason),
            (Word::Retry, None) => Outcome::Retry(reason),
            (Word::Retry, Some(millis)) => Outcome::RetryAfter(Duration::from_millis(millis), reason),
            (Word::Throttle, None) => return Err("the outcome throttle needs after_ms".to_owned()),
            (Word::Throttle, Some(millis)) => {
                Outcome::throttle(scope.unwrap_or_default().into(), Duration::from_millis(millis), reason)
            }
        })
    }
}

impl OutcomeLine {
    /// The same with a result that is too long to be kept, of which only that counts.
    pub(crate) fn with_long_result(self) -> Self {
        Self { result: Some(" ".repeat(MAX_RESULT + 1)), ..self }
    }

    /// The result, of any length.
    fn result(&self) -> Result<Option<Bytes>, String> {
        match (&self.result, &self.result_base64) {
            (Some(_), Some(_)) => Err("result and result_base64 exclude each other".to_owned()),
            (Some(text), None) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
            (None, Some(text)) => {
                let decoded = BASE64_STANDARD.decode(text);
                decoded.map(|bytes| Some(bytes.into())).map_err(|error| format!("result_base64: {error}"))
            }
            (None, None) => Ok(None),
        }
    }
}

/// A percentage: a number from 0 to 100, rounded down.
pub(crate) fn percent<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u8>, D::Error> {
    match Option::<f64>::deserialize(input)? {
        None => Ok(None),
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(Some(percent as u8)),
        Some(percent) => Err(D::Error::custom(format_args!("{percent} is not a percentage from 0 to 100"))),
    }
}

/// A whole number, also if it is written as 3.0, which JSON does not distinguish.
pub(crate) fn whole<'de, D: Deserializer<'de>, N: TryFrom<i128>>(input: D) -> Result<Option<N>, D::Error> {
    let number = Number::deserialize(input)?;
    let whole = match (number.as_i128(), number.as_f64()) {
        (Some(whole), _) => Some(whole),
        // A float holds every whole number up to this one.
        (None, Some(float)) if float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0 => {
            Some(float as i128)
        }
        _ => None,
    };
    let fits = whole.and_then(|whole| N::try_from(whole).ok());
    fits.map(Some)
        .ok_or_else(|| D::Error::custom(format_args!("{number} is not a whole number in the accepted range")))
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::Scope;

    use super::*;

    fn outcome(line: &str) -> Result<Outcome, String> {
        let line: OutcomeLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
        line.outcome()
    }

    #[test]
    fn words_are_outcomes() {
        let no_reason = "the worker gave no reason";
        for (line, expected) in [
            (r#"{"id": "a", "outcome": "done"}"#, Outcome::Done),
            (r#"{"id": "a", "outcome": "done", "result": "é"}"#, Outcome::done_with("é")),
            (r#"{"id": "a", "outcome": "done", "result": ""}"#, Outcome::done_with("")),
            (r#"{"id": "a", "outcome": "done", "result_base64": "/w=="}"#, Outcome::done_with(vec![255])),
            (r#"{"id": "a", "outcome": "release", "reason": "no"}"#, Outcome::Release),
            (r#"{"id": "a", "outcome": "dead", "reason": "no"}"#, Outcome::dead("no")),
            (r#"{"id": "a", "outcome": "retry"}"#, Outcome::retry(no_reason)),
            (
                r#"{"id": "a", "outcome": "retry", "after_ms": 5.0, "reason": "no"}"#,
                Outcome::RetryAfter(Duration::from_millis(5), "no".to_owned()),
            ),
            (
                r#"{"id": "a", "outcome": "throttle", "after_ms": 5}"#,
                Outcome::throttle(Scope::Key, Duration::from_millis(5), no_reason),
            ),
            (
                r#"{"id": "a", "outcome": "throttle", "scope": "queue", "after_ms": 86400000, "reason": "no"}"#,
                Outcome::throttle(Scope::Queue, LONGEST_THROTTLE, "no"),
            ),
        ] {
            assert_eq!(outcome(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn a_result_is_for_done_items_and_given_once() {
        let failed = r#"{"id": "a", "outcome": "retry", "result": "r"}"#;
        assert_eq!(outcome(failed).unwrap_err(), "a result is for the outcome done");
        let twice = r#"{"id": "a", "outcome": "done", "result": "r", "result_base64": ""}"#;
        assert_eq!(outcome(twice).unwrap_err(), "result and result_base64 exclude each other");
        let wrong = r#"{"id": "a", "outcome": "done", "result_base64": "r"}"#;
        assert!(outcome(wrong).unwrap_err().starts_with("result_base64: "));
    }

    #[test]
    fn a_pause_is_for_retries_and_has_a_limit() {
        let dead = r#"{"id": "a", "outcome": "dead", "after_ms": 5}"#;
        assert_eq!(outcome(dead).unwrap_err(), "after_ms is for the outcomes retry and throttle");
        let long = r#"{"id": "a", "outcome": "retry", "after_ms": 31536000001}"#;
        assert_eq!(outcome(long).unwrap_err(), "after_ms is at most 31536000000");
        let day = r#"{"id": "a", "outcome": "throttle", "after_ms": 86400001}"#;
        assert_eq!(outcome(day).unwrap_err(), "after_ms is at most 86400000");
        let bare = r#"{"id": "a", "outcome": "throttle", "scope": "tenant"}"#;
        assert_eq!(outcome(bare).unwrap_err(), "the outcome throttle needs after_ms");
        let scoped = r#"{"id": "a", "outcome": "done", "scope": "key"}"#;
        assert_eq!(outcome(scoped).unwrap_err(), "scope is for the outcome throttle");
        let half = r#"{"id": "a", "outcome": "retry", "after_ms": 0.5}"#;
        assert!(outcome(half).unwrap_err().contains("is not a whole number"));
    }
}
