//! An operator of schedules: puts, removes, pauses and resumes them, and fires them by hand.

use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use kvqueue_queue::schedule::{
    Calendar, Missed, MissedPolicy, OccurrenceRecord, Schedule, ScheduleError, ScheduleState, ScheduleView,
};
use kvqueue_queue::{Kind, NewItem, RetryError, from_millis, retry};

use super::operator::freeze;
use super::producer::failed;
use crate::claims::{Claim, ScheduleClaim, is_record};
use crate::desk::Desk;
use crate::image::schedules::{self, Definition, Overlap, Policy, Record};
use crate::intent::{Intent, Plan};
use crate::world::Millis;

const NAMES: [&str; 3] = ["a", "b", "c/d"];
/// The configuration that some schedules belong to.
const OWNER: &str = "configuration";

/// How far a mark is ahead that is taken for a wrong clock's, in milliseconds.
const HOUR: Millis = 3_600_000;

/// Changes schedules a few times.
pub(super) async fn work(desk: Rc<Desk>) {
    for _ in 0..2 + desk.below(8) {
        let name = NAMES[desk.below(NAMES.len())];
        let known = desk.world.oracle.borrow().model(desk.at).schedules().get(name).cloned();
        // A wrong clock has moved it ahead.
        let is_ahead = known.as_ref().is_some_and(|schedule| schedule.state.mark > desk.now() + HOUR);
        let is_paused = known.as_ref().is_some_and(|schedule| schedule.state.paused.is_some());
        match desk.below(20) {
            _ if known.is_none() && desk.chance(75) => put(&desk, name, definition(&desk, name)).await,
            _ if is_ahead && desk.chance(60) => restart(&desk, name).await,
            _ if is_paused && desk.chance(40) => turn(&desk, name, false).await,
            0..=5 => put(&desk, name, changed(&desk, name, known.map(|known| known.definition))).await,
            6 | 7 => remove(&desk, name).await,
            8 => remove_others(&desk).await,
            9..=11 => turn(&desk, name, true).await,
            12 => turn(&desk, name, false).await,
            13..=16 => fire(&desk, name).await,
            17 => restart(&desk, name).await,
            _ => {}
        }
        look(&desk, name).await;
        for _ in 0..1 + desk.below(2) {
            desk.pause().await;
        }
    }
}

/// Removes each schedule that a sweeper has accounted for since all is calm. What stops it is ended.
pub(super) async fn finish(desk: Rc<Desk>) {
    let is_frozen = desk.world.oracle.borrow().model(desk.at).is_frozen();
    if is_frozen {
        freeze(&desk, false).await;
    }
    for name in NAMES {
        let known = desk.world.oracle.borrow().model(desk.at).schedules().get(name).cloned();
        let Some(schedule) = known else { continue };
        let is_accounted = desk.world.oracle.borrow().model(desk.at).is_accounted(name);
        if schedule.state.paused.is_some() {
            turn(&desk, name, false).await;
        } else if is_accounted {
            remove(&desk, name).await;
        }
    }
    desk.pause().await;
}

/// A definition that a queue of this kind can have.
fn definition(desk: &Desk, name: &str) -> Definition {
    let calendar = match desk.below(9) {
        nth @ 0..=1 => schedules::Calendar::cron(nth),
        nth => schedules::Calendar::Every([1_000, 2_000, 5_000, 12_000, 30_000, 150_000, 900_000][nth - 2]),
    };
    let overlap = [Overlap::Allow, Overlap::Skip, Overlap::Queue][desk.below(3)];
    let policies = if overlap == Overlap::Allow { 3 } else { 2 };
    let keys = ["", "a", "a/x", "b"];
    let word = if desk.chance(5) { "poison" } else { "scheduled" };
    let mut definition = Definition {
        calendar,
        owner: desk.chance(25).then(|| OWNER.to_owned()),
        payload: format!("{word} {name} {}", desk.below(100)).into_bytes(),
        key: (desk.queue.kind() == Kind::Keyed).then(|| keys[desk.below(keys.len())].into()),
        policy: [Policy::Skip, Policy::Once, Policy::All][desk.below(policies)],
        window: [None, None, Some(30_000), Some(400_000)][desk.below(4)],
        most: 1 + desk.below(5) as u32,
        overlap,
        jitter: [0, 0, 700, 20_000][desk.below(4)],
        ..Definition::default()
    };
    if matches!(desk.queue.kind(), Kind::Priority(..)) {
        definition.priority = desk.below(4) as i64 - 1;
    }
    if desk.chance(20) {
        definition.attributes.insert("colour".to_owned(), "green".to_owned());
        definition.content_type = Some("text/plain".to_owned());
    }
    definition
}

/// What a schedule is to be replaced by: something else, a little of that, or the same.
fn changed(desk: &Desk, name: &str, known: Option<Definition>) -> Definition {
    let new = definition(desk, name);
    let Some(known) = known else { return new };
    match desk.below(7) {
        0 => known,
        1 => Definition { payload: new.payload, ..known },
        2 => Definition { calendar: new.calendar, ..known },
        3 => Definition { overlap: new.overlap, policy: new.policy, ..known },
        4 => Definition { jitter: new.jitter, window: new.window, ..known },
        5 => Definition { owner: known.owner, ..new },
        _ => new,
    }
}

/// The same in the layer's words.
fn schedule(name: &str, definition: &Definition) -> Schedule {
    let Definition { calendar, owner, payload, attributes, content_type, key, priority, .. } = definition;
    let Definition { policy, window, most, overlap, jitter, .. } = definition;
    let calendar = match calendar {
        schedules::Calendar::Every(period) => Calendar::every(Duration::from_millis(*period)),
        schedules::Calendar::Cron(expression, zone) => Calendar::cron(expression, zone),
    };
    let mut item = NewItem::new(payload.clone());
    item.attributes.clone_from(attributes);
    item.content_type.clone_from(content_type);
    item.key.clone_from(key);
    item.priority = *priority;
    let mut schedule = Schedule::new(name, calendar.unwrap(), item);
    schedule.owner.clone_from(owner);
    schedule.missed = Missed {
        policy: match policy {
            Policy::Skip => MissedPolicy::Skip,
            Policy::Once => MissedPolicy::Once,
            Policy::All => MissedPolicy::All,
        },
        window: window.map(Duration::from_millis),
        most: *most,
    };
    schedule.overlap = match overlap {
        Overlap::Allow => kvqueue_queue::schedule::Overlap::Allow,
        Overlap::Skip => kvqueue_queue::schedule::Overlap::Skip,
        Overlap::Queue => kvqueue_queue::schedule::Overlap::Queue,
    };
    schedule.jitter = Duration::from_millis(*jitter);
    schedule
}

async fn put(desk: &Desk, name: &str, definition: Definition) {
    let schedule = schedule(name, &definition);
    let (queue, db, policy, now) = (&desk.queue, &desk.world.db, desk.policy(), desk.now());
    let put = &schedule;
    let doing = retry::run(db, &policy, |tr| async move {
        let put = match queue.put_schedule(&tr, put, from_millis(now)).await {
            Ok(effect) => Ok(ScheduleClaim::Put(effect)),
            Err(ScheduleError::OtherOwner { .. }) => Ok(ScheduleClaim::OtherOwner),
            Err(ScheduleError::Queue(error)) => Err(error),
            Err(error) => panic!("{error}"),
        };
        (tr, put)
    });
    report(desk, name, now, Plan::Put(Box::new(definition)), async { doing.await.map(|done| done.value) })
        .await;
}

async fn remove(desk: &Desk, name: &str) {
    let (queue, db, policy) = (&desk.queue, &desk.world.db, desk.policy());
    let doing = retry::run(db, &policy, |tr| async move {
        let removed = queue.remove_schedule(&tr, name).await;
        (tr, removed)
    });
    let doing = async { doing.await.map(|done| ScheduleClaim::Removed(done.value)) };
    report(desk, name, 0, Plan::Remove, doing).await;
}

/// Removes all schedules of the configuration but one.
async fn remove_others(desk: &Desk) {
    let keep = std::iter::once(NAMES[desk.below(NAMES.len())].to_owned()).collect();
    let intent = Intent::RemoveOthers { owner: OWNER.to_owned(), keep };
    let Intent::RemoveOthers { owner, keep } = &intent.clone() else { unreachable!() };
    let (queue, db, policy) = (&desk.queue, &desk.world.db, desk.policy());
    let (operation, done) = desk.run(intent, queue.remove_schedules_of(db, &policy, owner, keep)).await;
    match done {
        Some(Ok(names)) => desk.told(&operation, &Claim::Schedule(ScheduleClaim::RemovedOthers(names))),
        Some(Err(error)) => desk.told(&operation, &failed(&error)),
        None => {}
    }
}

/// Pauses or resumes a schedule.
async fn turn(desk: &Desk, name: &str, pause: bool) {
    let (queue, db, policy, now) = (&desk.queue, &desk.world.db, desk.policy(), desk.now());
    let doing = retry::run(db, &policy, |tr| async move {
        let turned = match pause {
            true => queue.pause_schedule(&tr, name, from_millis(now)).await,
            false => queue.resume_schedule(&tr, name, from_millis(now)).await,
        };
        (tr, turned)
    });
    let plan = if pause { Plan::Pause } else { Plan::Resume };
    let doing = async { doing.await.map(|done| ScheduleClaim::Turned(done.value)) };
    report(desk, name, now, plan, doing).await;
}

/// Lets a schedule begin now.
async fn restart(desk: &Desk, name: &str) {
    let (queue, db, policy, now) = (&desk.queue, &desk.world.db, desk.policy(), desk.now());
    let doing = retry::run(db, &policy, |tr| async move {
        let restarted = queue.restart_schedule(&tr, name, from_millis(now)).await;
        (tr, restarted)
    });
    let doing = async { doing.await.map(|done| ScheduleClaim::Restarted(done.value)) };
    report(desk, name, now, Plan::Restart, doing).await;
}

async fn fire(desk: &Desk, name: &str) {
    let (queue, db, now) = (&desk.queue, &desk.world.db, desk.now());
    let mut policy = desk.policy();
    if desk.chance(40) {
        // Then what follows the push fails, too, if a read fails.
        policy.max_attempts = Some(1);
    }
    let fired = queue.fire_schedule_with_id(db, &policy, desk.id(), name, from_millis(now), None);
    report(desk, name, now, Plan::Fire, async { fired.await.map(ScheduleClaim::ByHand) }).await;
}

/// Reads a schedule and the newest records of its history: both are as the last commit has left them, since nothing commits meanwhile.
async fn look(desk: &Desk, name: &str) {
    let k = NonZeroUsize::new(1 + desk.below(5)).unwrap();
    let tr = desk.world.db.create_trx().unwrap();
    let read = futures::future::try_join(
        desk.queue.schedule(&tr, name),
        desk.queue.schedule_history(&tr, name, None, k),
    );
    // A fault of the database may be in the way.
    let Ok((view, history)) = read.await else { return };
    let oracle = desk.world.oracle.borrow();
    let stored = oracle.model(desk.at).schedules().get(name);
    let shown = |stored: &schedules::Schedule| {
        let schedules::State { next, occurrences, last, paused, waiting, .. } = stored.state.clone();
        let waiting = waiting.map(|(nominal, _)| nominal);
        ScheduleView {
            name: name.to_owned(),
            schedule: Some(schedule(name, &stored.definition)),
            state: Some(ScheduleState {
                next: next.map(from_millis),
                occurrences,
                last: last.map(|(nominal, id)| (from_millis(nominal), id)),
                paused: paused.map(from_millis),
                waiting: waiting.map(from_millis),
            }),
        }
    };
    assert_eq!(view, stored.map(shown), "{name} is shown wrong");
    let newest = stored.into_iter().flat_map(|stored| stored.log.iter().rev()).take(k.get());
    let is_same = |(told, (number, record)): (&OccurrenceRecord, (&u64, &Record))| {
        told.number == *number && told.outcome.id() == record.id.as_ref() && is_record(told, record)
    };
    let is_right = history.len() == newest.clone().count() && history.iter().zip(newest).all(is_same);
    assert!(is_right, "the history of {name} is {history:?}, and {stored:?} is stored");
    desk.world.count_if(view.is_some(), "a schedule and its history are read");
}

/// Does something to a schedule, and reports the result.
async fn report(
    desk: &Desk,
    name: &str,
    now: Millis,
    plan: Plan,
    doing: impl Future<Output = Result<ScheduleClaim, RetryError>>,
) {
    let intent = Intent::Schedule { name: name.to_owned(), now, plan };
    let (operation, done) = desk.run(intent, doing).await;
    match done {
        Some(Ok(claim)) => desk.told(&operation, &Claim::Schedule(claim)),
        Some(Err(error)) => desk.told(&operation, &failed(&error)),
        None => {}
    }
}
