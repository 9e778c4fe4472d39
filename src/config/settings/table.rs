//! The settings, in the order of the documents.

use std::time::Duration;

use kvqueue_queue::{MAX_HISTORY, MAX_PARTITIONS, PAYLOAD_CEILING};

use super::{
    Bound::{Count, Size, Time},
    NeededBy, Reload, Setting,
};
use crate::config::{MAX_LEASE, MIN_LEASE, http::MAX_BODY};

/// The longest durations but for retentions.
const YEAR: Duration = Duration::from_hours(365 * 24);

/// Why no duration is longer.
const LONGER_THAN_A_YEAR: &str = "that is longer than a year";

/// The longest retentions.
const TEN_YEARS: Duration = Duration::from_hours(3_650 * 24);

/// Why no retention is longer.
const LONGER_THAN_TEN_YEARS: &str = "that is longer than ten years";

/// The shortest time that is not none.
const SHORTEST: Duration = Duration::from_millis(1);

/// All of them.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::new(
        "database",
        "where the queues are: `embedded:DIRECTORY` keeps them in a local directory and needs nothing else installed; any other value is the path of \
         a cluster file (it has the addresses of a FoundationDB cluster), next to the configuration file if it is relative. A service's default is \
         the directory that systemd gives it ([systemd](config/process.md#systemd))",
    )
    .needed_by(NeededBy::All)
    .reload(Reload::AtStart),
    Setting::new(
        "min-free-space",
        "how much of the disk of an embedded database must stay free: below it pushes are refused, and everything else goes on; a size, or `0` for no \
         limit. A limit that is set is written into the directory ([Free disk space](#free-disk-space))",
    ),
    Setting::new("prefix", "put before every key, so that several installations can share one database")
        .needed_by(NeededBy::All)
        .reload(Reload::AtStart),
    Setting::new(
        "shutdown-timeout",
        "how long a stop waits for the items in hand; `TimeoutStopSec=` of systemd has to be ten seconds longer",
    )
    .at_most(Time(YEAR), LONGER_THAN_A_YEAR),
    Setting::new(
        "audit-retention",
        "how long the [audit trail](security/audit.md#the-audit-trail) keeps who changed what, up to 100,000 records",
    )
    .at_least(Time(Duration::from_hours(24)), "nobody could read what was done yesterday")
    .at_most(Time(TEN_YEARS), LONGER_THAN_TEN_YEARS),
    Setting::new(
        "schedule-owner",
        "the label of this configuration in the schedules that it makes: a daemon removes schedules that have its label and are not in its \
         configuration, and leaves all others alone ([Schedules](config/queues.md#schedules)); must be set for schedules without a file",
    )
    .without_default("the file's absolute path", "\"production\""),
    Setting::new(
        "log.format",
        "`human` (lines) or `json` (objects), both on stderr; `journald`, the journal with its fields; `auto`, the journal if stderr goes there, as in \
         a service of systemd's, and else lines ([Logs](config/process.md#logs)). Commands at a terminal always write lines",
    )
    .reload(Reload::AtStart),
    Setting::new(
        "log.level",
        "`error`, `warn`, `info`, `debug`, `trace`; or by target, as in `info,kvqueue::actors=debug`",
    ),
    Setting::new(
        "http.listen",
        "where the API, the metrics and the dashboard are: `\"IP:PORT\"`, or the daemon does not start; `\"unix:PATH\"` (mode 0660); `\"off\"`; \
         `\"auto\"` is `127.0.0.1:7420` if that is free, and otherwise a warning and no HTTP ([HTTP](config/process.md#http))",
    )
    .needed_by(NeededBy::Http)
    .reload(Reload::AtStart),
    Setting::new(
        "http.token-file",
        "the file with the operator's secret, which clients send as `Authorization: Bearer SECRET` and which allows everything; the daemon makes the \
         file if it does not exist, and commands such as `kvqueue status` read it",
    )
    .without_default("see [HTTP](config/process.md#http)", "\"/run/kvqueue/http-token\"")
    .needed_by(NeededBy::Http)
    .reload(Reload::AtStart),
    Setting::new(
        "http.require-token",
        "whether clients have to send an access token or that secret ([SECURITY.md](SECURITY.md))",
    )
    .without_default("see [HTTP](config/process.md#http)", "true")
    .needed_by(NeededBy::Http),
    Setting::new("http.tls-certificate", "a PEM file with the certificate for TLS, and the chain to its authority")
        .without_default("none", "\"/etc/kvqueue/tls.crt\"")
        .needed_by(NeededBy::Http)
        .reload(Reload::AtStart),
    Setting::new(
        "http.tls-key",
        "a PEM file with that certificate's private key, which other users may not read (mode 0640 or less)",
    )
    .without_default("none", "\"/etc/kvqueue/tls.key\"")
    .needed_by(NeededBy::Http)
    .reload(Reload::AtStart),
    Setting::new(
        "http.allow-plaintext",
        "whether the daemon may listen beyond loopback without TLS, because a proxy or a tunnel encrypts the connections",
    )
    .needed_by(NeededBy::Http)
    .reload(Reload::AtStart),
    Setting::new("http.read-only", "nothing can be changed by HTTP").needed_by(NeededBy::Http),
    Setting::new("http.max-body", "the longest body of a request")
        .at_least(Size(1), "nothing could be pushed")
        .at_most(Size(MAX_BODY as u64), "that is too much to hold")
        .needed_by(NeededBy::Http)
        .reload(Reload::AtStart),
    Setting::new(
        "http.max-connections",
        "the most connections at a time of clients that have sent a valid token, or need none. Others have 64 places more; the oldest of them gives \
         way to a new one ([SECURITY.md](SECURITY.md#clients-without-a-token))",
    )
    .at_least(Count(8), "a page and a client need a few")
    .at_most(Count(10_000), "one thread does not serve more")
    .needed_by(NeededBy::Http)
    .reload(Reload::AtStart),
    Setting::new(
        "http.keep-alive",
        "how long a connection stays open without a request; longer than a load balancer or a proxy keeps a silent one, so that it closes first",
    )
    .at_least(Time(Duration::from_secs(1)), "a load balancer keeps a silent connection longer")
    .at_most(Time(Duration::from_hours(1)), "silent connections would take the places of others")
    .needed_by(NeededBy::Http)
    .reload(Reload::AtStart),
    Setting::new(
        "http.origins",
        "other origins whose pages may change something, as in `\"https://queues.example\"`; on loopback also names that the daemon may be asked by",
    )
    .needed_by(NeededBy::Http),
    Setting::new(
        "queues.*.handler",
        "the name of a handler: `log` writes an item to the log, `stdout` prints it, `exec` runs a command with it, `http` posts it to a URL, `pull` \
         leaves it to workers that lease items over HTTP; or one of your own",
    )
    .without_default("must be given", "\"exec\"")
    .reload(Reload::NewHandler),
    Setting::new(
        "queues.*.consumers",
        "groups of consumers; each fetches up to `k` items in one transaction (1 to 10000) and handles them one after the other, and `count` of them \
         work side by side (1000 in all). A number stands for one group: `consumers = 4` is `[{ count = 4 }]`. With the handlers `exec` and `http`, \
         `k` is 1 by default, because each call gets one item ([why](config/handlers.md#how-many-items-at-a-time)); with `batch = true` it is 10. \
         Where a call of another handler takes longer than about 10 ms, write `k = 1`",
    )
    .without_default("`[{ count = 1 }]`", "[{ k = 1, count = 1 }]"),
    Setting::new(
        "queues.*.delivery",
        "`at-least-once`: an item is handled until it is finished, again after a failure or a crash; `at-most-once`: it leaves the queue when it is \
         fetched, and if it fails, or its daemon dies, it is gone; `exactly-once`: as at-least-once, and what the handler writes to the database commits \
         together with the item's end ([Delivery](config/queues.md#delivery))",
    )
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.lease",
        "how long the items of a daemon that died stay away from others; with `pull`, those of a worker that died. A daemon that lives extends it for \
         as long as the handler takes",
    )
    .at_least(Time(MIN_LEASE), "it could expire while a commit is slow")
    .at_most(Time(MAX_LEASE), "the items of a daemon that died would wait as long; a lease is extended for as long as a handler takes")
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.handler-timeout",
        "how long a call of the handler may take; with at-most-once delivery not longer than `shutdown-timeout`, or a stop would lose items \
         (with `mode = \"worker\"`, `start-timeout` counts too); for the handler `http` longer than its `connect-timeout`. A handler that blocks its \
         thread cannot be stopped: the lease of its item is extended until it returns",
    )
    .without_default("none", "\"10s\"")
    .at_least(Time(SHORTEST), "no item could be handled in no time")
    .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.fetch-strategy",
        "where a fetch looks while others fetch too: `front`, always the first items; `spread`, the first items, and further behind the more often fetches \
         conflict; `staged`, strict order, slower ([Delivery](config/queues.md#delivery)). Not for a keyed queue",
    )
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.partitions",
        "divides a `fifo` queue into so many partitions, so that several daemons fetch side by side; twice the number of daemons \
         ([Partitions](config/queues.md#partitions)). Without the key the queue stays as it is",
    )
    .without_default("as it is", "8")
    .at_least(Count(1), "items have to be somewhere; twice the number of daemons is a good number")
    .at_most(Count(MAX_PARTITIONS as u64), "a queue has no more partitions"),
    Setting::new(
        "queues.*.max-disorder",
        "with `partitions`: how much younger than the oldest ready item a fetched item may be. With `\"0s\"` items are fetched in the order of their \
         pushes, and daemons conflict",
    )
    .without_default("`\"1s\"`", "\"1s\"")
    .at_most(Time(YEAR), LONGER_THAN_A_YEAR),
    Setting::new("queues.*.poll-interval", "how often an idle consumer looks although no push woke it")
        .at_least(Time(SHORTEST), "an idle consumer would never rest; pushes wake consumers at once in any case")
        .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
        .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.kind",
        "`fifo`, items in the order of their commits; `keyed`, a small queue for each key, with turns and limits ([KEYS.md](KEYS.md)); or a layout of \
         the sample data structures that FoundationDB's documentation calls recipes: `recipe` (queue) or `priority` (priority queue). Leave `fifo` \
         unless you want keys or priorities, or other programs use the queue. A queue with items of another kind is refused; \
         `kvqueue move Q OTHER --all --kind OLD --to-kind NEW` moves them",
    )
    .needed_by(NeededBy::Queue)
    .reload(Reload::AtStart),
    Setting::new(
        "queues.*.values",
        "of a recipe: `raw`, the payload itself, as in Python; `tuple`, the payload packed as a tuple, as in Java",
    )
    .needed_by(NeededBy::Queue)
    .reload(Reload::AtStart),
    Setting::new(
        "queues.*.end",
        "of a priority queue: fetch the lowest priority first, or (`max`) the highest",
    )
    .needed_by(NeededBy::Queue)
    .reload(Reload::NewConsumers),
    Setting::new("queues.*.max-payload", "the longest payload that kvqueue pushes")
        .at_least(Size(1), "nothing could be pushed")
        .at_most(Size(PAYLOAD_CEILING as u64), "an item has to fit into one transaction of FoundationDB")
        .needed_by(NeededBy::Queue),
    Setting::new(
        "queues.*.idempotency-window",
        "how long the idempotency key of a push is remembered, so that the same push again adds nothing",
    )
    .at_least(
        Time(SHORTEST),
        "no repeated push would be recognised; pushes without an idempotency key leave nothing behind in any case",
    )
    .at_most(Time(YEAR), LONGER_THAN_A_YEAR),
    Setting::new(
        "queues.*.ttl",
        "how long after its push an item expires that has no expiry of its own, if no attempt has begun by then ([Expiry](config/queues.md#expiry))",
    )
    .without_default("none", "\"1h\"")
    .at_least(Time(SHORTEST), "every item would expire at once")
    .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
    .needed_by(NeededBy::Queue)
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.on-expiry",
        "what becomes of an item that expires: it leaves the queue (`drop`), or becomes a dead letter (`dead`; not with `at-most-once`)",
    )
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.dead-retention",
        "how long a dead letter is kept; then it is removed for good ([Dead letters](config/queues.md#dead-letters))",
    )
    .at_most(Time(TEN_YEARS), LONGER_THAN_TEN_YEARS)
    .zero_is("keeps dead letters for ever"),
    Setting::new(
        "queues.*.history",
        "how long items are kept after their end, without their payloads, so that [`kvqueue history`](HISTORY.md) and `kvqueue item show` find them. \
         Without the key this daemon records no ends, and what is kept already is removed when it is old",
    )
    .without_default("none", "\"24h\"")
    .at_least(Time(Duration::from_mins(1)), "old items are removed once a minute")
    .at_most(Time(MAX_HISTORY), "ended items cannot be kept that long")
    .zero_is("removes what is kept within ten minutes"),
    Setting::new(
        "queues.*.history-index",
        "the names of up to 8 attributes [by which the history is indexed](HISTORY.md#an-index-by-attributes), so that \
         `kvqueue history Q --attribute customer=ann` does not read all of it. The queue has to keep a `history`. Each acknowledgement adds a row for \
         each different value that its items have",
    )
    .without_default("none", "[\"customer\"]"),
    Setting::new(
        "queues.*.retry.max-attempts",
        "attempts, the first one included, before an item is a dead letter ([Retries](config/queues.md#retries))",
    )
    .at_least(Count(1), "an item has to be tried at least once")
    .reload(Reload::NewConsumers),
    Setting::new("queues.*.retry.base", "the pause after the first failure; each further failure doubles it")
        .reload(Reload::NewConsumers),
    Setting::new("queues.*.retry.max", "the longest pause")
        .at_most(Time(YEAR), LONGER_THAN_A_YEAR)
        .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.retry.jitter",
        "shorten each pause at random, to 50 to 100 % of its length, so that items that failed together do not come back together",
    )
    .reload(Reload::NewConsumers),
    Setting::new(
        "queues.*.schedules",
        "schedules by name, each of which pushes items by itself ([Schedules](config/queues.md#schedules))",
    )
    .without_default("none", ""),
    Setting::new("queues.*.handler-config", "the handler's own table ([Settings of handlers](config/handlers.md))")
        .without_default("none", "")
        .reload(Reload::NewHandler),
];
