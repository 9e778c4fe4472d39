//! The settings of the daemon: keys, defaults and checks.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::row::{
    NeededBy, Reload, Setting,
    range::{Bound::Time, LONGER_THAN_A_YEAR, LONGER_THAN_TEN_YEARS, TEN_YEARS, YEAR},
};
use super::{ConfigError, Http, MinFreeSpace, QueueConfig, duration};

/// All settings of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default, expecting = "a table of settings")]
#[non_exhaustive]
pub struct Config {
    /// `embedded:DIRECTORY`, or the path of a FoundationDB cluster file.
    pub database: String,
    /// How much of the disk of an embedded database must stay free, so that pushes are accepted.
    pub min_free_space: MinFreeSpace,
    /// The prefix of every key, so that several installations can share one database.
    pub prefix: String,
    /// How long a stop waits for running items.
    #[serde(with = "duration")]
    pub shutdown_timeout: Duration,
    /// How long the records of the audit trail are kept.
    #[serde(with = "duration::days")]
    pub audit_retention: Duration,
    /// The label of this configuration in the schedules that it makes. A configuration that is loaded from a file has the file's absolute
    /// path by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_owner: Option<String>,
    /// The log's level and format.
    pub log: Log,
    /// The API, the metrics and the page.
    pub http: Http,
    /// The queues to process, by name.
    pub queues: BTreeMap<String, QueueConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            database: "embedded:./kvqueue-data".to_owned(),
            min_free_space: MinFreeSpace::Auto,
            prefix: String::new(),
            shutdown_timeout: Duration::from_secs(30),
            audit_retention: Duration::from_hours(90 * 24),
            schedule_owner: None,
            log: Log::default(),
            http: Http::default(),
            queues: BTreeMap::new(),
        }
    }
}

/// Whether this is the URL of a daemon, in place of a database.
pub(crate) fn is_daemon(database: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| database.starts_with(scheme))
}

impl Config {
    /// The defaults, on this database: `embedded:DIRECTORY`, or the path of a FoundationDB cluster file.
    ///
    /// ```
    /// use kvqueue::config::{Config, Delivery, Listen, QueueConfig};
    ///
    /// let emails = QueueConfig::new("email").with_consumers(10, 4).with_delivery(Delivery::ExactlyOnce);
    /// let mut config = Config::new("embedded:./queues").with_queue("emails", emails);
    /// config.http.listen = Listen::Off;
    /// config.validate()?;
    /// # Ok::<_, kvqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn new(database: impl Into<String>) -> Self {
        Self { database: database.into(), ..Self::default() }
    }

    /// Adds a queue, or replaces the one of that name.
    #[must_use]
    pub fn with_queue(mut self, name: impl Into<String>, queue: QueueConfig) -> Self {
        self.queues.insert(name.into(), queue);
        self
    }

    /// The same, with the defaults that follow from other settings.
    #[must_use]
    pub(crate) fn spelled_out(mut self) -> Self {
        self.queues.values_mut().for_each(QueueConfig::spell_out);
        self
    }

    /// Whether the URL of a daemon is in place of the database, for commands that a daemon can carry out.
    pub(crate) fn is_of_daemon(&self) -> bool {
        is_daemon(&self.database)
    }

    pub(crate) fn validate_database(&self) -> Result<(), ConfigError> {
        let wrong = |problem: &str, fix| {
            Err(ConfigError::value("database", format_args!("{:?}", self.database), problem, fix))
        };
        if let Some(instead) = fdb_embedded::instead_of_two_slashes(&self.database) {
            let problem = "a directory follows \"embedded:\", without the two slashes of a URL";
            return wrong(problem, format!("write {instead}"));
        }
        let fix = "write embedded:DIRECTORY or the path of a cluster file".to_owned();
        if let Some((scheme, _)) = self.database.split_once("://").filter(|_| !self.is_of_daemon()) {
            let problem =
                format!("kvqueue keeps its queues in a directory or on FoundationDB, not in {scheme}");
            return wrong(&problem, fix);
        }
        let problem = match self.database.strip_prefix(fdb_embedded::SCHEME) {
            None if self.database.is_empty() => "no database is named",
            Some("") => "no directory is named",
            _ => return Ok(()),
        };
        wrong(problem, fix)
    }
}

/// Logging, to stderr or to the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    default,
    expecting = "a table such as { level = \"info\" }"
)]
#[non_exhaustive]
pub struct Log {
    /// Lines for people, one JSON object per event, or the journal.
    pub format: LogFormat,
    /// A level, or levels by target as in `info,kvqueue::actors=debug`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned() }
    }
}

/// The form of a log event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LogFormat {
    /// The journal if stderr goes there, and lines for people otherwise.
    Auto,
    /// One readable line, coloured at a terminal.
    Human,
    /// One JSON object.
    Json,
    /// A message to the journal, with fields.
    Journald,
}

/// What there is to know about the daemon's own settings.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::new(
        "database",
        "where the queues are: `embedded:DIRECTORY` keeps them in a local directory and needs nothing else installed; any other value is the path of \
         a cluster file (it has the addresses of a FoundationDB cluster), next to the configuration file if it is relative. A service's default is \
         the directory that systemd gives it ([systemd](config/process.md#systemd))",
    )
    .needed_by(NeededBy::All),
    Setting::new(
        "min-free-space",
        "how much of the disk of an embedded database must stay free: below it pushes are refused, and everything else goes on; a size, or `0` for no limit; `auto`: 1 GiB, or 5 % of a small disk, until a limit is set ([Free disk space](config/disk.md))",
    )
    .reload(Reload::AtOnce),
    Setting::new("prefix", "put before every key, so that several installations can share one database")
        .needed_by(NeededBy::All),
    Setting::new(
        "shutdown-timeout",
        "how long a stop waits for running items; `TimeoutStopSec=` of systemd should be at least ten seconds longer",
    )
    .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
    .reload(Reload::AtOnce),
    Setting::new(
        "audit-retention",
        "how long the [audit trail](security/audit.md#the-audit-trail) keeps who changed what, up to 100,000 records",
    )
    .at_least(Time(Duration::from_hours(24)), "nobody could read what was done yesterday")
    .at_most(Time(TEN_YEARS), LONGER_THAN_TEN_YEARS)
    .reload(Reload::AtOnce),
    Setting::new(
        "schedule-owner",
        "the label of this configuration in the schedules that it makes ([Schedules](config/queues.md#schedules)); without a configuration file, schedules need it",
    )
    .without_default("the file's absolute path", "\"production\"")
    .reload(Reload::AtOnce),
    Setting::new(
        "log.format",
        "`human` (lines) or `json` (objects), both on stderr; `journald`, the journal with its fields; `auto`, the journal if stderr goes there, as in \
         a service of systemd's, and else lines ([Logs](config/process.md#logs)). Commands at a terminal always write lines",
    ),
    Setting::new(
        "log.level",
        "`error`, `warn`, `info`, `debug`, `trace`; or by target, as in `info,kvqueue::actors=debug`",
    )
    .reload(Reload::AtOnce),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let config: Config = toml::from_str(text).unwrap();
        config.validate().expect_err("this configuration is wrong").to_string()
    }

    #[test]
    fn the_defaults_are_valid() {
        assert!(Config::default().validate().is_ok());
    }

    #[test]
    fn messages_name_key_value_and_fix() {
        let queue = |line: &str| format!("[queues.emails]\nhandler = 'log'\n{line}");
        insta::assert_snapshot!(problem("database = ''"), @r#"database = "": no database is named; write embedded:DIRECTORY or the path of a cluster file"#);
        insta::assert_snapshot!(problem("database = 'embedded://./data'"), @r#"database = "embedded://./data": a directory follows "embedded:", without the two slashes of a URL; write embedded:./data"#);
        insta::assert_snapshot!(problem("database = 'embedded:'"), @r#"database = "embedded:": no directory is named; write embedded:DIRECTORY or the path of a cluster file"#);
        insta::assert_snapshot!(problem("database = 'redis://localhost'"), @r#"database = "redis://localhost": kvqueue keeps its queues in a directory or on FoundationDB, not in redis; write embedded:DIRECTORY or the path of a cluster file"#);
        insta::assert_snapshot!(problem("audit-retention = '23h'"), @r#"audit-retention = "23h": nobody could read what was done yesterday; set it to "24h" or more"#);
        insta::assert_snapshot!(problem("audit-retention = '3651d'"), @r#"audit-retention = "3651d": that is longer than ten years; set it to "3650d" or less"#);
        insta::assert_snapshot!(problem("log.level = 'loud'"), @r#"log.level = "loud": "loud" is not a level; use error, warn, info, debug or trace, alone or by target as in "info,kvqueue::actors=debug""#);
        insta::assert_snapshot!(problem("log.level = 'info,'"), @r#"log.level = "info,": "" is not a level; use error, warn, info, debug or trace, alone or by target as in "info,kvqueue::actors=debug""#);
        insta::assert_snapshot!(problem("http.listen = '0.0.0.0:7420'"), @r#"http.listen = "0.0.0.0:7420": tokens would be sent to it unencrypted; set http.tls-certificate and http.tls-key; or http.allow-plaintext = true if a proxy or a tunnel encrypts the connections"#);
        insta::assert_snapshot!(problem("http.require-token = false\nhttp.token-file = 't'"), @"http.require-token = false: nobody would have to send the secret in http.token-file; remove one of the two");
        insta::assert_snapshot!(problem("http.require-token = false\nhttp.listen = '0.0.0.0:7420'"), @"http.require-token = false: other machines could reach http.listen, and nobody would have to send a token; remove the key, or listen on 127.0.0.1 or a Unix socket");
        insta::assert_snapshot!(problem("http.tls-key = 'k'"), @"http.tls-certificate = (not set): http.tls-key needs it; name both files, or neither");
        insta::assert_snapshot!(problem("http.tls-certificate = 'c'"), @"http.tls-key = (not set): http.tls-certificate needs it; name both files, or neither");
        insta::assert_snapshot!(problem("http.listen = 'unix:s'\nhttp.tls-certificate = 'c'\nhttp.tls-key = 'k'"), @r#"http.tls-certificate = "c": a Unix socket does not use TLS; remove http.tls-certificate and http.tls-key, or set http.listen to an IP address"#);
        insta::assert_snapshot!(problem("http.max-body = '17MiB'"), @r#"http.max-body = "17MiB": that is too much to hold; set it to "16MiB" or less"#);
        insta::assert_snapshot!(problem("http.max-body = '0B'"), @r#"http.max-body = "0B": nothing could be pushed; set it to "1B" or more"#);
        insta::assert_snapshot!(problem("http.keep-alive = '0s'"), @r#"http.keep-alive = "0s": a load balancer keeps a silent connection longer; set it to "1s" or more"#);
        insta::assert_snapshot!(problem("http.max-connections = 2"), @r#"http.max-connections = 2: a page and a client need a few; set it to 8 or more"#);
        insta::assert_snapshot!(problem("http.origins = ['https://a.example/x']"), @r#"http.origins[0] = "https://a.example/x": this is not an origin; write it as browsers send it, as in "https://queues.example": lower case, without a path"#);
        insta::assert_snapshot!(problem(&queue("consumers = []")), @"queues.emails.consumers = []: no consumer would process the queue; write a number such as 4, or leave the key out");
        insta::assert_snapshot!(problem(&queue("consumers = [ { k = 0 } ]")), @"queues.emails.consumers[0].k = 0: a consumer has to take at least one item at a time; set it to 1 or more");
        insta::assert_snapshot!(problem(&queue("consumers = [ { k = 1000000 } ]")), @"queues.emails.consumers[0].k = 1000000: one transaction takes at most 10000 items; lower it");
        insta::assert_snapshot!(problem(&queue("consumers = [ { count = 0 } ]")), @"queues.emails.consumers[0].count = 0: the group has no consumers; set it to 1 or more, or remove the group");
        insta::assert_snapshot!(problem(&queue("consumers = [ { count = 100000 } ]")), @"queues.emails.consumers[0].count = 100000: a process may hold 1000 consumers of one queue; lower it");
        insta::assert_snapshot!(problem(&queue("consumers = [ { count = 600 }, { count = 600 } ]")), @"queues.emails.consumers = 1200 in all: a process may hold 1000 consumers of one queue; lower the counts");
        insta::assert_snapshot!(problem(&queue("poll-interval = '0s'")), @r#"queues.emails.poll-interval = "0s": an idle consumer would never rest; pushes wake consumers at once in any case; set it to "1ms" or more"#);
        insta::assert_snapshot!(problem(&queue("poll-interval = '10000h'")), @r#"queues.emails.poll-interval = "10000h": that is longer than a year; set it to "365d" or less"#);
        insta::assert_snapshot!(problem(&queue("handler-timeout = '10000h'")), @r#"queues.emails.handler-timeout = "10000h": that is longer than a year; set it to "365d" or less, or leave the key out"#);
        insta::assert_snapshot!(problem(&queue("handler-timeout = '0s'")), @r#"queues.emails.handler-timeout = "0s": no item could be handled in no time; set it to "1ms" or more, or leave the key out"#);
        insta::assert_snapshot!(problem(&queue("delivery = 'at-most-once'\nhandler-timeout = '1m'")), @r#"queues.emails.handler-timeout = "1m": an item may take longer than a stop waits (shutdown-timeout = "30s"), so with at-most-once delivery a stop would lose it; raise shutdown-timeout or lower the timeout"#);
        insta::assert_snapshot!(problem(&queue("values = 'tuple'")), @r#"queues.emails.values = "tuple": the values of such a queue are raw; leave the key out, or set kind to "recipe" or "priority""#);
        insta::assert_snapshot!(problem(&queue("kind = 'recipe'\nend = 'max'")), @r#"queues.emails.end = "max": only a priority queue can be processed from either end; leave the key out, or set kind to "priority""#);
        insta::assert_snapshot!(problem(&queue("kind = 'keyed'\nfetch-strategy = 'front'")), @"queues.emails.fetch-strategy = ...: fetches from a keyed queue follow the turns of its keys; leave the key out");
        insta::assert_snapshot!(problem(&queue("kind = 'keyed'\ndelivery = 'at-most-once'")), @r#"queues.emails.delivery = "at-most-once": limits of a keyed queue count items on leases, and such items have none; set it to "at-least-once", or set kind to "fifo""#);
        insta::assert_snapshot!(problem(&queue("kind = 'keyed'\nvalues = 'tuple'")), @r#"queues.emails.values = "tuple": the values of such a queue are raw; leave the key out, or set kind to "recipe" or "priority""#);
        insta::assert_snapshot!(problem(&queue("lease = '999ms'")), @r#"queues.emails.lease = "999ms": it could expire while a commit is slow; set it to "1s" or more"#);
        insta::assert_snapshot!(problem(&queue("lease = '25h'")), @r#"queues.emails.lease = "25h": the items of a daemon that died would wait as long; a lease is extended for as long as a handler takes; set it to "24h" or less"#);
        insta::assert_snapshot!(problem(&queue("max-payload = '0B'")), @r#"queues.emails.max-payload = "0B": nothing could be pushed; set it to "1B" or more"#);
        insta::assert_snapshot!(problem(&queue("max-payload = '10MB'")), @r#"queues.emails.max-payload = "10MB": an item has to fit into one transaction of FoundationDB; set it to "9MB" or less"#);
        insta::assert_snapshot!(problem(&queue("idempotency-window = '0s'")), @r#"queues.emails.idempotency-window = "0s": no repeated push would be recognised; pushes without an idempotency key leave nothing behind in any case; set it to "1ms" or more"#);
        insta::assert_snapshot!(problem(&queue("idempotency-window = '10000h'")), @r#"queues.emails.idempotency-window = "10000h": that is longer than a year; set it to "365d" or less"#);
        insta::assert_snapshot!(problem(&queue("history = '721h'")), @r#"queues.emails.history = "721h": ended items cannot be kept that long; set it to "30d" or less, or to "0s", which records none, and removes within ten minutes what was kept, or leave the key out"#);
        let exec = |line: &str| format!("[queues.emails]\nhandler = 'exec'\n{line}");
        insta::assert_snapshot!(problem(&exec("handler-config.result = 'stdout'")), @r#"queues.emails.handler-config.result = "stdout": results are kept with the ended items, and queues.emails.history keeps none; set queues.emails.history, as in "24h", or remove this key"#);
        insta::assert_snapshot!(problem(&exec("delivery = 'at-most-once'\nhistory = '1h'\nhandler-config.result = 'stdout'")), @r#"queues.emails.handler-config.result = "stdout": with at-most-once delivery an item has left the queue before it is handled, and its result with it; set queues.emails.delivery to "at-least-once", or remove this key"#);
        insta::assert_snapshot!(problem(&queue("history = '59s'")), @r#"queues.emails.history = "59s": old items are removed once a minute; set it to "1m" or more, or to "0s", which records none, and removes within ten minutes what was kept, or leave the key out"#);
        insta::assert_snapshot!(problem(&queue("history-index = ['a']")), @r#"queues.emails.history-index = ["a"]: an index is one of ended items, and queues.emails.history keeps none; set queues.emails.history, as in "24h", or remove this key"#);
        insta::assert_snapshot!(problem(&queue("history = '1h'\nhistory-index = ['a', '']")), @r#"queues.emails.history-index = ["a", ""]: name "" has 0 bytes, 1 to 128 are possible; write the name of an attribute, or remove it"#);
        insta::assert_snapshot!(problem(&queue("history = '1h'\nhistory-index = ['1','2','3','4','5','6','7','8','9']")), @r#"queues.emails.history-index = ["1", "2", "3", "4", "5", "6", "7", "8", "9"]: there are 9 names, at most 8 are possible; name only attributes whose values are looked for often"#);
        insta::assert_snapshot!(problem(&queue("dead-retention = '3651d'")), @r#"queues.emails.dead-retention = "3651d": that is longer than ten years; set it to "3650d" or less, or to "0s", which keeps dead letters for ever"#);
        insta::assert_snapshot!(problem(&queue("retry.max-attempts = 0")), @"queues.emails.retry.max-attempts = 0: an item has to be tried at least once; set it to 1 or more");
        insta::assert_snapshot!(problem(&queue("retry = { base = '1m', max = '1s' }")), @r#"queues.emails.retry.base = "1m": the first pause is longer than the longest (retry.max = "1s"); lower it or raise retry.max"#);
        insta::assert_snapshot!(problem(&queue("retry.max = '10000h'")), @r#"queues.emails.retry.max = "10000h": that is longer than a year; set it to "365d" or less"#);
    }

    #[test]
    fn handler_timeout_may_exceed_the_shutdown_timeout_unless_at_most_once() {
        for delivery in ["at-least-once", "exactly-once"] {
            let text =
                format!("[queues.q]\nhandler = 'log'\nhandler-timeout = '1h'\ndelivery = '{delivery}'");
            toml::from_str::<Config>(&text).unwrap().validate().unwrap();
        }
    }
}
