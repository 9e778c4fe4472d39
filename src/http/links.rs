//! The links that sign browsers in, which `kvqueue page` prints. A link works once, and only for a short time.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::guard::{Caller, Token};
use crate::access::random_text;

/// How long a link works.
pub(super) const LIFE: Duration = Duration::from_secs(300);

/// The most links of a caller, and of all callers, at a time. The oldest makes room for a new one.
const MOST: usize = 16;
const MOST_IN_ALL: usize = 1_024;

/// The random bytes of a link.
const RANDOM: usize = 24;

/// A link that has not been followed.
#[derive(Debug)]
struct Link {
    caller: Caller,
    made: Instant,
    /// The operator's secret when it was made. Another one ends all links.
    secret: Option<Token>,
}

impl Link {
    fn is_good(&self, secret: Option<&Token>) -> bool {
        self.made.elapsed() < LIFE && self.secret.as_ref() == secret
    }
}

/// The links that have not been followed, by their codes.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<HashMap<String, Link>>);

impl Links {
    /// A new link for this caller: a path below the address of the page.
    pub(super) fn make(&self, caller: Caller, secret: Option<Token>) -> Result<String, getrandom::Error> {
        let code = random_text(RANDOM)?;
        let path = format!("/sign-in/{code}");
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, link| link.made.elapsed() < LIFE);
        let (who, is_full) = (caller.who(), links.len() >= MOST_IN_ALL);
        let own = links.values().filter(|link| link.caller.who() == who).count();
        if is_full || own >= MOST {
            let removable = links.iter().filter(|(_, link)| is_full || link.caller.who() == who);
            let oldest = removable.min_by_key(|(_, link)| link.made).map(|(code, _)| code.clone());
            oldest.and_then(|code| links.remove(&code));
        }
        links.insert(code, Link { caller, made: Instant::now(), secret });
        Ok(path)
    }

    /// The caller of a link, which goes on working.
    pub(super) fn caller(&self, code: &str, secret: Option<&Token>) -> Option<Caller> {
        let links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let link = links.get(code)?;
        link.is_good(secret).then(|| link.caller.clone())
    }

    /// The caller of a link, which does not work again.
    pub(super) fn follow(&self, code: &str, secret: Option<&Token>) -> Option<Caller> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let link = links.remove(code)?;
        link.is_good(secret).then_some(link.caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(secret: &str) -> Option<Token> {
        Some(Token::of_test(secret))
    }

    #[test]
    fn a_link_ends_with_the_secret_of_its_time() {
        let links = Links::default();
        let path = links.make(Caller::Operator, secret("one")).unwrap();
        assert!(links.follow(path.strip_prefix("/sign-in/").unwrap(), secret("two").as_ref()).is_none());
    }

    #[test]
    fn a_sign_in_link_works_once() {
        let links = Links::default();
        let path = links.make(Caller::Operator, secret("one")).unwrap();
        let code = path.strip_prefix("/sign-in/").unwrap();
        assert!(
            links.follow("", secret("one").as_ref()).is_none()
                && links.follow(&code[1..], secret("one").as_ref()).is_none()
        );
        for _ in 0..2 {
            assert!(
                matches!(links.caller(code, secret("one").as_ref()), Some(Caller::Operator)),
                "a question does not use it up"
            );
        }
        assert!(links.caller(code, secret("two").as_ref()).is_none());
        assert!(matches!(links.follow(code, secret("one").as_ref()), Some(Caller::Operator)));
        assert!(links.follow(code, secret("one").as_ref()).is_none());
    }

    #[test]
    fn the_oldest_link_makes_room_for_a_new_one() {
        let links = Links::default();
        let paths: Vec<String> =
            (0..=MOST).map(|_| links.make(Caller::Operator, secret("one")).unwrap()).collect();
        let follow =
            |path: &str| links.follow(path.strip_prefix("/sign-in/").unwrap(), secret("one").as_ref());
        assert!(follow(&paths[0]).is_none());
        assert!(paths[1..].iter().all(|path| follow(path).is_some()));
    }
}
