//! Paths and queries: decoding them, and matching paths with patterns.

use std::collections::BTreeMap;

use super::error::ApiError;

/// The longest value in a path or a query, in bytes as it is sent: a name of 255 bytes, each of them encoded.
const MAX_VALUE: usize = 1_024;

/// The most parameters in a query.
const MAX_PARAMETERS: usize = 16;

/// The values of a path that fits a pattern such as `/queues/{queue}/items/{id}`, still encoded.
pub(super) fn matched<'p>(pattern: &str, path: &'p str) -> Option<Vec<&'p str>> {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let mut values = Vec::new();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(values),
            (Some(wanted), Some(given)) if wanted.starts_with('{') && !given.is_empty() => values.push(given),
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return None,
        }
    }
}

/// Decodes a value of a path.
pub(super) fn decode(value: &str) -> Result<String, ApiError> {
    if value.len() > MAX_VALUE {
        return Err(ApiError::Bad(format!("a part of the path is longer than {MAX_VALUE} bytes")));
    }
    let decoded = percent_decoded(value.as_bytes()).ok_or_else(|| {
        ApiError::Bad("the path has a % without two hexadecimal digits behind it".to_owned())
    })?;
    String::from_utf8(decoded).map_err(|_| ApiError::Bad("the path is not UTF-8".to_owned()))
}

/// The parameters of a query, each of which has to be among those `allowed`.
#[derive(Debug, Default)]
pub(super) struct Query(BTreeMap<&'static str, String>);

impl Query {
    pub(super) fn read(text: &str, allowed: &'static [&'static str]) -> Result<Self, ApiError> {
        let mut query = Self::default();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if query.0.len() >= MAX_PARAMETERS || value.len() > MAX_VALUE {
                return Err(ApiError::Bad("the query is too long".to_owned()));
            }
            let name = form_decoded(name)?;
            let Some(known) = allowed.iter().find(|known| **known == name) else {
                let known = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                return Err(ApiError::Bad(format!("there is no parameter {name:?} here, but {known}")));
            };
            if query.0.insert(known, form_decoded(value)?).is_some() {
                return Err(ApiError::Bad(format!("parameter {known} is given twice")));
            }
        }
        Ok(query)
    }

    /// A parameter's text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A number between two others; `default` if it is not given.
    pub(super) fn number(&self, name: &str, range: [usize; 2], default: usize) -> Result<usize, ApiError> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let [least, most] = range;
        // No sign, no empty text: what `parse` takes, but for a plus.
        let number = text.parse().ok().filter(|_| !text.starts_with('+'));
        number.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
            ApiError::Bad(format!("parameter {name} is {text:?}, not a whole number from {least} to {most}"))
        })
    }

    /// `true` or `false`; `false` if it is not given.
    pub(super) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => Err(ApiError::Bad(format!("parameter {name} is {text:?}, neither true nor false"))),
        }
    }

    /// A parameter parsed from its text.
    pub(super) fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError>
    where
        T::Err: std::fmt::Display,
    {
        let parsed = self.text(name).map(str::parse).transpose();
        parsed.map_err(|error| ApiError::Bad(format!("parameter {name}: {error}")))
    }
}

/// In a query a plus is a space.
fn form_decoded(text: &str) -> Result<String, ApiError> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decoded(spaced.as_bytes()).ok_or_else(|| {
        ApiError::Bad("the query has a % without two hexadecimal digits behind it".to_owned())
    })?;
    String::from_utf8(decoded).map_err(|_| ApiError::Bad("the query is not UTF-8".to_owned()))
}

fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex(*bytes.next()?)? << 4 | hex(*bytes.next()?)?,
            byte => *byte,
        });
    }
    Some(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_fits_its_pattern_alone() {
        let pattern = "/queues/{queue}/items/{id}";
        assert_eq!(matched(pattern, "/queues/a%2Fb/items/x"), Some(vec!["a%2Fb", "x"]));
        for other in
            ["/queues/a/items", "/queues/a/items/", "/queues//items/x", "/queues/a/items/x/", "", "/"]
        {
            assert_eq!(matched(pattern, other), None, "{other}");
        }
        assert_eq!(matched("/", "/"), Some(vec![]));
    }

    #[test]
    fn what_is_wrong_with_a_query_is_named() {
        let wrong = |text| Query::read(text, &["limit", "after"]).unwrap_err().to_string();
        assert_eq!(wrong("limit=1&limit=2"), "parameter limit is given twice");
        assert_eq!(wrong("n=1"), "there is no parameter \"n\" here, but limit, after");
        assert_eq!(wrong("limit=%f"), "the query has a % without two hexadecimal digits behind it");
        assert_eq!(wrong("limit=%ff"), "the query is not UTF-8");
        let query = Query::read("&limit=007&after=a+b%2b", &["limit", "after"]).unwrap();
        assert_eq!((query.number("limit", [1, 9], 3).unwrap(), query.text("after")), (7, Some("a b+")));
        assert_eq!(query.number("none", [1, 9], 3).unwrap(), 3);
        for wrong in ["0", "10", "-1", "+1", "", "1.0", "99999999999999999999999"] {
            let query = Query::read(&format!("limit={}", wrong.replace('+', "%2B")), &["limit"]).unwrap();
            assert!(query.number("limit", [1, 9], 3).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_name_comes_through_a_path(name in "\\PC{1,60}") {
            let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let path = format!("/queues/{encoded}");
            let values = matched("/queues/{queue}", &path).unwrap();
            prop_assert_eq!(decode(values[0]).unwrap(), name);
        }

        #[test]
        fn nothing_makes_it_panic(path in "[/%a-f0-9{}\\PC]{0,80}", query in "[&=%+a-z0-9\\PC]{0,80}") {
            if let Some(values) = matched("/{a}/b/{c}", &path) {
                values.iter().for_each(|value| drop(decode(value)));
            }
            if let Ok(query) = Query::read(&query, &["a", "b"]) {
                drop((query.number("a", [0, 5], 1), query.flag("b"), query.parsed::<u8>("a")));
            }
        }
    }
}
