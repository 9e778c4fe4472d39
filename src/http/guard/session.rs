//! Sessions of browsers: a cookie that scripts cannot read.
//!
//! The cookie says who signed in and until when, with a signature. Its key comes from random bytes in the database and from the
//! operator's secret. So a session outlives a restart of the daemon, holds at all daemons of a database with the same
//! secret, and ends when the secret changes. A cookie is no way to try secrets: that takes the random bytes, too. Nothing is
//! stored for a session.

use std::time::{Duration, SystemTime};

use actix_web::{
    cookie::{self, Cookie, SameSite},
    http::header::{self, HeaderMap},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use kvqueue_queue::{from_millis, millis};
use sha2::Sha256;

use super::{Caller, Token};
use crate::{base::times::after, http::keys::Key};

/// How long a session lasts.
const LIFE: Duration = Duration::from_hours(7 * 24);

/// The name of the operator in a cookie. No access token has such an id.
const OPERATOR: &str = "operator";

/// The key that signs sessions.
pub(in crate::http) struct SessionKey(Hmac<Sha256>);

/// The client that a session belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) enum SignedIn {
    /// The operator.
    Operator,
    /// The owner of the access token with this id.
    Token(String),
}

impl SessionKey {
    /// The key for these random bytes and this secret of the operator.
    pub(in crate::http) fn of(key: &Key, secret: Option<&Token>) -> Self {
        let both = key.sign("session").chain_update(secret.map_or(&[][..], Token::bytes));
        let both = both.finalize().into_bytes();
        Self(Hmac::new_from_slice(&both).expect("HMAC takes a key of any length"))
    }

    /// The cookie for a caller. `None` if it needs none: everybody may do everything.
    pub(in crate::http) fn cookie(
        &self,
        caller: &Caller,
        now: SystemTime,
        secure: bool,
    ) -> Option<Cookie<'static>> {
        let who = match caller {
            Caller::Anyone => return None,
            Caller::Operator => OPERATOR,
            Caller::Token(token) => &token.id,
        };
        let value = format!("{who}.{}", millis(after(now, LIFE)));
        let signature = self.sign(&value);
        Some(self.with_attributes(format!("{value}.{signature}"), LIFE, secure))
    }

    /// An expired cookie, which replaces the session's.
    pub(in crate::http) fn expired(&self, secure: bool) -> Cookie<'static> {
        self.with_attributes(String::new(), Duration::ZERO, secure)
    }

    /// The client of a request's session, if it has one that has not expired.
    pub(in crate::http) fn signed_in(&self, headers: &HeaderMap, now: SystemTime) -> Option<SignedIn> {
        let name = self.name();
        let cookies = headers.get_all(header::COOKIE).filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|cookies| cookies.split("; "));
        let value = cookies.find_map(|cookie| cookie.strip_prefix(&name)?.strip_prefix('='))?;
        let (signed, signature) = value.rsplit_once('.')?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        // Its time does not depend on how much of the signature is right.
        self.mac("session", signed).verify_slice(&signature).ok()?;
        let (who, until) = signed.split_once('.')?;
        let is_expired = until.parse().ok().map(from_millis)? <= now;
        (!is_expired)
            .then(|| if who == OPERATOR { SignedIn::Operator } else { SignedIn::Token(who.to_owned()) })
    }

    /// The name of the cookie. Browsers send the cookies of a host to each of its ports. So daemons with different secrets have different names.
    fn name(&self) -> String {
        let mac = self.mac("name", "").finalize().into_bytes();
        format!("kvqueue-{}", BASE64_URL_SAFE_NO_PAD.encode(&mac[..6]))
    }

    fn sign(&self, value: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.mac("session", value).finalize().into_bytes())
    }

    fn mac(&self, purpose: &str, value: &str) -> Hmac<Sha256> {
        self.0.clone().chain_update(purpose).chain_update([0]).chain_update(value)
    }

    fn with_attributes(&self, value: String, life: Duration, secure: bool) -> Cookie<'static> {
        let life = cookie::time::Duration::try_from(life).unwrap_or(cookie::time::Duration::ZERO);
        let cookie = Cookie::build(self.name(), value).path("/").max_age(life);
        cookie.http_only(true).same_site(SameSite::Strict).secure(secure).finish()
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    const WEEK: u64 = 7 * 24 * 3_600 * 1_000;

    /// The key of this secret in a database of its own.
    fn key(secret: &str) -> SessionKey {
        key_in(&Key::random().unwrap(), secret)
    }

    fn key_in(database: &Key, secret: &str) -> SessionKey {
        SessionKey::of(database, Some(&Token::of_test(secret)))
    }

    /// Who has signed in, by a request with this cookie.
    fn found(key: &SessionKey, cookie: &str, now: u64) -> Option<SignedIn> {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_str(&format!("a=b; {cookie}; c=d")).unwrap());
        key.signed_in(&headers, from_millis(now))
    }

    #[test]
    fn a_session_lasts_a_week_and_ends_with_the_secret() {
        let database = Key::random().unwrap();
        let [key, other, daemon] = ["one", "two", "one"].map(|secret| key_in(&database, secret));
        let cookie = key.cookie(&Caller::Operator, from_millis(5), false).unwrap();
        let sent = cookie.stripped().to_string();
        assert_eq!(found(&key, &sent, 5 + WEEK - 1), Some(SignedIn::Operator));
        assert_eq!(found(&daemon, &sent, 5), Some(SignedIn::Operator), "another daemon of the database");
        assert_eq!(found(&key, &sent, 5 + WEEK), None);
        let renamed = sent.replace(&key.name(), &other.name());
        assert_eq!((found(&other, &sent, 5), found(&other, &renamed, 5)), (None, None));
    }

    #[test]
    fn a_cookie_does_not_tell_which_secret_it_was_signed_with() {
        let [one, same] = [key("one"), key("one")];
        let cookies = [&one, &same].map(|key| key.cookie(&Caller::Operator, from_millis(5), false).unwrap());
        let signature = |cookie: &Cookie<'_>| cookie.value().rsplit_once('.').unwrap().1.to_owned();
        assert_ne!(signature(&cookies[0]), signature(&cookies[1]));
        assert_ne!(one.name(), same.name());
    }

    #[test]
    fn a_changed_cookie_is_no_session() {
        let key = key("one");
        let cookie = key.cookie(&Caller::Operator, from_millis(5), false).unwrap().stripped().to_string();
        for (at, _) in cookie.char_indices().skip(cookie.find('=').unwrap() + 1) {
            let mut other = cookie.clone();
            let replacement = if cookie.as_bytes()[at] == b'A' { "B" } else { "A" };
            other.replace_range(at..=at, replacement);
            assert_eq!(found(&key, &other, 5), None, "{other}");
            assert_eq!(found(&key, &cookie[..at], 5), None, "{}", &cookie[..at]);
        }
        assert_eq!(found(&key, &format!("{}=", key.name()), 5), None);
    }

    #[test]
    fn scripts_and_other_sites_do_not_get_the_cookie() {
        let key = key("one");
        let shown = |secure| key.cookie(&Caller::Operator, from_millis(0), secure).unwrap().to_string();
        for attribute in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=604800"] {
            assert!(shown(false).contains(attribute), "{}", shown(false));
        }
        assert!(!shown(false).contains("Secure") && shown(true).contains("Secure"));
        assert!(key.expired(false).to_string().contains("Max-Age=0"));
        assert_eq!(key.cookie(&Caller::Anyone, from_millis(0), false), None);
    }
}
