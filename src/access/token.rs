//! A token: its secret, and the record that the database has of it.

use std::{
    collections::BTreeSet,
    fmt::Write,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{QueuePattern, Scope, scope::listed};
use crate::{
    audit::Record,
    base::times::{after, unix_millis},
};

/// Tokens begin with it, so that programs that search for leaked secrets find them.
const MARK: &str = "kvq_";
/// Random bytes of the id, by which the record is found.
const ID: usize = 8;
/// Random bytes of the secret.
const SECRET: usize = 24;
/// The length of a token.
const LEN: usize = MARK.len() + 2 * ID + 1 + 2 * SECRET;

/// The longest name in bytes.
const LONGEST_NAME: usize = 64;
/// The most patterns of a token.
const MAX_PATTERNS: usize = 32;

/// The longest lifetime of a token, a hundred years.
const LONGEST_LIFE: Duration = Duration::from_hours(100 * 365 * 24);

/// What somebody asks for.
#[derive(Clone, Debug)]
pub(crate) struct NewToken {
    pub(crate) name: String,
    pub(crate) scopes: BTreeSet<Scope>,
    /// The queues that it is for.
    pub(crate) queues: Vec<QueuePattern>,
    pub(crate) expires_at: Option<SystemTime>,
}

/// The record of a token. The secret itself is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessToken {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) scopes: BTreeSet<Scope>,
    pub(crate) queues: Vec<QueuePattern>,
    /// When it was made.
    #[serde(with = "unix_millis")]
    pub(crate) created_at: SystemTime,
    /// When it ends; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "unix_millis::optional")]
    pub(crate) expires_at: Option<SystemTime>,
    /// SHA-256 of the whole token, in hexadecimal digits. It needs no slow hash: the secret has 192 random bits.
    hash: String,
}

/// Random bytes of the system, in hexadecimal digits.
pub(crate) fn random_text(bytes: usize) -> Result<String, getrandom::Error> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random)?;
    Ok(hexadecimal(&random))
}

/// Whether a client's text has the form of a token.
pub(crate) fn is_access_token(text: &str) -> bool {
    text.len() == LEN && text.is_ascii() && text.starts_with(MARK)
}

impl NewToken {
    /// An error if it could not be what somebody wants.
    fn check(&self, now: SystemTime) -> Result<(), String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || self.name.len() > LONGEST_NAME || !self.name.chars().all(is_plain) {
            return Err(format!(
                "the name {:?} has to be 1 to {LONGEST_NAME} letters, digits, hyphens, underscores and full stops",
                self.name
            ));
        }
        if self.scopes.is_empty() {
            return Err("a token without a scope allows nothing; name push, work, read or admin".to_owned());
        }
        if self.queues.is_empty() || self.queues.len() > MAX_PATTERNS {
            return Err(format!("name 1 to {MAX_PATTERNS} patterns of queues; \"*\" is all queues"));
        }
        if self.expires_at.is_some_and(|at| at <= now) {
            return Err("the token would have ended already; write how long it lasts, as in 90d".to_owned());
        }
        if self.expires_at.is_some_and(|at| at > after(now, LONGEST_LIFE)) {
            return Err(
                "a token that expires lasts at most a hundred years; write a shorter time, or leave it out"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Makes the token: the text for its owner, and the record for the database.
    pub(crate) fn issue(self, now: SystemTime) -> Result<(String, AccessToken), String> {
        self.check(now)?;
        let random =
            random_text(ID + SECRET).map_err(|error| format!("the system gives no random bytes: {error}"))?;
        let (id, secret) = random.split_at(2 * ID);
        let id = id.to_owned();
        let text = format!("{MARK}{id}_{secret}");
        let Self { name, scopes, queues, expires_at } = self;
        let hash = hash(&text);
        Ok((text, AccessToken { id, name, scopes, queues, created_at: now, expires_at, hash }))
    }
}

impl AccessToken {
    /// The id in the text of a token.
    pub(crate) fn id_of(text: &str) -> &str {
        text.get(MARK.len()..MARK.len() + 2 * ID).unwrap_or_default()
    }

    /// The record of making it.
    pub(crate) fn audited(&self, record: Record) -> Record {
        let queues = self.queues.iter().map(QueuePattern::to_string).collect::<Vec<_>>().join(", ");
        let record = record.with("name", self.name.as_str()).with("scopes", listed(&self.scopes));
        record.with("queues", queues)
    }

    /// Whether the text is this token. How long that takes does not tell how much of it was right.
    pub(crate) fn is(&self, text: &str) -> bool {
        hash(text).as_bytes().ct_eq(self.hash.as_bytes()).into()
    }

    /// Whether it has expired.
    pub(crate) fn is_expired(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// An error if it does not allow such a request about this queue, or about no queue in particular.
    pub(crate) fn permits(&self, scope: Scope, queue: Option<&str>) -> Result<(), String> {
        let Self { name, scopes, queues, .. } = self;
        if !scopes.contains(&scope) && !scopes.contains(&Scope::Admin) {
            return Err(format!("this needs the scope {scope}, and the token {name} has {}", listed(scopes)));
        }
        let is_for = |pattern: &QueuePattern| queue.map_or(pattern.is_all(), |name| pattern.fits(name));
        if queues.iter().any(is_for) {
            return Ok(());
        }
        let own = queues.iter().map(QueuePattern::to_string).collect::<Vec<_>>().join(", ");
        Err(match queue {
            Some(queue) => format!("the token {name} is for the queues {own}, not for {queue:?}"),
            None => format!("this is about all queues, and the token {name} is for {own}"),
        })
    }
}

fn hash(text: &str) -> String {
    hexadecimal(&Sha256::digest(text))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::from_millis;

    use super::*;

    fn new(name: &str, scopes: &[Scope], queues: &[&str]) -> NewToken {
        NewToken {
            name: name.to_owned(),
            scopes: scopes.iter().copied().collect(),
            queues: queues.iter().map(|text| text.parse().unwrap()).collect(),
            expires_at: None,
        }
    }

    #[test]
    fn a_token_record_accepts_only_its_own_token() {
        let (text, record) = new("ci", &[Scope::Push], &["*"]).issue(from_millis(5)).unwrap();
        assert!(is_access_token(&text) && record.is(&text), "{text}");
        assert_eq!(AccessToken::id_of(&text), record.id);
        let (other, other_record) = new("ci", &[Scope::Push], &["*"]).issue(from_millis(5)).unwrap();
        assert!(other != text && !record.is(&other) && other_record.id != record.id);
        assert!(!record.is(&text.to_uppercase()) && !record.is(&text[..text.len() - 1]) && !record.is(""));
        // The database has nothing that opens a door.
        let stored = serde_json::to_string(&record).unwrap();
        assert!(!stored.contains(&text[text.len() - 2 * SECRET..]), "{stored}");
        assert_eq!(serde_json::from_str::<AccessToken>(&stored).unwrap(), record);
    }

    #[test]
    fn a_token_with_invalid_fields_is_refused() {
        for name in ["", "a b", "ä", &"n".repeat(65)] {
            assert!(new(name, &[Scope::Push], &["*"]).issue(from_millis(5)).is_err(), "{name}");
        }
        assert!(new("a", &[], &["*"]).issue(from_millis(5)).is_err());
        assert!(new("a", &[Scope::Push], &[]).issue(from_millis(5)).is_err());
        let mut ending = new("a", &[Scope::Push], &["*"]);
        ending.expires_at = Some(from_millis(5));
        assert_eq!(
            ending.clone().issue(from_millis(5)).unwrap_err(),
            "the token would have ended already; write how long it lasts, as in 90d"
        );
        ending.expires_at = Some(from_millis(5) + LONGEST_LIFE);
        assert!(ending.clone().issue(from_millis(4)).unwrap_err().contains("a hundred years"));
        assert!(ending.clone().issue(from_millis(5)).is_ok());
        ending.expires_at = Some(from_millis(5));
        let (_, record) = ending.issue(from_millis(4)).unwrap();
        assert!(!record.is_expired(from_millis(4)) && record.is_expired(from_millis(5)));
    }

    #[test]
    fn a_token_permits_only_its_scopes_and_queues() {
        let record =
            |scopes: &[Scope], queues: &[&str]| new("t", scopes, queues).issue(from_millis(0)).unwrap().1;
        let push = record(&[Scope::Push], &["orders-*", "mail"]);
        assert!(push.permits(Scope::Push, Some("orders-eu")).is_ok());
        assert!(push.permits(Scope::Push, Some("mail")).is_ok());
        assert_eq!(
            push.permits(Scope::Push, Some("mails")).unwrap_err(),
            "the token t is for the queues orders-*, mail, not for \"mails\""
        );
        assert_eq!(
            push.permits(Scope::Read, Some("mail")).unwrap_err(),
            "this needs the scope read, and the token t has push"
        );
        assert_eq!(
            push.permits(Scope::Push, None).unwrap_err(),
            "this is about all queues, and the token t is for orders-*, mail"
        );
        let admin = record(&[Scope::Admin], &["*"]);
        assert!(Scope::ALL.into_iter().all(|scope| admin.permits(scope, None).is_ok()));
    }
}
