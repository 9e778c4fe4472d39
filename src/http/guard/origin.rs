//! Refuses requests of other sites' pages. Programs other than browsers send neither header.

use actix_web::http::header::{self, HeaderMap, HeaderName};

use crate::http::error::ApiError;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// `scheme` is the daemon's own; `added` are origins that the configuration names.
pub(in crate::http) fn check(headers: &HeaderMap, scheme: &str, added: &[String]) -> Result<(), ApiError> {
    let text = |name: &HeaderName| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let origin = text(&header::ORIGIN);
    if let Some(origin) = &origin {
        if added.iter().any(|it| it == origin) {
            return Ok(());
        }
        let host = text(&header::HOST);
        let own =
            origin.split_once("://").is_some_and(|(by, name)| by == scheme && host.as_deref() == Some(name));
        if !own {
            return Err(ApiError::CrossSite(format!("{origin:?}")));
        }
    }
    match text(&SEC_FETCH_SITE).as_deref() {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(ApiError::CrossSite("another origin".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    #[test]
    fn only_own_and_configured_origins_are_accepted() {
        let ok = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            check(&headers, "http", &["https://q.example".to_owned()]).is_ok()
        };
        let host = ("host", "127.0.0.1:7420");
        assert!(ok(&[]) && ok(&[host]));
        assert!(ok(&[host, ("origin", "http://127.0.0.1:7420"), ("sec-fetch-site", "same-origin")]));
        assert!(ok(&[host, ("origin", "https://q.example"), ("sec-fetch-site", "same-site")]));
        assert!(ok(&[host, ("sec-fetch-site", "none")]));
        for origin in ["null", "", "http://127.0.0.1:7421", "https://127.0.0.1:7420", "http://evil.example"] {
            assert!(!ok(&[host, ("origin", origin)]), "{origin}");
        }
        assert!(!ok(&[host, ("sec-fetch-site", "cross-site")]));
        assert!(!ok(&[host, ("origin", "http://127.0.0.1:7420"), ("sec-fetch-site", "same-site")]));
    }
}
