//! The proxy that the environment names for a target, by the rules of curl.
//!
//! A variable of an upper-case name comes before the lower-case one. An empty one counts as unset. `NO_PROXY` lists targets that are reached
//! directly, with commas or spaces between them: `*` for all, a name for itself and all names below it, an address, or a range of addresses as in
//! `10.0.0.0/8`. An address of IPv6 may stand in brackets.

use std::net::IpAddr;

use reqwest::{Proxy, Url};

use crate::handlers::SettingsError;

/// The proxy for this target; `None` if it is reached directly.
pub(super) fn of_environment(
    target: &Url,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, SettingsError> {
    let set = |name: &&str| variable(name).is_some_and(|value| !value.trim().is_empty());
    let own: &[&str] = match target.scheme() {
        "https" => &["HTTPS_PROXY", "https_proxy"],
        // For a CGI program `HTTP_PROXY` is a header of a request.
        _ if variable("REQUEST_METHOD").is_some() => &["http_proxy"],
        _ => &["HTTP_PROXY", "http_proxy"],
    };
    let Some(name) = own.iter().chain(&["ALL_PROXY", "all_proxy"]).copied().find(set) else {
        return Ok(None);
    };
    let exceptions = ["NO_PROXY", "no_proxy"].into_iter().find(set).and_then(&variable).unwrap_or_default();
    let host = target.host_str().unwrap_or_default();
    if exceptions.split([',', ' ', '\t']).any(|entry| names(entry.trim(), host)) {
        return Ok(None);
    }
    let value = variable(name).unwrap_or_default();
    let value = value.trim();
    let url = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    // The error does not have the value, which may have a password.
    let wrong = || {
        let problem =
            format!("{name} is not a URL of http or https; write it as in http://HOST:PORT, or unset it");
        SettingsError::text("proxy", "environment", problem)
    };
    let is_usable = |url: Url| ["http", "https"].contains(&url.scheme()) && url.has_host();
    if !url.parse().is_ok_and(is_usable) {
        return Err(wrong());
    }
    Proxy::all(url).map(Some).map_err(|_| wrong())
}

/// Whether an entry of `NO_PROXY` is about a host, which is a name or an address, of IPv6 in brackets.
fn names(entry: &str, host: &str) -> bool {
    if entry == "*" {
        return true;
    }
    match address(host) {
        Some(host) => match entry.split_once('/') {
            Some((network, bits)) => address(network)
                .zip(bits.parse().ok())
                .is_some_and(|(network, bits)| is_in(host, network, bits)),
            None => address(entry) == Some(host),
        },
        None => {
            let (entry, host) = (entry.trim_matches('.'), host.trim_end_matches('.'));
            let above = host.len().checked_sub(entry.len()).filter(|_| !entry.is_empty());
            above.is_some_and(|above| {
                host.get(above..).is_some_and(|end| end.eq_ignore_ascii_case(entry))
                    && (above == 0 || host.as_bytes()[above - 1] == b'.')
            })
        }
    }
}

fn address(text: &str) -> Option<IpAddr> {
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inside.unwrap_or(text).parse().ok()
}

/// Whether an address and a network have these first bits in common.
fn is_in(host: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (differ, all) = match (host, network) {
        (IpAddr::V4(host), IpAddr::V4(network)) => (u128::from(host.to_bits() ^ network.to_bits()), 32),
        (IpAddr::V6(host), IpAddr::V6(network)) => (host.to_bits() ^ network.to_bits(), 128),
        _ => return false,
    };
    bits <= all && differ.checked_shr(all - bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_no_proxy_are_those_of_curl() {
        for (entry, host) in [
            ("*", "example.com"),
            ("*", "127.0.0.1"),
            ("*", "[::1]"),
            ("example.com", "example.com"),
            ("Example.COM", "www.example.com"),
            (".example.com", "www.example.com"),
            (".example.com", "example.com"),
            ("example.com.", "example.com"),
            ("example.com", "example.com."),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.0/8", "127.9.9.9"),
            ("0.0.0.0/0", "1.2.3.4"),
            ("[::1]", "[::1]"),
            ("::1", "[::1]"),
            ("0:0:0:0:0:0:0:1", "[::1]"),
            ("::1/128", "[::1]"),
            ("[fd00::]/8", "[fd12::1]"),
        ] {
            assert!(names(entry, host), "{entry} {host}");
        }
        for (entry, host) in [
            ("", "example.com"),
            (".", "example.com"),
            ("example.com", "badexample.com"),
            ("www.example.com", "example.com"),
            ("com.example", "example.com"),
            ("é", "xé"),
            ("127.0.0.1", "127.0.0.11"),
            ("127.0.0.1", "127.0.0.1.example"),
            ("127.0.0.0/33", "127.0.0.1"),
            ("127.0.0.0/x", "127.0.0.1"),
            ("10.0.0.0/9", "10.128.0.1"),
            ("::/0", "127.0.0.1"),
            ("[::1", "[::1]"),
            ("::1", "[::2]"),
        ] {
            assert!(!names(entry, host), "{entry} {host}");
        }
    }

    /// Whether there is a proxy, in an environment with these variables.
    fn proxy(target: &str, variables: &[(&str, &str)]) -> Result<bool, String> {
        let value =
            |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
        let found = of_environment(&target.parse().unwrap(), value);
        found.map(|proxy| proxy.is_some()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_variables_of_the_targets_scheme_count() {
        let at = "http://10.0.0.1:3128";
        let [http, https] = ["http://example/x", "https://example/x"];
        assert_eq!(
            (proxy(http, &[("HTTP_PROXY", at)]), proxy(https, &[("HTTP_PROXY", at)])),
            (Ok(true), Ok(false))
        );
        assert_eq!(
            (proxy(http, &[("https_proxy", at)]), proxy(https, &[("https_proxy", at)])),
            (Ok(false), Ok(true))
        );
        assert_eq!(
            (proxy(http, &[("all_proxy", at)]), proxy(https, &[("ALL_PROXY", at)])),
            (Ok(true), Ok(true))
        );
        assert_eq!(proxy(http, &[("HTTP_PROXY", at), ("REQUEST_METHOD", "GET")]), Ok(false));
        assert_eq!(proxy(http, &[("http_proxy", "10.0.0.1:3128"), ("HTTP_PROXY", " ")]), Ok(true));
        assert_eq!(proxy(http, &[("HTTP_PROXY", at), ("no_proxy", "a, example")]), Ok(false));
        assert_eq!(proxy(http, &[("HTTP_PROXY", at), ("NO_PROXY", "a"), ("no_proxy", "example")]), Ok(true));
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_reported_without_its_value() {
        for wrong in ["::garbage::", "socks5://10.0.0.1", "http://", "http://a:b@:1"] {
            let error = proxy("http://example", &[("http_proxy", wrong)]).unwrap_err();
            insta::allow_duplicates! {
                insta::assert_snapshot!(error, @r#"proxy = "environment": http_proxy is not a URL of http or https; write it as in http://HOST:PORT, or unset it"#);
            }
            assert_eq!(proxy("http://example", &[("http_proxy", wrong), ("NO_PROXY", "*")]), Ok(false));
        }
    }
}
