//! Stores the configured schedules of a queue in the database: when the daemon starts to work on the queue, and at each reload. It
//! also removes schedules that the configuration does not have any more.
//!
//! Once a minute it stores again what is gone: a command may have removed it. It does so only if no other daemon has applied a configuration with the same
//! label since: what the other one has removed stays removed. And it replaces nothing then.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use foundationdb::{
    Transaction,
    tuple::{Bytes, pack},
};
use kvqueue_queue::{
    Queue, QueueError, RetryError, retry,
    schedule::{PutEffect, Schedule, ScheduleError},
};
use tokio::{sync::watch, time::sleep};
use uuid::Uuid;

use super::POLICY;
use crate::{
    base::{causes::with_causes, clock},
    consumer::runtime::NamedQueue,
};

/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(10);

/// How often it looks for schedules that are gone.
const PERIOD: Duration = Duration::from_secs(60);

/// How many schedules one transaction lists.
const PAGE: NonZeroUsize = NonZeroUsize::new(1_000).expect("it is not 0");

/// The schedules that a configuration has for a queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfiguredSchedules {
    /// The label of the configuration; `None`: it has no schedules, and removes none.
    pub(crate) owner: Option<String>,
    pub(crate) schedules: Vec<Schedule>,
    /// The key of the record of who has applied such a configuration last.
    pub(crate) record: Vec<u8>,
}

impl ConfiguredSchedules {
    /// The schedules that a configuration with this label has for a queue behind a prefix.
    pub(crate) fn new(prefix: &str, queue: &[u8], owner: Option<String>, schedules: Vec<Schedule>) -> Self {
        let label = owner.as_deref().unwrap_or_default();
        // `(0, "kvqueue", "schedules-applied", queue, label)`: a UUID of the daemon's that has applied it last.
        let record = pack(&(0, "kvqueue", "schedules-applied", Bytes::from(queue), label));
        Self { owner, schedules, record: [prefix.as_bytes(), &record].concat() }
    }
}

/// Follows the configuration, until the sweeper of the queue is dropped.
pub(super) async fn keep(queue: &NamedQueue, mut wanted: watch::Receiver<Arc<ConfiguredSchedules>>) {
    let mut keeper = Keeper::new(queue);
    let mut step = Step::Apply;
    loop {
        let configured = wanted.borrow_and_update().clone();
        let (next, pause) = keeper.step(step, &configured).await;
        step = tokio::select! {
            changed = wanted.changed() => match changed {
                Ok(()) => Step::Apply,
                Err(_) => return,
            },
            () = after(pause) => next,
        };
    }
}

/// Ends after the pause; without one never.
async fn after(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Store the configuration, and remove what it does not have.
    Apply,
    /// Store what is gone.
    Restore,
}

struct Keeper<'a> {
    queue: &'a NamedQueue,
    /// Why schedules were refused when that was last tried, by their names. Each reason is logged once.
    refused: BTreeMap<String, String>,
    /// What it has written when it applied the configuration.
    applied: [u8; 16],
    /// Whether it has said that another one has applied a configuration since.
    is_superseded: bool,
}

impl<'a> Keeper<'a> {
    fn new(queue: &'a NamedQueue) -> Self {
        Keeper { queue, refused: BTreeMap::new(), applied: [0; 16], is_superseded: false }
    }

    /// Does a step. Returns the next one and the pause before it; no pause if there is none until the configuration changes.
    async fn step(&mut self, step: Step, configured: &ConfiguredSchedules) -> (Step, Option<Duration>) {
        let Some(owner) = &configured.owner else { return (Step::Apply, None) };
        self.queue.pause.unfrozen().await;
        let done = match step {
            Step::Apply => self.apply(owner, configured).await,
            Step::Restore => self.restore(configured).await,
        };
        match done {
            Ok(()) => (Step::Restore, (!configured.schedules.is_empty()).then_some(PERIOD)),
            // The pause follower learns of it in a moment.
            Err(error) if error.error.frozen().is_some() => (step, Some(PAUSE)),
            Err(error) => {
                tracing::warn!(
                    event = "schedules_not_stored",
                    queue = %self.queue.name,
                    error = with_causes(&error),
                    "cannot store or remove the configured schedules of the queue; retrying later"
                );
                (step, Some(PAUSE))
            }
        }
    }

    async fn apply(&mut self, owner: &str, configured: &ConfiguredSchedules) -> Result<(), RetryError> {
        let ConfiguredSchedules { schedules, record, .. } = configured;
        let NamedQueue { db, name, queue, .. } = self.queue;
        self.refused.clear();
        (self.applied, self.is_superseded) = (*Uuid::now_v7().as_bytes(), false);
        let applied = &self.applied;
        let noted = retry::run_adding(db, &POLICY, |tr| async move {
            // Without schedules it only takes the place of another configuration, which has had some.
            let is_due = match schedules.is_empty() {
                true => tr.get(record, false).await.map(|found| found.is_some()),
                false => Ok(true),
            };
            if let Ok(true) = is_due {
                tr.set(record, applied);
            }
            (tr, is_due.map(drop).map_err(QueueError::from))
        });
        noted.await?;
        for schedule in schedules {
            self.put(schedule, record, Step::Apply).await?;
        }
        let keep = schedules.iter().map(|schedule| schedule.name.clone()).collect();
        for schedule in queue.remove_schedules_of(db, &POLICY, owner, &keep).await? {
            tracing::info!(
                event = "schedule_removed",
                queue = %name,
                schedule,
                "removed a schedule that the configuration does not have any more"
            );
        }
        Ok(())
    }

    async fn restore(&mut self, configured: &ConfiguredSchedules) -> Result<(), RetryError> {
        let ConfiguredSchedules { schedules, record, .. } = configured;
        let stored = self.stored().await?;
        self.refused.retain(|name, _| !stored.contains(name));
        for schedule in schedules.iter().filter(|schedule| !stored.contains(&schedule.name)) {
            self.put(schedule, record, Step::Restore).await?;
        }
        Ok(())
    }

    /// The names of the queue's schedules.
    async fn stored(&self) -> Result<BTreeSet<String>, RetryError> {
        let NamedQueue { db, queue, .. } = self.queue;
        let mut names = BTreeSet::<String>::new();
        loop {
            let last = names.last().map(String::as_str);
            let page = retry::run(db, &POLICY, |tr| async move {
                let page = queue.schedules_after(&tr, last, PAGE).await;
                (tr, page)
            });
            let page = page.await?.value;
            if page.is_empty() {
                return Ok(names);
            }
            names.extend(page.into_iter().map(|view| view.name));
        }
    }

    /// Stores a schedule. A refusal concerns this schedule alone, and is logged.
    async fn put(&mut self, schedule: &Schedule, record: &[u8], step: Step) -> Result<(), RetryError> {
        let NamedQueue { db, queue, .. } = self.queue;
        let applied = &self.applied;
        let put = retry::run_adding(db, &POLICY, |tr| async move {
            let place = match step {
                Step::Apply => Ok(Place::Mine),
                Step::Restore => place(queue, &tr, &schedule.name, (record, applied)).await,
            };
            let effect = match place {
                Ok(Place::Mine) => queue.put_schedule(&tr, schedule, clock::now()).await.map(Some),
                Ok(Place::Taken) => Ok(Some(PutEffect::Unchanged)),
                Ok(Place::Others) => Ok(None),
                Err(error) => Err(error.into()),
            };
            let effect = match effect {
                Ok(effect) => Ok(Ok(effect)),
                Err(ScheduleError::Queue(error)) => Err(error),
                Err(refused) => Ok(Err(refused)),
            };
            (tr, effect)
        });
        match put.await?.value {
            Ok(Some(effect)) => self.report(&schedule.name, effect),
            Ok(None) => self.report_superseded(&schedule.name),
            Err(refused) => self.refuse(&schedule.name, &refused),
        }
        Ok(())
    }

    fn report_superseded(&mut self, schedule: &str) {
        if !std::mem::replace(&mut self.is_superseded, true) {
            tracing::warn!(
                event = "schedule_not_restored",
                queue = %self.queue.name,
                schedule,
                "a configured schedule is gone, and another daemon has applied another version of the configuration since; not storing it again"
            );
        }
    }

    fn report(&mut self, schedule: &str, effect: PutEffect) {
        self.refused.remove(schedule);
        let queue = &*self.queue.name;
        match effect {
            PutEffect::Created => {
                tracing::info!(
                    event = "schedule_created",
                    queue,
                    schedule,
                    "stored a schedule as configured"
                );
            }
            PutEffect::Replaced { calendar } => {
                tracing::info!(
                    event = "schedule_replaced",
                    queue,
                    schedule,
                    other_times = calendar,
                    "replaced a schedule as configured"
                );
            }
            PutEffect::Unchanged => {}
        }
    }

    fn refuse(&mut self, schedule: &str, error: &ScheduleError) {
        let reason = with_causes(error);
        if self.refused.insert(schedule.to_owned(), reason.clone()).as_ref() != Some(&reason) {
            tracing::warn!(
                event = "schedule_refused",
                queue = %self.queue.name,
                schedule,
                reason,
                "cannot store a configured schedule; it does not fire as configured"
            );
        }
    }
}

/// Whether a schedule that is gone is this daemon's to store again.
enum Place {
    Mine,
    /// It is there: another daemon may have stored it since.
    Taken,
    /// Another daemon has applied a configuration of the same label since.
    Others,
}

/// Looks at it. The put reads the schedule, too, so that it conflicts with another one; and the record is read with a conflict.
async fn place(
    queue: &Queue,
    tr: &Transaction,
    name: &str,
    (record, applied): (&[u8], &[u8]),
) -> Result<Place, QueueError> {
    if queue.schedule(tr, name).await?.is_some() {
        return Ok(Place::Taken);
    }
    let last = tr.get(record, false).await?;
    Ok(if last.is_none_or(|last| last[..] == *applied) { Place::Mine } else { Place::Others })
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{
        NewItem,
        schedule::{Calendar, ScheduleView},
    };

    use super::*;
    use crate::{
        actors::ConsumerContext,
        config::QueueConfig,
        daemon::configured::ConfiguredQueue,
        handlers::{AnyHandler, Log},
        status::DaemonStatus,
        testing::TestDatabase,
    };

    fn schedule(name: &str, seconds: u64, owner: &str) -> Schedule {
        let calendar = Calendar::every(Duration::from_secs(seconds)).unwrap();
        let mut schedule = Schedule::new(name, calendar, NewItem::new("x"));
        schedule.owner = Some(owner.to_owned());
        schedule
    }

    fn configured(schedules: &[Schedule]) -> ConfiguredSchedules {
        ConfiguredSchedules::new("", b"q", Some("ours".to_owned()), schedules.to_vec())
    }

    fn queue(db: &TestDatabase) -> Arc<NamedQueue> {
        let context =
            ConsumerContext::new(tokio::runtime::Handle::current(), None, DaemonStatus::new("test"));
        let handler = AnyHandler::Each(Arc::new(Log));
        let queue = ConfiguredQueue::new("", "q", &QueueConfig::new("log"), handler).unwrap();
        let named = queue.named(&db.shared(), &context);
        named.pause.set_global(None);
        named
    }

    /// The names of the stored schedules, and their periods in seconds.
    async fn stored(db: &TestDatabase, queue: &Queue) -> Vec<(String, u64)> {
        let tr = db.create_trx().unwrap();
        let page = queue.schedules_after(&tr, None, PAGE).await.unwrap();
        let seconds = |view: &ScheduleView| view.schedule.as_ref()?.calendar.period().map(|it| it.as_secs());
        page.into_iter().map(|view| (view.name.clone(), seconds(&view).unwrap())).collect()
    }

    /// Another daemon or a command changes the schedules.
    async fn change(db: &TestDatabase, queue: &Queue, put: &[Schedule], remove: &[&str]) {
        let tr = db.create_trx().unwrap();
        for schedule in put {
            queue.put_schedule(&tr, schedule, clock::now()).await.unwrap();
        }
        for name in remove {
            assert!(queue.remove_schedule(&tr, name).await.unwrap(), "{name}");
        }
        tr.commit().await.unwrap();
    }

    fn pairs(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
        pairs.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds)).collect()
    }

    #[tokio::test]
    async fn schedules_that_are_gone_are_stored_again_and_none_is_replaced() {
        let db = TestDatabase::new().unwrap();
        let named = queue(&db);
        let mut keeper = Keeper::new(&named);
        let ours = configured(&[schedule("a", 60, "ours"), schedule("b", 60, "ours")]);
        change(&db, &named.queue, &[schedule("old", 60, "ours")], &[]).await;
        assert_eq!(keeper.step(Step::Apply, &ours).await, (Step::Restore, Some(PERIOD)));
        assert_eq!(stored(&db, &named.queue).await, pairs(&[("a", 60), ("b", 60)]));
        // A daemon with another version of the configuration starts.
        change(&db, &named.queue, &[schedule("a", 90, "ours"), schedule("new", 90, "ours")], &["b"]).await;
        assert_eq!(keeper.step(Step::Restore, &ours).await, (Step::Restore, Some(PERIOD)));
        assert_eq!(stored(&db, &named.queue).await, pairs(&[("a", 90), ("b", 60), ("new", 90)]));
        keeper.step(Step::Apply, &ours).await;
        assert_eq!(stored(&db, &named.queue).await, pairs(&[("a", 60), ("b", 60)]));
        // Nothing is left to be stored again.
        assert_eq!(keeper.step(Step::Apply, &configured(&[])).await, (Step::Restore, None));
        assert_eq!(stored(&db, &named.queue).await, []);
    }

    #[tokio::test]
    async fn a_schedule_that_a_later_configuration_does_not_have_stays_removed() {
        let db = TestDatabase::new().unwrap();
        let named = queue(&db);
        let (mut old, mut new) = (Keeper::new(&named), Keeper::new(&named));
        let both = configured(&[schedule("a", 60, "ours"), schedule("b", 60, "ours")]);
        let one = configured(&[schedule("a", 60, "ours")]);
        old.step(Step::Apply, &both).await;
        new.step(Step::Apply, &one).await;
        // The daemon with the earlier configuration runs on.
        old.step(Step::Restore, &both).await;
        assert_eq!(stored(&db, &named.queue).await, pairs(&[("a", 60)]));
        assert!(old.is_superseded && !new.is_superseded);
        // What a command removes, the last one stores again, and no other.
        change(&db, &named.queue, &[], &["a"]).await;
        old.step(Step::Restore, &both).await;
        assert_eq!(stored(&db, &named.queue).await, []);
        new.step(Step::Restore, &one).await;
        assert_eq!(stored(&db, &named.queue).await, pairs(&[("a", 60)]));
        // A reload makes the earlier configuration the last one.
        old.step(Step::Apply, &both).await;
        new.step(Step::Restore, &one).await;
        assert_eq!(stored(&db, &named.queue).await, pairs(&[("a", 60), ("b", 60)]));
        assert!(!old.is_superseded);
    }

    #[tokio::test]
    async fn a_configuration_without_schedules_writes_nothing_where_none_were() {
        let db = TestDatabase::new().unwrap();
        let named = queue(&db);
        let none = configured(&[]);
        let noted = async || {
            let found = db.create_trx().unwrap().get(&none.record, true).await.unwrap();
            found.map(|value| value.to_vec())
        };
        Keeper::new(&named).step(Step::Apply, &none).await;
        assert_eq!(noted().await, None);
        // It takes the place of one that had some.
        Keeper::new(&named).step(Step::Apply, &configured(&[schedule("a", 60, "ours")])).await;
        let before = noted().await;
        Keeper::new(&named).step(Step::Apply, &none).await;
        assert!(before.is_some() && noted().await.is_some_and(|now| Some(now) != before));
    }

    #[tokio::test]
    async fn the_record_of_the_last_configuration_is_that_of_the_page() {
        let record = ConfiguredSchedules::new("p", b"q", Some("o".to_owned()), Vec::new()).record;
        let spaced = record.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        let vector = "70 14 02 6b 76 71 75 65 75 65 00 02 73 63 68 65 64 75 6c 65 73 2d 61 70 70 6c 69 65 64 00 01 71 00 02 6f 00";
        assert_eq!(spaced, vector);
        assert!(include_str!("../../docs/keyspace/vectors.md").contains(vector));
    }

    #[tokio::test]
    async fn a_refused_schedule_is_stored_once_the_other_one_of_its_name_is_gone() {
        let db = TestDatabase::new().unwrap();
        let named = queue(&db);
        let mut keeper = Keeper::new(&named);
        change(&db, &named.queue, &[schedule("a", 90, "theirs")], &[]).await;
        let ours = configured(&[schedule("a", 60, "ours"), schedule("b", 60, "ours")]);
        keeper.step(Step::Apply, &ours).await;
        assert!(keeper.refused["a"].contains("theirs"), "{:?}", keeper.refused);
        assert_eq!(stored(&db, &named.queue).await, pairs(&[("a", 90), ("b", 60)]));
        change(&db, &named.queue, &[], &["a"]).await;
        keeper.step(Step::Restore, &ours).await;
        assert_eq!(stored(&db, &named.queue).await, pairs(&[("a", 60), ("b", 60)]));
        assert_eq!(keeper.refused, BTreeMap::new());
    }

    #[tokio::test]
    async fn schedules_under_a_path_with_steps_back_belong_to_the_configuration() {
        let db = TestDatabase::new().unwrap();
        let named = queue(&db);
        let mut keeper = Keeper::new(&named);
        let old = "/srv/bin/../etc/q.toml";
        change(
            &db,
            &named.queue,
            &[schedule("a", 90, old), schedule("b", 90, old), schedule("c", 60, old)],
            &[],
        )
        .await;
        let ours = [schedule("a", 60, "/srv/etc/q.toml"), schedule("c", 60, "/srv/etc/q.toml")];
        let owner = ours[0].owner.clone();
        keeper.step(Step::Apply, &ConfiguredSchedules::new("", b"q", owner, ours.to_vec())).await;
        assert_eq!(
            (stored(&db, &named.queue).await, keeper.refused),
            (pairs(&[("a", 60), ("c", 60)]), BTreeMap::new())
        );
        let tr = db.create_trx().unwrap();
        for view in named.queue.schedules_after(&tr, None, PAGE).await.unwrap() {
            assert_eq!(view.schedule.unwrap().owner.as_deref(), Some("/srv/etc/q.toml"), "{}", view.name);
        }
    }

    #[tokio::test]
    async fn a_configuration_without_a_label_changes_nothing() {
        let db = TestDatabase::new().unwrap();
        let named = queue(&db);
        change(&db, &named.queue, &[schedule("a", 90, "theirs")], &[]).await;
        let mut keeper = Keeper::new(&named);
        assert_eq!(keeper.step(Step::Apply, &ConfiguredSchedules::default()).await, (Step::Apply, None));
        assert_eq!(stored(&db, &named.queue).await, pairs(&[("a", 90)]));
    }
}
