//! Paths and queries: checking and decoding them.

use std::{borrow::Cow, collections::BTreeMap};

use percent_encoding::percent_decode_str;

use super::error::ApiError;

/// The longest value in a path or a query, in bytes as it is sent: a name of 255 bytes, each of them encoded.
const MAX_VALUE: usize = 1_024;

/// The most parameters in a query.
const MAX_PARAMETERS: usize = 16;

/// Refuses a path that cannot be decoded: the router would replace what is wrong in it.
pub(super) fn check(path: &str) -> Result<(), ApiError> {
    if path.split('/').any(|part| part.len() > MAX_VALUE) {
        return Err(ApiError::Bad(format!("a part of the path is longer than {MAX_VALUE} bytes")));
    }
    decoded(path, "path").map(drop)
}

/// The parameters of a query, each of which has to be among those `allowed`.
#[derive(Debug, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn read(text: &str, allowed: &[impl AsRef<str>]) -> Result<Self, ApiError> {
        let mut query = Self::default();
        let allowed: Vec<_> = allowed.iter().map(AsRef::as_ref).collect();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if query.0.len() >= MAX_PARAMETERS || value.len() > MAX_VALUE {
                return Err(ApiError::Bad("the query is too long".to_owned()));
            }
            let name = form_decoded(name)?;
            if !allowed.contains(&&*name) {
                let known = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                return Err(ApiError::Bad(format!("unknown parameter {name:?}; allowed: {known}")));
            }
            if query.0.insert(name.clone(), form_decoded(value)?).is_some() {
                return Err(ApiError::Bad(format!("parameter {name} is given twice")));
            }
        }
        Ok(query)
    }

    /// The parameters that are given.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (&**name, &**text))
    }

    /// A parameter's text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A number between two others; `default` if it is not given.
    pub(super) fn number(&self, name: &str, range: [usize; 2], default: usize) -> Result<usize, ApiError> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let [least, most] = range;
        // `parse` also accepts a plus sign.
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
}

/// In a query a plus is a space.
fn form_decoded(text: &str) -> Result<String, ApiError> {
    Ok(decoded(&text.replace('+', " "), "query")?.into_owned())
}

/// Decodes a `part` of a URL. `percent_encoding` leaves a wrong % as it is; here it is an error.
fn decoded<'t>(text: &'t str, part: &str) -> Result<Cow<'t, str>, ApiError> {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    if !text.split('%').skip(1).all(is_escape) {
        return Err(ApiError::Bad(format!("the {part} has a % without two hexadecimal digits behind it")));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map_err(|_| ApiError::Bad(format!("the {part} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_that_cannot_be_decoded_is_refused() {
        for right in ["/", "/queues/a%2Fb", "/queues/%c3%a4", "/queues/a+b"] {
            check(right).unwrap();
        }
        for wrong in ["/%", "/a%2", "/%zz", "/%é", "/%2é", "/%%20"] {
            let error = check(wrong).unwrap_err().to_string();
            assert_eq!(error, "the path has a % without two hexadecimal digits behind it", "{wrong}");
        }
        assert_eq!(check("/%ff").unwrap_err().to_string(), "the path is not UTF-8");
        check(&format!("/a/{}", "b".repeat(MAX_VALUE))).unwrap();
        assert!(check(&format!("/a/{}", "b".repeat(MAX_VALUE + 1))).is_err());
    }

    #[test]
    fn errors_of_a_query_name_the_parameter() {
        let wrong = |text| Query::read(text, &["limit", "after"]).unwrap_err().to_string();
        assert_eq!(wrong("limit=1&limit=2"), "parameter limit is given twice");
        assert_eq!(wrong("n=1"), "unknown parameter \"n\"; allowed: limit, after");
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
        fn any_percent_encoded_text_passes_through_a_query(text in "\\PC{1,60}") {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let query = Query::read(&format!("a={encoded}"), &["a"]).unwrap();
            prop_assert_eq!(query.text("a"), Some(text.as_str()));
        }

        #[test]
        fn paths_and_queries_of_any_text_do_not_panic(path in "[/%a-f0-9{}\\PC]{0,80}", query in "[&=%+a-z0-9\\PC]{0,80}") {
            drop(check(&path));
            if let Ok(query) = Query::read(&query, &["a", "b"]) {
                drop((query.number("a", [0, 5], 1), query.flag("b")));
            }
        }
    }
}
