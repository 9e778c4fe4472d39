//! Programs that the tests of `tests/it` run as processes of their own: a daemon with a handler of a test's,
//! say, or a worker that dies with items in hand. `kvqueue-test-helper PROGRAM [ARGUMENT...]` runs one;
//! `crate::support::helper` of the tests makes the command.

#![expect(clippy::unwrap_used, reason = "a program of the tests fails by panicking")]

mod blocked;
mod cancels;
mod chaos;
mod dead;
mod exactly_once;
mod faults;
mod http {
    pub(crate) mod hostile;
}
mod idle;
mod leases;
mod migrate {
    pub(crate) mod clusters;
    pub(crate) mod items;
    pub(crate) mod others;
}
mod panics;
mod recount;
mod reload {
    pub(crate) mod load;
    pub(crate) mod races;
}
mod results;
mod schedule_commands;
mod schedules;
mod sharing;
mod support;
mod sweeping;
mod systemd {
    pub(crate) mod stuck;
    pub(crate) mod well;
}
mod transfer {
    pub(crate) mod requeue;
}

/// Names and functions of programs.
macro_rules! programs {
    ($($first:ident $(:: $rest:ident)+),* $(,)?) => {
        &[$((concat!(stringify!($first) $(, "::", stringify!($rest))+), $first $(:: $rest)+ as fn())),*]
    };
}

const PROGRAMS: &[(&str, fn())] = programs![
    blocked::daemon,
    blocked::overdue,
    cancels::daemon,
    cancels::effects,
    dead::buries,
    dead::damages,
    dead::damage_ready,
    exactly_once::each,
    exactly_once::whole,
    exactly_once::slow,
    exactly_once::effects,
    faults::daemon,
    faults::disk_failure,
    faults::takes_that_meet_conflicts,
    http::hostile::daemon,
    idle::together,
    idle::wake,
    leases::late,
    leases::daemon,
    migrate::clusters::runs_ahead,
    migrate::items::fills,
    migrate::items::works_off,
    migrate::others::pushes,
    migrate::others::holds,
    migrate::others::pauses,
    panics::handler,
    panics::consumer_panics_twice,
    panics::consumer_panics_during_a_fetch,
    panics::fetcher_panics,
    panics::consumer_keeps_panicking,
    panics::consumer_panics_in_drain,
    recount::lose_places,
    recount::miscount,
    reload::load::print,
    reload::races::panic_on_leaving,
    results::daemon,
    results::slow,
    schedule_commands::configured,
    schedules::put,
    schedules::show,
    sharing::at_least_once,
    sharing::exactly_once,
    sharing::panics,
    support::freeze,
    sweeping::die_with_items,
    sweeping::break_lease,
    sweeping::duty,
    systemd::stuck::take_lost,
    systemd::stuck::end_of_dispatch_lost,
    systemd::stuck::wakening_lost,
    systemd::stuck::thread_blocked,
    systemd::well::impatient,
    systemd::well::takes_one_after_the_other,
    transfer::requeue::take_and_die,
    chaos::audit,
    chaos::daemon,
    chaos::puller,
];

fn main() {
    let name = std::env::args().nth(1).expect("the first argument is the name of a program");
    let (_, program) = PROGRAMS
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("there is no program {name}"));
    program();
}
