//! Schedules, read by hand, and what must hold of their rows.

mod fields;

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::ItemId;

use super::element::{Ids, split_bytes, split_number};
use crate::world::Millis;
use fields::{definition, record, state};

/// How many records of a schedule are kept.
pub(crate) const KEPT: usize = 1_000;
/// The length of the periods that a cron expression of a run stands for.
const EXPRESSIONS: [(&str, Millis); 2] = [("* * * * *", 60_000), ("*/10 * * * *", 600_000)];

/// Everything that is stored of a schedule but its row by time, which the state says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) definition: Definition,
    pub(crate) state: State,
    pub(crate) log: BTreeMap<u64, Record>,
}

/// What is pushed, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) calendar: Calendar,
    pub(crate) owner: Option<String>,
    pub(crate) payload: Vec<u8>,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) content_type: Option<String>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) priority: i64,
    pub(crate) policy: Policy,
    /// In milliseconds.
    pub(crate) window: Option<Millis>,
    pub(crate) most: u32,
    pub(crate) overlap: Overlap,
    /// In milliseconds.
    pub(crate) jitter: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Calendar {
    /// A period in milliseconds.
    Every(Millis),
    /// A cron expression and a zone.
    Cron(String, String),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    #[default]
    Skip,
    Once,
    All,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Overlap {
    #[default]
    Allow,
    Skip,
    Queue,
}

/// How far a schedule has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) mark: Millis,
    pub(crate) next: Option<Millis>,
    /// When a sweeper looks at it next.
    pub(crate) row: Option<Millis>,
    pub(crate) occurrences: u64,
    /// The number of the next record.
    pub(crate) records: u64,
    pub(crate) paused: Option<Millis>,
    /// The nominal time of an occurrence that waits, and when to look at it again.
    pub(crate) waiting: Option<(Millis, Millis)>,
    /// The nominal time of the last item, and the item.
    pub(crate) last: Option<(Millis, ItemId)>,
}

/// What became of occurrences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) at: Millis,
    pub(crate) from: Millis,
    pub(crate) to: Millis,
    pub(crate) count: u64,
    pub(crate) is_exact: bool,
    pub(crate) fate: Fate,
    /// The number of the item.
    pub(crate) occurrence: Option<u64>,
    pub(crate) id: Option<ItemId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Fired,
    ByHand,
    /// The last item had not ended.
    Overlap,
    Paused,
    Redefined,
    Restarted,
    /// Missed by the policy.
    Policy,
    /// Missed out of the window.
    Window,
    /// Missed, since there were more than the maximum.
    Maximum,
}

impl Default for Calendar {
    fn default() -> Calendar {
        Calendar::Every(1_000)
    }
}

impl Calendar {
    /// One of the expressions, in UTC.
    pub(crate) fn cron(nth: usize) -> Calendar {
        Calendar::Cron(EXPRESSIONS[nth].0.to_owned(), "UTC".to_owned())
    }

    /// All its times are the multiples of this since 1970, in milliseconds.
    pub(crate) fn period(&self) -> Millis {
        match self {
            Calendar::Every(period) => *period,
            Calendar::Cron(expression, _) => {
                let known = EXPRESSIONS.iter().find(|(known, _)| known == expression);
                known.map(|(_, period)| *period).expect("runs have no other expression")
            }
        }
    }
}

impl Definition {
    /// How much later than its nominal times it fires: a fixed function of the names of queue and schedule.
    pub(crate) fn offset(&self, name: &str) -> Millis {
        let mut hash: u64 = 14_695_981_039_346_656_037;
        for byte in [b"q\0", name.as_bytes()].concat() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
        }
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^= hash >> 32;
        if self.jitter == 0 { 0 } else { hash % self.jitter }
    }
}

/// Rows of schedules, before they are put together.
#[derive(Debug, Default)]
pub(super) struct Parts {
    definitions: BTreeMap<String, Definition>,
    states: BTreeMap<String, State>,
    logs: BTreeMap<String, BTreeMap<u64, Record>>,
    due: BTreeSet<(Millis, String)>,
}

impl Parts {
    /// Reads a record whose second element is `kind`; `None` if it is none.
    pub(super) fn record(&mut self, ids: &mut Ids, kind: &[u8], key: &[u8], value: &[u8]) -> Option<()> {
        let is_new = match kind {
            b"schedule" => self.definitions.insert(alone(key)?, definition(value)?).is_none(),
            b"schedule-state" => self.states.insert(alone(key)?, state(ids, value)?).is_none(),
            b"schedule-due" if value.is_empty() => {
                let (time, name) = split_number(key)?;
                self.due.insert((time, alone(name)?))
            }
            b"schedule-log" => {
                let (name, number) = split_bytes(key)?;
                let (number, rest) = split_number(number)?;
                let log = self.logs.entry(String::from_utf8(name).ok()?).or_default();
                rest.is_empty() && log.insert(number, record(ids, value)?).is_none()
            }
            _ => false,
        };
        is_new.then_some(())
    }

    /// The schedules; the error says which rows do not fit together.
    pub(super) fn schedules(self) -> Result<BTreeMap<String, Schedule>, String> {
        let Parts { definitions, mut states, mut logs, due } = self;
        let rows = states.iter().filter_map(|(name, state)| Some((state.row?, name.clone())));
        let rows: BTreeSet<(Millis, String)> = rows.collect();
        if rows != due {
            return Err(format!("states say that {rows:?} are the rows by time, which are {due:?}"));
        }
        let mut schedules = BTreeMap::new();
        for (name, definition) in definitions {
            let state = states.remove(&name).ok_or_else(|| format!("schedule {name} has no state"))?;
            let log = logs.remove(&name).unwrap_or_default();
            let schedule = Schedule { definition, state, log };
            schedule.check().map_err(|how| format!("schedule {name}: {how}"))?;
            schedules.insert(name, schedule);
        }
        match states.keys().chain(logs.keys()).next() {
            Some(name) => Err(format!("schedule {name} has rows and no definition")),
            None => Ok(schedules),
        }
    }
}

impl Schedule {
    /// What must hold of its rows, whatever happened.
    fn check(&self) -> Result<(), String> {
        let Schedule { state, log, definition } = self;
        let kept = state.records.min(KEPT as u64);
        if !log.keys().copied().eq(state.records - kept..state.records) {
            return Err(format!("the log has {:?}, and {} is next", log.keys(), state.records));
        }
        if state.paused.is_some() && state.row.is_some() {
            return Err("it is paused, and is to be looked at".to_owned());
        }
        if state.next.is_none_or(|next| next <= state.mark || next % definition.calendar.period() != 0) {
            return Err(format!("its mark is {}, and its next time {:?}", state.mark, state.next));
        }
        if state.waiting.is_some_and(|(nominal, _)| nominal > state.mark) {
            return Err(format!("its mark is {}, and {:?} waits", state.mark, state.waiting));
        }
        let pushed = || log.values().filter(|record| record.id.is_some());
        let numbers = pushed().map(|record| record.occurrence);
        let first = (state.occurrences + 1).checked_sub(pushed().count() as u64);
        if log.len() < KEPT && (first != Some(1) || !numbers.eq((1..=state.occurrences).map(Some))) {
            return Err(format!("it has pushed {} items, and the log says {log:?}", state.occurrences));
        }
        let last = pushed().next_back().and_then(|record| Some((record.from, record.id.clone()?)));
        if last.is_some() && last != state.last {
            return Err(format!("its last item is {:?}, and the log says {last:?}", state.last));
        }
        Ok(())
    }
}

fn alone(key: &[u8]) -> Option<String> {
    let (name, rest) = split_bytes(key)?;
    rest.is_empty().then(|| String::from_utf8(name).ok())?
}
