//! Writes to special keys. They take effect, or fail, with the commit.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use super::Rows;
use super::modules::{Part, PartKind};
use super::tracing::{Trace, random};
use crate::client::json::Json;
use crate::error::{Code, Result};
use crate::limits::MAX_ADVANCE;
use crate::range_set::key_after;

/// The known options of management commands.
const OPTIONS: [&str; 5] = [
    "excluded/force",
    "failed/force",
    "excluded_locality/force",
    "failed_locality/force",
    "worker_interfaces/verify",
];

/// The writes of a transaction to special keys.
#[derive(Debug, Clone, Default)]
pub struct SpecialKeyWrites {
    options: BTreeSet<&'static str>,
    /// The error with which the commit will fail.
    failure: Option<(&'static str, Code)>,
    error_message: Option<String>,
    /// The version to which versions should advance, as it was set.
    min_commit_version: Option<Vec<u8>>,
    /// Created when first needed, shared by all copies.
    trace: Arc<OnceLock<Trace>>,
}

impl SpecialKeyWrites {
    /// Sets a key. `is_first` tells that the transaction has done nothing before.
    pub fn set(&mut self, key: &[u8], value: &[u8], is_first: bool) -> Result<()> {
        let part = Part::writable(key).ok_or(Code::SPECIAL_KEYS_NO_WRITE_MODULE)?;
        let name = &key[part.keys().start.len()..];
        match part.kind {
            PartKind::Options => self.options.extend(option(name)),
            PartKind::Tracing if !is_first => {
                self.error_message = Some(message("configure trace", "tracing options must be set first"));
                self.failure = Some((part.name(), Code::SPECIAL_KEYS_API_FAILURE));
            }
            PartKind::Tracing => self.set_trace(name, value)?,
            PartKind::MinCommitVersion => self.min_commit_version = Some(value.to_vec()),
            _ => self.refuse(part),
        }
        Ok(())
    }

    fn refuse(&mut self, part: &'static Part) {
        let is_tenant = part.name() == "management/tenant/";
        let code = if is_tenant { Code::TENANTS_DISABLED } else { Code::SPECIAL_KEYS_API_FAILURE };
        self.failure = Some((part.name(), code));
    }

    fn set_trace(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        let mut trace = self.trace();
        match (name, value) {
            (b"token", b"true") => trace.token = random(),
            (b"token", b"false") => trace.token = 0,
            (b"token", _) => return self.fail("configure trace token", "token must be set to true/false"),
            (b"transaction_id", id) => match parse_id(id) {
                Some(id) => trace.transaction_id = id,
                None => return self.fail("configure trace", "a transaction id is 32 hexadecimal digits"),
            },
            _ => {}
        }
        self.trace = Arc::new(OnceLock::from(trace));
        Ok(())
    }

    /// Clears one key.
    pub fn clear(&mut self, key: &[u8]) -> Result<()> {
        self.clear_range(key, &key_after(key))
    }

    /// Clears `[begin, end)`.
    pub fn clear_range(&mut self, begin: &[u8], end: &[u8]) -> Result<()> {
        match begin.cmp(end) {
            Ordering::Less => {}
            Ordering::Equal => return Ok(()),
            Ordering::Greater => return Err(Code::INVERTED_RANGE),
        }
        let (part, last) = (Part::writable(begin), Part::writable_before(end));
        if part.map(Part::name) != last.map(Part::name) {
            return Err(Code::SPECIAL_KEYS_CROSS_MODULE_CLEAR);
        }
        match part {
            Some(part) if part.kind == PartKind::Tracing => self.fail("clear trace", "clear range disabled"),
            Some(part) if part.kind == PartKind::Options => {
                let prefix = part.keys().start;
                let is_hit = |name: &str| (begin..end).contains(&&[&prefix, name.as_bytes()].concat()[..]);
                self.options.retain(|name| !is_hit(name));
                Ok(())
            }
            Some(part) if part.kind == PartKind::MinCommitVersion => {
                self.min_commit_version = None;
                Ok(())
            }
            Some(_) => Ok(()),
            None => Err(Code::SPECIAL_KEYS_NO_WRITE_MODULE),
        }
    }

    /// Applies the writes on commit.
    pub fn commit(&mut self) -> Result<()> {
        let Some((name, code)) = self.failure else { return Ok(()) };
        if self.error_message.is_none() {
            let why = "an embedded database has no cluster to administer";
            self.error_message = Some(message(name.trim_end_matches('/'), why));
        }
        Err(code)
    }

    /// The version to which the commit has to advance versions. `current` is the current version,
    /// if it is known.
    pub fn advance(&mut self, current: Option<i64>) -> Result<Option<i64>> {
        let Some(text) = &self.min_commit_version else { return Ok(None) };
        let version = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
        let why = match (version, current) {
            (None, _) => {
                format!("{:?} is not a version; set a decimal number", String::from_utf8_lossy(text))
            }
            (Some(version), _) if version > MAX_ADVANCE => {
                format!("the version is higher than {MAX_ADVANCE}")
            }
            (Some(version), Some(current)) if version < current => {
                format!("the current read version, {current}, is larger than the given version")
            }
            (Some(version), _) => return Ok(Some(version)),
        };
        self.fail("advanceversion", &why).map(|()| None)
    }

    /// The value that the transaction has set.
    pub fn min_commit_version(&self) -> Option<Vec<u8>> {
        self.min_commit_version.clone()
    }

    fn fail(&mut self, command: &str, why: &str) -> Result<()> {
        self.error_message = Some(message(command, why));
        Err(Code::SPECIAL_KEYS_API_FAILURE)
    }

    /// The reason for which the last operation failed, as JSON.
    pub fn error_message(&self) -> Option<Vec<u8>> {
        self.error_message.as_ref().map(|message| message.as_bytes().to_vec())
    }

    /// The options, as rows under `prefix`.
    pub fn options(&self, prefix: &[u8]) -> Rows {
        self.options.iter().map(|name| ([prefix, name.as_bytes()].concat(), Vec::new())).collect()
    }

    /// The ids for tracing.
    pub fn trace(&self) -> Trace {
        *self.trace.get_or_init(Trace::random)
    }
}

fn option(name: &[u8]) -> Option<&'static str> {
    OPTIONS.into_iter().find(|option| option.as_bytes() == name)
}

fn parse_id(id: &[u8]) -> Option<u128> {
    let id = std::str::from_utf8(id).ok().filter(|id| id.len() == 32 && !id.starts_with('+'))?;
    u128::from_str_radix(id, 16).ok()
}

fn message(command: &str, why: &str) -> String {
    Json::object([("retriable", Json::Bool(false)), ("command", command.into()), ("message", why.into())])
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::special_keys::modules::key;

    #[test]
    fn management_options_are_kept_and_unknown_ones_ignored() {
        let mut session = SpecialKeyWrites::default();
        session.set(&key("management/options/failed/force"), b"", true).unwrap();
        session.set(&key("management/options/failed/faster"), b"", true).unwrap();
        assert_eq!(session.options(b"").into_keys().collect::<Vec<_>>(), [b"failed/force"]);
        session.clear_range(&key("management/options/"), &key("management/options/g")).unwrap();
        assert!(session.options(b"").is_empty());
        assert_eq!(session.commit(), Ok(()));
    }

    #[test]
    fn commit_fails_on_operations_that_only_clusters_have() {
        let mut session = SpecialKeyWrites::default();
        session.clear(&key("management/db_locked")).unwrap();
        assert_eq!(session.commit(), Ok(()));
        session.set(&key("management/db_locked"), b"id", true).unwrap();
        assert_eq!(session.error_message(), None);
        assert_eq!(session.commit(), Err(Code::SPECIAL_KEYS_API_FAILURE));
        let message = String::from_utf8(session.error_message().unwrap()).unwrap();
        assert!(message.contains(r#""command":"management/db_locked""#), "{message}");
    }

    #[test]
    fn a_clear_stays_within_one_writable_module() {
        let clear = |begin: &str, end: &str| SpecialKeyWrites::default().clear_range(&key(begin), &key(end));
        assert_eq!(clear("management/excluded/", "management/excluded0"), Ok(()));
        assert_eq!(
            clear("management/excluded/", "management/failed0"),
            Err(Code::SPECIAL_KEYS_CROSS_MODULE_CLEAR)
        );
        assert_eq!(clear("metrics/", "metrics0"), Err(Code::SPECIAL_KEYS_NO_WRITE_MODULE));
        assert_eq!(clear("metrics/", "metrics/"), Ok(()));
        assert_eq!(clear("metrics0", "metrics/"), Err(Code::INVERTED_RANGE));
    }

    #[test]
    fn tracing_is_set_first_and_never_cleared() {
        let mut session = SpecialKeyWrites::default();
        let id = "0123456789abcdef0123456789abcdef";
        session.set(&key("tracing/transaction_id"), id.as_bytes(), true).unwrap();
        session.set(&key("tracing/token"), b"false", true).unwrap();
        assert_eq!(
            session.trace(),
            Trace { transaction_id: u128::from_str_radix(id, 16).unwrap(), token: 0 }
        );
        assert!(session.set(&key("tracing/token"), b"maybe", true).is_err());
        assert!(session.clear(&key("tracing/token")).is_err());
        assert_eq!(session.commit(), Ok(()));
        session.set(&key("tracing/token"), b"true", false).unwrap();
        assert_eq!(session.commit(), Err(Code::SPECIAL_KEYS_API_FAILURE));
    }

    #[test]
    fn versions_advance_to_a_number_ahead() {
        let advance = |text: &str, current| {
            let mut session = SpecialKeyWrites::default();
            session.set(&key("management/min_required_commit_version"), text.as_bytes(), true).unwrap();
            assert_eq!(session.commit(), Ok(()));
            let outcome = session.advance(current);
            let message = session.error_message().map(|message| String::from_utf8(message).unwrap());
            (outcome, message.unwrap_or_default())
        };
        assert_eq!(advance("17", None), (Ok(Some(17)), String::new()));
        assert_eq!(advance("17", Some(17)).0, Ok(Some(17)));
        assert_eq!(SpecialKeyWrites::default().advance(Some(17)), Ok(None));
        let most = MAX_ADVANCE + 1;
        for (text, why) in [
            ("16", "17, is larger"),
            ("", "not a version"),
            ("x", "not a version"),
            (&most.to_string(), "higher"),
        ] {
            let (outcome, message) = advance(text, Some(17));
            assert_eq!(outcome, Err(Code::SPECIAL_KEYS_API_FAILURE));
            assert!(message.contains(why) && message.contains("advanceversion"), "{message}");
        }
    }
}
