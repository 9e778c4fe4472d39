//! The queues in the database: whether their counters are right, whether a program pushes to queues that no kvqueue finds,
//! and which queues are paused. A paused queue waits also where no daemon runs, or none has it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use foundationdb::{
    Database, Transaction,
    tuple::{Bytes, unpack},
};
use futures::{StreamExt, TryStreamExt, stream};
use kvqueue_queue::{
    Kind, Packing, Queue, QueueError, Recount, RetryPolicy, RowCounter, all_queues, queues_page, text_queues,
};

use super::findings::Findings;
use crate::{
    cli::{
        recount::differences,
        status::{Figures, LONGEST_NAME, fitting},
    },
    config::{Config, KindName, QueueConfig},
    database::QUEUES_AT_A_TIME,
    telemetry::listed,
};

const COUNTERS: &str = "counters";

/// The largest queue that is counted in a database in use, in bytes.
const LARGEST: i64 = 50_000_000;

/// The most queues with wrong counters that are named one by one.
const NAMED: usize = 10;

/// The result of the check.
#[derive(Default)]
pub(super) struct Counters {
    compared: Vec<(String, Recount)>,
    /// Too large to be counted.
    large: Vec<String>,
    /// Whether there was no time for other queues.
    is_partial: bool,
    /// Queues named by a text, which no kvqueue finds.
    texts: Vec<String>,
    /// Queues with items of another kind than the configured one: the name, the configured kind, the items' kind.
    other_kinds: Vec<(String, &'static str, &'static str)>,
}

impl Counters {
    /// The result for a database all of whose rows were read.
    pub(super) fn of_rows(rows: &RowCounter, config: &Config) -> Self {
        let of_queue = |(name, found): (&[u8], Recount)| {
            let is_counted = configured(config, name)
                .is_none_or(|queue| matches!(queue.kind, KindName::Fifo | KindName::Keyed));
            (name.escape_ascii().to_string(), Recount { ready: found.ready.filter(|_| is_counted), ..found })
        };
        let compared = rows.queues().map(of_queue).collect();
        let mut other_kinds = Vec::new();
        for (name, queue) in &config.queues {
            let kind = queue.layout().name();
            let there = rows.kinds(name.as_bytes()).find(|there| *there != kind);
            other_kinds.extend(there.map(|there| (name.clone(), kind, there)));
        }
        Self { compared, texts: rows.text_queues(), other_kinds, ..Self::default() }
    }

    /// Reads the counters of a database that is in use, no longer than this.
    pub(super) async fn of(db: &Database, config: &Config, patience: Duration) -> Result<Self, QueueError> {
        let (prefix, end) = (config.prefix.as_bytes(), Instant::now() + patience);
        let mut found = Self { texts: text_queues(&db.create_trx()?, prefix).await?, ..Self::default() };
        for (name, queue) in &config.queues {
            let kind = queue.layout();
            let Ok(queue) = Queue::of_kind(prefix, name.as_bytes(), kind) else { continue };
            match queue.check_kind(&db.create_trx()?).await {
                Err(QueueError::OtherKind { there, .. }) => {
                    found.other_kinds.push((name.clone(), kind.name(), there));
                }
                checked => checked?,
            }
        }
        let mut from = None;
        loop {
            let page = queues_page(&db.create_trx()?, prefix, from.as_deref()).await?;
            for name in &page.names {
                if Instant::now() >= end {
                    return Ok(Self { is_partial: true, ..found });
                }
                let printable = name.escape_ascii().to_string();
                match compare(&db.create_trx()?, config, name).await? {
                    Some(recount) => found.compared.push((printable, recount)),
                    None => found.large.push(printable),
                }
            }
            from = page.next;
            if from.is_none() {
                return Ok(found);
            }
        }
    }

    pub(super) fn add_to(self, findings: &mut Findings) {
        let wrong: Vec<_> = self.compared.iter().filter(|(_, found)| !found.is_right()).collect();
        for (name, found) in wrong.iter().take(NAMED) {
            let text = format!("queue \"{name}\": {}", differences(found));
            let advice = format!(
                "look which program pushes or clears rows without kvqueue's modules; then: kvqueue recount {name}"
            );
            findings.problem(COUNTERS, text, advice);
        }
        if wrong.len() > NAMED {
            let names: Vec<_> = wrong.iter().skip(NAMED).map(|(name, _)| name).collect();
            findings.problem(
                COUNTERS,
                format!("wrong, too: {}", listed(&names)),
                "run kvqueue recount for each",
            );
        }
        if wrong.is_empty() {
            findings.fine(COUNTERS, format!("right, queues: {}", self.compared.len()));
        }
        if !self.large.is_empty() {
            let text = format!("not compared, for their size: {}", listed(&self.large));
            findings.note(COUNTERS, text, "kvqueue recount --dry-run QUEUE compares one");
        }
        if self.is_partial {
            let text = "other queues were not compared: there was no time for more";
            findings.note(COUNTERS, text, "kvqueue recount --dry-run QUEUE compares one");
        }
        for (name, kind, there) in &self.other_kinds {
            let text = format!(
                "queue {name:?} is of kind {kind} in the configuration, and has items of kind {there}: no daemon takes these"
            );
            let advice = format!(
                "set kind = \"{there}\", or move them: kvqueue move {name} OTHER --all --kind {there} --to-kind {kind}"
            );
            findings.problem("kind", text, advice);
        }
        if !self.texts.is_empty() {
            let names: Vec<_> = self.texts.iter().map(|name| format!("{name:?}")).collect();
            let text = format!(
                "no kvqueue finds what was pushed to {}: a program gives the name as text",
                listed(&names)
            );
            let advice = "have it give the name as bytes, as clients/python and clients/node do, and push these items again";
            findings.problem("names", text, advice);
        }
    }
}

fn configured<'c>(config: &'c Config, name: &[u8]) -> Option<&'c QueueConfig> {
    config.queues.get(std::str::from_utf8(name).ok()?)
}

/// None if it is too large.
async fn compare(tr: &Transaction, config: &Config, name: &[u8]) -> Result<Option<Recount>, QueueError> {
    let prefix = config.prefix.as_bytes();
    let kind = configured(config, name).map(QueueConfig::layout);
    let Ok(queue) = Queue::of_kind(prefix, name, kind.unwrap_or_default()) else { return Ok(None) };
    let (begin, end) = queue.range();
    if tr.get_estimated_range_size_bytes(&begin, &end).await? > LARGEST {
        return Ok(None);
    }
    let mut found = queue.compare_counters(tr).await?;
    // The items of a queue of another kind lie elsewhere. `list` has them as they are counted.
    for other in [Kind::Recipe(Packing::Raw), Kind::Keyed] {
        if kind != Some(other)
            && found.ready.is_some_and(|ready| ready.by_rows == 0)
            && let Ok(queue) = Queue::of_kind(prefix, name, other)
            && queue.oldest(tr).await?.is_some()
        {
            match kind {
                // It is in no configuration, so this is its kind.
                None => found = queue.compare_counters(tr).await?,
                Some(_) => found.ready = None,
            }
        }
    }
    Ok(Some(found))
}

const PAUSES: &str = "pauses";

/// The second element of a pause's key (docs/KEYSPACE.md).
const PAUSE: &[u8] = b"pause";

/// How many queues one transaction reads the pauses of.
const PAUSES_AT_A_TIME: usize = 1_000;

/// The names of paused queues.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeSet<Vec<u8>>);

impl Pauses {
    /// Notes a row, if it is a pause, while all rows of a database are read.
    pub(super) fn show(&mut self, prefix: &[u8], key: &[u8]) {
        let key = key.strip_prefix(prefix).and_then(|key| unpack::<(Bytes, Bytes)>(key).ok());
        if let Some((queue, Bytes(second))) = key
            && *second == *PAUSE
        {
            self.0.insert(queue.into_owned());
        }
    }

    /// Reads the pauses in a database that is in use.
    pub(super) async fn of(db: &Database, config: &Config) -> anyhow::Result<Self> {
        let prefix = config.prefix.as_bytes();
        let mut names = all_queues(db, prefix, &RetryPolicy::default()).await?;
        names.extend(config.queues.keys().map(|name| name.clone().into_bytes()));
        let mut found = Self::default();
        for page in names.chunks(PAUSES_AT_A_TIME) {
            let tr = &db.create_trx()?;
            let paused = stream::iter(page).map(async |name| {
                let Ok(queue) = Queue::new(prefix, name) else { return Ok(None) };
                Ok::<_, QueueError>(queue.paused(tr).await?.map(|_| name.clone()))
            });
            let paused = paused.buffered(QUEUES_AT_A_TIME).try_filter_map(async |name| Ok(name));
            found.0.extend(paused.try_collect::<Vec<_>>().await?);
        }
        Ok(found)
    }

    /// Adds a note about paused queues that the daemon has not reported.
    pub(super) fn add_to(self, daemon: Option<&Figures>, findings: &mut Findings) {
        let names = self.0.iter().map(|name| String::from_utf8_lossy(name));
        let is_reported = |name: &str| {
            daemon.is_some_and(|figures| {
                figures.queues.iter().any(|it| it.queue == *name && it.paused.is_some())
            })
        };
        let names: Vec<_> =
            names.filter(|name| !is_reported(name)).map(|name| fitting(&name, LONGEST_NAME)).collect();
        if !names.is_empty() {
            let text = format!("paused, or frozen by a migration: {}", listed(&names));
            findings.note(
                PAUSES,
                text,
                "kvqueue status says why; kvqueue resume QUEUE has a queue's items taken again",
            );
        }
    }
}
