//! Chaos: producers and daemons in many processes that are killed, stopped and terminated at random, the host of an embedded database
//! among them. At the end the books have to add up: nothing acknowledged is lost, nothing came out that was not pushed, and nothing
//! happened more often than its delivery allows. Cancelled, expired and replaced items are in the books, too; each time of a schedule is
//! accounted for once, each batch calls back once, and a history has each ended item once.
//!
//! ```sh
//! cargo test --test it chaos -- --nocapture                       # some seconds of it
//! KVQUEUE_TEST_SECONDS=300 cargo test --test it chaos             # five minutes
//! KVQUEUE_TEST_SEED=N cargo test --test it chaos                  # the same queues, errands and faults again
//! KVQUEUE_TEST_CLUSTER_FILE=... FDB_CLIENT_LIB=... KVQUEUE_TEST_CLUSTER_RESTART='COMMAND' cargo test --test it chaos
//! KVQUEUE_TEST_CLUSTER_FILE=... FDB_CLIENT_LIB=... KVQUEUE_TEST_CLUSTER_RECOVER='COMMAND' cargo test --test it chaos
//! ```
//!
//! The seed decides who is hurt when; what the processes are doing at that moment is up to the machine.

mod arena;
mod audit;
mod errand;
mod ledger;
mod payload;
mod plan;
mod process;
mod producers;
mod records;
mod schedule;
mod storm;

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use self::{
    arena::{Arena, now},
    ledger::{Account, Books, Rest, check_batches},
    payload::Name,
    plan::{Crew, PULLED, Worker},
    process::End,
    records::Record,
    storm::{Batch, Storm},
};
use crate::support::{PATIENCE, Random};

/// How long the storm lasts, unless `KVQUEUE_TEST_SECONDS` says so.
const SECONDS: u64 = 8;

#[test]
fn chaos_loses_and_invents_no_items() {
    let given = std::env::var("KVQUEUE_TEST_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let time = Duration::from_secs(given.unwrap_or(SECONDS));
    let seed = Random::seed();
    println!("KVQUEUE_TEST_SEED={seed} KVQUEUE_TEST_SECONDS={} cargo test --test it chaos", time.as_secs());
    let mut random = Random::seeded(seed);
    let began = Instant::now();
    let arena = Arena::new(&mut random);
    let mut storm = Storm::new(&arena, random.branch());
    storm.rage(time);
    let patience = PATIENCE + time;
    storm.calm(patience);
    let end = now();
    drain(&arena, &storm.batches, end, patience);
    close(&arena, &storm, began, end);
}

/// Processes the rest, after the batches have called back and the schedule has fired until `end`, a time in ms.
fn drain(arena: &Arena, batches: &[Batch], end: u64, patience: Duration) {
    drain_pulled(arena, batches, end, patience);
    arena.pause_schedule();
    let mut daemons = Worker::ALL.map(|worker| arena.daemon(worker, 0, true));
    for daemon in &mut daemons {
        // A poisonous item may have been left.
        let mut end = daemon.wait_for(patience);
        while end == End::Killed {
            *daemon = arena.daemon(Worker::Helper, 0, true);
            end = daemon.wait_for(patience);
        }
        assert_eq!(end, End::Done, "{} did not process what was left", daemon.name);
    }
}

/// Processes the rest of the queue of workers over HTTP, while a daemon fires the schedule and pushes callbacks.
fn drain_pulled(arena: &Arena, batches: &[Batch], end: u64, patience: Duration) {
    let mut daemon = arena.daemon(Worker::Helper, 0, false);
    // An item that has outlived leases is leased alone, so several workers.
    let _pullers = [1, 2, 3, 4].map(|number| arena.daemon(Worker::Puller, number, false));
    let deadline = Instant::now() + patience;
    while !(arena.is_at_rest(PULLED) && arena.has_fired_until(end) && arena.have_called_back(batches)) {
        assert!(
            Instant::now() < deadline,
            "{PULLED} was not processed, the schedule does not fire, or a batch does not call back"
        );
        // A poisonous item of another queue may have been left.
        if daemon.ended().is_some() {
            daemon = arena.daemon(Worker::Helper, 0, false);
        }
        thread::sleep(Duration::from_millis(100));
    }
    daemon.signal(Signal::TERM);
    daemon.wait();
}

fn close(arena: &Arena, storm: &Storm<'_>, began: Instant, end: u64) {
    let (fired, mut wrong) = arena.fired(end);
    let books = books(arena, storm, &fired);
    let mut total = Account::default();
    for books in &books {
        let account = books.close();
        println!("{}: {account}", books.queue.name);
        total += account;
    }
    let (faults, batches, time) = (storm.faults, storm.batches.len(), began.elapsed().as_secs_f64());
    println!("chaos: {total}; {batches} batches; {faults}; {time:.0} s");
    wrong.extend(total.wrong);
    wrong.extend(check_batches(&storm.batches, &books));
    wrong.extend(storm.failed.iter().map(|name| {
        format!("{name} failed though nobody hurt it; it said last:\n{}", arena.last_words(name))
    }));
    let lost = arena.lost_leases(Worker::Steady);
    wrong.extend(arena.left_over());
    wrong.extend(lost.into_iter().map(|line| format!("a living holder lost its lease: {line}")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The books of all queues.
fn books(arena: &Arena, storm: &Storm<'_>, (fired, forgotten_before): &(BTreeSet<Name>, u64)) -> Vec<Books> {
    let (records, printed) = (arena.recorded(), arena.printed());
    let nobody = Name { queue: usize::MAX, producer: 0, place: 0 };
    // The history of the schedule does not have all times of a long run.
    let forgotten = || {
        let handled = records.iter().filter_map(|record| match record {
            Record::Handled { name, .. } => Some(*name),
            Record::Called { .. } | Record::Nonsense(_) => None,
        });
        let cancelled = storm.cancellations.iter().map(|cancellation| cancellation.name);
        handled
            .chain(cancelled)
            .filter(|name| schedule::time(*name).is_some_and(|time| time < *forgotten_before))
    };
    let of = |(place, rest): (usize, Rest)| {
        let is_here = |name: &Name| name.queue == place || (place == 0 && name.queue >= arena.queues.len());
        let queue = arena.queues[place].clone();
        let is_recorded = |record: &&Record| match record {
            Record::Handled { name, .. } | Record::Called { name, .. } => is_here(name),
            Record::Nonsense(_) => place == 0,
        };
        let calls = |is_certain: bool| {
            let calls = storm.batches.iter().filter(move |batch| batch.id.is_some() == is_certain);
            calls.map(|batch| batch.callback).filter(is_here)
        };
        Books {
            pushed: storm.pushed.iter().filter(|pushed| pushed.errand.queue == place).cloned().collect(),
            fired: fired.iter().copied().filter(is_here).chain(calls(true)).collect(),
            perhaps: calls(false).chain(forgotten().filter(is_here)).collect(),
            retried: storm.retried.contains(&queue.name),
            records: records.iter().filter(is_recorded).cloned().collect(),
            printed: printed
                .iter()
                .filter(|text| is_here(text.as_ref().unwrap_or(&nobody)))
                .cloned()
                .collect(),
            cancellations: storm.cancellations.iter().filter(|it| is_here(&it.name)).cloned().collect(),
            history: queue.history.then(|| audit::history(arena, &queue)),
            rest,
            killed: if queue.crew == Crew::Keepers { 0 } else { storm.killed_daemons },
            queue,
        }
    };
    audit::audit(arena).into_iter().enumerate().map(of).collect()
}
