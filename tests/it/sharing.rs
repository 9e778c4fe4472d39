//! Consumers that share takes and leases, and take ahead: none of them waits for another's handler.

use std::process::Command;

use crate::support::{Background, Database, helper, run};

/// Items other than the slow one.
const QUICK: usize = 400;

/// A daemon whose handler keeps one item until it has handled the others.
fn program(db: &Database, name: &str) -> Command {
    let mut command = helper(db, name);
    command.arg(QUICK.to_string());
    command
}

#[test]
fn consumers_that_panic_cost_the_others_no_item() {
    let db = Database::new();
    let items: Vec<String> = (0..QUICK).map(|number| format!("item-{number}-")).collect();
    let args = ["push", "q"].into_iter().chain(items.iter().map(String::as_str));
    run(&db, &args.collect::<Vec<_>>()).ok();
    let ran = Background::start(program(&db, "sharing::panics")).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.events("consumer_restarted"), 4, "{ran:?}");
    for item in items {
        assert_eq!(ran.stdout.matches(&item).count(), 1, "{item} of {ran:?}");
    }
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

/// Whatever shares a lease with the slow item, or was taken ahead behind it, is handled while it is; without another attempt.
fn check_that_no_item_waits(name: &str) {
    let db = Database::new();
    let item = |number: usize| if number == QUICK / 2 { "slow".to_owned() } else { format!("item-{number}") };
    let items: Vec<String> = (0..=QUICK).map(item).collect();
    let args = ["push", "q"].into_iter().chain(items.iter().map(String::as_str));
    run(&db, &args.collect::<Vec<_>>()).ok();
    let ran = Background::start(program(&db, name)).end();
    let lines = |what: &str| ran.stdout.lines().filter(|line| line.contains(what)).count();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(lines("in attempt 1"), QUICK, "{ran:?}");
    assert_eq!((lines("in attempt"), lines("slow ends last")), (QUICK, 1), "{ran:?}");
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn no_item_waits_for_a_slow_item_at_least_once() {
    check_that_no_item_waits("sharing::at_least_once");
}

#[test]
fn no_item_waits_for_a_slow_item_exactly_once() {
    check_that_no_item_waits("sharing::exactly_once");
}
