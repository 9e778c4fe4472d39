//! An answer, and what it means for the item.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use jiff::{
    civil::DateTime,
    fmt::{rfc2822, strtime},
    tz::TimeZone,
};
use reqwest::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER},
};

use super::{health::Blames, settings::HttpSettings};
use crate::{
    base::{
        clock,
        times::{between, of_timestamp},
    },
    handlers::Outcome,
};

/// The most bytes of a body that a reason has. A dead letter keeps 500 bytes of a reason.
const SHOWN: usize = 400;

/// The shortest and the longest pause that `Retry-After` can ask for.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_hours(1)];

/// The dates of RFC 850, and of `asctime` in C, which are in GMT.
const OBSOLETE_DATES: [&str; 2] = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// An answer of a target.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// How long the target wants to be left alone.
    retry_after: Option<Duration>,
    location: Option<String>,
    pub(super) is_json: bool,
    /// As much as may be read.
    pub(super) body: Vec<u8>,
    pub(super) ending: Ending,
}

/// How the body ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// It has more bytes than `max-response`.
    TooLong,
    /// For this reason.
    Broken(String),
}

/// An answer by which the target has not handled the item, so that it is to be retried.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// The pause that the target asks for.
    pub(super) pause: Option<Duration>,
    pub(super) blames: Blames,
}

impl Failure {
    /// Without an answer that says more.
    pub(super) fn of_target(reason: String) -> Self {
        Self { reason, pause: None, blames: Blames::Target }
    }
}

impl Answer {
    /// Without a body.
    pub(super) fn of(response: &Response) -> Self {
        let headers = response.headers();
        Self {
            status: response.status(),
            retry_after: text(headers, &RETRY_AFTER).and_then(|value| pause(value, clock::now())),
            location: text(headers, &LOCATION).map(str::to_owned),
            is_json: text(headers, &CONTENT_TYPE).is_some_and(is_json),
            body: Vec::new(),
            ending: Ending::Whole,
        }
    }

    /// The item's outcome by the status alone.
    pub(super) fn outcome(&self, settings: &HttpSettings) -> Result<Outcome, Failure> {
        let status = self.status.as_u16();
        if self.status.is_success() {
            Ok(Outcome::Done)
        } else if settings.dead_status.contains(&status) {
            Ok(Outcome::Dead(self.reason()))
        } else if settings.release_status.contains(&status) {
            Ok(Outcome::Release)
        } else if let (Some(scope), Some(wait), 429 | 503) = (settings.throttle, self.retry_after, status) {
            Ok(Outcome::throttle(scope.into(), wait, self.reason()))
        } else {
            Err(Failure { reason: self.reason(), pause: self.retry_after, blames: blames(status) })
        }
    }

    /// The body as the item's result. Of one that is too long the beginning is enough.
    pub(super) fn result(&self) -> Result<Bytes, String> {
        match &self.ending {
            Ending::Whole | Ending::TooLong => Ok(Bytes::copy_from_slice(&self.body)),
            Ending::Broken(why) => Err(format!("the answer, which is the result, was cut off: {why}")),
        }
    }

    /// The status and the beginning of the body.
    fn reason(&self) -> String {
        let mut reason = format!("the target answered {}", self.status);
        if let (true, Some(location)) = (self.status.is_redirection(), &self.location) {
            reason +=
                &format!(", a redirect to {location:?}, which is not followed: set url to where it leads");
        }
        // On one line, and without what could control a terminal.
        let shown = String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN)]);
        let words = shown.split(|it: char| it.is_whitespace() || it.is_control());
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        if words.is_empty() { reason } else { format!("{reason}: {}", words.join(" ")) }
    }
}

/// Of an error of the client's, the request is at fault, so its item is. But a wrong secret, a wrong path, a proxy, slowness and rate
/// limits concern all items.
fn blames(status: u16) -> Blames {
    let concerns_all = [401, 403, 404, 407, 408, 425, 429].contains(&status);
    if (400..=499).contains(&status) && !concerns_all { Blames::Item } else { Blames::Target }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"))
}

/// The pause that a `Retry-After` asks for: seconds, or a date. None if it is neither.
fn pause(value: &str, now: SystemTime) -> Option<Duration> {
    let [shortest, longest] = PAUSE;
    let value = value.trim();
    let pause = if !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_digit()) {
        // More digits than fit are a long time, too.
        value.parse().map_or(longest, Duration::from_secs)
    } else {
        between(now, date(value)?)
    };
    Some(pause.clamp(shortest, longest))
}

/// A date of HTTP: as servers have to write it, or in one of the two obsolete forms that recipients have to accept.
fn date(value: &str) -> Option<SystemTime> {
    let by = |format: &str| strtime::parse(format, value).and_then(|parsed| parsed.to_datetime());
    let in_utc = |date: DateTime| date.to_zoned(TimeZone::UTC).ok();
    let at = match rfc2822::parse(value) {
        Ok(at) => at,
        Err(_) => OBSOLETE_DATES.into_iter().find_map(|format| in_utc(by(format).ok()?))?,
    };
    Some(of_timestamp(at.timestamp()).unwrap_or(UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::Scope;

    use super::*;

    fn answer(status: u16) -> Answer {
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: None,
            location: None,
            is_json: false,
            body: Vec::new(),
            ending: Ending::Whole,
        }
    }

    fn outcome(answer: &Answer) -> Result<Outcome, Failure> {
        let settings = "url = 'https://example'\nrelease-status = [423]".parse().unwrap();
        answer.outcome(&HttpSettings::read(&settings).unwrap())
    }

    #[test]
    fn a_status_is_an_outcome() {
        for done in [200, 201, 204, 299] {
            assert_eq!(outcome(&answer(done)), Ok(Outcome::Done));
        }
        for (dead, text) in [(410, "410 Gone"), (422, "422 Unprocessable Entity")] {
            assert_eq!(outcome(&answer(dead)), Ok(Outcome::dead(format!("the target answered {text}"))));
        }
        assert_eq!(outcome(&answer(423)), Ok(Outcome::Release));
        for failed in [302, 400, 404, 429, 500, 503] {
            assert!(matches!(outcome(&answer(failed)), Err(Failure { pause: None, .. })), "{failed}");
        }
    }

    #[test]
    fn a_pause_that_the_target_asks_for_throttles_if_that_is_configured() {
        let ask = |more: &str, status, seconds: Option<u64>| {
            let settings = format!("url = 'https://example'\n{more}").parse().unwrap();
            let retry_after = seconds.map(Duration::from_secs);
            Answer { retry_after, ..answer(status) }.outcome(&HttpSettings::read(&settings).unwrap())
        };
        let wanted = |text| Ok(Outcome::throttle(Scope::Tenant, Duration::from_secs(9), text));
        let throttle = "throttle = 'tenant'";
        assert_eq!(ask(throttle, 429, Some(9)), wanted("the target answered 429 Too Many Requests"));
        assert_eq!(ask(throttle, 503, Some(9)), wanted("the target answered 503 Service Unavailable"));
        assert!(ask(throttle, 500, Some(9)).is_err() && ask(throttle, 429, None).is_err());
        assert!(ask("", 429, Some(9)).is_err());
        assert_eq!(ask("throttle = 'key'\nrelease-status = [429]", 429, Some(9)), Ok(Outcome::Release));
    }

    #[test]
    fn a_reason_has_the_beginning_of_the_body() {
        let mut answer = answer(500);
        answer.body = format!("  no\troom\r\n\x1b[31m{}", "x".repeat(1_000)).into_bytes();
        let Failure { reason, .. } = outcome(&answer).unwrap_err();
        assert!(
            reason.starts_with("the target answered 500 Internal Server Error: no room [31mxxx"),
            "{reason}"
        );
        assert!(reason.len() < 500, "{}", reason.len());
    }

    #[test]
    fn a_redirect_names_its_location() {
        let mut answer = answer(301);
        answer.location = Some("https://example/new".to_owned());
        let reason = "the target answered 301 Moved Permanently, a redirect to \"https://example/new\", which is not \
                      followed: set url to where it leads";
        let failure = Failure { reason: reason.to_owned(), pause: None, blames: Blames::Target };
        assert_eq!(outcome(&answer), Err(failure));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_within_bounds() {
        let now = kvqueue_queue::from_millis(784_111_777_000);
        let seconds = |value| pause(value, now).map(|pause| pause.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        // The obsolete forms, which a recipient has to accept: of RFC 850, and of C's asctime.
        for date in ["Sunday, 06-Nov-94 08:50:37 GMT", "Sun Nov  6 08:50:37 1994", "Sun Nov 06 08:50:37 1994"]
        {
            assert_eq!(seconds(date), Some(60), "{date}");
        }
        assert_eq!(seconds("Sunday, 06-Nov-94 08:00:00 GMT"), Some(1));
        assert_eq!(seconds("0"), Some(1));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(1));
        for long in ["86400", "99999999999999999999999", "Sun, 06 Nov 2044 08:50:37 GMT"] {
            assert_eq!(seconds(long), Some(3_600), "{long}");
        }
        for wrong in ["", "soon", "-5", "1.5", "Sunday", "Sunday, 06-Nov-94", "Sun Nov 6"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_content_type_tells_json() {
        assert!(is_json("application/json") && is_json("Application/JSON; charset=utf-8"));
        assert!(is_json("application/problem+json") && !is_json("text/html") && !is_json(""));
    }
}
