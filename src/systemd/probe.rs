//! Observes the consumers, round by round.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::liveness::{self, Observation, Stuck};
use crate::{
    actors::ConsumerRef,
    consumer::status::{Activity, ConsumerState},
};

/// The state between two rounds.
#[derive(Debug)]
pub(super) struct Probe {
    patience: Duration,
    /// When the last round was, and the one before it: each pinged the consumers.
    rounds: [Option<Instant>; 2],
    states: BTreeMap<u64, Seen>,
    /// When a queue was last seen paused.
    paused: BTreeMap<Arc<str>, Instant>,
}

/// A state of a consumer.
#[derive(Clone, Copy, Debug)]
struct Seen {
    since: Instant,
    /// How many fetches of its queue had ended when the state had lasted as long as the patience.
    fetches: u64,
}

impl Probe {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, rounds: [None; 2], states: BTreeMap::new(), paused: BTreeMap::new() }
    }

    /// The consumers that are stuck at `now`. `present` is the supervisor's answer, if it has answered.
    pub(super) fn judge(&mut self, present: Option<&[ConsumerRef]>, now: Instant) -> Option<Stuck> {
        let Some(present) = present else {
            let why = "it does not answer";
            return Some(Stuck {
                consumer: 0,
                queue: "".into(),
                state: ConsumerState::Fetching,
                lasted: Duration::ZERO,
                why,
            });
        };
        let mut consumers: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
        present.iter().for_each(|one| *consumers.entry(&one.runtime.name).or_default() += 1);
        let ids: HashSet<_> = present.iter().map(|one| one.status.id).collect();
        self.states.retain(|id, _| ids.contains(id));
        self.paused.retain(|queue, _| consumers.contains_key(queue));
        for one in
            present.iter().filter(|one| !one.runtime.pause.allows_fetches() || one.runtime.breaker.is_open())
        {
            self.paused.insert(one.runtime.name.clone(), now);
        }
        let stuck = present.iter().find_map(|one| {
            let observed = self.observed(one, consumers[&one.runtime.name], now);
            let why = liveness::stuck(&observed, self.patience)?;
            let Observation { state, lasted, .. } = observed;
            Some(Stuck { consumer: one.status.id, queue: one.runtime.name.clone(), state, lasted, why })
        });
        self.rounds = [Some(now), self.rounds[0]];
        stuck
    }

    fn observed(
        &mut self,
        ConsumerRef { status, runtime }: &ConsumerRef,
        consumers: u64,
        now: Instant,
    ) -> Observation {
        let Activity { state, since, called, handled, lease_keeper, items: _, fetch_error: _ } =
            status.activity();
        let age = |at: Instant| now.saturating_duration_since(at);
        let fetches = runtime.fetches.count();
        let seen = self.states.entry(status.id).or_insert(Seen { since, fetches });
        // Until then it may have waited for something else than its turn.
        if seen.since != since || age(since) <= self.patience {
            *seen = Seen { since, fetches };
        }
        let open_for = match self.paused.get(&runtime.name) {
            Some(at) if *at == now => None,
            Some(at) => Some(age(*at)),
            None => Some(Duration::MAX),
        };
        Observation {
            answers: self.rounds[1].is_none_or(|pinged| status.answered() >= pinged),
            state,
            lasted: age(since),
            open_for,
            fetches: fetches.saturating_sub(seen.fetches),
            last_fetch: age(runtime.fetches.last()),
            consumers,
            called: called.map(age),
            handled: handled.map(age),
            held: lease_keeper.upgrade().map(|beat| age(beat.last())),
            lease: runtime.config.lease,
            poll_interval: runtime.poll_interval,
            timeout: runtime.tried.handling.limit(runtime.config.handler_timeout),
        }
    }
}
