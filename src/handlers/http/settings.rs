//! The settings of a webhook.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::addresses::is_private;
use crate::{
    config::{duration, size},
    handlers::{ScopeName, Settings, SettingsError, check_lists},
};

const FIX_URL: &str = "write url = \"https://HOST/PATH\" in handler-config";

/// The value of `proxy` by which the environment names the proxy.
const ENVIRONMENT: &str = "environment";

/// The longest `timeout`.
const LONGEST_TIMEOUT: Duration = Duration::from_hours(1);

/// How long a connection may take, if that is not set, and no other time is so short that this would be most of it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The shortest and the longest `max-response`.
const RESPONSE: [u64; 2] = [1, 64 << 20];

/// Where the result of a done item comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ResultFrom {
    /// It has none; in a batch, what its outcome has.
    #[default]
    None,
    /// The body of the answer.
    Body,
}

/// The settings of `http`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct HttpSettings {
    /// Where items are posted to.
    url: String,
    /// Whether the items of a fetch go into one request.
    #[serde(default)]
    pub(super) batch: bool,
    /// How long a call may take, with its connection and its answer.
    #[serde(default = "default_timeout", with = "duration")]
    pub(super) timeout: Duration,
    /// How long a connection may take, with TLS.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    connect_timeout: Option<Duration>,
    /// `handler-timeout` of the queue, which is not in this table.
    #[serde(skip)]
    handler_timeout: Option<Duration>,
    /// Statuses that make the item a dead letter.
    #[serde(default = "default_dead_status")]
    pub(super) dead_status: Vec<u16>,
    /// Statuses that give the item back.
    #[serde(default)]
    pub(super) release_status: Vec<u16>,
    /// What waits after an answer 429 or 503 with `Retry-After`. `None`: the item fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) throttle: Option<ScopeName>,
    /// How many different items fail in a row before that is an outage of the target; 0: never.
    #[serde(default = "default_outage_after")]
    pub(super) outage_after: u32,
    /// The most bytes of an answer that are read.
    #[serde(default = "default_max_response", with = "size")]
    pub(super) max_response: u64,
    #[serde(default)]
    pub(super) result: ResultFrom,
    /// Whether connections to addresses that are not public are refused.
    #[serde(default)]
    pub(super) forbid_private_addresses: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signing_key_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authorization_file: Option<PathBuf>,
    /// Trusted instead of the system's certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ca_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_key: Option<PathBuf>,
    /// A URL, or `environment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<String>,
}

fn default_timeout() -> Duration {
    Duration::from_secs(30)
}

/// The receiver is gone for good, or the content was refused. Not 400, which servers also answer to
/// what is no item's fault: plain HTTP at a port for TLS, or a header that is too long.
fn default_dead_status() -> Vec<u16> {
    vec![410, 422]
}

fn default_outage_after() -> u32 {
    5
}

fn default_max_response() -> u64 {
    64 * 1024
}

/// Which proxy requests go through.
#[derive(Debug)]
pub(super) enum Proxy<'s> {
    /// No proxy. The environment's proxy variables are ignored.
    None,
    /// The one that `HTTP_PROXY` and the like name.
    Environment,
    At(&'s str),
}

impl HttpSettings {
    pub(super) fn read(settings: &Settings) -> Result<Self, SettingsError> {
        let mut read: Self = settings.parse().map_err(|SettingsError(problem)| {
            let about_url = problem.starts_with("url") || problem.starts_with("missing");
            SettingsError(if about_url { format!("{problem}; {FIX_URL}") } else { problem })
        })?;
        read.handler_timeout = settings.handler_timeout;
        read.check_url()?;
        read.check_times_and_bounds()?;
        let lists = [("dead-status", &*read.dead_status), ("release-status", &*read.release_status)];
        check_lists(lists, 300..=599, "write statuses from 300 to 599; 200 to 299 always mean done")?;
        if read.batch && read.result != ResultFrom::None {
            let problem = "each outcome in the answer to a batch has the result of its item; remove it, or set batch to false";
            return Err(SettingsError::text("result", "body", problem));
        }
        read.check_tls()?;
        read.check_proxy()?;
        Ok(read)
    }

    /// The URL; it was parsed before.
    pub(super) fn url(&self) -> Result<Url, SettingsError> {
        self.url
            .parse()
            .map_err(|error| SettingsError::text("url", &self.url, format_args!("{error}; {FIX_URL}")))
    }

    /// The host and the port, as messages name the target.
    pub(super) fn target(url: &Url) -> String {
        let port = url.port_or_known_default().unwrap_or_default();
        format!("{}:{port}", url.host_str().unwrap_or_default())
    }

    /// How long a connection may take, with TLS.
    pub(super) fn connect_timeout(&self) -> Duration {
        let call = self.handler_timeout.map_or(self.timeout, |limit| limit.min(self.timeout));
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT.min(call / 2))
    }

    pub(super) fn proxy(&self) -> Proxy<'_> {
        match self.proxy.as_deref() {
            None => Proxy::None,
            Some(ENVIRONMENT) => Proxy::Environment,
            Some(url) => Proxy::At(url),
        }
    }

    /// Whether connections may need TLS: that of the target, or one of a proxy's.
    pub(super) fn may_need_tls(&self) -> bool {
        self.url().is_ok_and(|url| url.scheme() == "https")
            || matches!(self.proxy(), Proxy::Environment)
            || matches!(self.proxy(), Proxy::At(proxy) if proxy.starts_with("https:"))
    }

    fn check_url(&self) -> Result<(), SettingsError> {
        let url = self.url()?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(SettingsError::text(
                "url",
                &self.url,
                format_args!("its scheme is not http or https; {FIX_URL}"),
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            // Not the URL itself, which has a secret.
            return Err(SettingsError(
                "url: it contains a user name or a password, and `kvqueue config show` prints this setting; put \
                 \"Basic BASE64\" into authorization-file"
                    .to_owned(),
            ));
        }
        if self.forbid_private_addresses && literal(&url).is_some_and(is_private) {
            let problem = "it is a private address, which forbid-private-addresses forbids; remove that setting, or \
                           name a public target";
            return Err(SettingsError::text("url", &self.url, problem));
        }
        Ok(())
    }

    fn check_times_and_bounds(&self) -> Result<(), SettingsError> {
        let connect = self.connect_timeout;
        let times = [Some(("timeout", self.timeout)), connect.map(|connect| ("connect-timeout", connect))];
        for (key, value) in times.into_iter().flatten() {
            if value.is_zero() || value > LONGEST_TIMEOUT {
                return Err(SettingsError::text(key, &duration::format(value), "write 1ms to 1h"));
            }
        }
        if let Some(connect) = connect.filter(|connect| *connect >= self.timeout) {
            let problem = format!(
                "it is not shorter than timeout ({}), which it is a part of; shorten it",
                duration::format(self.timeout)
            );
            return Err(SettingsError::text("connect-timeout", &duration::format(connect), problem));
        }
        let [least, most] = RESPONSE;
        if !(least..=most).contains(&self.max_response) {
            let problem = format!("write {} to {}", size::format(least), size::format(most));
            return Err(SettingsError::text("max-response", &size::format(self.max_response), problem));
        }
        Ok(())
    }

    fn check_tls(&self) -> Result<(), SettingsError> {
        let files = [
            ("ca-file", &self.ca_file),
            ("client-certificate", &self.client_certificate),
            ("client-key", &self.client_key),
        ];
        if let Some((key, Some(path))) = files.iter().find(|(_, file)| file.is_some())
            && !self.may_need_tls()
        {
            return Err(SettingsError::text(
                key,
                path,
                "the url is http, without TLS; remove it, or use https",
            ));
        }
        match (&self.client_certificate, &self.client_key) {
            (Some(path), None) => {
                Err(SettingsError::text("client-certificate", path, "it needs its key; set client-key, too"))
            }
            (None, Some(path)) => Err(SettingsError::text(
                "client-key",
                path,
                "it needs its certificate; set client-certificate, too",
            )),
            _ => Ok(()),
        }
    }

    fn check_proxy(&self) -> Result<(), SettingsError> {
        let Some(proxy) = &self.proxy else { return Ok(()) };
        if proxy.contains('@') {
            // Not the URL itself, which has a secret.
            let problem =
                "it contains a user name or a password, and `kvqueue config show` prints this setting";
            let fix = "write \"environment\", and put them into HTTPS_PROXY or HTTP_PROXY of the daemon's environment";
            return Err(SettingsError(format!("proxy: {problem}; {fix}")));
        }
        let is_url = |url: Url| ["http", "https"].contains(&url.scheme());
        if proxy != ENVIRONMENT && !proxy.parse().is_ok_and(is_url) {
            let fix = "it is not a URL of http or https; write \"http://HOST:PORT\", or \"environment\"";
            return Err(SettingsError::text("proxy", proxy, fix));
        }
        if self.forbid_private_addresses {
            let problem = "the proxy finds the target's address, so forbid-private-addresses cannot be kept; remove one \
                           of them, and let the proxy refuse private addresses";
            return Err(SettingsError::text("proxy", proxy, problem));
        }
        Ok(())
    }

    /// What is allowed and probably a mistake.
    pub(super) fn warning(&self) -> Option<String> {
        let url = self.url().ok()?;
        let host = url.host_str()?;
        let is_local = host == "localhost" || literal(&url).is_some_and(|address| address.is_loopback());
        if url.scheme() == "https" || is_local {
            return None;
        }
        let also = match (&self.authorization_file, &self.signing_key_file) {
            (Some(_), _) => ", with the secret of authorization-file",
            (None, Some(_)) => "; their signature hides nothing",
            (None, None) => "",
        };
        Some(format!("items are sent unencrypted to {host}{also}; use https"))
    }
}

/// The address in a URL that has no name.
fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> HttpSettings {
        HttpSettings::read(&text.parse().unwrap()).unwrap()
    }

    #[test]
    fn messages_name_key_value_and_fix() {
        let problem = |text: &str| HttpSettings::read(&text.parse().unwrap()).unwrap_err().to_string();
        insta::assert_snapshot!(problem(""), @r#"missing field `url`; write url = "https://HOST/PATH" in handler-config"#);
        insta::assert_snapshot!(problem("url = 'example'"), @r#"url = "example": relative URL without a base; write url = "https://HOST/PATH" in handler-config"#);
        insta::assert_snapshot!(problem("url = 'ftp://example'"), @r#"url = "ftp://example": its scheme is not http or https; write url = "https://HOST/PATH" in handler-config"#);
        insta::assert_snapshot!(problem("url = 'http://a:b@example'"), @r#"url: it contains a user name or a password, and `kvqueue config show` prints this setting; put "Basic BASE64" into authorization-file"#);
        let problem = |more: &str| problem(&format!("url = 'https://example/hook'\n{more}"));
        insta::assert_snapshot!(problem("dead-status = [200]"), @"dead-status = 200: write statuses from 300 to 599; 200 to 299 always mean done");
        insta::assert_snapshot!(problem("release-status = [410]"), @"release-status = 410: it is in dead-status, too; remove it from one of them");
        insta::assert_snapshot!(problem("timeout = '0s'"), @r#"timeout = "0s": write 1ms to 1h"#);
        insta::assert_snapshot!(problem("timeout = '1s'\nconnect-timeout = '5s'"), @r#"connect-timeout = "5s": it is not shorter than timeout (1s), which it is a part of; shorten it"#);
        insta::assert_snapshot!(problem("timeout = '5s'\nconnect-timeout = '5s'"), @r#"connect-timeout = "5s": it is not shorter than timeout (5s), which it is a part of; shorten it"#);
        insta::assert_snapshot!(problem("max-response = '1GiB'"), @r#"max-response = "1GiB": write 1B to 64MiB"#);
        insta::assert_snapshot!(problem("client-key = '/k'"), @r#"client-key = "/k": it needs its certificate; set client-certificate, too"#);
        insta::assert_snapshot!(problem("client-certificate = '/c'"), @r#"client-certificate = "/c": it needs its key; set client-key, too"#);
        insta::assert_snapshot!(problem("proxy = 'example:8080'"), @r#"proxy = "example:8080": it is not a URL of http or https; write "http://HOST:PORT", or "environment""#);
        for secret in ["http://user:secret@proxy:3128", "user:secret@proxy:3128"] {
            insta::allow_duplicates! {
                insta::assert_snapshot!(problem(&format!("proxy = '{secret}'")), @r#"proxy: it contains a user name or a password, and `kvqueue config show` prints this setting; write "environment", and put them into HTTPS_PROXY or HTTP_PROXY of the daemon's environment"#);
            }
        }
        insta::assert_snapshot!(problem("proxy = 'environment'\nforbid-private-addresses = true"), @r#"proxy = "environment": the proxy finds the target's address, so forbid-private-addresses cannot be kept; remove one of them, and let the proxy refuse private addresses"#);
        insta::assert_snapshot!(problem("batch = true\nresult = 'body'"), @r#"result = "body": each outcome in the answer to a batch has the result of its item; remove it, or set batch to false"#);
        insta::assert_snapshot!(problem("method = 'PUT'"), @"method: unknown field `method`, expected one of `url`, `batch`, `timeout`, `connect-timeout`, `dead-status`, `release-status`, `throttle`, `outage-after`, `max-response`, `result`, `forbid-private-addresses`, `signing-key-file`, `authorization-file`, `ca-file`, `client-certificate`, `client-key`, `proxy`");
        let plain = |more: &str| {
            let text = format!("url = 'http://0x7f.1/'\n{more}");
            HttpSettings::read(&text.parse().unwrap()).unwrap_err().to_string()
        };
        insta::assert_snapshot!(plain("ca-file = '/ca'"), @r#"ca-file = "/ca": the url is http, without TLS; remove it, or use https"#);
        insta::assert_snapshot!(plain("forbid-private-addresses = true"), @r#"url = "http://0x7f.1/": it is a private address, which forbid-private-addresses forbids; remove that setting, or name a public target"#);
    }

    #[test]
    fn a_connect_timeout_that_is_not_set_is_half_of_a_shorter_limit() {
        let connect = |text: &str, handler_timeout: Option<u64>| {
            let settings: Settings = format!("url = 'https://example'\n{text}").parse().unwrap();
            let settings = settings.with_handler_timeout(handler_timeout.map(Duration::from_secs));
            HttpSettings::read(&settings).unwrap().connect_timeout().as_millis()
        };
        assert_eq!(connect("", None), 5_000);
        assert_eq!(connect("timeout = '3s'", None), 1_500);
        assert_eq!(connect("timeout = '3s'", Some(2)), 1_000);
        assert_eq!(connect("", Some(60)), 5_000);
        assert_eq!(connect("timeout = '3s'\nconnect-timeout = '2s'", Some(60)), 2_000);
    }

    #[test]
    fn an_unencrypted_way_beyond_this_machine_is_warned_of() {
        let warning = |text: &str| settings(text).warning();
        for quiet in ["https://example", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost/x"] {
            assert_eq!(warning(&format!("url = '{quiet}'")), None);
        }
        insta::assert_snapshot!(warning("url = 'http://example/x?secret'").unwrap(), @"items are sent unencrypted to example; use https");
        insta::assert_snapshot!(warning("url = 'http://example'\nsigning-key-file = '/k'").unwrap(), @"items are sent unencrypted to example; their signature hides nothing; use https");
        insta::assert_snapshot!(warning("url = 'http://example'\nauthorization-file = '/k'").unwrap(), @"items are sent unencrypted to example, with the secret of authorization-file; use https");
    }

    #[test]
    fn the_reference_shows_every_key_with_its_default() {
        let text = "url = 'https://example'\nsigning-key-file = 'a'\nauthorization-file = 'b'\nca-file = 'c'\n\
                    client-certificate = 'd'\nclient-key = 'e'\nproxy = 'environment'\nconnect-timeout = '1s'";
        let all = toml::Table::try_from(settings(text)).unwrap();
        let defaults = toml::Table::try_from(settings("url = 'https://example'")).unwrap();
        let reference = include_str!("../../../docs/config/handlers.md");
        for key in all.keys() {
            let value = match defaults.get(key) {
                _ if key == "url" => "must be given".to_owned(),
                _ if key == "connect-timeout" => {
                    format!("`{:?}`, or half of a shorter limit", duration::format(CONNECT_TIMEOUT))
                }
                Some(value) => format!("`{value}`"),
                None => "none".to_owned(),
            };
            let row = format!("| `{key}` | {value} |");
            assert!(reference.contains(&row), "docs/config/handlers.md lacks {row}");
        }
    }
}
