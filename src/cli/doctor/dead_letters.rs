//! Dead letters that a daemon will remove before long, since they are nearly as old as `dead-retention` allows.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use foundationdb::Database;
use kvqueue_queue::{Queue, RetryError};

use super::{findings::Findings, schedules::read};
use crate::{
    base::{clock, times::after},
    cli::output,
    config::Config,
    telemetry::listed,
};

const ABOUT: &str = "dead";

/// How long before its removal a dead letter is named: three days.
const SOON: Duration = Duration::from_hours(3 * 24);

/// How many dead letters one transaction reads.
const PAGE: NonZeroUsize = NonZeroUsize::new(500).expect("it is not 0");

/// The dead letters of the configured queues.
#[derive(Debug, Default)]
pub(super) struct DeadLetters {
    /// Queues with dead letters that will be removed soon.
    soon: Vec<Leaving>,
    /// Whether there was no time for others.
    is_partial: bool,
}

/// The dead letters of a queue that will be removed soon.
#[derive(Debug, PartialEq, Eq)]
struct Leaving {
    queue: String,
    letters: usize,
    /// When the first of them is removed.
    first: SystemTime,
}

impl DeadLetters {
    /// Reads the dead letters of the configured queues, no longer than this.
    pub(super) async fn of(db: &Database, config: &Config, patience: Duration) -> Result<Self, RetryError> {
        let (now, end) = (clock::now(), Instant::now() + patience);
        let mut found = Self::default();
        for (name, settings) in &config.queues {
            let Some(retention) = settings.dead_retention() else { continue };
            let layout = settings.layout();
            let Ok(queue) = Queue::of_kind(config.prefix.as_bytes(), name.as_bytes(), layout) else {
                continue;
            };
            let mut last = None;
            loop {
                if Instant::now() >= end {
                    return Ok(Self { is_partial: true, ..found });
                }
                let behind = last.as_ref();
                let page = read(db, async |tr| queue.dead_list(tr, behind, PAGE).await).await?;
                page.iter().for_each(|letter| found.judge(name, letter.died_at, retention, now));
                match page.into_iter().next_back() {
                    Some(letter) => last = Some(letter.id),
                    None => break,
                }
            }
        }
        Ok(found)
    }

    /// Looks at a letter; without a time of death it stays.
    fn judge(&mut self, queue: &str, died_at: SystemTime, retention: Duration, now: SystemTime) {
        let removed = after(died_at, retention);
        if died_at == UNIX_EPOCH || removed > after(now, SOON) {
            return;
        }
        match self.soon.last_mut().filter(|it| it.queue == queue) {
            Some(it) => {
                it.letters += 1;
                it.first = it.first.min(removed);
            }
            None => self.soon.push(Leaving { queue: queue.to_owned(), letters: 1, first: removed }),
        }
    }

    pub(super) fn add_to(self, findings: &mut Findings) {
        if !self.soon.is_empty() {
            let queues: Vec<_> = self
                .soon
                .iter()
                .map(|Leaving { queue, letters, first }| {
                    format!("{queue:?} ({letters}, the first at {})", output::time(*first))
                })
                .collect();
            let text = format!("dead letters will be removed within three days: {}", listed(&queues));
            let advice = "kvqueue dead list QUEUE; retry or export them, or raise dead-retention";
            findings.note(ABOUT, text, advice);
        }
        if self.is_partial {
            let text = "not all dead letters were looked at: there was no time for more";
            findings.note(ABOUT, text, "give the command more time with --timeout, or try again");
        }
    }
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::from_millis;

    use super::*;

    const DAY: u64 = 24 * 3_600_000;

    #[test]
    fn queues_whose_dead_letters_go_soon_are_named() {
        let mut found = DeadLetters::default();
        let month = Duration::from_hours(30 * 24);
        for (queue, died) in
            [("a", 13 * DAY + 1), ("a", 12 * DAY), ("a", 13 * DAY), ("b", 30 * DAY), ("c", 0), ("d", 1)]
        {
            found.judge(queue, from_millis(died), month, from_millis(40 * DAY));
        }
        let leaving = |queue: &str, letters, first| {
            let first = from_millis(first);
            Leaving { queue: queue.to_owned(), letters, first }
        };
        assert_eq!(found.soon, [leaving("a", 2, 42 * DAY), leaving("d", 1, 30 * DAY + 1)]);
        let mut findings = Findings::default();
        found.add_to(&mut findings);
        insta::assert_snapshot!(findings.lines(), @r#"dead      note     dead letters will be removed within three days: "a" (2, the first at 1970-02-12T00:00:00.000Z), "d" (1, the first at 1970-01-31T00:00:00.001Z); kvqueue dead list QUEUE; retry or export them, or raise dead-retention"#);
    }
}
